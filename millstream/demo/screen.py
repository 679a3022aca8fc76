"""The demo's output: one updated line on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Generator, Sequence
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

_LINE_EVERY_S: Final = 2.0
_PLAIN_WIDTH: Final = 120
_BAR_WIDTH: Final = 24


class Screen:
    """State: the updated line on a terminal; otherwise the time of the last plain line."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
        self._live: Live | None = None
        self._line_at = 0.0
        self._said: str | None = None  # the last plain line
        self._unsaid: str | None = None  # the newest plain line, if it was not written

    def say(self, text: str) -> None:
        """Prints a line."""
        self._console.print(escape(text))

    def headline(self, text: str) -> None:
        """Begins a chapter."""
        self._console.print()
        self._console.rule(f"[bold]{escape(text)}", align="left")

    def problem(self, text: str) -> None:
        self._console.print(f"[bold red]{escape(text)}")

    def success(self, text: str) -> None:
        self._console.print(f"[bold green]{escape(text)}")

    def statement(self, sql: str) -> None:
        """Prints SQL in colour."""
        self._console.print(Syntax(sql, "sql", background_color="default", word_wrap=True))

    def rows(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Prints a table."""
        self._console.print(_table(title, columns, rows))

    @contextlib.contextmanager
    def moving_line(self) -> Generator[None]:
        """Inside it, `progress` overwrites its previous output; the last line stays."""
        if not self._console.is_terminal:
            self._said = self._unsaid = None
            yield
            if self._unsaid is not None:
                self.say(self._unsaid)
            return
        with Live(console=self._console, refresh_per_second=8) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def progress(self, share: float, status: str) -> None:
        """Shows the progress and a status line. Without a terminal only occasionally."""
        if self._live is not None:
            line = Table.grid(padding=(0, 1))
            line.add_column(width=_BAR_WIDTH)
            line.add_column(no_wrap=True, overflow="ellipsis")
            line.add_row(ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH), Text(f"{share:4.0%}  {status}"))
            self._live.update(line)
            return
        line = f"  {share:4.0%}  {status}"
        if line == self._said:
            return
        self._unsaid = line
        if time.monotonic() - self._line_at >= _LINE_EVERY_S:
            self._line_at = time.monotonic()
            self.say(line)
            self._said, self._unsaid = line, None


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
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case _:
            return escape(str(value))
