"""POST /v1/reading: how external programs read a stream or table through the Kafka port; `millstream.spark` uses it."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...planner.serde import reading_to_json
from .context import HttpContext, rights_of
from .errors import BAD_REQUEST, RequestRefused
from .requests import StatementRequest, read_object, statement_request
from .statements import error_response, json_response


def reading_route(context: HttpContext) -> Route:
    """Body: `sql`, a SELECT from one stream or table, and `changes`: of a table, every change."""

    async def reading(request: Request) -> Response:
        try:
            body = await read_object(request, context.body_bytes_max)
            changes = body.get("changes", False)
            if not isinstance(changes, bool):
                raise RequestRefused(BAD_REQUEST, "`changes` is true or false")
            asked = statement_request(body, rights_of(request.scope), context.settings.denied)
            return json_response(await context.workers.run(lambda: _reading(context, asked, changes)), 200)
        except Exception as error:
            return error_response(error)

    return Route("/v1/reading", reading, methods=["POST"])


def _reading(context: HttpContext, asked: StatementRequest, changes: bool) -> dict[str, Any]:
    """`user`: the name under which the server knows the user, if it has users: a token contains no name."""
    engine = context.engine
    found = engine.reading(asked.text, asked.session, changes=changes)
    topic_id = engine.log.topic_id(found.source.topic)
    return {
        "reading": orjson.loads(reading_to_json(found)),
        "topicId": None if topic_id is None else str(topic_id),
        "kafka": context.kafka(),
        "user": asked.session.rights.name,
    }
