"""The errors of connectors, before they run and while they run."""

from __future__ import annotations

import re
from typing import Final

from millstream.errors import QueryError, StatementError

_FULL: Final = re.compile(
    r"no space left|\bos error 28\b|quota exceeded|\b(disk|volume) (is )?full|the table '.*' is full", re.IGNORECASE
)


class InvalidConnector(StatementError):
    """A setting that is missing, unknown or wrong. `setting`: its name, if the error is about one setting; `problems`:
    what is wrong with each, where all were checked."""

    code = "INVALID_CONNECTOR"

    def __init__(
        self, message: str, *, setting: str | None = None, hint: str | None = None, problems: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.setting = setting
        self.problems = problems


class UnknownSourceTable(StatementError):
    """The other system has no such table, or the connector does not read it."""

    code = "UNKNOWN_SOURCE_TABLE"


class ConnectorFailed(QueryError):
    """The task cannot continue until a user changes something. It is FAILED, and its error says what to do."""

    code = "CONNECTOR_FAILED"


class SystemUnavailable(QueryError):
    """The other system does not answer, or cannot at the moment. The task waits and retries for as long as it takes."""

    code = "SYSTEM_UNAVAILABLE"


class SystemFault(QueryError):
    """An error of the other system that may or may not be temporary. The task retries for some minutes, then it is
    FAILED."""

    code = "SYSTEM_FAULT"


class UnknownConnectorTask(QueryError):
    """No connector of this name runs here, or it has no task of this number."""

    code = "UNKNOWN_CONNECTOR_TASK"


def is_full(text: str) -> bool:
    """Whether the text of an error says that another system or a disk is full.

    >>> is_full("Unable to copy data to file: No space left on device (os error 28)"), is_full("it is full of errors")
    (True, False)
    """
    return _FULL.search(text) is not None


def unavailable(message: str) -> SystemUnavailable:
    """The error; with a hint if the system is full."""
    return SystemUnavailable(message, hint="Make room there: the task goes on by itself." if is_full(message) else None)


def one_line(error: object) -> str:
    """The text of another system's error on one line, for our messages."""
    return " ".join(str(error).split())
