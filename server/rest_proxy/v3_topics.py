"""/v3/clusters/ID/topics: topics, their settings, partitions and replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...logcore.clients.remote_cluster import PartitionPlace, SettingValue, TopicPlace, TopicToCreate
from ...logcore.errors import TopicExists
from ...logcore.protocol.security.authorized_operations import on_topic
from ...sql.settings.property import says_true
from ..http.context import HttpContext, rights_of
from ..security.rights import Rights
from .proxied_log import ProxiedLog
from .proxy_errors import BAD_REQUEST, CONSTRAINT, INVALID_REQUEST, ProxyRefusal, no_partition
from .proxy_requests import flag_in, number_in, objects_in, read_body, text_in, whole_number
from .v3_resources import NOT_FOUND, Answer, Clusters, Links, v3_answer, v3_json

_TOPICS: Final = "/v3/clusters/{cluster_id}/topics"
_TOPIC: Final = f"{_TOPICS}/{{topic_name}}"
_CONFIG: Final = f"{_TOPIC}/configs/{{name}}"
_PARTITION: Final = f"{_TOPIC}/partitions/{{partition_id}}"
_SETTINGS_MAX: Final = 1000
_PARTITIONS_MAX: Final = 10_000


class V3Topics:
    """Each method answers one route."""

    def __init__(self, context: HttpContext, log: ProxiedLog, clusters: Clusters) -> None:
        self._context, self._log, self._clusters = context, log, clusters

    def routes(self) -> Sequence[Route]:
        answers: tuple[tuple[str, str, Answer], ...] = (
            (_TOPICS, "GET", self.list),
            (_TOPICS, "POST", self.create),
            (f"{_TOPICS}/-/configs", "GET", self.all_configs),
            (_TOPIC, "GET", self.get),
            (_TOPIC, "PATCH", self.add_partitions),
            (_TOPIC, "DELETE", self.delete),
            (f"{_TOPIC}/configs", "GET", self.configs),
            (f"{_TOPIC}/configs:alter", "POST", self.alter_configs),
            (_CONFIG, "GET", self.config),
            (_CONFIG, "PUT", self.set_config),
            (_CONFIG, "DELETE", self.reset_config),
            (f"{_TOPIC}/partitions", "GET", self.partitions),
            (_PARTITION, "GET", self.partition),
            (f"{_PARTITION}/offset", "GET", self.offsets),
            (f"{_PARTITION}/replicas", "GET", self.replicas),
            (f"{_PARTITION}/replicas/{{broker_id}}", "GET", self.replica),
        )
        return [Route(path, v3_answer(answer), methods=[method]) for path, method, answer in answers]

    # Topics

    async def list(self, request: Request) -> Response:
        rights = rights_of(request.scope)

        def look(links: Links) -> dict[str, Any]:
            found = [topic for topic in self._log.log.cluster.topics() if self._log.sees(rights, topic.name)]
            asked = _asked_operations(request, rights)
            return links.collection(
                "KafkaTopicList", ("topics",), [_topic(links, topic) | asked(topic.name) for topic in found]
            )

        return await self._answer(request, look)

    async def get(self, request: Request) -> Response:
        name = self._seen(request)
        asked = _asked_operations(request, rights_of(request.scope))
        return await self._answer(request, lambda links: _topic(links, self._log.place(name)) | asked(name))

    async def create(self, request: Request) -> Response:
        rights = rights_of(request.scope)
        _, body = await read_body(request, self._context.body_bytes_max)
        new, only_check = _new_topic(body), flag_in(body, "validate_only")
        self._log.check_change(rights, new.name)
        self._log.check_settings(new.config or ())

        def create(links: Links) -> dict[str, Any]:
            try:
                self._log.log.cluster.create(new, only_check=only_check)
            except TopicExists:
                raise ProxyRefusal(INVALID_REQUEST, f"Topic '{new.name}' already exists.") from None
            place = None if only_check else self._log.log.cluster.topic(new.name)
            return _topic(links, _as_asked(new) if place is None else place)

        return await self._answer(request, create, 200 if only_check else 201)

    async def add_partitions(self, request: Request) -> Response:
        name = self._changed(request)
        _, body = await read_body(request, self._context.body_bytes_max)
        count = number_in(body, "partitions_count", least=1, most=_PARTITIONS_MAX)
        if count is None:
            raise ProxyRefusal(CONSTRAINT, "partitions_count may not be null")

        def add(links: Links) -> dict[str, Any]:
            self._log.log.add_partitions(name, count)
            return _topic(links, self._log.place(name))

        return await self._answer(request, add)

    async def delete(self, request: Request) -> Response:
        name = self._changed(request)
        return await self._done(request, lambda links: self._log.log.delete_topic(name))

    # Settings

    async def configs(self, request: Request) -> Response:
        name = self._seen(request)

        def look(links: Links) -> dict[str, Any]:
            settings = self._log.log.cluster.settings(self._log.place(name).name)
            path = ("topics", name, "configs")
            return links.collection("KafkaTopicConfigList", path, [_config(links, name, each) for each in settings])

        return await self._answer(request, look)

    async def all_configs(self, request: Request) -> Response:
        rights = rights_of(request.scope)

        def look(links: Links) -> dict[str, Any]:
            cluster = self._log.log.cluster
            data = [
                _config(links, topic.name, setting)
                for topic in cluster.topics()
                if self._log.sees(rights, topic.name)
                for setting in cluster.settings(topic.name)
            ]
            return links.collection("KafkaTopicConfigList", ("topics", "-", "configs"), data)

        return await self._answer(request, look)

    async def config(self, request: Request) -> Response:
        name, setting = self._seen(request), request.path_params["name"]
        return await self._answer(request, lambda links: _config(links, name, self._setting(name, setting)))

    async def set_config(self, request: Request) -> Response:
        name, setting = self._changed(request), request.path_params["name"]
        _, body = await read_body(request, self._context.body_bytes_max)
        return await self._change(request, name, {setting: text_in(body, "value")})

    async def reset_config(self, request: Request) -> Response:
        return await self._change(request, self._changed(request), {request.path_params["name"]: None})

    async def alter_configs(self, request: Request) -> Response:
        name = self._changed(request)
        _, body = await read_body(request, self._context.body_bytes_max)
        changes: dict[str, str | None] = {}
        for each in objects_in(body, "data", _SETTINGS_MAX):
            setting, operation = text_in(each, "name"), text_in(each, "operation") or "SET"
            if not setting or operation not in ("SET", "DELETE"):
                raise ProxyRefusal(BAD_REQUEST, "Bad Request: a change has a name, and an operation SET or DELETE")
            changes[setting] = None if operation == "DELETE" else text_in(each, "value")
        return await self._change(request, name, changes, only_check=flag_in(body, "validate_only"))

    async def _change(
        self, request: Request, topic: str, changes: dict[str, str | None], *, only_check: bool = False
    ) -> Response:
        """Changes settings; None resets one to its default."""
        self._log.check_settings(changes)

        def change(links: Links) -> None:
            for setting in changes:
                self._setting(topic, setting)
            if changes:
                self._log.log.cluster.change_settings(topic, changes, only_check=only_check)

        return await self._done(request, change)

    def _setting(self, topic: str, name: str) -> SettingValue:
        """Raises `ProxyRefusal`."""
        settings = self._log.log.cluster.settings(self._log.place(topic).name)
        found = next((each for each in settings if each.name == name), None)
        if found is None:
            raise ProxyRefusal(NOT_FOUND, f"Config {name[:100]} cannot be found for topic {topic}.")
        return found

    # Partitions

    async def partitions(self, request: Request) -> Response:
        name = self._seen(request)

        def look(links: Links) -> dict[str, Any]:
            place = self._log.place(name)
            path = ("topics", name, "partitions")
            return links.collection("KafkaPartitionList", path, [_partition(links, name, p) for p in place.partitions])

        return await self._answer(request, look)

    async def partition(self, request: Request) -> Response:
        name = self._seen(request)
        return await self._answer(request, lambda links: _partition(links, name, self._partition(request, name)))

    async def offsets(self, request: Request) -> Response:
        name = self._seen(request)
        wanted = request.query_params.get("offset_type", "earliest_and_latest")
        if wanted != "earliest_and_latest":
            raise ProxyRefusal(BAD_REQUEST, f"Bad Request: offset_type:{wanted[:100]} is invalid")

        def look(links: Links) -> dict[str, Any]:
            number = self._partition(request, name).partition
            offsets = self._log.log.offsets(name, number)
            return links.resource(
                "KafkaPartitionWithOffsets", ("topics", name, "partitions", number, "offset"),
                ("topic", name, "partition", number, "offset_type", wanted),
                topic_name=name, partition_id=number,
                earliest_offset=offsets.log_start_offset, latest_offset=offsets.high_watermark,
            )  # fmt: skip

        return await self._answer(request, look)

    async def replicas(self, request: Request) -> Response:
        name = self._seen(request)

        def look(links: Links) -> dict[str, Any]:
            place = self._partition(request, name)
            path = ("topics", name, "partitions", place.partition, "replicas")
            return links.collection(
                "KafkaReplicaList", path, [replica(links, name, place, node) for node in place.replicas]
            )

        return await self._answer(request, look)

    async def replica(self, request: Request) -> Response:
        name, asked = self._seen(request), request.path_params["broker_id"]

        def look(links: Links) -> dict[str, Any]:
            place = self._partition(request, name)
            node = next((node for node in place.replicas if str(node) == asked), None)
            if node is None:
                raise ProxyRefusal(NOT_FOUND, f"Replica {asked[:100]} cannot be found.")
            return replica(links, name, place, node)

        return await self._answer(request, look)

    def _partition(self, request: Request, topic: str) -> PartitionPlace:
        """The partition in the path. Raises `ProxyRefusal`."""
        asked = request.path_params["partition_id"]
        found = next((each for each in self._log.place(topic).partitions if str(each.partition) == asked), None)
        if found is None:
            raise no_partition()
        return found

    # Common to all

    def _seen(self, request: Request) -> str:
        """The topic in the path. Raises `NotPermitted`."""
        name = request.path_params["topic_name"]
        self._log.check_seen(rights_of(request.scope), name)
        return name

    def _changed(self, request: Request) -> str:
        """The topic in the path, for changing it. Raises `NotPermitted`."""
        name = request.path_params["topic_name"]
        self._log.check_change(rights_of(request.scope), name)
        return name

    async def _answer(self, request: Request, look: Callable[[Links], dict[str, Any]], status: int = 200) -> Response:
        return v3_json(await self._context.workers.run(lambda: look(self._clusters.links(request))), status)

    async def _done(self, request: Request, act: Callable[[Links], None]) -> Response:
        await self._context.workers.run(lambda: act(self._clusters.links(request)))
        return Response(status_code=204)


def _new_topic(body: dict[str, Any]) -> TopicToCreate:
    """Raises `ProxyRefusal`."""
    name = text_in(body, "topic_name")
    if not name:
        raise ProxyRefusal(CONSTRAINT, "topic_name may not be empty")
    count = number_in(body, "partitions_count", least=1, most=_PARTITIONS_MAX)
    factor = number_in(body, "replication_factor", least=1, most=2**15 - 1)
    config: dict[str, str] = {}
    for each in objects_in(body, "configs", _SETTINGS_MAX, needed=False):
        setting, value = text_in(each, "name"), text_in(each, "value")
        if not setting:
            raise ProxyRefusal(CONSTRAINT, "a config has a name")
        if value is not None:
            config[setting] = value
    assignments = _assignments(body.get("replicas_assignments"))
    if assignments and (count is not None or factor is not None):
        raise ProxyRefusal(BAD_REQUEST, "Bad Request: replicas_assignments say partitions_count and replication_factor")
    usual = TopicToCreate(name)
    return TopicToCreate(
        name,
        usual.partition_count if count is None else count,
        usual.replication_factor if factor is None else factor,
        config,
        assignments,
    )


def _assignments(given: Any) -> dict[int, list[int]] | None:
    """Brokers by partition. Raises `ProxyRefusal`."""
    if given is None or given == {}:
        return None
    if not isinstance(given, dict) or not all(isinstance(brokers, list) for brokers in given.values()):
        raise ProxyRefusal(BAD_REQUEST, "Bad Request: replicas_assignments are lists of brokers by partition")
    return {
        whole_number(partition, "replicas_assignments", most=_PARTITIONS_MAX): [
            whole_number(broker, "replicas_assignments", most=2**31 - 1) for broker in brokers
        ]
        for partition, brokers in given.items()
    }


def _as_asked(new: TopicToCreate) -> TopicPlace:
    """The topic that a request would create; the defaults of the brokers are unknown."""
    placed = new.assignments or dict.fromkeys(range(max(new.partition_count, 1)), [0] * max(new.replication_factor, 1))
    return TopicPlace(
        new.name, False, tuple(PartitionPlace(number, None, tuple(nodes), ()) for number, nodes in placed.items())
    )


def _asked_operations(request: Request, rights: Rights) -> Callable[[str], dict[str, list[str]]]:
    """The operations that the user may perform on a topic, if the request asks for them."""
    if not says_true(request.query_params.get("include_authorized_operations")):
        return lambda topic: {}

    return lambda topic: {
        "authorized_operations": sorted(each.name for each in on_topic(rights.has_access, topic)),
    }


def _topic(links: Links, topic: TopicPlace) -> dict[str, Any]:
    path = ("topics", topic.name)
    return links.resource(
        "KafkaTopic", path, ("topic", topic.name),
        topic_name=topic.name, is_internal=topic.internal, replication_factor=topic.replication_factor,
        partitions_count=len(topic.partitions), partitions=links.related(*path, "partitions"),
        configs=links.related(*path, "configs"),
        partition_reassignments=links.related(*path, "partitions", "-", "reassignment"),
    )  # fmt: skip


def _config(links: Links, topic: str, setting: SettingValue) -> dict[str, Any]:
    path, name = ("topics", topic, "configs", setting.name), ("topic", topic, "config", setting.name)
    return links.resource("KafkaTopicConfig", path, name, topic_name=topic, **setting_members(setting))


def setting_members(setting: SettingValue) -> dict[str, Any]:
    """The members that settings of topics and brokers have in common."""
    return {
        "name": setting.name,
        "value": setting.value,
        "is_default": setting.is_default,
        "is_read_only": setting.read_only,
        "is_sensitive": setting.sensitive,
        "source": setting.source,
        "synonyms": [{"name": name, "value": value, "source": source} for name, value, source in setting.synonyms],
    }


def _partition(links: Links, topic: str, place: PartitionPlace) -> dict[str, Any]:
    path = ("topics", topic, "partitions", place.partition)
    leader = {} if place.leader is None else {"leader": links.related(*path, "replicas", place.leader)}
    return links.resource(
        "KafkaPartition", path, ("topic", topic, "partition", place.partition),
        topic_name=topic, partition_id=place.partition, **leader,
        replicas=links.related(*path, "replicas"), reassignment=links.related(*path, "reassignment"),
    )  # fmt: skip


def replica(links: Links, topic: str, place: PartitionPlace, node: int) -> dict[str, Any]:
    return links.resource(
        "KafkaReplica", ("topics", topic, "partitions", place.partition, "replicas", node),
        ("topic", topic, "partition", place.partition, "replica", node),
        topic_name=topic, partition_id=place.partition, broker_id=node,
        is_leader=node == place.leader, is_in_sync=node in place.in_sync, broker=links.related("brokers", node),
    )  # fmt: skip
