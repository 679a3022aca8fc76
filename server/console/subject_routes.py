"""GET /v1/subjects and /v1/subjects/{name}: the schema registry for the console, whether or not it has a listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...planner.schemas.registry import GLOBAL, Registry, Version, topic_of
from ..http.context import HttpContext, rights_of
from ..http.errors import NOT_FOUND, RequestRefused
from ..http.statements import error_response, json_response
from ..security.rights import Need, Rights


def subject_routes(context: HttpContext) -> list[Route]:
    """The routes. Users see the same subjects as in the registry: those of topics that they may read or write."""
    engine = context.engine

    def answered(answer: Callable[[Request, Registry, Rights], Any]) -> Callable[[Request], Any]:
        def locked(request: Request) -> Any:
            with engine.lock:
                return answer(request, engine.schemas.registry, rights_of(request.scope))

        async def route(request: Request) -> Response:
            try:
                return json_response(await context.workers.run(lambda: locked(request)), 200)
            except Exception as error:
                return error_response(error)

        return route

    return [Route("/v1/subjects", answered(_subjects)), Route("/v1/subjects/{name:path}", answered(_subject))]


def _subjects(request: Request, registry: Registry, rights: Rights) -> dict[str, Any]:
    del request
    by_subject: dict[str, list[Version]] = {}
    for version in registry.versions.values():
        if not version.deleted and rights.sees_subject(version.subject):
            by_subject.setdefault(version.subject, []).append(version)
    subjects: list[dict[str, Any]] = []
    for name, versions in sorted(by_subject.items()):
        latest = max(versions, key=lambda version: version.version)
        subjects.append({
            "name": name,
            "topic": topic_of(name),
            "type": latest.kind,
            "compatibility": registry.level(name),
            "versions": len(versions),
            "latest": latest.version,
            "id": latest.id,
        })  # fmt: skip
    return {"compatibility": registry.level(GLOBAL), "subjects": subjects}


def _subject(request: Request, registry: Registry, rights: Rights) -> dict[str, Any]:
    """Raises `NotPermitted`, `RequestRefused`."""
    name = request.path_params["name"]
    if not rights.sees_subject(name):
        rights.require([Need("read", topic_of(name), f"subject {name}")])
    found = registry.of_subject(name, deleted=True)
    if not found:
        raise RequestRefused(NOT_FOUND, f'the registry has no subject "{name}"')
    versions = [
        {
            "version": version.version,
            "id": version.id,
            "type": version.kind,
            "schema": version.text,
            "deleted": version.deleted,
            "references": [
                {"name": other.name, "subject": other.subject, "version": other.version} for other in version.references
            ],
        }
        for version in reversed(found)
    ]
    return {"name": name, "topic": topic_of(name), "compatibility": registry.level(name), "versions": versions}
