"""POST /v1/sources/NAME/rows: an Arrow IPC stream whose rows are appended to a stream or table, all or none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from ..client_tables import ARROW_TYPE
from ..engine.session import Session
from .arrow_body import read_table
from .context import HttpContext, rights_of
from .requests import read_bytes
from .statements import error_response, json_response


def insert_route(context: HttpContext) -> Callable[[Request], Awaitable[Response]]:
    """Answers with `{"rows": n}`. `rows_for` describes how columns are matched."""

    async def insert(request: Request) -> Response:
        try:
            body = await read_bytes(request, ARROW_TYPE, context.body_bytes_max)
            name = request.path_params["name"]
            session = Session(rights=rights_of(request.scope))
            context.engine.check_insert(name, session)  # checked before the untrusted body is decoded
            count = await context.workers.run(lambda: context.engine.insert(name, read_table(body), session))
            return json_response({"rows": count}, 200)
        except Exception as error:
            return error_response(error)

    return insert
