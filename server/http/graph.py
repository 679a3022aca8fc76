"""GET /graph: the graph of streams, tables and queries as text, DOT, SVG or JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ...sql.settings.property_table import VARIABLE_SUBSTITUTION
from ..engine.insight_entities import GraphShown
from ..engine.session import Session
from .context import HttpContext, rights_of
from .errors import BAD_REQUEST, RequestRefused
from .statements import error_response, json_response

_MEDIA_TYPES: Final = {
    "text": "text/plain; charset=utf-8",
    "dot": "text/vnd.graphviz; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}
_AS_WRITTEN: Final = {VARIABLE_SUBSTITUTION.name: "false"}


def graph_route(context: HttpContext) -> Callable[[Request], Awaitable[Response]]:
    """`?format=`, `?of=`: as in SHOW GRAPH OF … AS …"""

    async def graph(request: Request) -> Response:
        try:
            form = request.query_params.get("format", "text").lower()
            if form not in _MEDIA_TYPES:
                raise RequestRefused(BAD_REQUEST, f'there is no format "{form}"', hint="text, dot, svg and json are.")
            session = Session(dict(_AS_WRITTEN), rights=rights_of(request.scope))
            text = _statement(request.query_params.get("of"), form)
            (shown,) = await context.workers.run(lambda: context.engine.execute(text, session))
        except Exception as error:
            return error_response(error)
        assert isinstance(shown, GraphShown)
        if form == "json":
            found = shown.as_json()
            return json_response({"nodes": found["nodes"], "edges": found["edges"]}, 200)
        return Response(shown.text + "\n", media_type=_MEDIA_TYPES[form])

    return graph


def _statement(of: str | None, form: str) -> str:
    named = "" if of is None else " OF '" + of.replace("'", "''") + "'"
    return f"SHOW GRAPH{named} AS {'TEXT' if form == 'json' else form.upper()};"
