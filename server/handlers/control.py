"""TERMINATE, PAUSE, RESUME and RESET."""

from __future__ import annotations

from ...sql.ast import ControlQuery
from ..catalog.commands import Command, PauseQuery, ResetQuery, TerminateQuery
from ..engine.entities import CommandState, CurrentStatus, Entity
from ..engine.request import Request

_DONE = {
    "TERMINATE": "Query terminated.",
    "PAUSE": "Query paused.",
    "RESUME": "Query resumed.",
    "RESET": "Query reset. It reads its sources from the beginning.",
}


def control_query(statement: ControlQuery, request: Request) -> list[Entity]:
    """TERMINATE|PAUSE|RESUME id|ALL, RESET id. ALL are the persistent queries."""
    if statement.query_id is None:
        ids = list(request.catalog.queries)
    elif statement.action == "TERMINATE" and (push := request.push(statement.query_id)) is not None:
        request.pushes.close_one(push.id, request.session.rights)  # False: it has just ended by itself
        return [_done(statement, _DONE["TERMINATE"], -1)]
    else:
        ids = [request.query(statement.query_id, statement.span).id]
    offset = -1
    for query_id in ids:
        offset = request.store.submit(_command(statement, query_id))
    message = _DONE[statement.action] if ids else "There are no queries."
    return [_done(statement, message, offset)]


def _done(statement: ControlQuery, message: str, offset: int) -> Entity:
    return CurrentStatus(
        statement_text=statement.text,
        command_id=f"{statement.action.lower()}/{statement.query_id or 'ALL'}/execute",
        command_status=CommandState("SUCCESS", message, statement.query_id),
        command_sequence_number=offset,
    )


def _command(statement: ControlQuery, query_id: str) -> Command:
    if statement.action == "TERMINATE":
        return TerminateQuery(query_id=query_id, statement=statement.text)
    if statement.action == "RESET":
        return ResetQuery(query_id=query_id, statement=statement.text)
    return PauseQuery(query_id=query_id, paused=statement.action == "PAUSE", statement=statement.text)
