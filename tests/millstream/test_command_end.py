"""How the process of a command ends: with all that was to be done at the end, and not one object later."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

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


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the stream")
def test_a_command_whose_output_is_closed_ends_quietly() -> None:
    command = f"{shlex.quote(sys.executable)} -m millstream --version >&-"
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=100, check=False)
    assert "Traceback" not in ended.stderr
