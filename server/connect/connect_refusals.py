"""Refusals in the form of Kafka Connect: `error_code`, which is the HTTP status, and `message`, nothing else."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from ...executor.connect.connector_errors import UnknownConnectorTask
from ..handlers.connectors import ConnectorExists, UnknownConnector
from ..http.errors import NOT_FOUND, error_code_of, message_of
from ..http.statements import json_response

_CONFLICT: Final = 40900
_ROOTS: Final = frozenset({"connectors", "connector-plugins"})


def refusal(error: BaseException) -> Response:
    match error:
        case UnknownConnector() | UnknownConnectorTask():
            code = NOT_FOUND
        case ConnectorExists():
            code = _CONFLICT
        case _:
            code = error_code_of(error)
    return json_response({"error_code": code // 100, "message": message_of(error)}, code // 100)


def is_below_connect(path: str) -> bool:
    """Whether Kafka Connect answers for this path, also if it is none of its routes.

    >>> [is_below_connect(path) for path in ("/connectors/a/nope", "/admin/loggers/root", "/admin", "/connector")]
    [True, True, False, False]
    """
    first, *more = path.strip("/").split("/")
    return first in _ROOTS or (first == "admin" and more[:1] == ["loggers"])
