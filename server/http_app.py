"""The routes of the HTTP API, as an ASGI application."""

from __future__ import annotations

from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .http_context import HttpContext
from .http_errors import HEADERS_TOO_LARGE, RequestRefused
from .http_pages import Pages
from .http_queries import query_route, query_stream_route
from .http_statements import StatementRoutes, error_response

HEADERS_MAX: Final = 100
HEADER_BYTES_MAX: Final = 16 * 1024


def http_app(context: HttpContext) -> ASGIApp:
    """No middleware for CORS: pages of other origins get no answer that a browser would show them."""
    statements, pages = StatementRoutes(context), Pages(context)
    routes = [
        Route("/ksql", statements.statements, methods=["POST"]),
        Route("/query", query_route(context), methods=["POST"]),
        Route("/query-stream", query_stream_route(context), methods=["POST"]),
        Route("/close-query", statements.close_query, methods=["POST"]),
        Route("/", pages.root),
        Route("/info", pages.info),
        Route("/healthcheck", pages.health),
        Route("/chc/live", pages.live),
        Route("/chc/ready", pages.ready),
        Route("/v1/metadata", pages.metadata),
        Route("/v1/metadata/id", pages.metadata_id),
        Route("/is_valid_property/{name}", pages.is_valid_property),
        Route("/status", pages.statuses),
        Route("/status/{command:path}", pages.status),
    ]
    return _with_small_headers(
        Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _failed})
    )


def _with_small_headers(app: ASGIApp) -> ASGIApp:
    """hypercorn limits what it keeps of a request line and headers that are not complete; this is about all of them."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = scope["headers"]
            size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(n) + len(v) for n, v in headers)
            if len(headers) > HEADERS_MAX or size > HEADER_BYTES_MAX:
                most = f"{HEADERS_MAX} headers or {HEADER_BYTES_MAX} bytes of them"
                refusal = RequestRefused(HEADERS_TOO_LARGE, f"the request has more than {most}")
                await error_response(refusal)(scope, receive, send)
                return
        await app(scope, receive, send)

    return checked


def _refused(request: Request, error: Exception) -> Response:
    """No such route, or not by this method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    message = f"{request.method} is not for {path}" if error.status_code == 405 else f"there is no {path} here"
    response = error_response(RequestRefused(error.status_code * 100, message))
    response.headers.update(error.headers or {})
    return response


def _failed(request: Request, error: Exception) -> Response:
    del request
    return error_response(error)
