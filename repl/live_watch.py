"""`\\watch` on a terminal: the answer is redrawn in place, with a bar that says when it was asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prompt_toolkit.input import Input
from prompt_toolkit.output import Output

from .terminal import width
from .viewer import Page, Viewer, ViewerPlace, window


@dataclass(slots=True)
class _Watched:
    """The state of a watched statement; one thread asks, another one draws. `columns`: the width of the screen to ask
    for."""

    columns: int
    lines: Sequence[str] = ()
    asked_at: str = ""
    count: int = 0
    error: Exception | None = None


def show_watched(
    answer: Callable[[int], list[str]], title: str, seconds: float, times: int | None,
    *, input: Input | None = None, output: Output | None = None,
) -> list[str]:  # fmt: skip
    """Shows what `answer` returns for a width, every `seconds`, until the user ends it; returns the last answer. Raises
    what `answer` raises."""
    watched = _Watched(width())
    stop = threading.Event()

    def content(place: ViewerPlace) -> Page:
        watched.columns = place.columns
        head = list(watched.lines[:2])  # a table's titles, which do not scroll
        return window(watched.lines[2:], place, head)

    def bar(page: Page) -> str:
        del page
        return f"every {seconds:g} s · run {watched.count} at {watched.asked_at} · Ctrl-C ends · {title}"

    viewer = Viewer(content, bar, input=input, output=output)

    def ask_on() -> None:
        try:
            while not stop.is_set():
                watched.lines = answer(watched.columns)
                watched.asked_at = time.strftime("%H:%M:%S")
                watched.count += 1
                if watched.count == times or stop.wait(seconds):
                    return
        except Exception as error:
            watched.error = error
        finally:
            viewer.close()

    thread = threading.Thread(target=ask_on, name="millstream-shell-watch", daemon=True)
    viewer.run(thread.start)
    stop.set()
    thread.join(5.0)
    if watched.error is not None:
        raise watched.error
    return list(watched.lines)
