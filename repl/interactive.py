"""The shell on a terminal: a line editor with history, colours and completion."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output

from millstream.errors import MillstreamError

from . import splitting
from .commands import command_of
from .highlighting import STYLE, StatementLexer
from .late import LateCompletion
from .live import show_live
from .live_watch import show_watched
from .names import LiveNames
from .pager import page
from .runner import LeaveShell, Runner
from .terminal import has_keys
from .typed_history import open_history

_PROMPT: Final = "millstream> "
_CONTINUATION: Final = "        ... "


def equip(runner: Runner) -> None:
    """Lets the runner use the screen, if there is one: push queries then update their rows in place."""
    if has_keys(runner.printer.out):
        runner.show_live = show_live
        runner.show_watched = show_watched


def run_interactive(runner: Runner, *, input: Input | None = None, output: Output | None = None) -> None:
    """Reads and runs input until the user leaves. `input` and `output` replace the terminal."""
    runner.interactive = True
    if has_keys(runner.printer.out):
        runner.printer.pager = page
    names = LiveNames(lambda: runner.client)
    session = _session(runner, names, input, output)
    runner.printer.remark(f"Connected to {runner.client.address}. Statements end with `;`, and `help` helps.")
    try:
        _run_startup_file(runner)
        while True:
            _converse(runner, session)
            names.forget()
    except (EOFError, LeaveShell):
        return


def is_finished(text: str) -> bool:
    """Whether Enter sends the text: it ends with `;`, is a command of the shell, or is empty."""
    try:
        return splitting.is_finished(text) or command_of(text) is not None
    except MillstreamError:  # an unknown command; the error appears when it runs
        return True


def _session(runner: Runner, names: LiveNames, input: Input | None, output: Output | None) -> PromptSession[str]:
    completion = LateCompletion(names)
    return PromptSession(
        _PROMPT,
        multiline=True,
        prompt_continuation=_continuation,
        history=open_history(),
        lexer=StatementLexer(completion.keywords),
        style=STYLE,
        completer=completion,
        complete_in_thread=True,
        complete_while_typing=Condition(lambda: runner.settings.suggest),
        auto_suggest=AutoSuggestFromHistory(),
        key_bindings=_bindings(),
        enable_open_in_editor=True,
        enable_suspend=True,
        tempfile_suffix=".sql",
        input=input,
        output=output,
    )


def _continuation(width: int, line_number: int, wrap_count: int) -> str:
    """The prefix of a continuation line; only blanks if the line was wrapped because the screen is too narrow."""
    del line_number
    return " " * width if wrap_count else _CONTINUATION


def _converse(runner: Runner, session: PromptSession[str]) -> None:
    """Shows one prompt and runs what was typed. Raises `EOFError`, `LeaveShell`."""
    session.editing_mode = EditingMode.VI if runner.settings.keys == "vi" else EditingMode.EMACS
    draft, runner.draft = runner.draft, ""
    try:
        text = session.prompt(default=draft)
    except KeyboardInterrupt:  # discards what was typed
        return
    runner.printer.note(f"{_PROMPT}{text}")
    try:
        if text.strip():
            runner.attempt(text)
    except KeyboardInterrupt:
        runner.printer.remark("Interrupted; nobody waits for the answer any more.")


def startup_file() -> Path:
    """The file of commands and statements that run when an interactive session begins. It is in the user's
    configuration directory, as XDG defines it."""
    configuration = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(configuration).expanduser() / "millstream" / "shellrc"


def _run_startup_file(runner: Runner) -> None:
    file = startup_file()
    if file.exists():
        runner.attempt(f"\\i {file}")


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # accepts the chosen completion, without sending the text
            return
        if is_finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @bindings.add("escape", "enter", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings
