"""Producing in v3: a stream of records in a request that may stay open, with a report for each record; and batches.

A record is reported once it is durable. Records that arrive together are written together. After invalid JSON, the
stream ends with a report of the error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, cast

import orjson
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from millstream.errors import MillstreamError

from ...executor.formats.wire import Unwritable
from ...logcore.client import Topic
from ..http.context import HttpContext, Slots, rights_of
from ..http.errors import TIMEOUT, RequestRefused
from ..http.requests import BODY_SECONDS_MAX, read_json, refuse_foreign
from ..security.rights import Rights
from .embedded_formats import EmbeddedFormat, decode_base64, encode
from .json_objects import ObjectSplitter
from .named_schemas import STRATEGIES, ChosenSchema, NamedSchemas, Part, SchemaChoice
from .producing import NewRecord, ProxiedWriter, Result, Written
from .proxied_log import ProxiedLog
from .proxy_errors import (
    BAD_REQUEST,
    INVALID_BATCH,
    INVALID_PAYLOAD,
    JSON,
    ProxyRefusal,
    body_of,
    no_partition,
)
from .proxy_requests import number_in, objects_in, parse_json, read_body, text_in
from .v3_resources import Answer, Clusters, v3_answer, v3_json

STREAMS_MAX: Final = 200
ENTRIES_MAX: Final = 1000
STALL_SECONDS_MAX: Final = 60.0  # a client that accepts no report for this long is considered gone
_HEADERS_MAX: Final = 1000
_ID_MAX: Final = 80
_RECORDS: Final = "/v3/clusters/{cluster_id}/topics/{topic_name}/records"
_TYPES: Final = ("", JSON, "application/x-www-form-urlencoded")  # curl -d sends the last one

_log = structlog.get_logger("millstream.server")

Problem = MillstreamError | Unwritable


@dataclass(frozen=True, slots=True)
class _Described:
    """A key or a value: its description in the report, and its bytes."""

    format: EmbeddedFormat
    schema: ChosenSchema | None
    data: bytes | None

    @property
    def report(self) -> dict[str, Any]:
        of_schema = (
            {}
            if self.schema is None
            else {
                "subject": self.schema.subject,
                "schema_id": self.schema.record.id,
                "schema_version": self.schema.version,
            }
        )
        return {"type": self.format.value, **of_schema, "size": len(self.data or b"")}


@dataclass(frozen=True, slots=True)
class _Asked:
    """A valid record."""

    record: NewRecord
    key: _Described | None
    value: _Described | None


@dataclass(frozen=True, slots=True)
class ProduceTarget:
    """The topic of one request's records, and the user's rights."""

    cluster_id: str
    topic: Topic
    rights: Rights


class RecordProducer:
    """Not for the event loop: it looks up schemas and writes records."""

    def __init__(self, log: ProxiedLog, schemas: NamedSchemas, writer: ProxiedWriter, clusters: Clusters) -> None:
        self._log, self._schemas, self._writer, self._clusters = log, schemas, writer, clusters

    def target(self, request: Request) -> ProduceTarget:
        """Raises `NotPermitted`, `ProxyRefusal`."""
        name, rights = request.path_params["topic_name"], rights_of(request.scope)
        self._log.check_write(rights, name)
        return ProduceTarget(self._clusters.links(request).cluster_id, self._log.topic(name), rights)

    def produce(self, target: ProduceTarget, given: Sequence[dict[str, Any] | Problem]) -> list[dict[str, Any]]:
        """A report for each element. In: records, or errors in their place."""
        asked = [each if isinstance(each, Exception) else self._understood(target, each) for each in given]
        good = [each for each in asked if isinstance(each, _Asked)]
        results = iter(self._writer.write(target.topic, [each.record for each in good]) if good else ())
        return [
            body_of(each) if isinstance(each, Exception) else _report(target, each, next(results)) for each in asked
        ]

    def _understood(self, target: ProduceTarget, given: dict[str, Any]) -> _Asked | Problem:
        try:
            number = number_in(given, "partition_id", least=-(2**31), most=2**31 - 1)
            if number is not None and not 0 <= number < target.topic.partition_count:
                return no_partition()
            key, value = self._part(target, given, "key"), self._part(target, given, "value")
            record = NewRecord(
                None if key is None else key.data,
                None if value is None else value.data,
                number,
                _time(given.get("timestamp")),
                _headers(given),
            )
        except (MillstreamError, Unwritable) as error:
            return error
        return _Asked(record, key, value)

    def _part(self, target: ProduceTarget, record: dict[str, Any], part: Part) -> _Described | None:
        """Raises `MillstreamError`, `Unwritable`."""
        given = record.get(part)
        if given is None:
            return None
        if not isinstance(given, dict):
            raise ProxyRefusal(BAD_REQUEST, f'Bad Request: "{part}" is not a JSON object')
        said = cast("dict[str, Any]", given)
        format = _format(said)
        if format is not None and format.kind is None:
            return _Described(format, None, encode(format, said.get("data")))
        strategy = text_in(said, "subject_name_strategy") or "TOPIC_NAME"
        if strategy not in STRATEGIES:
            raise ProxyRefusal(BAD_REQUEST, f"Bad Request: subject_name_strategy is one of {', '.join(STRATEGIES)}")
        choice = SchemaChoice(
            number_in(said, "schema_id", most=2**31 - 1),
            number_in(said, "schema_version", most=2**31 - 1),
            text_in(said, "schema"),
            format,
            text_in(said, "subject"),
            strategy,
        )
        if (format is None) is (choice.text is not None):
            raise ProxyRefusal(
                BAD_REQUEST, "Bad Request: type and schema belong together, for AVRO, JSONSCHEMA, PROTOBUF"
            )
        chosen = self._schemas.choose(target.topic.name, part, choice, target.rights)
        return _Described(chosen.format, chosen, encode(chosen.format, said.get("data"), chosen.record))


def _format(said: dict[str, Any]) -> EmbeddedFormat | None:
    text = text_in(said, "type")
    try:
        return None if text is None else EmbeddedFormat(text.upper())
    except ValueError:
        raise ProxyRefusal(BAD_REQUEST, f"Bad Request: type is one of {', '.join(EmbeddedFormat)}") from None


def _time(value: Any) -> int | None:
    """Raises `ProxyRefusal`."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        time_ms = int(moment.timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        time_ms = -1
    if time_ms < 0:
        raise ProxyRefusal(BAD_REQUEST, 'Bad Request: "timestamp" is no time of ISO 8601 since 1970')
    return time_ms


