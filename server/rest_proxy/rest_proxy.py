"""The routes of the REST proxy on an HTTP server."""

from __future__ import annotations

from starlette.routing import Route

from ..http.context import HttpContext
from .named_schemas import NamedSchemas
from .producing import RecordWriter
from .proxied_log import ProxiedLog
from .v2_topics import V2Topics


def rest_proxy_routes(context: HttpContext) -> list[Route]:
    """What `proxy_paths.py` lists."""
    engine = context.engine
    log, schemas = ProxiedLog(engine), NamedSchemas(engine.schemas, engine.lock)
    writer = RecordWriter(log.log)
    return [
        *V2Topics(context, log, schemas, writer).routes(),
    ]
