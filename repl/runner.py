"""Runs what was typed or read: statements one after the other, and the shell's own commands."""

from __future__ import annotations

import contextlib
import importlib.metadata
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Final, cast

from millstream.errors import MillstreamError, ServerError

from ..server.client import Client, Rows, connect, gives_rows
from ..sql.splitting import split_tokens
from ..sql.tokens import token_span, tokenize
from .commands import Command, command_of, help_text
from .printer import FORMATS, OutputFormat, Printer

_CLEAR: Final = "\033[H\033[2J"
_SCRIPTS_MAX: Final = 20  # that run each other


class Leave(Exception):
    """The user wants out."""


class ScriptUnreadable(ServerError):
    """The file of `run script` or `-f`."""

    code = "SCRIPT_UNREADABLE"


class UnknownOutputFormat(ServerError):
    """`output` with another word than it knows."""

    code = "UNKNOWN_OUTPUT_FORMAT"


class Runner:
    """One session of the shell. `client` is replaced by the command `server`; who leaves closes it."""

    def __init__(self, client: Client, printer: Printer) -> None:
        self.client = client
        self.printer = printer
        self._scripts = 0

    def run(self, text: str) -> None:
        """Runs the statements and commands of the text. Raises the first `MillstreamError`, or `Leave`."""
        for part in parts(text):
            command = command_of(part)
            if command is not None:
                self._command(command)
            elif gives_rows(part):
                self._query(part)
            else:
                for entity in self.client.execute(part):
                    self.printer.entity(entity)

    def attempt(self, text: str) -> bool:
        """As `run`, but errors are printed. False if there was one."""
        try:
            self.run(text)
        except MillstreamError as error:
            self.printer.error(error)
            return False
        return True

    def _query(self, text: str) -> None:
        with self.client.query(text) as rows, _ends_on_interrupt(rows) as interrupted:
            self.printer.rows(rows)
            if interrupted.is_set():
                self.printer.remark("Query ended.")

    def _command(self, command: Command) -> None:
        match command.verb:
            case "help":
                self.printer.line(help_text())
            case "exit":
                raise Leave
            case "clear":
                self.printer.line(_CLEAR if self.printer.out.isatty() else "")
            case "version":
                self._version()
            case "server":
                self._server(command.argument)
            case "output":
                self._output(command.argument)
            case "run script":
                self.run_file(Path(command.argument or ""))

    def run_file(self, file: Path) -> None:
        """Runs a file's statements. Raises as `run`, and `ScriptUnreadable`."""
        if self._scripts >= _SCRIPTS_MAX:
            raise ScriptUnreadable(
                f"{file} would be the script number {_SCRIPTS_MAX + 1} of scripts that run each other"
            )
        try:
            text = file.expanduser().read_text(encoding="utf-8")
        except OSError as error:
            raise ScriptUnreadable(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
        except UnicodeDecodeError:
            raise ScriptUnreadable(f"{file} is not UTF-8 text") from None
        self._scripts += 1
        try:
            self.run(text)
        finally:
            self._scripts -= 1

    def _version(self) -> None:
        self.printer.line(f"shell:  {importlib.metadata.version('millstream')}")
        self.printer.line(f"server: {self.client.info().get('version', 'in this process')}")

    def _server(self, url: str | None) -> None:
        if url is not None:
            other = connect(url)
            self.client.close()
            self.client = other
        self.printer.line(self.client.address)

    def _output(self, format: str | None) -> None:
        if format is None:
            self.printer.line(self.printer.format)
        elif format.lower() in FORMATS:
            self.printer.format = cast(OutputFormat, format.lower())
        else:
            raise UnknownOutputFormat(
                f'there is no output format "{format}"', hint=f"There are {' and '.join(FORMATS)}."
            )


def parts(text: str) -> Iterator[str]:
    """The statements and commands of the text, each with so many blanks before it that its errors name the line and
    the column that it has in the whole.

    >>> list(parts("show streams; help\\n;"))
    ['show streams;', '              help\\n;']
    """
    for line_text, start in _pieces(text):
        line_start = text.rfind("\n", 0, start) + 1
        yield "\n" * text.count("\n", 0, start) + " " * (start - line_start) + line_text


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    for group in split_tokens(tokenize(text)):
        start, end = token_span(group[0]).start, token_span(group[-1]).end
        terminator = text.find(";", end)
        gap = text[end:terminator] if terminator >= 0 else ""
        yield text[start : terminator + 1 if terminator >= 0 and not gap.strip() else end], start


@contextlib.contextmanager
def _ends_on_interrupt(rows: Rows) -> Generator[threading.Event]:
    """Ctrl-C ends the query; a second one, while it ends, is the usual KeyboardInterrupt."""
    interrupted = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        rows.close()

    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, end)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
