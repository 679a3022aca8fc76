"""Kafka Connect's `/admin/loggers`. A worker is the process that answers: connectors run in no other one."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ..http.context import HttpContext, rights_of
from ..http.errors import BAD_REQUEST, NOT_FOUND, RequestRefused
from ..http.requests import read_object
from ..http.statements import json_response
from ..insight.log_levels import LOG_LEVELS, LoggerLevel, UnknownLevel, UnknownLogger

_LEVEL: Final = '{"level": "DEBUG"}'


async def all_loggers(request: Request) -> Response:
    rights_of(request.scope).require_administrator()
    return json_response({name: _shown(level) for name, level in LOG_LEVELS.all().items()}, 200)


async def one_logger(request: Request) -> Response:
    rights_of(request.scope).require_administrator()
    try:
        return json_response(_shown(LOG_LEVELS.of(request.path_params["name"])), 200)
    except UnknownLogger as error:
        raise RequestRefused(NOT_FOUND, error.message, hint=error.hint) from error


async def change_logger(request: Request, context: HttpContext) -> Response:
    """`scope=cluster` has no answer, and as in Connect an unknown scope is that of the worker."""
    rights_of(request.scope).require_administrator()
    level = (await read_object(request, context.body_bytes_max, _LEVEL)).get("level")
    if not isinstance(level, str):
        raise RequestRefused(BAD_REQUEST, "Desired 'level' parameter was not specified in request.", hint=_LEVEL)
    try:
        changed = LOG_LEVELS.change(request.path_params["name"], level)
    except (UnknownLogger, UnknownLevel) as error:
        raise RequestRefused(NOT_FOUND, error.message, hint=error.hint) from error
    if request.query_params.get("scope") == "cluster":
        return Response(status_code=204)
    return json_response(changed, 200)


def _shown(level: LoggerLevel) -> dict[str, str | int | None]:
    return {"level": level.level, "last_modified": level.changed_ms}
