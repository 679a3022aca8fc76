"""GET /graph: the graph of streams, tables and queries as text, DOT, SVG or JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ...planner.insight.graph import Graph
from ...planner.insight.graph_layout import lay_out
from ...planner.insight.graph_svg import node_size
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
    "layout": "application/json",
}
_LAID_OUT_MAX: Final = 1000
_AS_WRITTEN: Final = {VARIABLE_SUBSTITUTION.name: "false"}


def graph_route(context: HttpContext) -> Callable[[Request], Awaitable[Response]]:
    """The handler. `?format=` and `?of=`: as in SHOW GRAPH OF … AS …"""

    async def graph(request: Request) -> Response:
        try:
            form = request.query_params.get("format", "text").lower()
            if form not in _MEDIA_TYPES:
                raise RequestRefused(
                    BAD_REQUEST, f'there is no format "{form}"', hint="text, dot, svg, json and layout are."
                )
            session = Session(dict(_AS_WRITTEN), rights=rights_of(request.scope))
            text = _statement(request.query_params.get("of"), form)
            (shown,) = await context.workers.run(lambda: context.engine.execute(text, session))
        except Exception as error:
            return error_response(error)
        assert isinstance(shown, GraphShown)
        if form == "json":
            found = shown.as_json()
            return json_response({"nodes": found["nodes"], "edges": found["edges"]}, 200)
        if form == "layout":
            return json_response(await context.workers.run(lambda: _laid_out(shown)), 200)
        return Response(shown.text + "\n", media_type=_MEDIA_TYPES[form])

    return graph


def _laid_out(shown: GraphShown) -> dict[str, Any]:
    """`nodes` and `edges` with their positions, in pixels of a 12-pixel monospaced font. An edge's `bends` are the
    points between its ends. Raises `RequestRefused` if there are too many nodes."""
    if len(shown.nodes) > _LAID_OUT_MAX:
        message = f"the graph has {len(shown.nodes)} nodes, and at most {_LAID_OUT_MAX} are laid out"
        raise RequestRefused(BAD_REQUEST, message, hint="Name one of its streams, tables or queries with `of`.")
    graph = Graph(tuple(shown.nodes), tuple(shown.edges))
    layout = lay_out(graph, {node.id: node_size(node) for node in graph.nodes})
    found = shown.as_json()
    nodes = [{**node, **asdict(layout.boxes[node["id"]])} for node in found["nodes"]]
    edges = [{**edge, "bends": bends} for edge, bends in zip(found["edges"], layout.bends, strict=True)]
    return {"nodes": nodes, "edges": edges, "width": layout.width, "height": layout.height}


def _statement(of: str | None, form: str) -> str:
    named = "" if of is None else " OF '" + of.replace("'", "''") + "'"
    return f"SHOW GRAPH{named} AS {'TEXT' if form in ('json', 'layout') else form.upper()};"
