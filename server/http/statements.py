"""POST /ksql and /close-query: statements in, entities out."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ...executor.answers.pull_limits import PullClient
from ...sql.splitting import split_tokens
from ...sql.tokens import ROWS_STATEMENTS, token_span, tokenize
from ..engine.entities import Entity
from .context import HttpContext, disconnected, leaving, rights_of
from .errors import (
    BAD_REQUEST,
    BAD_STATEMENT,
    ENGINE_MOVED,
    RETRY_AFTER_S,
    USE_QUERY,
    RequestRefused,
    error_body,
    error_code_of,
    statement_at,
)
from .requests import StatementRequest, awaited_command, check_acceptable, read_object, statement_request
from .row_formats import JSON_TYPE, KSQL_TYPE

_UNAVAILABLE = 503


class StatementRoutes:
    """The routes that answer immediately."""

    def __init__(self, context: HttpContext) -> None:
        self._context = context

    async def statements(self, request: Request) -> Response:
        """/ksql."""
        text: str | None = None
        done: list[Entity] = []
        accept = request.headers.get("accept", "")
        media_type = KSQL_TYPE if KSQL_TYPE in accept else JSON_TYPE
        try:
            check_acceptable(accept, (JSON_TYPE, KSQL_TYPE))
            body = await read_object(request, self._context.body_bytes_max)
            asked = statement_request(body, rights_of(request.scope), self._context.engine.settings.denied)
            text = asked.text
            refused = rows_statement(text)
            if refused is not None:
                return json_response(refused, USE_QUERY // 100)
            await self._context.await_command(awaited_command(body))
            client = PullClient()
            async with leaving(client.leave, lambda: disconnected(request.receive)):
                await self._context.statements.run(text, lambda: self._execute(asked, done), client)
            return json_response([entity.as_json() for entity in done], 200, media_type)
        except Exception as error:
            return error_response(error, text, done)

    async def close_query(self, request: Request) -> Response:
        """/close-query: ends one of the user's push queries."""
        try:
            body = await read_object(request, self._context.body_bytes_max)
            query_id = body.get("queryId")
            if not isinstance(query_id, str):
                raise RequestRefused(BAD_REQUEST, 'the body has no text under "queryId"')
            if not self._context.open_queries.close_one(query_id, rights_of(request.scope)):
                raise RequestRefused(BAD_STATEMENT, f"No query with id {query_id}")
            return json_response({}, 200)
        except Exception as error:
            return error_response(error)

    def _execute(self, asked: StatementRequest, done: list[Entity]) -> None:
        self._context.engine.execute(asked.text, asked.session, done)


def rows_statement(text: str) -> dict[str, Any] | None:
    """The error for a text that contains a SELECT or a PRINT; None otherwise."""
    for group in split_tokens(tokenize(text)):
        if group[0].type in ROWS_STATEMENTS:
            return {
                "@type": "statement_error",
                "error_code": USE_QUERY,
                "message": f"{group[0].type} returns rows and cannot be run as a command.\n"
                "hint: Send it to /query or /query-stream.",
                "statementText": statement_at(text, token_span(group[0])),
                "entities": [],
            }
    return None


def json_response(value: Any, status: int, media_type: str = JSON_TYPE) -> Response:
    return Response(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS), status, media_type=media_type)


def error_response(error: BaseException, text: str | None = None, done: list[Entity] | None = None) -> Response:
    response = json_response(error_body(error, text, done), error_code_of(error) // 100)
    if response.status_code == _UNAVAILABLE and error_code_of(error) != ENGINE_MOVED:  # that one may have run it
        response.headers["retry-after"] = str(RETRY_AFTER_S)
    return response
