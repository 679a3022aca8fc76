"""Runs input: statements one after the other, and the shell's own commands (`actions`)."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from millstream.errors import MillstreamError, ServerError

from ..server.client import DataClient, Rows, ServerUnreachable, gives_rows
from ..sql.tokens import tokenize
from .actions import act
from .bounds import bounded_rows, bounded_tables
from .commands import TAKES_STATEMENT, Command, command_of
from .inserted import WaitForInserted, inserted_into, is_pull_query
from .new_only import NEW_ONLY, advice_for_new_only
from .printer import Printer
from .settings import Settings
from .splitting import StatementText, parts
from .watch import ShowWatched

_SCRIPTS_MAX: Final = 20  # the most scripts that may call each other

ShowLive = Callable[[Printer, Rows, str], bool]
"""Shows the rows of a push query on a terminal, with a note as long as there are none. True if the user ended it."""

Closable = Callable[[], None]


class LeaveShell(Exception):
    """The user wants to leave the shell."""


class ScriptUnreadable(ServerError):
    """The file of `run script` or `-f` cannot be read."""

    code = "SCRIPT_UNREADABLE"


class Runner:
    """One session of the shell. The command `server` replaces `client`; `close` closes it.

    In: `interactive`: Ctrl-C ends a query and the session continues; otherwise KeyboardInterrupt is raised after the
    query. `last`: the last statement that ran. `draft`: the text with which the next prompt begins.
    """

    def __init__(self, client: DataClient, printer: Printer, *, interactive: bool = False) -> None:
        self.client = client
        self.printer = printer
        self.interactive = interactive
        self.show_live: ShowLive | None = None
        self.show_watched: ShowWatched | None = None
        self.wait_for_inserted: WaitForInserted | None = None
        self.last: str | None = None
        self.draft = ""
        self._scripts = 0
        self._inserted: set[str] = set()  # the streams and tables with rows inserted since a query last waited

    @property
    def settings(self) -> Settings:
        return self.printer.settings

    def run(self, text: str) -> None:
        """Runs the statements and commands in the text. Raises the first `MillstreamError`, or `LeaveShell`."""
        _refuse_other_bytes(text)
        for part, following in _with_next(parts(text)):
            with self.printer.refuses_full_disks():
                self._run_part(part, following)

    def attempt(self, text: str) -> bool:
        """Like `run`, but prints errors. False if there was one."""
        try:
            self.run(text)
        except MillstreamError as error:
            self.printer.error(error)
            if isinstance(error, ServerUnreachable):
                self.printer.remark("The session goes on; \\c URL goes to another server.")
            return False
        return True

    def statement(self, text: str) -> None:
        """Runs one statement, and remembers it. Raises the same errors as `run`."""
        self.last = text
        started = time.perf_counter()
        if self._inserted and gives_rows(text) and is_pull_query(text):
            self._wait_for_inserted()
        if not gives_rows(text):
            for entity in self.client.execute(text):
                self.printer.entity(entity)
            if (name := inserted_into(text)) is not None:
                self._inserted.add(name)
        elif self.settings.format == "arrow" and not _is_print(text):
            self._arrow(text)
        else:
            self._query(text)
        if self.settings.timing:
            self.printer.remark(f"Time: {(time.perf_counter() - started) * 1000:,.1f} ms")

    def run_file(self, file: Path) -> None:
        """Runs the statements in a file. Raises the same errors as `run`, and `ScriptUnreadable`."""
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

    def _run_part(self, part: StatementText, following: StatementText | None) -> None:
        command = command_of(part.text)
        if command is not None:
            act(self, command)
        elif not part.ended and _takes_statement(following):
            self.last = part.text
        else:
            self.statement(part.text)

    def leave(self) -> NoReturn:
        raise LeaveShell

    def close(self) -> None:
        self.client.close()

    def _wait_for_inserted(self) -> None:
        """Waits in scripts only: a person who types sees that a result is missing, and asks again."""
        is_script = not self.interactive or self._scripts > 0
        if self.wait_for_inserted is None or not is_script or not self.settings.wait:
            return
        names, self._inserted = self._inserted, set()
        try:
            self.wait_for_inserted(self.client, names)
        except MillstreamError as error:
            self.printer.remark(f"The next result may lack rows that were inserted: {error}")

    def _query(self, text: str) -> None:
        with self.client.query(text) as whole, bounded_rows(whole, self.settings) as rows:
            advice: str | None = None
            if self.show_live is not None and rows.kind != "PULL" and self.printer.for_eyes:
                advice = advice_for_new_only(self.client, text)
                ended_by_user = self.show_live(self.printer, rows, "" if advice is None else NEW_ONLY)
                self.printer.last_words(rows)
            else:
                with ends_on_interrupt(rows.close) as interrupted:
                    self.printer.rows(rows)
                ended_by_user = interrupted.is_set()
            if ended_by_user:
                self._ended(rows.count, advice)
            elif self.printer.on_screen and rows.kind == "PULL":
                self.printer.remark(_counted(rows.count))
            elif advice is not None and rows.count == 0:
                self.printer.remark(advice)

    def _arrow(self, text: str) -> None:
        with self.client.tables(text) as whole, bounded_tables(whole, self.settings) as tables:
            with ends_on_interrupt(tables.close) as interrupted:
                self.printer.arrow(tables)
            if interrupted.is_set():
                self._ended(None)

    def _ended(self, count: int | None, advice: str | None = None) -> None:
        self.printer.remark("Query ended." if count is None else f"Query ended after {_counted(count)}.")
        if advice is not None and count == 0:
            self.printer.remark(advice)
        if not self.interactive:
            raise KeyboardInterrupt


def _refuse_other_bytes(text: str) -> None:
    """Python represents bytes that are not UTF-8 as halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = f"line {text.count(chr(10), 0, error.start) + 1}"
        raise ScriptUnreadable(f"the input is not UTF-8 text in {place}") from None


def _with_next(found: Iterator[StatementText]) -> Iterator[tuple[StatementText, StatementText | None]]:
    before: StatementText | None = None
    for part in found:
        if before is not None:
            yield before, part
        before = part
    if before is not None:
        yield before, None


def _takes_statement(part: StatementText | None) -> bool:
    if part is None or not part.is_backslash:
        return False
    command: Command | None = command_of(part.text)
    return command is not None and command.verb in TAKES_STATEMENT


def _is_print(text: str) -> bool:
    return [token.type for token in tokenize(text, limit=1)] == ["PRINT"]


def _counted(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


@contextlib.contextmanager
def ends_on_interrupt(close: Closable) -> Generator[threading.Event]:
    """Ctrl-C ends the query; a second Ctrl-C while it ends raises KeyboardInterrupt as usual."""
    interrupted = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        close()

    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, end)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
