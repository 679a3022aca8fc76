"""The shell on a terminal: a line editor with history, colours and completion."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output

from ..sql.splitting import is_complete
from .commands import command_of
from .completion import StatementCompleter
from .highlighting import STYLE, StatementLexer
from .names import LiveNames
from .runner import Leave, Runner

_PROMPT: Final = "millstream> "
_CONTINUATION: Final = "        ... "


def run_interactive(runner: Runner, *, input: Input | None = None, output: Output | None = None) -> None:
    """Reads and runs until the user leaves. `input`, `output`: the terminal, unless told otherwise."""
    names = LiveNames(lambda: runner.client)
    session: PromptSession[str] = PromptSession(
        _PROMPT,
        multiline=True,
        prompt_continuation=_CONTINUATION,
        history=_history(),
        lexer=StatementLexer(),
        style=STYLE,
        completer=StatementCompleter(names),
        complete_in_thread=True,
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
        key_bindings=_bindings(),
        input=input,
        output=output,
    )
    runner.printer.remark(f"Connected to {runner.client.address}. Statements end with `;`; `help;` says more.")
    while True:
        try:
            text = session.prompt()
            if text.strip():
                runner.attempt(text)
        except KeyboardInterrupt:
            continue
        except (EOFError, Leave):
            return
        finally:
            names.forget()


def is_finished(text: str) -> bool:
    """Whether Enter sends the text: it ends with `;`, is a command of the shell, or is nothing."""
    return not text.strip() or is_complete(text) or command_of(text) is not None


def history_file() -> Path:
    """In the user's state directory, where XDG says it is."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "millstream" / "history"


def _history() -> History:
    file = history_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
    except OSError:  # a home that cannot be written
        return InMemoryHistory()
    return FileHistory(file)


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        at_end = not buffer.document.text_after_cursor.strip()
        if at_end and is_finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings
