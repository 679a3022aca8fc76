"""CREATE TYPE and DROP TYPE."""

from __future__ import annotations

from millstream.errors import InvalidStatement, UnknownType, did_you_mean

from ...planner.expressions.scope import resolve_type
from ...sql.ast import CreateType
from ...sql.ast import DropType as DropTypeStatement
from ..catalog.commands import PutType, RemoveType
from ..engine.entities import CommandState, CurrentStatus, Entity, Warned
from ..engine.request import Request
from .create import command_id


def create_type(statement: CreateType, request: Request) -> list[Entity]:
    """CREATE TYPE [IF NOT EXISTS] name AS type."""
    known = request.catalog.types.get(statement.name)
    if known is not None:
        message = f"Cannot register custom type '{statement.name}' since it is already registered with type: {known}"
        if statement.if_not_exists:
            return [Warned(statement_text=statement.text, message=message)]
        raise InvalidStatement(message, span=statement.span, hint=f"DROP TYPE {statement.name}; first.")
    type_ = resolve_type(statement.type, request.catalog.types, statement.span)
    offset = request.store.submit(PutType(name=statement.name, type=type_, statement=statement.text))
    message = f"Registered custom type with name '{statement.name}' and SQL type {type_}"
    return [_done(statement.text, statement.name, "create", message, offset)]


def drop_type(statement: DropTypeStatement, request: Request) -> list[Entity]:
    """DROP TYPE [IF EXISTS] name; sources that use it keep their columns."""
    if statement.name not in request.catalog.types:
        message = f"Type '{statement.name}' does not exist"
        if statement.if_exists:
            return [_done(statement.text, statement.name, "drop", message, -1)]
        hint = did_you_mean(statement.name, request.catalog.types)
        raise UnknownType(message, span=statement.span, hint=hint)
    offset = request.store.submit(RemoveType(name=statement.name, statement=statement.text))
    return [_done(statement.text, statement.name, "drop", f"Dropped type '{statement.name}'", offset)]


def _done(text: str, name: str, action: str, message: str, offset: int) -> CurrentStatus:
    return CurrentStatus(
        statement_text=text,
        command_id=command_id("type", name, action),
        command_status=CommandState("SUCCESS", message),
        command_sequence_number=offset,
    )
