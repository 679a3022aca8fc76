"""The errors of every package: four bases, one class per kind of error, each with a stable `code`.

Imports nothing of Millstream, so that every package may use it. The rendering of an error (`render`) is here, too,
because the shell, the server and the tests show the same text.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Error numbers of an output that takes nothing more, for example because its disk is full."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of statement text: character offsets, `start` inclusive, `end` exclusive."""

    start: int
    end: int

    def join(self, other: Span) -> Span:
        """The smallest span that covers both."""
        return Span(min(self.start, other.start), max(self.end, other.end))

    def __deepcopy__(self, memo: dict[int, object]) -> Span:
        """Returns itself, because it is immutable: every node of a copied expression has a span, and copying spans
        would cost more than copying the nodes."""
        return self


class MillstreamError(Exception):
    """Base of all errors that Millstream raises on purpose.

    `span` refers to `text`, the whole text that the user sent; both may be None. `unsupported`: the request is valid
    but not implemented yet.
    """

    code: ClassVar[str] = "MILLSTREAM"
    unsupported: ClassVar[bool] = False

    def __init__(
        self, message: str, *, span: Span | None = None, hint: str | None = None, text: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.hint = hint
        self.text = text
        if hint:
            self.add_note(f"hint: {hint}")  # below the message in a traceback

    def render(self) -> str:
        """The error for people: message, the line with a caret line below it, hint."""
        lines = [f"error: {self.message}"]
        if self.span is not None and self.text is not None:
            lines += _excerpt(self.text, self.span)
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    @property
    def line_and_column(self) -> tuple[int, int] | None:
        """Line and column, both from 1, of the span's start; None if there is no span."""
        if self.span is None or self.text is None:
            return None
        before = self.text[: self.span.start]
        return before.count("\n") + 1, self.span.start - (before.rfind("\n") + 1) + 1


def _excerpt(text: str, span: Span) -> list[str]:
    start = min(span.start, len(text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line = text[line_start : len(text) if line_end < 0 else line_end]
    number = str(text.count("\n", 0, start) + 1)
    width = max(1, min(span.end, line_start + len(line)) - start)
    prefix = f"  {number} | "
    return [prefix + line, " " * (len(prefix) - 2) + "| " + " " * (start - line_start) + "^" * width]


class StatementError(MillstreamError):
    """An error in the user's SQL."""

    code = "STATEMENT"


class QueryError(MillstreamError):
    """A row or an engine failed at run time."""

    code = "QUERY"


class LogError(MillstreamError):
    """An error of storage or replication."""

    code = "LOG"


class ServerError(MillstreamError):
    """A request that the server refuses, or a server that cannot start."""

    code = "SERVER"


class ConnectionClosed(StatementError):
    """The program closed its connection, and uses it."""

    code = "CONNECTION_CLOSED"


class Unsupported(StatementError):
    """A valid statement that is not implemented yet."""

    code = "UNSUPPORTED"
    unsupported = True


class SqlSyntaxError(StatementError):
    """A syntax error. Its `str` begins with ksqlDB's lines, which ksqlDB clients search for: `line 1:8: Syntax Error`,
    ksqlDB's text about what is missing (`as_ksqldb`), and the statement. People read `render`."""

    code = "SYNTAX"

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = None,
        hint: str | None = None,
        text: str | None = None,
        as_ksqldb: str | None = None,
    ) -> None:
        super().__init__(message, span=span, hint=hint, text=text)
        self.as_ksqldb = as_ksqldb

    def __str__(self) -> str:
        at = self.line_and_column
        place = "" if at is None else f"line {at[0]}:{at[1]}: "
        statement = "" if self.text is None else f"Statement: {self.text}"
        return "\n".join(line for line in (f"{place}Syntax Error", self.as_ksqldb, statement, self.message) if line)


class InvalidNumber(StatementError):
    """A number that no type can represent. Its `str` begins with the position, as in ksqlDB."""

    code = "INVALID_NUMBER"

    def __str__(self) -> str:
        at = self.line_and_column
        return f"Failed to prepare statement: {'' if at is None else f'line {at[0]}:{at[1]}: '}{self.message}"


class UnknownName(StatementError):
    """A name without a meaning at its position. Its `str` begins with the position, as in ksqlDB: `Line: 1, Col: 8:
    `."""

    code = "UNKNOWN_NAME"

    def __str__(self) -> str:
        at = self.line_and_column
        return self.message if at is None else f"Line: {at[0]}, Col: {at[1]}: {self.message}"


class WrongKeyWord(UnknownName):
    """KEY in a table, or PRIMARY KEY in a stream."""

    code = "WRONG_KEY_WORD"


class UnknownAlias(UnknownName):
    """A column of a source that FROM does not name."""

    code = "UNKNOWN_ALIAS"

    def __str__(self) -> str:
        return f"Failed to prepare statement: {self.message}"


class AmbiguousColumn(UnknownName):
    """A name that exists in several sources."""

    code = "AMBIGUOUS_COLUMN"

    def __str__(self) -> str:
        return f"Exception while preparing statement: {super().__str__()}"


class UnknownColumn(UnknownName):
    code = "UNKNOWN_COLUMN"


class UnknownSource(UnknownName):
    code = "UNKNOWN_SOURCE"


class UnknownFunction(StatementError):
    code = "UNKNOWN_FUNCTION"


class UnknownType(StatementError):
    code = "UNKNOWN_TYPE"


class TypeMismatch(StatementError):
    """An operator or a function does not accept these types."""

    code = "TYPE_MISMATCH"


class InvalidStatement(StatementError):
    """The statement parses, but breaks a rule of the language."""

    code = "INVALID_STATEMENT"


class SourceExists(StatementError):
    code = "SOURCE_EXISTS"


class InvalidProperty(StatementError):
    code = "INVALID_PROPERTY"


class FormatError(StatementError):
    """A format cannot represent this schema, or does not exist."""

    code = "FORMAT"


def did_you_mean(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """A hint with the most similar candidate, or None if none is similar: `cutoff` is the required similarity."""
    by_upper = {candidate.upper(): candidate for candidate in candidates}
    near = difflib.get_close_matches(name.upper(), by_upper, n=1, cutoff=cutoff)
    return f'Did you mean "{by_upper[near[0]]}"?' if near else None
