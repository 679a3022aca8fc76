"""What people see: live tables on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Generator, Sequence
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.syntax import Syntax
from rich.table import Table

_LINE_EVERY_S: Final = 2.0
_PLAIN_WIDTH: Final = 120


class Screen:
    """State: the live area, where there is one, and when the last plain line was written."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
        self._live: Live | None = None
        self._line_at = 0.0

    def say(self, text: str) -> None:
        """A line for people."""
        self._console.print(escape(text))

    def headline(self, text: str) -> None:
        """The beginning of a chapter."""
        self._console.print()
        self._console.rule(f"[bold]{escape(text)}", align="left")

    def problem(self, text: str) -> None:
        self._console.print(f"[bold red]{escape(text)}")

    def success(self, text: str) -> None:
        self._console.print(f"[bold green]{escape(text)}")

    def statement(self, sql: str) -> None:
        """SQL, coloured."""
        self._console.print(Syntax(sql, "sql", background_color="default", word_wrap=True))

    def rows(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A table that stays."""
        self._console.print(_table(title, columns, rows))

    @contextlib.contextmanager
    def live(self) -> Generator[None]:
        """Within, `grow` draws over what it drew before."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=8, transient=False) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def grow(
        self, share: float, status: str, tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]]
    ) -> None:
        """The state of things: progress, one line, and tables. Without a terminal the line, now and then."""
        if self._live is not None:
            grid = Table.grid(padding=(0, 2))
            grid.add_row(*(_table(*table) for table in tables))
            parts: list[RenderableType] = [ProgressBar(total=1.0, completed=share, width=60), escape(status), grid]
            self._live.update(Panel(Group(*parts), title="departures from New York, 2013"))
        elif time.monotonic() - self._line_at >= _LINE_EVERY_S:
            self._line_at = time.monotonic()
            self.say(f"  {share:4.0%}  {status}")


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(value: Any) -> str:
    match value:
        case None:
            return "–"
        case float():
            return f"{value:,.1f}"
        case int():
            return f"{value:,}"
        case _:
            return escape(str(value))
