"""GET /v1/topics/{name} and /v1/topics/{name}/records: the partitions of a topic, and a bounded look at its records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.errors import did_you_mean

from ...logcore.client import LogClient, Topic
from ...logcore.errors import UnknownTopic
from ...logcore.topic_settings import SETTINGS
from ...sql.settings.property import says_true
from ..engine.engine import Engine
from ..http.context import HttpContext, rights_of
from ..http.errors import BAD_REQUEST, RequestRefused
from ..http.statements import error_response, json_response
from ..security.rights import Need, Rights
from .record_search import RecordSearch, Start

LIMIT_MAX: Final = 1000
_LIMIT: Final = 100
_CONTAINS_MAX: Final = 1000
_INT64: Final = range(-(1 << 63), 1 << 63)


def topic_routes(context: HttpContext) -> list[Route]:
    """The routes. They need the same right as PRINT: `read` on the topic."""

    engine = context.engine

    def answered(answer: Callable[[Request, Topic], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            try:
                rights, name = rights_of(request.scope), request.path_params["name"]
                found = await context.workers.run(lambda: answer(request, _topic(engine.log, name, rights)))
                return json_response(found, 200)
            except Exception as error:
                return error_response(error)

        return route

    return [
        Route("/v1/topics/{name}", answered(lambda _, topic: _description(engine.log, topic))),
        Route("/v1/topics/{name}/records", answered(lambda request, topic: _records(engine, topic, request))),
    ]


def _topic(log: LogClient, name: str, rights: Rights) -> Topic:
    """Raises `NotPermitted`, `UnknownTopic`."""
    rights.require([Need("read", name)])
    topic = log.topic(name)
    if topic is None:
        known = [other for other in log.topics() if rights.sees_topic(other)]
        raise UnknownTopic(f'topic "{name}" does not exist', hint=did_you_mean(name, known))
    return topic


def _description(log: LogClient, topic: Topic) -> dict[str, Any]:
    partitions: list[dict[str, int]] = []
    for partition in range(topic.partition_count):
        offsets = log.offsets(topic.name, partition)
        partitions.append({
            "partition": partition,
            "logStartOffset": offsets.log_start_offset,
            "lastStableOffset": offsets.last_stable_offset,
            "highWatermark": offsets.high_watermark,
            "logEndOffset": offsets.log_end_offset,
        })  # fmt: skip
    settings = [
        {"name": name, "value": value, "default": SETTINGS[name].default if name in SETTINGS else None}
        for name, value in sorted(topic.config.items())
    ]
    return {"name": topic.name, "partitions": partitions, "settings": settings}


def _records(engine: Engine, topic: Topic, request: Request) -> dict[str, Any]:
    """`?partition=`, `?offset=` or `?time=` (ms), `?limit=`, `?contains=`, `?latest=true`, `?whole=true`."""
    given = request.query_params
    partition = _number(given.get("partition"), "partition", 0, topic.partition_count - 1)
    start = Start(_number(given.get("offset"), "offset", 0), _number(given.get("time"), "time", _INT64.start))
    limit = _number(given.get("limit"), "limit", 1, LIMIT_MAX) or _LIMIT
    contains = given.get("contains", "")
    if len(contains) > _CONTAINS_MAX:
        raise RequestRefused(BAD_REQUEST, f'"contains" is longer than {_CONTAINS_MAX} characters')
    catalog = rights_of(request.scope).visible(engine.catalog)
    source = next((each for each in catalog.sources.values() if each.topic == topic.name), None)
    search = RecordSearch(
        engine.log, topic, source, engine.schemas.schema, partition=partition, start=start, limit=limit,
        contains=contains, latest_per_key=says_true(given.get("latest")),
        whole=says_true(given.get("whole")),
    )  # fmt: skip
    return search.run()


def _number(text: str | None, name: str, least: int, most: int = _INT64.stop - 1) -> int | None:
    if text is None or text == "":
        return None
    try:
        number = int(text) if len(text) <= 20 else None
    except ValueError:
        number = None
    if number is None or not least <= number <= most:
        bounds = f"from {least} to {most}" if most < _INT64.stop - 1 else f"from {least} on"
        raise RequestRefused(BAD_REQUEST, f'"{name}" is not a whole number {bounds}')
    return number
