"""A view that fills the screen while it is open: lines, and a bar below them. Keys scroll the lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prompt_toolkit.application import Application
from prompt_toolkit.application.current import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import Output
from prompt_toolkit.utils import suspend_to_background_supported

from .text.tables import cut_to, text_width

BAR_STYLE = "reverse"
REFRESH_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class ViewerPlace:
    """The requested part of the content: the `columns` and `rows` of the screen, beginning at line `top` and column
    `left`."""

    columns: int
    rows: int
    top: int
    left: int


@dataclass(frozen=True, slots=True)
class Page:
    """`head` does not scroll; `lines` are the requested lines; `total` is the number of lines, `top` the first line
    shown."""

    head: Sequence[str]
    lines: Sequence[str]
    total: int
    top: int


Content = Callable[[ViewerPlace], Page]


class Viewer:
    """Calls `content` and `bar` repeatedly, in the thread that runs it. `close` ends it, from any thread."""

    def __init__(
        self, content: Content, bar: Callable[[Page], str], *, refresh: bool = True,
        input: Input | None = None, output: Output | None = None,
    ) -> None:  # fmt: skip
        self._content = content
        self._bar = bar
        self._top = 0
        self._left = 0
        self._page = Page([], [], 0, 0)
        self._paused = False
        body = Window(FormattedTextControl(self._text), wrap_lines=False, always_hide_cursor=True)
        foot = Window(FormattedTextControl(self._foot), height=1, style=BAR_STYLE, always_hide_cursor=True)
        self._app: Application[None] = Application(
            Layout(HSplit([body, foot])),
            full_screen=True,
            key_bindings=self._keys(),
            refresh_interval=REFRESH_SECONDS if refresh else None,
            input=input,
            output=output,
        )

    def run(self, begin: Callable[[], None] = lambda: None) -> None:
        """Runs until `close`, Ctrl-C or q. Calls `begin` when the screen is ready."""
        self._app.run(pre_run=begin)

    def close(self) -> None:
        end_soon(self._app)

    def _text(self) -> AnyFormattedText:
        size = get_app().output.get_size()
        if not self._paused:
            self._page = self._content(ViewerPlace(size.columns, max(1, size.rows - 1), self._top, self._left))
            self._top = self._page.top
        return ANSI("\n".join([*self._page.head, *self._page.lines]))

    def _foot(self) -> AnyFormattedText:
        text = f" {'paused · ' if self._paused else ''}{self._bar(self._page)}"
        columns = get_app().output.get_size().columns
        return text if text_width(text) <= columns else cut_to(text, columns)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        @keys.add("c-d")
        @keys.add("q")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            if not event.app.is_done:
                event.app.exit()

        bind_suspend(keys)

        @keys.add("space")
        def _(event: KeyPressEvent) -> None:
            del event
            self._paused = not self._paused

        def moves(key: str, down: Callable[[int], int], right: int = 0) -> None:
            @keys.add(key)
            def _(event: KeyPressEvent) -> None:
                self._top = max(0, self._top + down(event.app.output.get_size().rows - 3))
                self._left = max(0, self._left + right)

        moves("down", lambda rows: 1)
        moves("up", lambda rows: -1)
        moves("pagedown", lambda rows: rows)
        moves("pageup", lambda rows: -rows)
        moves("home", lambda rows: -self._top)
        moves("end", lambda rows: self._page.total)
        moves("right", lambda rows: 0, 8)
        moves("left", lambda rows: 0, -8)
        return keys


def window(lines: Sequence[str], place: ViewerPlace, head: Sequence[str] = ()) -> Page:
    """The page, for content whose lines are all known."""
    room = max(1, place.rows - len(head))
    top = max(0, min(place.top, len(lines) - room))
    return Page(head, lines[top : top + room], len(lines), top)


def bind_suspend(keys: KeyBindings) -> None:
    """Ctrl-Z stops the process, as it does where the terminal itself reads the keys."""

    @keys.add("c-z", filter=Condition(suspend_to_background_supported))
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()


def end_soon(app: Application[None]) -> None:
    """Ends an application, from any thread; it may already have ended."""

    def end() -> None:
        if app.is_running and not app.is_done:
            app.exit()

    loop = app.loop
    if loop is not None:
        try:
            loop.call_soon_threadsafe(end)
        except RuntimeError:  # the loop is closed
            return
