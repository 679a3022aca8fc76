"""/consumers of v2: consumer instances, their subscriptions, positions and records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...logcore.client import Isolation, TopicPartition
from ...logcore.clients.consumer import Reset
from ...logcore.cores.group_messages import CommitNote
from ...logcore.cores.patterns import InvalidPattern, NamePattern
from ...sql.settings.property_table import OFFSET_RESET
from ..http.context import HttpContext, Workers, rights_of
from ..http.requests import read_json
from ..security.rights import Rights
from .bounded_body import BoundedBody, Room
from .consumer_instances import ConsumerInstance, ConsumerInstances, InstanceSettings, illegal_state
from .embedded_formats import V2_FORMATS
from .proxied_log import ProxiedLog
from .proxy_errors import (
    BAD_REQUEST,
    CONSTRAINT,
    FORMAT_MISMATCH,
    INVALID_CONSUMER,
    ProxyRefusal,
    no_partition,
)
from .proxy_requests import flag_in, number_in, objects_in, read_body, text_in, whole_number
from .reading import BYTES_DEFAULT, BYTES_MAX, InstanceReader
from .v2_topics import v2_answer, v2_json

T = TypeVar("T")

READS_MAX: Final = 32
"""Reads at a time; as many again may wait, and others are refused."""
UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
_WAIT_MS_MAX: Final = 30_000
_PARTITIONS_MAX: Final = 1000
_NAME_MAX: Final = 255
_OFFSET_MAX: Final = 2**63 - 2
_RESETS: Final[Mapping[str, Reset]] = {"earliest": "earliest", "latest": "latest", "none": "error"}
_ISOLATIONS: Final[tuple[Isolation, ...]] = ("read_committed", "read_uncommitted")
_CREATION: Final = frozenset(
    {
        "id", "name", "format", OFFSET_RESET.name, "auto.commit.enable", "fetch.min.bytes", "responseMinBytes",
        "consumer.request.timeout.ms", "requestWaitMs", "isolation.level",
    }
)  # fmt: skip
_FORMATS: Final = {format.value.lower(): format for format in V2_FORMATS}
_INSTANCE: Final = "/consumers/{group}/instances/{instance}"


class V2Consumers:
    """Each method answers one route. Reads have separate threads, because they wait for records."""

    def __init__(
        self, context: HttpContext, log: ProxiedLog, instances: ConsumerInstances, reader: InstanceReader
    ) -> None:
        self._context, self._log, self._instances, self._reader = context, log, instances, reader
        self._threads = Workers(READS_MAX, 2 * READS_MAX, "millstream-rest-read")
        self._room = Room(UNREAD_BYTES_MAX)

    def routes(self) -> list[Route]:
        answers: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
            ("/consumers/{group}", "POST", self.create),
            (_INSTANCE, "DELETE", self.delete),
            (f"{_INSTANCE}/subscription", "POST", self.subscribe),
            (f"{_INSTANCE}/subscription", "GET", self.subscription),
            (f"{_INSTANCE}/subscription", "DELETE", self.unsubscribe),
            (f"{_INSTANCE}/assignments", "POST", self.assign),
            (f"{_INSTANCE}/assignments", "GET", self.assignments),
            (f"{_INSTANCE}/records", "GET", self.records),
            (f"{_INSTANCE}/offsets", "POST", self.commit),
            (f"{_INSTANCE}/offsets", "GET", self.committed),
            (f"{_INSTANCE}/positions", "POST", self.seek),
            (f"{_INSTANCE}/positions/beginning", "POST", self.seek_to_beginning),
            (f"{_INSTANCE}/positions/end", "POST", self.seek_to_end),
        )
        return [Route(path, v2_answer(answer), methods=[method]) for path, method, answer in answers]

    def close(self) -> None:
        """Ends reads, then all instances."""
        self._instances.stop_reads()
        self._threads.close()
        self._instances.close()

    # Instances

    async def create(self, request: Request) -> Response:
        rights, group = self._group(request)
        _, body = await read_body(request, self._context.body_bytes_max, needed=False)
        name = text_in(body, "id", "name")
        if name is not None and not _is_name(name):
            raise ProxyRefusal(CONSTRAINT, f"a name has at most {_NAME_MAX} characters, none of them a slash")
        if not _is_name(group):
            raise ProxyRefusal(CONSTRAINT, f"a group has at most {_NAME_MAX} characters, none of them a slash")
        settings = _settings(body)
        made = await self._context.workers.run(lambda: self._instances.create(group, name, rights, settings))
        base = f"{request.url.scheme}://{request.url.netloc}"
        uri = f"{base}/consumers/{quote(group, safe='')}/instances/{quote(made.name, safe='')}"
        return v2_json({"instance_id": made.name, "base_uri": uri})

    async def delete(self, request: Request) -> Response:
        rights, group = self._group(request)
        name = request.path_params["instance"]
        await self._context.workers.run(lambda: self._instances.delete(group, name, rights))
        return Response(status_code=204)

    # Subscriptions and assignments

    async def subscribe(self, request: Request) -> Response:
        rights, _ = self._group(request)
        _, body = await read_body(request, self._context.body_bytes_max)
        topics, text = body.get("topics"), text_in(body, "topic_pattern")
        if topics is None and text is None:
            raise ProxyRefusal(CONSTRAINT, "topics and topic_pattern may not both be null")
        if topics is not None:
            names = _names(topics)
            for name in names:
                self._log.check_read(rights, name)
            await self._with(request, lambda instance: instance.subscribe(names))
        else:
            pattern = _pattern(text or "")
            await self._with(request, lambda instance: instance.subscribe_pattern(pattern))
        return Response(status_code=204)

    async def subscription(self, request: Request) -> Response:
        return v2_json({"topics": list(self._instance(request).subscription)})

    async def unsubscribe(self, request: Request) -> Response:
        await self._with(request, lambda instance: instance.unsubscribe())
        return Response(status_code=204)

    async def assign(self, request: Request) -> Response:
        rights, _ = self._group(request)
        _, body = await read_body(request, self._context.body_bytes_max)
        partitions = [_partition(each) for each in objects_in(body, "partitions", _PARTITIONS_MAX)]
        for where in partitions:
            self._log.check_read(rights, where.topic)

        def assign(instance: ConsumerInstance) -> None:
            for where in partitions:
                self._log.partition(*where)
            instance.assign(partitions)

        await self._with(request, assign)
        return Response(status_code=204)

    async def assignments(self, request: Request) -> Response:
        found = await self._with(request, lambda instance: sorted(instance.consumer.assignment))
        return v2_json({"partitions": [{"topic": where.topic, "partition": where.partition} for where in found]})

    # Records

    async def records(self, request: Request) -> Response:
        rights, _ = self._group(request)
        instance = self._instance(request)
        format = instance.settings.format
        accepted = _accepted(request)
        if accepted and format.media_type not in accepted:
            raise ProxyRefusal(
                FORMAT_MISMATCH,
                "The requested embedded data format does not match the deserializer for this consumer instance",
            )
        wait_ms = _query_number(request, "timeout")
        longest = min(instance.settings.wait_ms_max, _WAIT_MS_MAX)
        wait_ms = longest if wait_ms is None or wait_ms <= 0 else min(wait_ms, longest)
        bytes_max = _query_number(request, "max_bytes")
        bytes_max = BYTES_DEFAULT if bytes_max is None or bytes_max <= 0 else min(bytes_max, BYTES_MAX)

        def read(instance: ConsumerInstance) -> tuple[dict[TopicPartition, int], bytes]:
            if not instance.reads_something:
                raise illegal_state("Consumer is not subscribed to any topics or assigned any partitions")
            for topic in {*instance.subscription, *(where.topic for where in instance.consumer.assignment)}:
                self._log.check_read(rights, topic)
            found = self._reader.read(instance, wait_ms, bytes_max)
            return _first_offsets(found), orjson.dumps(found)

        await read_json(request, self._context.body_bytes_max)  # after the body, a disconnect can be detected
        began, data = await self._with(request, read, self._threads)
        try:
            if await request.is_disconnected():
                raise ProxyRefusal(BAD_REQUEST, "the client disconnected")
            return _Sent(BoundedBody(data, format.media_type, self._room))
        except BaseException:
            await self._with(request, lambda instance: instance.go_back(began))
            raise

    # Offsets and positions

    async def commit(self, request: Request) -> Response:
        """Without a body, commits all that was read. A given offset is that of the last processed record."""
        rights, _ = self._group(request)
        _, body = await read_body(request, self._context.body_bytes_max, needed=False)
        given = objects_in(body, "offsets", _PARTITIONS_MAX, needed=False)
        offsets: dict[TopicPartition, int] = {}
        notes: dict[TopicPartition, CommitNote] = {}
        for each in given:
            where = _partition(each)
            self._log.check_read(rights, where.topic)
            offsets[where] = _offset(each) + 1
            notes[where] = CommitNote(text_in(each, "metadata") or "")

        def commit(instance: ConsumerInstance) -> None:
            for where in offsets:
                self._log.partition(*where)
            instance.consumer.commit(offsets if given else None, notes)

        await self._with(request, commit)
        return v2_json([])

    async def committed(self, request: Request) -> Response:
        rights, group = self._group(request)
        self._instance(request)
        _, body = await read_body(request, self._context.body_bytes_max, needed=False)
        if not body:
            raise no_partition()
        asked = [_partition(each) for each in objects_in(body, "partitions", _PARTITIONS_MAX)]
        for where in asked:
            self._log.check_seen(rights, where.topic)
        found = await self._context.workers.run(lambda: self._log.log.groups.committed(group))
        offsets = [
            {
                "topic": where.topic,
                "partition": where.partition,
                "offset": found[where].offset,
                "metadata": found[where].metadata,
            }
            for where in asked
            if where in found
        ]
        return v2_json({"offsets": offsets})

    async def seek(self, request: Request) -> Response:
        self._group(request)
        _, body = await read_body(request, self._context.body_bytes_max)
        offsets = {
            _partition(each): _offset(each) for each in objects_in(body, "offsets", _PARTITIONS_MAX, needed=False)
        }
        times = {
            _partition(each): _time(each) for each in objects_in(body, "timestamps", _PARTITIONS_MAX, needed=False)
        }

        def seek(instance: ConsumerInstance) -> None:
            for where in (*offsets, *times):
                instance.check_assigned(where)
            for where, offset in offsets.items():
                instance.consumer.seek(where, offset)
            for where, time_ms in times.items():
                instance.consumer.seek_to_time(where, time_ms)

        await self._with(request, seek)
        return Response(status_code=204)

    async def seek_to_beginning(self, request: Request) -> Response:
        return await self._seek_to(request, lambda instance, all: instance.consumer.seek_to_beginning(*all))

    async def seek_to_end(self, request: Request) -> Response:
        return await self._seek_to(request, lambda instance, all: instance.consumer.seek_to_end(*all))

    async def _seek_to(
        self, request: Request, move: Callable[[ConsumerInstance, list[TopicPartition]], None]
    ) -> Response:
        self._group(request)
        _, body = await read_body(request, self._context.body_bytes_max)
        partitions = [_partition(each) for each in objects_in(body, "partitions", _PARTITIONS_MAX)]

        def seek(instance: ConsumerInstance) -> None:
            for where in partitions:
                instance.check_assigned(where)
            if partitions:
                move(instance, partitions)

        await self._with(request, seek)
        return Response(status_code=204)

    # Finding the instance

    def _group(self, request: Request) -> tuple[Rights, str]:
        """Raises `NotPermitted`."""
        rights, group = rights_of(request.scope), request.path_params["group"]
        self._log.check_group(rights, group)
        return rights, group

    def _instance(self, request: Request) -> ConsumerInstance:
        """Raises `NotPermitted`, `ProxyRefusal`."""
        rights, group = self._group(request)
        return self._instances.find(group, request.path_params["instance"], rights)

    async def _with(self, request: Request, act: Callable[[ConsumerInstance], T], threads: Workers | None = None) -> T:
        """Calls `act` with the instance in the path, which no other request uses meanwhile, and returns its result."""
        rights, group = self._group(request)
        name = request.path_params["instance"]

        def run() -> T:
            instance = self._instances.find(group, name, rights)
            with instance.used(self._instances.clock):
                return act(instance)

        return await (threads or self._context.workers).run(run)


class _Sent(Response):
    """A response that another ASGI application sends."""

    def __init__(self, body: BoundedBody) -> None:
        super().__init__()
        self._bounded = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._bounded(scope, receive, send)


def _first_offsets(records: list[dict[str, Any]]) -> dict[TopicPartition, int]:
    """The first offset of the read in each partition."""
    found: dict[TopicPartition, int] = {}
    for record in records:
        found.setdefault(TopicPartition(record["topic"], record["partition"]), record["offset"])
    return found


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _NAME_MAX and "/" not in text and text.isprintable()


def _settings(body: dict[str, Any]) -> InstanceSettings:
    """Raises `ProxyRefusal`."""
    for name in body:
        if name not in _CREATION:
            raise ProxyRefusal(CONSTRAINT, f"Unrecognized field: {name[:100]}")
    format = _FORMATS.get((text_in(body, "format") or "binary").lower())
    if format is None:
        raise ProxyRefusal(CONSTRAINT, "Invalid format type.")
    reset, isolation = text_in(body, OFFSET_RESET.name) or "latest", text_in(body, "isolation.level")
    if reset not in _RESETS:
        raise _invalid(f"{OFFSET_RESET.name} is one of {', '.join(_RESETS)}")
    if isolation is not None and isolation not in _ISOLATIONS:
        raise _invalid(f"isolation.level is one of {', '.join(_ISOLATIONS)}")
    usual = InstanceSettings()
    bytes_min = number_in(body, "fetch.min.bytes", "responseMinBytes", least=-1, most=10_000_000)
    wait_ms = number_in(body, "consumer.request.timeout.ms", "requestWaitMs", most=2**31 - 1)
    auto_commit = body.get("auto.commit.enable")
    return InstanceSettings(
        format,
        _RESETS[reset],
        usual.auto_commit if auto_commit is None else flag_in(body, "auto.commit.enable"),
        usual.bytes_min if bytes_min is None else max(1, bytes_min),
        usual.wait_ms_max if wait_ms is None else wait_ms,
        isolation or usual.isolation,
    )


def _invalid(message: str) -> ProxyRefusal:
    return ProxyRefusal(INVALID_CONSUMER, f"Invalid consumer configuration: {message}")


def _names(topics: Any) -> tuple[str, ...]:
    if not isinstance(topics, list) or not all(isinstance(name, str) and name for name in topics):
        raise ProxyRefusal(BAD_REQUEST, 'Bad Request: "topics" is not a list of names')
    if not 0 < len(topics) <= _PARTITIONS_MAX:
        raise ProxyRefusal(CONSTRAINT, f"topics has between 1 and {_PARTITIONS_MAX} names")
    return tuple(topics)


def _pattern(text: str) -> NamePattern:
    try:
        return NamePattern(text)
    except InvalidPattern as error:
        raise ProxyRefusal(CONSTRAINT, str(error)) from None


def _partition(given: dict[str, Any]) -> TopicPartition:
    topic, partition = text_in(given, "topic"), number_in(given, "partition", most=2**31 - 1)
    if not topic or partition is None:
        raise ProxyRefusal(CONSTRAINT, "topic and partition may not be null")
    return TopicPartition(topic, partition)


def _offset(given: dict[str, Any]) -> int:
    offset = number_in(given, "offset", most=_OFFSET_MAX)
    if offset is None:
        raise ProxyRefusal(CONSTRAINT, "offset may not be null")
    return offset


def _time(given: dict[str, Any]) -> int:
    """In ms, from a number, or from ISO 8601."""
    value = given.get("timestamp")
    if isinstance(value, str):
        try:
            return int(datetime.fromisoformat(value).timestamp() * 1000)
        except (ValueError, OverflowError):
            raise ProxyRefusal(BAD_REQUEST, 'Bad Request: "timestamp" is no time of ISO 8601') from None
    return whole_number(value, "timestamp")


def _accepted(request: Request) -> set[str]:
    """The embedded formats in the accept header; empty if the client accepts any."""
    types = {part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")}
    return types & {format.media_type for format in V2_FORMATS}


def _query_number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    return None if text is None or text == "" else whole_number(text, name, least=-(2**63))
