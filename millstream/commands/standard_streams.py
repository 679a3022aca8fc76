"""The standard streams of a command: open, and able to write every letter. Output that fails is an error of one
sentence."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Callable, Generator
from typing import IO, Final

import typer

from millstream.errors import UNWRITABLE

FAILED: Final = 1


@contextlib.contextmanager
def ending_when_nobody_reads() -> Generator[None]:
    """Ends a command with success, and without a word, when the reader of its output closes the pipe, as `| head` does.
    All commands run in it."""
    try:
        yield
    except BrokenPipeError:
        if _is_read(sys.stdout) and _is_read(sys.stderr):
            raise  # it is about another pipe
        _write_no_more()
        raise typer.Exit from None


def _is_read(stream: IO[str]) -> bool:
    """Whether the other end of its pipe or connection is open."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return True
    poll = select.poll()
    poll.register(number, 0)
    return not poll.poll(0)


def exit_code_of(run: Callable[[], None]) -> str | int | None:
    """Runs a command to its end, and writes what it printed; returns the argument of its SystemExit.

    A reader that closes the pipe, as `| head` does, is no error.
    """
    _open_closed_streams()
    _escape_unknown_letters()
    try:
        return _ended(run)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        _write_no_more()
        what = error.filename or "the output"
        sys.stderr.write(f"error: {what} cannot be written: {(error.strerror or str(error)).lower()}\n")
        return FAILED


def _ended(run: Callable[[], None]) -> str | int | None:
    code: str | int | None = None
    try:
        run()
    except SystemExit as ended:
        code = ended.code
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _write_no_more()
    return code


def _open_closed_streams() -> None:
    """Python has None for a stream that was closed before the process began. Files and connections that are opened
    later must not get its number."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, _null_device(number, mode))


def _null_device(number: int, mode: str) -> IO[str]:
    opened = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    return open(number, mode, encoding="utf-8", closefd=False)


def _escape_unknown_letters() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _write_no_more() -> None:
    """What is still to be written to standard output is lost, so that Python does not try it again at the end."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
