"""The routes of the HTTP API, as an ASGI application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp

from ..cluster.admin import cluster_routes
from ..connect.connect_refusals import is_below_connect
from ..connect.connect_refusals import refusal as connect_refusal
from ..connect.connect_routes import ConnectRoutes
from ..connect.webhooks import webhook_route
from ..console.assist_routes import AssistRoutes
from ..console.own_origin import OwnOrigin
from ..console.page_files import console_routes
from ..console.subject_routes import subject_routes
from ..console.topic_routes import topic_routes
from ..mcp.mcp_route import McpRoute
from ..rest_proxy.proxy_errors import is_below_proxy, media_type_of
from ..rest_proxy.proxy_errors import refusal as proxy_refusal
from ..rest_proxy.proxy_settings import RestProxySettings
from ..rest_proxy.rest_proxy import rest_proxy_routes
from ..security.access import Authenticator
from .arrow_inserts import insert_route
from .context import HttpContext
from .errors import NOT_FOUND, RequestRefused
from .gate import Gate
from .graph import graph_route
from .inserts import InsertsRoute
from .ksql_cluster import ClusterRoutes
from .pages import Pages
from .query_responses import query_route, query_stream_route
from .query_routes import query_routes
from .reading_route import reading_route
from .snapshots import snapshot_routes
from .statements import StatementRoutes, error_response
from .websocket import SocketRoute

_PROXY: Final = RestProxySettings()


def http_app(
    context: HttpContext,
    authenticator: Authenticator | None = None,
    other_nodes: Callable[[], Mapping[str, bool]] = dict[str, bool],
    *,
    console: bool = True,
    mcp: bool = False,
    rest_proxy: RestProxySettings | None = _PROXY,
) -> ASGIApp:
    """The application. It has no middleware for CORS: browsers do not show answers to pages of other origins.

    In: `other_nodes` of the cluster, by HTTP address, and whether they are alive. `console`: whether the web console is
    served, whose pages may send requests. `mcp`: whether MCP is served. `rest_proxy`: None if it is off.
    """
    routes = http_routes(context, authenticator, other_nodes, console=console, mcp=mcp, rest_proxy=rest_proxy)
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _failed})
    return Gate(OwnOrigin(app) if console else app, context, authenticator)


def http_routes(
    context: HttpContext,
    authenticator: Authenticator | None,
    other_nodes: Callable[[], Mapping[str, bool]] = dict[str, bool],
    *,
    console: bool = True,
    mcp: bool = False,
    rest_proxy: RestProxySettings | None = _PROXY,
) -> list[BaseRoute]:
    """The handler of each path of `routes.py`. In: as for `http_app`."""
    statements, pages, cluster = StatementRoutes(context), Pages(context, console), ClusterRoutes(context, other_nodes)
    return [
        Route("/ksql", statements.statements, methods=["POST"]),
        Route("/ksql/terminate", cluster.terminate, methods=["POST"]),
        Route("/query", query_route(context), methods=["POST"]),
        Route("/query-stream", query_stream_route(context), methods=["POST"]),
        reading_route(context),
        Route("/close-query", statements.close_query, methods=["POST"]),
        Route("/inserts-stream", InsertsRoute(context), methods=["POST"]),
        WebSocketRoute("/ws/query", SocketRoute(context)),
        Route("/", pages.root),
        Route("/info", pages.info),
        Route("/healthcheck", pages.health),
        Route("/chc/live", pages.live),
        Route("/chc/ready", pages.ready),
        Route("/livez", pages.live),
        Route("/readyz", pages.ready),
        Route("/metrics", pages.metrics),
        Route("/graph", graph_route(context)),
        Route("/openapi.json", pages.openapi),
        Route("/v1/sources/{name}/rows", insert_route(context), methods=["POST"]),
        Route("/v1/metadata", pages.metadata),
        Route("/v1/metadata/id", pages.metadata_id),
        Route("/is_valid_property/{name}", pages.is_valid_property),
        Route("/status", pages.statuses),
        Route("/status/{command:path}", pages.status),
        Route("/clusterStatus", cluster.cluster_status),
        Route("/heartbeat", cluster.heartbeat, methods=["POST"]),
        Route("/lag", cluster.lag, methods=["POST"]),
        *query_routes(context),
        *ConnectRoutes(context).routes(),
        webhook_route(context),
        *(() if rest_proxy is None else rest_proxy_routes(context, rest_proxy)),
        *topic_routes(context),
        *subject_routes(context),
        *AssistRoutes(context, authenticator).routes,
        *(console_routes() if console else ()),
        *cluster_routes(context.cluster, context.workers, context.body_bytes_max),
        Route("/mcp", McpRoute(context) if mcp else _mcp_is_off, methods=["POST"]),
        *snapshot_routes(context.snapshots, context.workers, context.body_bytes_max),
    ]


def _refused(request: Request, error: Exception) -> Response:
    """The response for an unknown path, or for a method that the path does not have."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    message = f"{request.method} is not allowed for {path}" if error.status_code == 405 else f"{path} does not exist"
    refused = RequestRefused(error.status_code * 100, message)
    if is_below_connect(path):
        response = connect_refusal(refused)
    elif is_below_proxy(path):
        response = proxy_refusal(refused, media_type_of(path))
    else:
        response = error_response(refused)
    response.headers.update(error.headers or {})
    return response


def _mcp_is_off(request: Request) -> Response:
    del request
    refusal = RequestRefused(NOT_FOUND, "MCP is off", hint="Set mcp = true in the server's configuration.")
    return error_response(refusal)


def _failed(request: Request, error: Exception) -> Response:
    del request
    return error_response(error)
