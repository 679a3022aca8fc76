"""Statements that parse but are not supported, or that belong to another interface. Each raises an error."""

from __future__ import annotations

from millstream.errors import InvalidStatement, SqlSyntaxError, Unsupported

from ...sql.ast import (
    AlterSystem,
    PrintTopic,
    Query,
    RunScript,
)
from ..engine.entities import Entity
from ..engine.request import Request


def alter_system(statement: AlterSystem, request: Request) -> list[Entity]:
    """ALTER SYSTEM 'name'='value'."""
    del request
    raise Unsupported(
        "ALTER SYSTEM exists in Confluent Cloud only",
        span=statement.span,
        hint="Put the property into the server's configuration and restart it, or SET it for the session.",
    )


def run_script(statement: RunScript, request: Request) -> list[Entity]:
    """RUN SCRIPT: the file is on the client's machine."""
    del request
    raise SqlSyntaxError(
        "RUN SCRIPT is a command of the shell, which sends the statements of the file",
        span=statement.span,
        hint="Send the statements of the file.",
        as_ksqldb="Unknown statement 'RUN'",
    )


def streaming(statement: Query | PrintTopic, request: Request) -> list[Entity]:
    """SELECT and PRINT answer with a stream of rows, not with entities."""
    session, selects = request.session, isinstance(statement, Query)
    place = session.rows_from if selects else session.prints_from
    raise InvalidStatement(
        f"{'SELECT' if selects else 'PRINT'} returns rows and cannot be run as a command.",
        span=statement.span,
        hint=f"Send it to {place}.",
    )
