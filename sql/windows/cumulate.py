"""CUMULATE: windows with the same start, and ends one step apart, up to the full size.

With SIZE 1 DAY and STEP 1 HOUR, a row at 10:30 counts in the windows of its day that end at 11:00, 12:00, … and 24:00:
the running total of the day, for each hour.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import InvalidStatement

from ..ast import WindowExpression
from .window_type import GRACE, RETENTION, SIZE, TIMEZONE, Bounds, Option, WindowType, check_count, check_days

STEP = Option("STEP", "advance_ms", elsewhere="Only CUMULATE windows grow by steps.")


class Cumulate(WindowType):
    """`advance_ms` is the step."""

    name = "CUMULATE"
    options = (SIZE, STEP, RETENTION, GRACE, TIMEZONE)
    required = (SIZE, STEP)
    example = "CUMULATE (SIZE 1 DAY, STEP 1 HOUR)"
    holds_end = True

    def check(self, window: WindowExpression) -> None:
        super().check(window)
        if window.size_ms % (window.advance_ms or 1):
            raise InvalidStatement(
                "the SIZE of a CUMULATE window must be a multiple of its STEP",
                span=window.span,
                hint=f"Every window ends at a step, the largest one too: write {self.example}.",
            )
        check_count(window)
        check_days(replace(window, advance_ms=None))  # days of a zone may be longer by hours

    def describe_sizes(self, window: Bounds) -> str:
        return f"{window.size_ms} ms in steps of {window.advance_ms} ms"
