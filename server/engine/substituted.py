"""A statement whose variables are substituted, and its place in the text of its request.

Its errors show it as it was run, below blanks for what stands before it, so their lines and carets are right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from millstream.errors import MillstreamError, Span, StatementError

from ...sql.ast import Statement
from ...sql.parser import parse
from ...sql.variables import substitute_variables


@dataclass(frozen=True, slots=True)
class Substituted:
    """`asked`: the text of the request. `start`: where the statement begins in it. `text`: what is run; the spans of
    the parsed statement refer to it."""

    asked: str
    start: int
    text: str

    @classmethod
    def of(cls, asked: str, span: Span, variables: Mapping[str, str]) -> Self:
        """In: `span`: of the statement. Raises as `substitute_variables` does."""
        written = cls(asked, span.start, asked[span.start : span.end])
        try:
            return cls(asked, span.start, substitute_variables(written.text, variables))
        except StatementError as error:
            written.place(error)
            raise

    def parsed(self) -> list[Statement]:
        """Raises `StatementError`."""
        try:
            return parse(self.text)
        except StatementError as error:
            self.place(error)
            raise

    def place(self, error: MillstreamError) -> None:
        """Moves an error about the statement to its place in the request."""
        before = "".join(each if each == "\n" else " " for each in self.asked[: self.start])
        error.text = before + (error.text or self.text)
        if error.span is not None:
            error.span = Span(error.span.start + self.start, error.span.end + self.start)
