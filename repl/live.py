"""Push queries on a terminal: a table's rows are updated in place, a stream's rows scroll. A bar below shows the rate,
the lag and the stream time. Ctrl-C ends the query, but not the shell."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import Output

from ..server.client import Rows
from .printer import Printer
from .terminal import height
from .text.keyed_rows import KeyedRows
from .text.tables import cut_to, text_width
from .viewer import BAR_STYLE, REFRESH_SECONDS, Page, Viewer, bind_suspend, end_soon

_LINES_WAITING_MAX: Final = 2_000  # when this many lines wait, the query waits for the screen
_LINES_WRITTEN_AT_ONCE: Final = 500
_RATE_SECONDS: Final = 3.0


def show_live(
    printer: Printer, rows: Rows, note: str = "", *, input: Input | None = None, output: Output | None = None
) -> bool:
    """Shows the rows until the query or the user ends it; True if the user did. Raises what the query raises.

    In: `note`: stands in the bar as long as there are no rows. `input`, `output`: replace the terminal.
    """
    if rows.key is not None and printer.settings.redraw and rows.kind == "PUSH":
        return _show_table(printer, rows, note, input, output)
    return _show_lines(printer, rows, note, input, output)


def _show_table(printer: Printer, rows: Rows, note: str, input: Input | None, output: Output | None) -> bool:
    kept = KeyedRows(rows, colour=printer.colour, column_width=printer.settings.width)
    pace = _Pace(rows, note)

    def bar(page: Page) -> str:
        last = page.top + len(page.lines)
        shown = f"rows {page.top + 1:,} to {last:,} of {page.total:,}" if page.lines else "no rows"
        return f"{shown} · {pace.text()} · Ctrl-C ends"

    viewer = Viewer(kept.page, bar, input=input, output=output)
    reading = _Reading(kept.take(), viewer.close)
    viewer.run(reading.start)
    ended_by_user = reading.end(rows)
    for line in kept.last_lines(printer.width_max, max(5, height() - 4)):
        printer.line(line)
    if reading.error is not None:
        raise reading.error
    return ended_by_user


def _show_lines(printer: Printer, rows: Rows, note: str, input: Input | None, output: Output | None) -> bool:
    scroll = _Scroll(printer, _Pace(rows, note), input, output)
    lines = printer.lines_of(rows, printer.width_max)
    reading = _Reading(map(scroll.add, lines), scroll.close)
    scroll.run(reading.start)
    ended_by_user = reading.end(rows, scroll.give_up)
    scroll.write_rest(at_once=ended_by_user)
    if reading.error is not None:
        raise reading.error
    return ended_by_user


class _Reading:
    """A thread that reads rows; it calls `done` after the last one."""

    def __init__(self, steps: Iterable[object], done: Callable[[], None]) -> None:
        self._steps = steps
        self._done = done
        self._thread = threading.Thread(target=self._run, name="millstream-shell-rows", daemon=True)
        self._finished = False
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def end(self, rows: Rows, wake_up: Callable[[], None] = lambda: None) -> bool:
        """Ends the reading; True if the rows were not finished."""
        early = not self._finished
        rows.close()
        wake_up()
        self._thread.join(5.0)
        if early:
            self.error = None  # the error of a query that was ended early does not matter
        return early

    def _run(self) -> None:
        try:
            for _ in self._steps:
                pass
        except Exception as error:
            self.error = error
        self._finished = True
        self._done()


class _Scroll:
    """Lines that scroll above a bar. `add` is called by another thread, and waits while the screen is behind."""

    def __init__(self, printer: Printer, pace: _Pace, input: Input | None, output: Output | None) -> None:
        self._printer = printer
        self._pace = pace
        self._waiting: deque[str] = deque()
        self._room = threading.Condition()
        self._gives_up = False
        foot = Window(FormattedTextControl(self._foot), height=1, style=BAR_STYLE, always_hide_cursor=True)
        self._app: Application[None] = Application(
            Layout(foot), key_bindings=_ending_keys(), refresh_interval=REFRESH_SECONDS, erase_when_done=True,
            input=input, output=output,
        )  # fmt: skip

    def add(self, line: str) -> None:
        with self._room:
            while len(self._waiting) >= _LINES_WAITING_MAX and not self._gives_up:
                self._room.wait()
            self._waiting.append(line)

    def run(self, begin: Callable[[], None]) -> None:
        def start() -> None:
            begin()
            self._app.create_background_task(self._write())

        self._app.run(pre_run=start)

    def close(self) -> None:
        end_soon(self._app)

    def give_up(self) -> None:
        """Nobody looks at the screen any more, so `add` does not wait."""
        with self._room:
            self._gives_up = True
            self._room.notify_all()

    def write_rest(self, *, at_once: bool) -> None:
        """Writes the waiting lines. `at_once`: only as many as are written in one go."""
        self._write_some()
        while self._waiting and not at_once:
            self._write_some()

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS / 2)
            while self._waiting and not self._app.is_done:
                await run_in_terminal(self._write_some)

    def _write_some(self) -> None:
        with self._room:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), _LINES_WRITTEN_AT_ONCE))]
            self._room.notify_all()
        if taken:
            self._printer.line("\n".join(taken))

    def _foot(self) -> AnyFormattedText:
        text = f" {self._pace.text()} · Ctrl-C ends"
        columns = self._app.output.get_size().columns
        return text if text_width(text) <= columns else cut_to(text, columns)


def _ending_keys() -> KeyBindings:
    keys = KeyBindings()
    bind_suspend(keys)

    @keys.add("c-c")
    @keys.add("c-d")
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        if not event.app.is_done:
            event.app.exit()

    return keys


class _Pace:
    """Counts the rows, and shows their number, their rate and the progress of the query; the note if there are none."""

    def __init__(self, rows: Rows, note: str) -> None:
        self._rows = rows
        self._note = [note] if note else []
        self._counts: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def text(self) -> str:
        now, count = time.monotonic(), self._rows.count
        self._counts.append((now, count))
        while len(self._counts) > 2 and now - self._counts[1][0] > _RATE_SECONDS:
            self._counts.popleft()
        then, earlier = self._counts[0]
        rate = (count - earlier) / max(now - then, 0.001)
        what = "change" if self._rows.key is not None else "row"
        note = self._note if count == 0 else []
        return " · ".join([f"{count:,} {what}{'s' * (count != 1)}", *note, f"{rate:,.0f}/s", *self._progress()])

    def _progress(self) -> list[str]:
        progress = self._rows.progress()
        if progress is None:
            return []
        return [f"lag {progress.lag:,}", *stream_time_text(progress.stream_time_ms)]


def stream_time_text(time_ms: int | None) -> list[str]:
    """
    >>> stream_time_text(1_700_000_000_000), stream_time_text(None), stream_time_text(10**17)
    (['stream time 2023-11-14 22:13:20Z'], [], ['stream time 100000000000000000 ms'])
    """
    if time_ms is None:
        return []
    try:
        return [f"stream time {datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"]
    except (ValueError, OverflowError, OSError):
        return [f"stream time {time_ms} ms"]
