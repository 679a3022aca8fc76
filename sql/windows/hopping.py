"""HOPPING: windows of one size that begin at regular steps and overlap."""

from __future__ import annotations

from millstream.errors import InvalidStatement

from ..ast import WindowExpression
from .window_type import GRACE, RETENTION, SIZE, TIMEZONE, Bounds, Option, WindowType, check_count, check_days

ADVANCE_BY = Option(
    "ADVANCE BY", "advance_ms", elsewhere="Only HOPPING windows advance by another step than their size."
)


class Hopping(WindowType):
    name = "HOPPING"
    options = (SIZE, ADVANCE_BY, RETENTION, GRACE, TIMEZONE)
    required = (SIZE, ADVANCE_BY)
    example = "HOPPING (SIZE 1 MINUTE, ADVANCE BY 10 SECONDS)"

    def check(self, window: WindowExpression) -> None:
        if not 0 < (window.advance_ms or 0) <= window.size_ms:
            raise InvalidStatement("ADVANCE BY must be above 0 and at most SIZE.", span=window.span)
        check_count(window)
        super().check(window)
        check_days(window)

    def describe_sizes(self, window: Bounds) -> str:
        return f"{window.size_ms} ms by {window.advance_ms} ms"
