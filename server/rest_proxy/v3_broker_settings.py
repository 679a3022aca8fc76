"""The part of v3 that is configuration here: the settings of brokers.

A broker's settings are read from its configuration file at the start, so there are no dynamic settings to list or
change. Requests to change them are refused as by a Kafka cluster that does not allow it, so that a program sees a
specific error, not a missing path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..http.context import HttpContext
from ..http.requests import read_json
from .proxied_log import ProxiedLog
from .proxy_errors import INVALID_REQUEST, ProxyRefusal
from .v3_cluster import broker_config
from .v3_resources import NOT_FOUND, Clusters, Links, v3_answer, v3_json

_CLUSTER = "/v3/clusters/{cluster_id}"
_BROKERS = f"{_CLUSTER}/brokers"
_SETTINGS = "The settings of brokers are in the server's configuration file, and are read when it starts."


class V3BrokerSettings:
    """Each method answers one route, or several in the same way."""

    def __init__(self, context: HttpContext, log: ProxiedLog, clusters: Clusters) -> None:
        self._context, self._log, self._clusters = context, log, clusters

    def routes(self) -> list[Route]:
        settings = self._refusing(_SETTINGS)
        broker = f"{_BROKERS}/{{broker_id}}"
        answers: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
            (f"{_BROKERS}/-/configs", "GET", self.all_configs),
            (f"{_CLUSTER}/broker-configs", "GET", self.defaults),
            (f"{_CLUSTER}/broker-configs/{{name}}", "GET", self.default),
            *((f"{_CLUSTER}/broker-configs/{{name}}", method, settings) for method in ("PUT", "DELETE")),
            *((f"{broker}/configs/{{name}}", method, settings) for method in ("PUT", "DELETE")),
            *((f"{path}:alter", "POST", settings) for path in (f"{_CLUSTER}/broker-configs", f"{broker}/configs")),
        )
        return [Route(path, v3_answer(answer), methods=[method]) for path, method, answer in answers]

    async def all_configs(self, request: Request) -> Response:
        def look(links: Links) -> dict[str, Any]:
            cluster = self._log.log.cluster
            data = [
                broker_config(links, broker.node, setting)
                for broker in cluster.brokers().brokers
                for setting in cluster.broker_settings(broker.node)
            ]
            return links.collection("KafkaBrokerConfigList", ("brokers", "-", "configs"), data)

        return await self._answer(request, look)

    async def defaults(self, request: Request) -> Response:
        return await self._answer(
            request, lambda links: links.collection("KafkaClusterConfigList", ("broker-configs",), [])
        )

    async def default(self, request: Request) -> Response:
        def look(links: Links) -> dict[str, Any]:
            del links
            name = request.path_params["name"]
            raise ProxyRefusal(NOT_FOUND, f"Config {name[:100]} cannot be found for the cluster: none is set for all.")

        return await self._answer(request, look)

    def _refusing(self, message: str) -> Callable[[Request], Awaitable[Response]]:
        async def refuse(request: Request) -> Response:
            def look(links: Links) -> dict[str, Any]:
                del links
                raise ProxyRefusal(INVALID_REQUEST, message)

            await read_json(request, self._context.body_bytes_max)
            return await self._answer(request, look)

        return refuse

    async def _answer(self, request: Request, look: Callable[[Links], dict[str, Any]]) -> Response:
        return v3_json(await self._context.workers.run(lambda: look(self._clusters.links(request))))
