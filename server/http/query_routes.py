"""GET /queries/{id}/positions: how far a persistent query has read each partition of its sources."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...executor.executor import QueryStatus
from ...executor.queries.query_log import offset_group
from ...logcore.client import LogClient, TopicPartition
from ...logcore.errors import UnknownTopic
from ...planner.catalog import PersistentQuery
from ..engine.engine import Engine
from ..security.rights import Rights
from .context import HttpContext, rights_of, visible_query
from .statements import error_response, json_response


def query_routes(context: HttpContext) -> list[Route]:
    """The route, for queries that the user may see; every other id is 404."""

    async def positions(request: Request) -> Response:
        try:
            rights, query_id = rights_of(request.scope), request.path_params["id"]
            return json_response(await context.workers.run(lambda: _positions(context.engine, rights, query_id)), 200)
        except Exception as error:
            return error_response(error)

    return [Route("/queries/{id}/positions", positions)]


def _positions(engine: Engine, rights: Rights, query_id: str) -> dict[str, Any]:
    query = visible_query(engine, rights, query_id)
    status = engine.executor.status(query.id)
    return {
        "queryId": query.id,
        "state": status.shown_state,
        "error": status.trouble,
        "positions": _partitions(engine.log, query, status),
    }


def _partitions(log: LogClient, query: PersistentQuery, status: QueryStatus) -> list[dict[str, Any]]:
    """The positions of a query. A query that has not begun in this process (paused since the start, or it cannot start)
    has no positions in its status. Then its committed offsets are used, and None for a partition that it has never
    read."""
    reached = {**log.committed_offsets(offset_group(query.id)), **status.positions}
    found: list[dict[str, Any]] = []
    for name, planned in sorted({source.topic: source.partition_count for source in query.plan.sources()}.items()):
        topic = log.topic(name)
        for partition in range(planned if topic is None else topic.partition_count):
            at = TopicPartition(name, partition)
            position, end = reached.get(at, -1), _end(log, at)
            known = position if position >= 0 else None  # -1: the query discarded its position
            found.append({
                "topic": name,
                "partition": partition,
                "currentOffsetPosition": known,
                "endOffsetPosition": end,
                "offsetLag": None if known is None or end is None else max(0, end - known),
            })  # fmt: skip
    return found


def _end(log: LogClient, at: TopicPartition) -> int | None:
    """The last stable offset; None if the topic is deleted."""
    try:
        return log.offsets(*at).last_stable_offset
    except UnknownTopic:
        return None
