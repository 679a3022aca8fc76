"""The conversation: what is typed, key by key, through the line editor."""

from __future__ import annotations

import gc
import io
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from millstream.repl.highlighting import styled_lines
from millstream.repl.interactive import run_interactive
from millstream.repl.printer import Printer
from millstream.repl.runner import Runner
from millstream.repl.typed_history import history_file
from millstream.server.client import LocalClient
from millstream.server.engine.session import Session
from millstream.testing import Sandbox

ENTER, ESCAPE = "\r", "\x1b"
CTRL_A, CTRL_C, CTRL_D, CTRL_K = "\x01", "\x03", "\x04", "\x0b"


@contextmanager
def keyboard(keys: str) -> Generator[PipeInput]:
    """prompt_toolkit asks it by `select`, which refuses descriptors above 1,023: it would wait for ever. Logs of tests
    before that are closed and not collected yet hold some."""
    gc.collect()
    with create_pipe_input() as typed:
        assert typed.fileno() < 1_024
        typed.send_text(keys)
        yield typed


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def talk(keys: str) -> tuple[str, str]:
    """What the shell wrote to its two outputs until it was left."""
    out, err = io.StringIO(), io.StringIO()
    with Sandbox() as sandbox, keyboard(keys) as typed:
        client = LocalClient(sandbox.engine, Session(), address="a sandbox", close=lambda: None)
        run_interactive(Runner(client, Printer(out, err)), input=typed, output=DummyOutput())
    return out.getvalue(), err.getvalue()


def test_a_statement_goes_on_until_its_semicolon() -> None:
    out, _ = talk(f"DEFINE a{ENTER}= 'b';{ENTER}show variables;{ENTER}{CTRL_D}")
    assert out.splitlines() == [" Variable | Value", "----------+-------", " a        | b"]


def test_an_error_does_not_end_the_shell_and_neither_does_ctrl_c() -> None:
    out, err = talk(f"SHOW STREEMS;{ENTER}SELECT{CTRL_C}output;{ENTER}exit{ENTER}")
    assert out == "table\n"
    assert "^^^^^^^" in err


def test_what_was_typed_is_there_the_next_time_and_for_its_owner_only() -> None:
    talk(f"output jsonl;{ENTER}exit{ENTER}")
    assert "+output jsonl;" in history_file().read_text()
    assert history_file().stat().st_mode & 0o077 == 0


def test_the_history_cannot_command_the_terminal() -> None:
    out, _ = talk(f"\x1b[200~output; -- \x1b[2J\x9b5n\x1b[201~{ENTER}history;{ENTER}{CTRL_D}")
    assert "output; -- \\x1b[2J\\x9b5n\n" in out


def test_the_keys_are_those_of_emacs_or_of_vi() -> None:
    out, _ = talk(
        f"output; xx{CTRL_A}{CTRL_K}output;{ENTER}\\set keys vi{ENTER}output; xx{ESCAPE}ccoutput;{ENTER}{CTRL_D}"
    )
    assert out == "table\ntable\n"


def test_a_file_of_the_user_begins_each_conversation(tmp_path: Path) -> None:
    (tmp_path / "millstream").mkdir()
    (tmp_path / "millstream" / "shellrc").write_text("\\set format jsonl\nDEFINE v = '1';")
    out, err = talk(f"SHOW VARIABLES;{ENTER}exit{ENTER}")
    assert out.endswith('"variables":[{"name":"v","value":"1"}]}\n')
    assert "error" not in err


def test_keywords_strings_and_comments_have_colours() -> None:
    lines = styled_lines("select 'a -- b' -- c\n/* d\ne */ 12")
    styles = {piece[1]: piece[0] for line in lines for piece in line if piece[0]}
    assert styles == {
        "select": "class:keyword",
        "'a -- b'": "class:string",
        "-- c": "class:comment",
        "/* d": "class:comment",
        "e */": "class:comment",
        "12": "class:number",
    }
