"""The base of window types, and the options that several types share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Protocol

from millstream.errors import InvalidStatement

from ..ast import WindowExpression
from ..functions.java.java_zones import Unparsable, zone_of
from .durations import DAY_MS

_WINDOWS_PER_ROW_MAX = 100_000  # enough for a day in steps of a second


@dataclass(frozen=True, slots=True)
class Option:
    """An option between the parentheses: its words, and the grammar of its value.

    `field`: of `ast.WindowExpression`, which stores it. `elsewhere`: the hint if a user writes it for a type without
    this option; `{example}` in it is that type's example.
    """

    words: str
    field: str
    value: str = "duration"
    elsewhere: str = ""

    @property
    def rule(self) -> str:
        """The alternative of the grammar's rule `window_option`."""
        return f"{self.words} {self.value}".strip()


SIZE = Option("SIZE", "size_ms")
RETENTION = Option("RETENTION", "retention_ms")
GRACE = Option("GRACE PERIOD", "grace_ms")
TIMEZONE = Option("TIMEZONE", "timezone", "STRING_LITERAL")


class Bounds(Protocol):
    """The part of a window's definition that determines its windows; times in ms, see `ast.WindowExpression`."""

    @property
    def size_ms(self) -> int: ...
    @property
    def advance_ms(self) -> int | None: ...
    @property
    def grace_ms(self) -> int: ...
    @property
    def timezone(self) -> str | None: ...


class WindowType:
    """A type of window. A module of `sql/windows/` defines each; its module in `executor/windows/` finds a row's
    windows, unless windows grow with their rows.

    `required`: mandatory options. `hints`: for options that it does not have. `holds_end`: the start alone does not
    identify a window, so keys contain the end, too. `grows`: rows close to each other form a window, so two windows may
    become one, and their aggregates must support merging.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]]
    required: ClassVar[tuple[Option, ...]]
    example: ClassVar[str]
    hints: ClassVar[Mapping[str, str]] = MappingProxyType({})
    holds_end: ClassVar[bool] = False
    grows: ClassVar[bool] = False

    def has(self, option: str) -> bool:
        return any(each.words == option for each in self.options)

    @property
    def mark(self) -> str:
        """The bound that identifies the windows of a key, and grows with the time at which they close."""
        return "_we" if self.holds_end else "_ws"

    def check(self, window: WindowExpression) -> None:
        """Raises `InvalidStatement` for impossible windows."""
        if window.size_ms <= 0:
            raise InvalidStatement("A window's SIZE must be above 0.", span=window.span)

    def default_grace_ms(self, size_ms: int) -> int:
        """As in Kafka Streams, a window without a GRACE PERIOD accepts records until a day after its start."""
        return max(0, DAY_MS - size_ms)

    def describe(self, window: Bounds) -> str:
        """The text for EXPLAIN."""
        zone = "" if window.timezone is None else f" as days of {window.timezone}"
        return f"{self.name} {self.describe_sizes(window)}{zone}, grace {window.grace_ms} ms"

    def describe_sizes(self, window: Bounds) -> str:
        return f"{window.size_ms} ms"


def check_count(window: WindowExpression) -> None:
    """Raises `InvalidStatement` if each row would belong to too many windows."""
    count = window.size_ms // (window.advance_ms or 1)
    if count > _WINDOWS_PER_ROW_MAX:
        raise InvalidStatement(
            f"each row would fall into {count} windows",
            span=window.span,
            hint=f"A row can be in {_WINDOWS_PER_ROW_MAX} windows: make ADVANCE BY larger, or SIZE smaller.",
        )


def check_days(window: WindowExpression) -> None:
    """Raises `InvalidStatement` for an unknown time zone, and for windows with a zone that are not whole days."""
    if window.timezone is None:
        return
    try:
        zone_of(window.timezone)
    except Unparsable as unknown:
        raise InvalidStatement(
            str(unknown), span=window.span, hint="Name a zone such as 'Europe/Berlin' or an offset such as '+02:00'."
        ) from unknown
    if window.size_ms % DAY_MS or (window.advance_ms or 0) % DAY_MS:
        raise InvalidStatement(
            "Windows with a TIMEZONE are whole days.",
            span=window.span,
            hint="Give SIZE and ADVANCE BY in DAYS; shorter windows begin alike in every zone with full hours.",
        )
