"""TUMBLING: windows of one size, side by side."""

from __future__ import annotations

from ..ast import WindowExpression
from .window_type import GRACE, RETENTION, SIZE, TIMEZONE, WindowType, check_days


class Tumbling(WindowType):
    name = "TUMBLING"
    options = (SIZE, RETENTION, GRACE, TIMEZONE)
    required = (SIZE,)
    example = "TUMBLING (SIZE 1 MINUTE)"

    def check(self, window: WindowExpression) -> None:
        super().check(window)
        check_days(window)
