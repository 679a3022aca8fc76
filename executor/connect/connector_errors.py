"""What can go wrong with a connector: before it runs, and while it does."""

from __future__ import annotations

from millstream.errors import QueryError, StatementError


class InvalidConnector(StatementError):
    """A setting that is missing, unknown or wrong. `setting`: its name, where the error is about one."""

    code = "INVALID_CONNECTOR"

    def __init__(self, message: str, *, setting: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.setting = setting


class UnknownSourceTable(StatementError):
    """The other system has no such table, or the connector does not read it."""

    code = "UNKNOWN_SOURCE_TABLE"


class ConnectorFailed(QueryError):
    """The task cannot go on before somebody changes something: it is FAILED, and says what to do."""

    code = "CONNECTOR_FAILED"


class SystemUnavailable(QueryError):
    """The other system does not answer, or not now: the task waits and tries again, for as long as it takes."""

    code = "SYSTEM_UNAVAILABLE"


class SystemFault(QueryError):
    """An error of the other system that is not known to pass: the task tries again for some minutes, then it is
    FAILED."""

    code = "SYSTEM_FAULT"


class UnknownConnectorTask(QueryError):
    """No connector of this name runs here, or it has no task of this number."""

    code = "UNKNOWN_CONNECTOR_TASK"


def one_line(error: object) -> str:
    """The text of another system's error, for a message of ours."""
    return " ".join(str(error).split())
