"""/topics and /brokers of v2: metadata, and producing."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...logcore.clients.remote_cluster import PartitionPlace
from ...logcore.errors import UnknownTopic
from ...planner.specs import RecordSchema
from ..http.context import HttpContext, rights_of
from ..http.statements import json_response
from ..security.rights import Rights
from .embedded_formats import V2_FORMATS, EmbeddedFormat, encode
from .named_schemas import ChosenSchema, NamedSchemas, Part, SchemaChoice
from .producing import NewRecord, ProxiedWriter, Result, Written
from .proxied_log import ProxiedLog
from .proxy_errors import (
    CONSTRAINT,
    KEY_SCHEMA_MISSING,
    V2_JSON,
    VALUE_SCHEMA_MISSING,
    ProxyRefusal,
    body_of,
    no_partition,
    no_topic,
    refusal,
)
from .proxy_requests import number_in, objects_in, read_body, text_in

RECORDS_MAX: Final = 10_000
"""Limit of one request."""
_FORMATS: Final = {format.media_type: format for format in V2_FORMATS}

Answer = Callable[[Request], Awaitable[Response]]


def v2_answer(answer: Answer) -> Answer:
    """Wraps a route so that its errors have the form of v2."""

    @functools.wraps(answer)
    async def route(request: Request) -> Response:
        try:
            return await answer(request)
        except UnknownTopic:
            return refusal(no_topic(), V2_JSON)
        except Exception as error:
            return refusal(error, V2_JSON)

    return route


def v2_json(value: Any, media_type: str = V2_JSON) -> Response:
    return json_response(value, 200, media_type)


class V2Topics:
    """Each method answers one route; calls that wait for the log run on the threads of the context."""

    def __init__(self, context: HttpContext, log: ProxiedLog, schemas: NamedSchemas, writer: ProxiedWriter) -> None:
        self._context, self._log, self._schemas, self._writer = context, log, schemas, writer

    def routes(self) -> list[Route]:
        partition = "/topics/{topic}/partitions/{partition}"
        answers: tuple[tuple[str, str, Answer], ...] = (
            ("/brokers", "GET", self.brokers),
            ("/topics", "GET", self.names),
            ("/topics/{topic}", "GET", self.topic),
            ("/topics/{topic}", "POST", self.produce),
            ("/topics/{topic}/partitions", "GET", self.partitions),
            (partition, "GET", self.partition),
            (partition, "POST", self.produce),
            (f"{partition}/offsets", "GET", self.offsets),
        )
        return [Route(path, v2_answer(answer), methods=[method]) for path, method, answer in answers]

    async def brokers(self, request: Request) -> Response:
        del request
        found = await self._context.workers.run(self._log.log.cluster.brokers)
        return v2_json({"brokers": [broker.node for broker in found.brokers]})

    async def names(self, request: Request) -> Response:
        rights = rights_of(request.scope)
        found = await self._context.workers.run(self._log.log.cluster.topics)
        return v2_json([topic.name for topic in found if self._log.sees(rights, topic.name)])

    async def topic(self, request: Request) -> Response:
        name = self._seen(request)

        def look() -> dict[str, Any]:
            place = self._log.place(name)
            configs = {setting.name: setting.value for setting in self._log.log.cluster.settings(name)}
            return {"name": name, "configs": configs, "partitions": list(map(_described, place.partitions))}

        return v2_json(await self._context.workers.run(look))

    async def partitions(self, request: Request) -> Response:
        name = self._seen(request)
        place = await self._context.workers.run(lambda: self._log.place(name))
        return v2_json(list(map(_described, place.partitions)))

    async def partition(self, request: Request) -> Response:
        name, number = self._seen(request), _partition(request)
        place = await self._context.workers.run(lambda: self._log.place(name))
        found = next((_described(each) for each in place.partitions if each.partition == number), None)
        if found is None:
            raise no_partition()
        return v2_json(found)

    async def offsets(self, request: Request) -> Response:
        name, number = self._seen(request), _partition(request)

        def look() -> dict[str, int]:
            offsets = self._log.log.offsets(name, self._log.partition(name, number))
            return {"beginning_offset": offsets.log_start_offset, "end_offset": offsets.high_watermark}

        return v2_json(await self._context.workers.run(look))

    def _seen(self, request: Request) -> str:
        """The topic in the path. Raises `NotPermitted`."""
        name = request.path_params["topic"]
        self._log.check_seen(rights_of(request.scope), name)
        return name

    # Producing

    async def produce(self, request: Request) -> Response:
        """Writes records to a topic, or to one of its partitions."""
        rights, name = rights_of(request.scope), request.path_params["topic"]
        self._log.check_write(rights, name)
        partition = _partition(request) if "partition" in request.path_params else None
        content_type, body = await read_body(request, self._context.body_bytes_max)
        format = _FORMATS.get(content_type)
        if format is None:
            raise ProxyRefusal(415, "HTTP 415 Unsupported Media Type")
        given = objects_in(body, "records", RECORDS_MAX)
        if not given:
            raise ProxyRefusal(CONSTRAINT, "records may not be empty")

        def produce() -> tuple[dict[str, Any], int]:
            topic = self._log.topic(name)
            if partition is not None:
                self._log.partition(name, partition)
            key = self._schema(name, "key", format, body, rights)
            value = self._schema(name, "value", format, body, rights)
            records = [_record(format, each, key, value, partition) for each in given]
            results = self._writer.write(topic, records)
            answer = {
                "offsets": list(map(_result, results)),
                "key_schema_id": None if key is None else key.record.id,
                "value_schema_id": None if value is None else value.record.id,
            }
            return answer, 200

        answer, status = await self._context.workers.run(produce)
        return json_response(answer, status, V2_JSON)

    def _schema(
        self, topic: str, part: Part, format: EmbeddedFormat, body: dict[str, Any], rights: Rights
    ) -> ChosenSchema | None:
        if format.kind is None:
            return None
        schema_id, text = number_in(body, f"{part}_schema_id", most=2**31 - 1), text_in(body, f"{part}_schema")
        if schema_id is None and text is None:
            return None
        text = None if schema_id is not None else text
        choice = SchemaChoice(schema_id=schema_id, text=text, format=format)
        chosen = self._schemas.choose(topic, part, choice, rights)
        if chosen.format is not format:
            raise ProxyRefusal(CONSTRAINT, f"schema {chosen.record.id} is {chosen.format.value}, not {format.value}")
        return chosen


def _partition(request: Request) -> int:
    """Raises `ProxyRefusal`: a text that is not a number is an unknown partition."""
    text = request.path_params["partition"]
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise no_partition()
    return int(text)


def _described(place: PartitionPlace) -> dict[str, Any]:
    replicas = [
        {"broker": node, "leader": node == place.leader, "in_sync": node in place.in_sync} for node in place.replicas
    ]
    return {
        "partition": place.partition,
        "leader": -1 if place.leader is None else place.leader,
        "replicas": replicas,
    }


def _record(
    format: EmbeddedFormat,
    given: dict[str, Any],
    key: ChosenSchema | None,
    value: ChosenSchema | None,
    partition: int | None,
) -> NewRecord:
    """Raises `ProxyRefusal`, `Unwritable`."""
    own = number_in(given, "partition", most=2**31 - 1)
    return NewRecord(
        _encoded(format, given.get("key"), key, KEY_SCHEMA_MISSING, "keys", "key"),
        _encoded(format, given.get("value"), value, VALUE_SCHEMA_MISSING, "values", "value"),
        partition if own is None else own,
    )


def _encoded(
    format: EmbeddedFormat, data: Any, schema: ChosenSchema | None, missing: int, parts: str, part: str
) -> bytes | None:
    if data is None:
        return None
    record: RecordSchema | None = None
    if format.kind is not None:
        if schema is None:
            raise ProxyRefusal(missing, f"Request includes {parts} but does not include {part} schema")
        record = schema.record
    return encode(format, data, record)


def _result(result: Result) -> dict[str, Any]:
    if isinstance(result, Written):
        return {"partition": result.partition, "offset": result.offset, "error_code": None, "error": None}
    problem = body_of(result)
    return {"partition": None, "offset": None, "error_code": problem["error_code"], "error": problem["message"]}
