"""`\\watch`: a statement again and again. On a terminal its answer is redrawn in place until Ctrl-C."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidStatement

from ..server.client import gives_rows
from ..sql.tokens import tokenize
from .text.tables import printable

if TYPE_CHECKING:
    from .runner import Runner

_ROWS_MAX: Final = 10_000  # the most rows of one answer on a screen

ShowWatched = Callable[[Callable[[int], list[str]], str, float, int | None], list[str]]
"""Shows what the function returns for a width, under a title, every so many seconds, at most so many times. Returns the
last answer."""


def watch_statement(runner: Runner, text: str, seconds: float, times: int | None) -> None:
    """Runs the statement until Ctrl-C, or a number of times. Raises what the statement raises."""
    _refuse_endless(text)
    if runner.show_watched is not None and runner.printer.on_screen:
        for line in runner.show_watched(lambda width: _answer(runner, text, width), _title(text), seconds, times):
            runner.printer.line(line)
        return
    done = 0
    try:
        while True:
            runner.statement(text)
            done += 1
            if done == times:
                return
            time.sleep(seconds)
    except KeyboardInterrupt:
        if not runner.interactive:
            raise
        runner.printer.remark(f"Watched {done} times.")


def _answer(runner: Runner, text: str, width: int) -> list[str]:
    if not gives_rows(text):
        return [line for entity in runner.client.execute(text) for line in runner.printer.entity_lines(entity, width)]
    with runner.client.query(text) as rows:
        lines: list[str] = []
        for line in runner.printer.lines_of(rows, width):
            lines.append(line)
            if len(lines) >= _ROWS_MAX:
                break
        return lines


def _title(text: str) -> str:
    return printable(" ".join(text.split()))


def _refuse_endless(text: str) -> None:
    words = [str(token).upper() for token in tokenize(text)]
    goes_on = words[:1] == ["PRINT"] or ("EMIT", "CHANGES") in itertools.pairwise(words)
    if goes_on and "LIMIT" not in words:
        raise InvalidStatement(
            "a query that goes on by itself cannot be watched",
            hint="Run it without \\watch: its rows change on the screen as they come.",
        )
