"""/v3/clusters and its brokers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...logcore.clients.remote_cluster import BrokerPlace, Brokers, SettingValue
from ..http.context import HttpContext, rights_of
from .proxied_log import ProxiedLog
from .proxy_errors import ProxyRefusal
from .v3_resources import NOT_FOUND, Answer, Clusters, Links, v3_answer, v3_json
from .v3_topics import replica, setting_members

_CLUSTER = "/v3/clusters/{cluster_id}"
_BROKER = f"{_CLUSTER}/brokers/{{broker_id}}"


class V3Cluster:
    """Each method answers one route."""

    def __init__(self, context: HttpContext, log: ProxiedLog, clusters: Clusters) -> None:
        self._context, self._log, self._clusters = context, log, clusters

    def routes(self) -> Sequence[Route]:
        answers: tuple[tuple[str, Answer], ...] = (
            ("/v3/clusters", self.list),
            (_CLUSTER, self.get),
            (f"{_CLUSTER}/brokers", self.brokers),
            (_BROKER, self.broker),
            (f"{_BROKER}/configs", self.configs),
            (f"{_BROKER}/configs/{{name}}", self.config),
            (f"{_BROKER}/partition-replicas", self.replicas),
        )
        return [Route(path, v3_answer(answer), methods=["GET"]) for path, answer in answers]

    async def list(self, request: Request) -> Response:
        def look(links: Links, brokers: Brokers) -> dict[str, Any]:
            found = links.collection("KafkaClusterList", (), [_cluster(links, brokers)])
            return {**found, "metadata": {"self": f"{links.base}/v3/clusters", "next": None}}

        return await self._answer(request, look)

    async def get(self, request: Request) -> Response:
        return await self._answer(request, _cluster)

    async def brokers(self, request: Request) -> Response:
        def look(links: Links, brokers: Brokers) -> dict[str, Any]:
            return links.collection(
                "KafkaBrokerList", ("brokers",), [_broker(links, broker) for broker in brokers.brokers]
            )

        return await self._answer(request, look)

    async def broker(self, request: Request) -> Response:
        return await self._answer(request, lambda links, brokers: _broker(links, _found(request, brokers)))

    async def configs(self, request: Request) -> Response:
        def look(links: Links, brokers: Brokers) -> dict[str, Any]:
            node = _found(request, brokers).node
            settings = self._log.log.cluster.broker_settings(node)
            path = ("brokers", node, "configs")
            return links.collection(
                "KafkaBrokerConfigList", path, [broker_config(links, node, each) for each in settings]
            )

        return await self._answer(request, look)

    async def config(self, request: Request) -> Response:
        name = request.path_params["name"]

        def look(links: Links, brokers: Brokers) -> dict[str, Any]:
            node = _found(request, brokers).node
            settings = self._log.log.cluster.broker_settings(node)
            found = next((each for each in settings if each.name == name), None)
            if found is None:
                raise ProxyRefusal(NOT_FOUND, f"Config {name[:100]} cannot be found for broker {node}.")
            return broker_config(links, node, found)

        return await self._answer(request, look)

    async def replicas(self, request: Request) -> Response:
        rights = rights_of(request.scope)

        def look(links: Links, brokers: Brokers) -> dict[str, Any]:
            node = _found(request, brokers).node
            data = [
                replica(links, topic.name, partition, node)
                for topic in self._log.log.cluster.topics()
                if self._log.sees(rights, topic.name)
                for partition in topic.partitions
                if node in partition.replicas
            ]
            return links.collection("KafkaReplicaList", ("brokers", node, "partition-replicas"), data)

        return await self._answer(request, look)

    async def _answer(self, request: Request, look: Callable[[Links, Brokers], dict[str, Any]]) -> Response:
        def answer() -> dict[str, Any]:
            return look(self._clusters.links(request), self._log.log.cluster.brokers())

        return v3_json(await self._context.workers.run(answer))


def _cluster(links: Links, brokers: Brokers) -> dict[str, Any]:
    controller = {} if brokers.controller is None else {"controller": links.related("brokers", brokers.controller)}
    return links.resource(
        "KafkaCluster", (), (), **controller,
        acls=links.related("acls"), brokers=links.related("brokers"), broker_configs=links.related("broker-configs"),
        consumer_groups=links.related("consumer-groups"), topics=links.related("topics"),
        partition_reassignments=links.related("topics", "-", "partitions", "-", "reassignment"),
    )  # fmt: skip


def _broker(links: Links, broker: BrokerPlace) -> dict[str, Any]:
    path = ("brokers", broker.node)
    return links.resource(
        "KafkaBroker", path, ("broker", broker.node),
        broker_id=broker.node, host=broker.host or None, port=broker.port or None, rack=broker.rack,
        configs=links.related(*path, "configs"), partition_replicas=links.related(*path, "partition-replicas"),
    )  # fmt: skip


def broker_config(links: Links, node: int, setting: SettingValue) -> dict[str, Any]:
    path, name = ("brokers", node, "configs", setting.name), ("broker", node, "config", setting.name)
    return links.resource("KafkaBrokerConfig", path, name, broker_id=node, **setting_members(setting))


def _found(request: Request, brokers: Brokers) -> BrokerPlace:
    """The broker in the path. Raises `ProxyRefusal`."""
    asked = request.path_params["broker_id"]
    found = next((broker for broker in brokers.brokers if str(broker.node) == asked), None)
    if found is None:
        raise ProxyRefusal(NOT_FOUND, f"Broker {asked[:100]} cannot be found.")
    return found
