"""Errors in the form of PostgreSQL's clients: SQLSTATE, message, hint and position."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

import structlog

from millstream.errors import (
    AmbiguousColumn,
    InvalidNumber,
    InvalidProperty,
    InvalidStatement,
    LogError,
    MillstreamError,
    QueryError,
    ServerError,
    SourceExists,
    SqlSyntaxError,
    StatementError,
    TypeMismatch,
    UnknownAlias,
    UnknownColumn,
    UnknownFunction,
    UnknownSource,
    UnknownType,
    Unsupported,
)

from ...executor.answers.pull_limits import PullLimitExceeded
from ..engine.queries import PushLimitExceeded
from ..handlers.assertions import AssertionFailed
from ..http.errors import NO_ENGINE, NOT_READY, SHUTTING_DOWN, RequestRefused
from ..security.rights import NotPermitted
from .frontend import PgProtocolViolation
from .login import PgLoginRefused
from .pg_parameters import WrongParameter
from .pg_times import PgTimeOutOfRange

_log = structlog.get_logger("millstream.server")


class PgRefused(ServerError):
    """A request of a PostgreSQL client that is refused, with the SQLSTATE of the reason."""

    code = "PG_REFUSED"

    def __init__(self, sqlstate: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.sqlstate = sqlstate


NOT_SUPPORTED: Final = "0A000"
UNDEFINED_CURSOR: Final = "34000"
UNDEFINED_STATEMENT: Final = "26000"
DUPLICATE_STATEMENT: Final = "42P05"
DUPLICATE_CURSOR: Final = "42P03"
SYNTAX: Final = "42601"
UNDEFINED_COLUMN: Final = "42703"
DUPLICATE_COLUMN: Final = "42701"
BAD_COPY: Final = "22P04"
INSUFFICIENT_PRIVILEGE: Final = "42501"
IN_FAILED_TRANSACTION: Final = "25P02"
READ_ONLY: Final = "25006"
NO_TRANSACTION: Final = "25P01"
NO_SAVEPOINT: Final = "3B001"
INVALID_VALUE: Final = "22023"
UNDEFINED_SETTING: Final = "42704"
CANCELED: Final = "57014"
ADMIN_SHUTDOWN: Final = "57P01"
TOO_MANY_CONNECTIONS: Final = "53300"
INVALID_AUTHORIZATION: Final = "28000"
_SEVERITY_FATAL: Final = "FATAL"

_STATES: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (PgProtocolViolation, "08P01"), (PgLoginRefused, "28P01"), (WrongParameter, "22P02"), (InvalidNumber, "22003"),
    (AmbiguousColumn, "42702"), (UnknownColumn, "42703"), (UnknownAlias, "42P01"), (UnknownSource, "42P01"),
    (UnknownFunction, "42883"), (UnknownType, UNDEFINED_SETTING), (TypeMismatch, "42804"), (SourceExists, "42P07"),
    (InvalidProperty, INVALID_VALUE), (SqlSyntaxError, SYNTAX), (Unsupported, NOT_SUPPORTED),
    (NotPermitted, INSUFFICIENT_PRIVILEGE), (PullLimitExceeded, "54000"), (PushLimitExceeded, "53400"),
    (InvalidStatement, "42000"), (StatementError, "42000"), (LogError, "58000"),
    (PgTimeOutOfRange, "22008"), (AssertionFailed, "P0004"), (QueryError, "XX000"),
)  # fmt: skip
"""The first class that fits determines the state."""


def sqlstate_of(error: BaseException) -> str:
    if isinstance(error, PgRefused):
        return error.sqlstate
    if isinstance(error, RequestRefused):
        unavailable = error.error_code in (SHUTTING_DOWN, NO_ENGINE, NOT_READY)
        return ADMIN_SHUTDOWN if unavailable else TOO_MANY_CONNECTIONS
    return next((state for kind, state in _STATES if isinstance(error, kind)), "XX000")


def error_fields(
    error: BaseException, place: Callable[[int], int] = lambda at: at, *, fatal: bool = False
) -> dict[str, str]:
    """In: `place`: maps a position in the error's text to the client's text."""
    severity = _SEVERITY_FATAL if fatal else "ERROR"
    fields = {"S": severity, "V": severity, "C": sqlstate_of(error)}
    if not isinstance(error, MillstreamError):
        number = uuid.uuid4().hex[:12]
        _log.error("postgresql request failed", number=number, exc_info=error)
        return {**fields, "M": f"internal error {number}: see the server's log"}
    fields["M"] = error.message
    if error.hint:
        fields["H"] = error.hint
    if error.span is not None and error.text is not None:
        fields["P"] = str(place(error.span.start) + 1)
    return fields


def notice_fields(message: str, severity: str = "NOTICE") -> dict[str, str]:
    return {"S": severity, "V": severity, "C": "00000" if severity == "NOTICE" else "01000", "M": message}
