"""Shows long results page by page: with the user's pager, with `less`, or with the built-in viewer."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from itertools import chain, islice
from typing import Final

from .terminal import height, width
from .text.tables import text_width
from .viewer import Page, Viewer, ViewerPlace, window

_ESCAPES: Final = re.compile(r"\033\[[0-9;]*m")
_LINES_KEPT: Final = 1_000_000  # the most lines that the built-in viewer keeps
_LESS: Final = "-RS"  # shows colours, and scrolls long lines sideways


def page(lines: Iterator[str], write: Callable[[str], None]) -> None:
    """Writes the lines if they fit on the screen; otherwise shows them in a pager until the user leaves it."""
    first = list(islice(lines, height()))
    if len(first) < height() and all(text_width(_ESCAPES.sub("", line)) <= width() for line in first):
        for line in first:
            write(line)
        return
    everything = chain(first, lines)
    command = pager_command()
    if command is None or not _through(command, everything):
        _own(everything)


def pager_command() -> list[str] | None:
    """The command in MILLSTREAM_PAGER or PAGER, or `less`; None for the built-in viewer."""
    for name in ("MILLSTREAM_PAGER", "PAGER"):
        chosen = os.environ.get(name)
        if chosen:
            with contextlib.suppress(ValueError):
                return shlex.split(chosen)
    return ["less"] if shutil.which("less") else None


def _through(command: list[str], lines: Iterator[str]) -> bool:
    """False if there is no such program; in that case no line was taken."""
    environment = {"LESS": _LESS, **os.environ}
    with _interrupts_are_for_the_pager():
        try:
            pager = subprocess.Popen(
                command, stdin=subprocess.PIPE, env=environment, text=True, encoding="utf-8", errors="replace"
            )
        except OSError:
            return False
        assert pager.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            for line in lines:
                pager.stdin.write(line + "\n")
        with contextlib.suppress(BrokenPipeError):
            pager.stdin.close()
        pager.wait()
    return True


@contextlib.contextmanager
def _interrupts_are_for_the_pager() -> Generator[None]:
    before = signal.signal(signal.SIGINT, lambda number, frame: None)  # unlike SIG_IGN, handlers are not inherited
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _own(lines: Iterator[str]) -> None:
    kept = [_ESCAPES.sub("", line) for line in islice(lines, _LINES_KEPT)]

    def content(place: ViewerPlace) -> Page:
        found = window(kept, place)
        return Page([], [_from(line, place.left) for line in found.lines], found.total, found.top)

    def bar(shown: Page) -> str:
        last = shown.top + len(shown.lines)
        return f"lines {shown.top + 1:,} to {last:,} of {shown.total:,} · arrows and pages move, q ends"

    Viewer(content, bar, refresh=False).run()


def _from(line: str, column: int) -> str:
    """The line, starting at that column of the screen."""
    position = 0
    while position < len(line) and column > 0:
        column -= text_width(line[position])
        position += 1
    return line[position:]
