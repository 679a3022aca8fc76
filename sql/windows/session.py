"""SESSION: rows of a key that follow each other within a gap."""

from __future__ import annotations

from types import MappingProxyType

from .durations import DAY_MS
from .window_type import GRACE, RETENTION, Bounds, Option, WindowType

GAP = Option("", "size_ms", elsewhere="Write the size: {example}.")


class SessionWindow(WindowType):
    """`size_ms` is the gap. Start and end are the times of the first and the last row."""

    name = "SESSION"
    options = (GAP, RETENTION, GRACE)
    required = (GAP,)
    example = "SESSION (30 SECONDS)"
    hints = MappingProxyType(
        {
            "SIZE": "A session has no size: write SESSION (30 SECONDS), the gap that ends it.",
            "TIMEZONE": "A session has no days: it ends when nothing came for its gap.",
        }
    )
    holds_end = True
    grows = True

    def default_grace_ms(self, size_ms: int) -> int:
        return DAY_MS

    def describe_sizes(self, window: Bounds) -> str:
        return f"gap {window.size_ms} ms"
