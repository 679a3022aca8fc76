"""The GET routes: identity and health of the server, and its commands."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from millstream.errors import InvalidProperty, LogError

from ..config.properties import find_property
from ..console.page_files import wants_page
from ..engine.entities import json_value
from .context import HttpContext, Workers, rights_of
from .errors import BAD_REQUEST, NOT_FOUND, RequestRefused
from .metrics import Metrics
from .openapi import openapi_document
from .statements import error_response, json_response

VERSION = importlib.metadata.version("millstream")
KSQLDB_VERSION = "0.29.0"  # our statements and API are of this version; ksqlDB's tools refuse older ones


class Pages:
    """One method per route."""

    def __init__(self, context: HttpContext, console: bool = False) -> None:
        """In: `console`: whether to redirect browsers to the web console."""
        self._context = context
        self._console = console

    async def root(self, request: Request) -> Response:
        if self._console and wants_page(request):
            return RedirectResponse("console/", 303, headers={"vary": "accept", "cache-control": "no-store"})
        return RedirectResponse("/info", 308, headers={"vary": "accept"} if self._console else None)

    async def info(self, request: Request) -> Response:
        del request
        about = {
            "version": KSQLDB_VERSION,
            "millstreamVersion": VERSION,
            "kafkaClusterId": self._context.cluster_id,
            "ksqlServiceId": self._context.settings.service_id,
            "serverStatus": "RUNNING" if self._context.ready else "TERMINATING",
        }
        return json_response({"KsqlServerInfo": about}, 200)

    async def health(self, request: Request) -> Response:
        """Healthy means that statements can run. SHOW QUERIES shows the state of each query."""
        del request
        log_answers = self._log_answers()  # not in a worker: all workers may be busy, and that is not unhealthy
        healthy = log_answers and self._context.ready
        details = {"metastore": healthy, "kafka": log_answers, "commandRunner": healthy}
        body = {
            "isHealthy": healthy,
            "details": {name: {"isHealthy": fine} for name, fine in details.items()},
            "serverState": "READY" if self._context.ready else "TERMINATING",
        }
        return json_response(body, 200 if healthy else 503)

    async def live(self, request: Request) -> Response:
        """/chc/live: the process answers."""
        del request
        return json_response({}, 200)

    async def ready(self, request: Request) -> Response:
        """/chc/ready: the server accepts statements."""
        del request
        return json_response({}, 200 if self._context.ready else 503)

    async def metrics(self, request: Request) -> Response:
        """/metrics, for Prometheus."""
        return await metrics_response(self._context.workers, self._context.metrics, request)

    async def openapi(self, request: Request) -> Response:
        del request
        return json_response(openapi_document(VERSION), 200)

    async def metadata(self, request: Request) -> Response:
        del request
        return json_response({"version": VERSION, "clusterId": self._cluster()}, 200)

    async def metadata_id(self, request: Request) -> Response:
        del request
        return json_response(self._cluster(), 200)

    async def is_valid_property(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            entry = find_property(name)
            if entry.scope == "SERVER":
                raise InvalidProperty(f"Cannot set property '{entry.name}': it is a server property.")
        except InvalidProperty as error:
            return error_response(RequestRefused(BAD_REQUEST, error.message, hint=error.hint))
        return json_response(True, 200)

    async def statuses(self, request: Request) -> Response:
        """/status: the commands that created the current sources, and the latest others."""
        known = {name: found["status"] for name, found in self._commands(request).items()}
        return json_response({"commandStatuses": known}, 200)

    async def status(self, request: Request) -> Response:
        """/status/{type}/{entity}/{action}."""
        name = request.path_params["command"]
        commands = self._commands(request)
        found = commands.get(name) or commands.get(_quoted(name))
        if found is None:
            return error_response(RequestRefused(NOT_FOUND, f"Command {name} not found"))
        return json_response(found, 200)

    def _commands(self, request: Request) -> dict[str, dict[str, Any]]:
        rights, engine = rights_of(request.scope), self._context.engine
        catalog = rights.visible(engine.catalog)
        commands: dict[str, dict[str, Any]] = {}
        for source in catalog.sources.values():
            status = {"status": "SUCCESS", "message": f"{source.kind.capitalize()} created", "queryId": None}
            if source.created_by is not None:
                status |= {"message": f"Created query with ID {source.created_by}", "queryId": source.created_by}
            commands[f"{source.kind.lower()}/`{source.name}`/create"] = status
        return commands | {name: json_value(state) for name, state in engine.command_statuses.of(rights).items()}

    def _cluster(self) -> dict[str, Any]:
        clusters = {"kafka-cluster": self._context.cluster_id, "ksql-cluster": self._context.settings.service_id}
        return {"scope": {"path": [], "clusters": clusters}, "id": ""}

    def _log_answers(self) -> bool:
        try:
            self._context.engine.log.topics()
        except LogError:
            return False
        return True


async def metrics_response(workers: Workers, metrics: Metrics, request: Request) -> Response:
    """The response for Prometheus. `?name[]=`: only the families of these names."""
    rights, names = rights_of(request.scope), frozenset(request.query_params.getlist("name[]"))
    try:
        text = await workers.run(lambda: metrics.text(rights, names))
    except Exception as error:
        return error_response(error)
    return Response(text, headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})


def _quoted(name: str) -> str:
    """Adds backquotes: `stream/S/create` becomes ``stream/`S`/create``."""
    kind, _, rest = name.partition("/")
    entity, _, action = rest.rpartition("/")
    return f"{kind}/`{entity}`/{action}"
