"""/v1/snapshots and the routes below it: consistent snapshots of this node's log, for `millstream backup`.

Only administrators may use them: a snapshot contains all records of all topics, and the log's secret. Every node of a
cluster answers for itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...logcore.backup.snapshots import HOLD_S_MAX, SnapshotOutdated, SnapshotRefused, Snapshots
from ..security.rights import Rights
from .context import Workers, rights_of
from .errors import BAD_REQUEST, BAD_STATEMENT, NOT_FOUND, RequestRefused
from .requests import read_object
from .statements import error_response, json_response

_BYTES: Final = "application/octet-stream"
_Act = Callable[[Snapshots, str, Mapping[str, Any]], Response]


def snapshot_routes(snapshots: Snapshots | None, workers: Workers, body_bytes_max: int) -> list[Route]:
    """In: `snapshots`: None if the log is not on this machine's disk."""

    def route(act: _Act) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                found = _allowed(snapshots, rights_of(request.scope))
                asked = request.query_params if request.method == "GET" else await read_object(request, body_bytes_max)
                id = request.path_params.get("id", "")
                return await workers.run(lambda: act(found, id, asked))
            except Exception as error:
                return error_response(_told(error))

        return answer

    return [
        Route("/v1/snapshots", route(_nodes), methods=["GET"]),
        Route("/v1/snapshots", route(_take), methods=["POST"]),
        Route("/v1/snapshots/{id}/release", route(_release), methods=["POST"]),
        Route("/v1/snapshots/{id}/remove", route(_remove), methods=["POST"]),
        Route("/v1/snapshots/{id}/hashes", route(_hashes), methods=["GET"]),
        Route("/v1/snapshots/{id}/chunk", route(_chunk), methods=["GET"]),
    ]


def _allowed(snapshots: Snapshots | None, rights: Rights) -> Snapshots:
    rights.require_administrator()
    if snapshots is None:
        hint = "Back up the brokers that hold the log."
        raise RequestRefused(BAD_STATEMENT, "this server's log is not on its own disk", hint=hint)
    return snapshots


def _told(error: Exception) -> Exception:
    match error:
        case SnapshotRefused():
            return RequestRefused(NOT_FOUND, error.message, hint=error.hint)
        case SnapshotOutdated():
            return RequestRefused(BAD_STATEMENT, error.message, hint=error.hint)
        case _:
            return error


def _nodes(snapshots: Snapshots, id: str, asked: Mapping[str, Any]) -> Response:
    """This node, and the HTTP addresses of the others."""
    del id, asked
    node = snapshots.node
    found = {str(broker.id): broker.address("http") for broker in node.image.brokers.values()}
    return json_response({"node": node.id, "nodes": found or {str(node.id): None}}, 200)


def _take(snapshots: Snapshots, id: str, asked: Mapping[str, Any]) -> Response:
    hold_s = asked.get("holdSeconds", 0)
    if isinstance(hold_s, bool) or not isinstance(hold_s, int | float) or not 0 <= hold_s <= HOLD_S_MAX:
        raise RequestRefused(BAD_REQUEST, f'"holdSeconds" is a number from 0 to {HOLD_S_MAX:g}')
    id = snapshots.take(hold_s)
    files = [list(file) for file in snapshots.files(id)]
    return json_response({"id": id, "heldMs": snapshots.held_ms(id), "files": files}, 200)


def _release(snapshots: Snapshots, id: str, asked: Mapping[str, Any]) -> Response:
    del asked
    return json_response({"held": snapshots.release(id)}, 200)


def _remove(snapshots: Snapshots, id: str, asked: Mapping[str, Any]) -> Response:
    del asked
    snapshots.remove(id)
    return json_response({}, 200)


def _hashes(snapshots: Snapshots, id: str, asked: Mapping[str, Any]) -> Response:
    return json_response({"hashes": snapshots.hashes(id, _path(asked))}, 200)


def _chunk(snapshots: Snapshots, id: str, asked: Mapping[str, Any]) -> Response:
    number = str(asked.get("number", ""))
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise RequestRefused(BAD_REQUEST, 'the query needs a "number", of a chunk')
    return Response(snapshots.chunk(id, _path(asked), int(number)), media_type=_BYTES)


def _path(asked: Mapping[str, Any]) -> str:
    path = asked.get("path")
    if not isinstance(path, str):
        raise RequestRefused(BAD_REQUEST, 'the query needs a "path", of a file of the snapshot')
    return path