def _headers(given: dict[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    """Raises `ProxyRefusal`."""
    found: list[tuple[str, bytes | None]] = []
    for each in objects_in(given, "headers", _HEADERS_MAX, needed=False):
        name, value = text_in(each, "name"), each.get("value")
        if name is None:
            raise ProxyRefusal(BAD_REQUEST, "Bad Request: a header has a name")
        found.append((name, None if value is None else decode_base64(value)))
    return tuple(found)


def _report(target: ProduceTarget, asked: _Asked, result: Result) -> dict[str, Any]:
    if not isinstance(result, Written):
        return body_of(result)
    moment = datetime.fromtimestamp(result.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    parts = {"key": asked.key, "value": asked.value}
    return {
        "error_code": 200,
        "cluster_id": target.cluster_id,
        "topic_name": target.topic.name,
        "partition_id": result.partition,
        "offset": result.offset,
        "timestamp": moment.replace("+00:00", "Z"),
        **{name: part.report for name, part in parts.items() if part is not None},
    }


# ------------------------------------------------------------------ routes


class V3Records:
    """Answers the two routes."""

    def __init__(self, context: HttpContext, producer: RecordProducer) -> None:
        self._context, self._producer = context, producer
        self._streams = Slots(STREAMS_MAX, "streams of records")

    def routes(self) -> list[Route]:
        batch: Answer = v3_answer(self.batch)
        return [
            Route(f"{_RECORDS}:batch", batch, methods=["POST"]),
            Route(_RECORDS, _Stream(self._context, self._producer, self._streams), methods=["POST"]),
        ]

    async def batch(self, request: Request) -> Response:
        target = await self._context.workers.run(lambda: self._producer.target(request))
        _, body = await read_body(request, self._context.body_bytes_max)
        entries = objects_in(body, "entries", 10 * ENTRIES_MAX)
        ids = [entry.get("id") for entry in entries]
        if not entries:
            raise ProxyRefusal(INVALID_BATCH, "Empty batch.")
        if len(entries) > ENTRIES_MAX:
            raise ProxyRefusal(INVALID_BATCH, "Too many entries in batch.")
        if not all(isinstance(id, str) and 0 < len(id) <= _ID_MAX for id in ids):
            raise ProxyRefusal(INVALID_BATCH, "Batch entry identifier is not a valid string.")
        if len(set(ids)) < len(ids):
            raise ProxyRefusal(INVALID_BATCH, "Batch entry IDs are not distinct.")
        reports = await self._context.workers.run(lambda: self._producer.produce(target, entries))
        numbered = [{"id": id, **report} for id, report in zip(ids, reports, strict=True)]
        successes = [report for report in numbered if report["error_code"] == 200]
        for report in successes:
            del report["error_code"]
        failures = [report for report in numbered if "error_code" in report]
        return v3_json({"successes": successes, "failures": failures}, 207)


class _Stream:
    """An ASGI application. A body of known length is read to the end before anything is reported: its client may not
    read before it has sent everything."""

    def __init__(self, context: HttpContext, producer: RecordProducer, streams: Slots) -> None:
        self._context, self._producer, self._streams = context, producer, streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = False

        async def noted(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        async def answer(request: Request) -> Response:
            refuse_foreign(request)
            _check_type(request)
            target = await self._context.workers.run(lambda: self._producer.target(request))
            with self._streams, contextlib.suppress(_Gone):
                if "content-length" in request.headers:
                    await self._whole(target, request, noted)
                else:
                    await self._streamed(target, receive, noted)
            return Response()  # it is already sent, unless the client has gone

        answered = await v3_answer(answer)(Request(scope, receive))
        if not began and answered.status_code >= 400:
            await answered(scope, receive, send)

    async def _whole(self, target: ProduceTarget, request: Request, send: Send) -> None:
        limit = self._context.body_bytes_max
        _, data = await read_json(request, limit)
        reports, problem = await self._context.workers.run(
            partial(self._written, target, ObjectSplitter(limit), data, True)
        )
        await self._first(reports, problem, send)
        await _end(send)

    async def _streamed(self, target: ProduceTarget, receive: Receive, send: Send) -> None:
        splitter, began = ObjectSplitter(self._context.body_bytes_max), False
        while True:
            data, ended = await _received(receive, None if began else BODY_SECONDS_MAX)
            reports, problem = await self._context.workers.run(partial(self._written, target, splitter, data, ended))
            if began:
                await _send(send, reports if problem is None else [*reports, body_of(problem)])
            elif reports or problem is not None or ended:
                await self._first(reports, problem, send)
                began = True
            if ended or problem is not None:
                await _end(send)
                return

    def _written(
        self, target: ProduceTarget, splitter: ObjectSplitter, data: bytes, ended: bool
    ) -> tuple[list[dict[str, Any]], ProxyRefusal | None]:
        """Reports of the complete records, and the error that ends the stream."""
        objects, problem = splitter.feed(data)
        given: list[dict[str, Any] | Problem] = []
        for text in objects:
            try:
                given.append(cast("dict[str, Any]", parse_json(text)))
            except ProxyRefusal as error:
                problem = error
                break
        if ended and problem is None and not splitter.is_between:
            problem = ProxyRefusal(BAD_REQUEST, "Bad Request: the body ends inside a JSON object")
        return self._producer.produce(target, given), problem

    async def _first(self, reports: list[dict[str, Any]], problem: ProxyRefusal | None, send: Send) -> None:
        """Begins the response. Raises `ProxyRefusal` if there is no record at all."""
        if not reports:
            message = "Payload error. Request body is empty. Data is required."
            raise problem or ProxyRefusal(INVALID_PAYLOAD, message)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", JSON.encode())]})
        await _send(send, reports if problem is None else [*reports, body_of(problem)])


class _Gone(Exception):
    """The client disconnected, or reads nothing."""


def _check_type(request: Request) -> None:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in _TYPES:
        raise ProxyRefusal(415, "HTTP 415 Unsupported Media Type")


async def _received(receive: Receive, seconds_max: float | None) -> tuple[bytes, bool]:
    """The next bytes, and whether they are the last ones. Raises `_Gone`, `RequestRefused`."""
    try:
        async with asyncio.timeout(seconds_max):
            message = await receive()
    except TimeoutError:
        raise RequestRefused(TIMEOUT, f"no record arrived within {BODY_SECONDS_MAX:.0f} seconds") from None
    if message["type"] == "http.disconnect":
        raise _Gone
    return message.get("body", b""), not message.get("more_body", False)


async def _send(send: Send, reports: list[dict[str, Any]]) -> None:
    if reports:
        data = b"".join(orjson.dumps(report) + b"\r\n" for report in reports)
        await _body(send, data, more=True)


async def _end(send: Send) -> None:
    await _body(send, b"", more=False)


async def _body(send: Send, data: bytes, *, more: bool) -> None:
    try:
        async with asyncio.timeout(STALL_SECONDS_MAX):
            await send({"type": "http.response.body", "body": data, "more_body": more})
    except TimeoutError:
        _log.warning("client takes no reports")
        raise _Gone from None
