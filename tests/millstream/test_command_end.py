"""How the process of a command ends: with all that was to be done at the end, and not one object later."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import warm_command
from running_server import ENVIRONMENT
from typer.testing import CliRunner

from millstream.cli import app
from millstream.commands.command_line import one_sentence_errors
from millstream.errors import MillstreamError

PROGRAM = """
import atexit, sys
from millstream import cli

class Object:
    def __del__(self):
        print("taken apart")

kept = Object()
atexit.register(print, "too early")
cli.end_without_dismantling()
atexit.register(print, "last words")
sys.argv[1:] = {arguments}
cli.command()
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)


def test_a_command_ends_with_what_it_printed_and_what_was_to_be_done_at_the_end() -> None:
    ended = run("--version")
    assert [line.rstrip() for line in ended.stdout.splitlines()][1:] == ["last words"]
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_command_that_fails_ends_with_its_exit_code() -> None:
    ended = run("server", "--executor", "none")
    assert (ended.returncode, ended.stdout) == (2, "last words\n")


def test_an_exception_that_nobody_expects_is_reported_by_python() -> None:
    program = PROGRAM.format(arguments=[]).replace("cli.command()", "cli.app = None; cli.command()")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, "TypeError" in ended.stderr) == (1, True)
    assert "too early" in ended.stdout


def test_a_command_inside_of_another_program_leaves_its_end_alone() -> None:
    program = """
import atexit
from millstream import cli
atexit.register(print, "last words")
cli.sys.argv[1:] = ["--version"]
try:
    cli.main()
except SystemExit:
    pass
raise RuntimeError("of the program")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, "of the program" in ended.stderr, ended.stdout.endswith("last words\n")) == (
        1,
        True,
        True,
    )


def test_a_command_whose_output_is_closed_ends_quietly() -> None:
    command = f"{shlex.quote(sys.executable)} -m millstream --version >&-"
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=100, check=False)
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("arguments", ["--version", "sql -c 'SHOW FUNCTIONS;'"])
def test_output_that_cannot_be_written_is_one_sentence(arguments: str) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "millstream", *shlex.split(arguments)]
        start = warm_command.WarmPopen if arguments.startswith("sql -c") else subprocess.Popen[str]
        with start(command, stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
            _, said = process.communicate(timeout=100)
    assert (process.returncode, said) == (1, "error: the output cannot be written: no space left on device\n")


@pytest.mark.parametrize("arguments", ["sql <&-", "sql -c 'SHOW VARIABLES;' >&- 2>&-"])
def test_the_shell_does_without_a_standard_stream(arguments: str) -> None:
    ended = in_a_shell(arguments)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_output_of_another_encoding_has_escapes_for_the_letters_that_it_lacks() -> None:
    ended = in_a_shell("sql -d 'v=é日' -c 'SHOW VARIABLES;'", PYTHONIOENCODING="latin-1")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith(" v        | \xe9\\u65e5\n")


def in_a_shell(arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`millstream` with arguments and redirections as a shell reads them."""
    command = f"{shlex.quote(sys.executable)} -m millstream {arguments}"
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, encoding="latin-1", timeout=100, check=False,
        env={**ENVIRONMENT, **environment},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sql --format nosuch", "'--format' / '--output': 'nosuch' is not one of 'table', "),
        ("server --executor nosuch", "'--executor': 'nosuch' is not one of 'auto', 'spark', 'duckdb'."),
        ("graph --format nosuch", "'--format': 'nosuch' is not one of 'text', 'dot', 'svg'."),
        ("consume t --limit abc", "'--limit': must be a whole number"),
        ("consume t --limit 0", "'--limit': must be at least 1"),
        ("top --interval soon", "'--interval': must be a number"),
        ("backup prune there --keep 1.5", "'--keep': must be a whole number"),
        ("sql --query-timeout 9999999999", "'--query-timeout': must be at most 2147483647"),
    ],
)
def test_a_flag_that_cannot_be_used_is_explained_in_plain_words(arguments: str, message: str) -> None:
    ended = CliRunner().invoke(app, shlex.split(arguments))
    assert ended.exit_code == 2
    assert f"Error: Invalid value for {message}" in ended.output


@pytest.mark.parametrize(
    "arguments",
    [
        "--version",
        "sql --help",
        "config reference",
        "config show --all --data there",
        "sql -c 'SHOW FUNCTIONS;'",
        "sql -c 'SHOW FUNCTIONS; SELECT nosuch;' --format json",
    ],
)
def test_a_command_whose_reader_has_left_ends_quietly(arguments: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "millstream", *shlex.split(arguments)]
    start = warm_command.WarmPopen if arguments.startswith("sql -c") else subprocess.Popen[str]
    with start(command, stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(writer)
        _, said = process.communicate(timeout=100)
    assert (process.returncode, said) == (0, "")


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("it is gone.", "error: it is gone; look again\n"),
        ("NOSUCH cannot be resolved.\n  1 | SELECT nosuch\n    |        ^^^^^^",
         "error: NOSUCH cannot be resolved.\n  1 | SELECT nosuch\n    |        ^^^^^^\nhint: Look again\n"),
        ("BIGG does not exist.\n  1 | bigg\n    | ^^^^\nhint: Did you mean \"BIG\"?",
         "error: BIGG does not exist.\n  1 | bigg\n    | ^^^^\nhint: Did you mean \"BIG\"?; look again\n"),
    ],
)  # fmt: skip
def test_a_hint_has_its_own_line_below_a_statement(
    message: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), one_sentence_errors():
        raise MillstreamError(message, hint="Look again.")
    assert capsys.readouterr().err == printed
