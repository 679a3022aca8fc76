"""`%millstream` connects, `%%millstream` runs SQL. `%%sql` is the same, unless JupySQL has taken the name."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, Final

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.display import display

from millstream.errors import MillstreamError, Span
from millstream.sql.settings.property_table import OFFSET_RESET

from ..connection import Answer, Connection, connect
from ..relation import Relation
from .cell import coloured, placed_in_cell, statements_of
from .cell_runs import watch
from .completion import CellCompletion
from .options import MagicUsage, Options, help_text, read_options, split_words

_CONNECT: Final = "Run %millstream embedded, %millstream http://127.0.0.1:8088, or name a variable with a connection."
_EARLIEST: Final = {OFFSET_RESET.name: "earliest"}


@magics_class
class MillstreamMagics(Magics):
    """One connection for a notebook; the variable `ms` is the same connection, if the name is free."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.connection: Connection | None = None
        self.completion = CellCompletion(lambda: self.connection)
        self._own: Connection | None = None  # the connection that we opened, and have to close

    @no_var_expand
    @line_cell_magic
    def millstream(self, line: str, cell: str | None = None) -> Any:
        """Connects: `%millstream embedded`, `%millstream embedded FOLDER`, `%millstream http://127.0.0.1:8088`, or
        `%millstream NAME` for a connection that a variable holds. Without anything it says what is connected,
        `%millstream close` ends it.

        With a cell below it runs the statements; see `%millstream --help`.
        """
        if cell is not None:
            return self.sql(line, cell)
        with _told_shortly():
            return self._connect(line)

    @no_var_expand
    def sql(self, line: str, cell: str) -> Any:
        """Runs the cell's statements; `%millstream --help` says what the line may ask for.

        Each statement's answer is shown, a query that goes on (EMIT CHANGES) as a live table; or the last one goes into
        a variable.
        """
        with _told_shortly():
            options = read_options(line)
            text, spans = statements_of(cell, self._shell.user_ns)
            for span in spans[:-1]:
                with _placed(text, span):
                    _show(self._started(text, span))
            if not spans:
                return None
            with _placed(text, spans[-1]):
                return self._last(self._started(text, spans[-1]), options)

    def _started(self, text: str, statement: Span) -> Relation:
        """A statement's answer, or a query that has not run yet."""
        result = self._connected().sql(text[statement.start : statement.end] + ";")
        if isinstance(result, Answer):
            self.completion.forget()
        return result

    def _last(self, result: Relation, options: Options) -> Any:
        """Handles the last statement's result; the notebook displays the returned value."""
        shown = _form(result, options)
        if options.into is None:
            return _show(result) if shown is result else shown
        if shown is result and not isinstance(result, Answer):
            self._connected().execute(f"EXPLAIN {result.sql}")  # reports errors now, although the query runs later
        self._shell.user_ns[options.into] = shown
        return shown if options.live or options.chart else None

    def _connected(self) -> Connection:
        if self.connection is None:
            raise MagicUsage("this notebook is not connected", hint=_CONNECT)
        return self.connection

    def _connect(self, line: str) -> None:
        match split_words(line):
            case []:
                display(self._connected())
            case ["--help"]:
                display({"text/plain": help_text()}, raw=True)
            case ["close"]:
                self.close()
            case [name] if isinstance(named := self._shell.user_ns.get(name), Connection):
                if named is not self._own:
                    self.close()
                self.connection = named
            case words:
                opened = _opened(words, line)
                self.close()
                self.connection = self._own = opened
                if isinstance(self._shell.user_ns.get("ms", opened), Connection):
                    self._shell.user_ns["ms"] = opened
                display(opened)

    def close(self) -> None:
        """Closes the connection, if we opened it."""
        if self._own is not None:
            self._own.close()
        self._own = self.connection = None

    @property
    def _shell(self) -> Any:  # the declared type of `shell` is too general
        return self.shell


def register(shell: Any) -> None:
    """Adds the magics and the completion to a shell. May be called twice."""
    magics = getattr(shell, "millstream_magics", None)
    if magics is None:
        magics = shell.millstream_magics = MillstreamMagics(shell)
        shell.Completer.custom_matchers.append(magics.completion.matcher)
    watch(shell)
    shell.register_magics(magics)
    if "sql" not in shell.magics_manager.magics["cell"]:
        shell.register_magic_function(magics.sql, "cell", "sql")


def unregister(shell: Any) -> None:
    """Removes what `register` added, and closes its connection."""
    magics: MillstreamMagics = shell.millstream_magics
    magics.close()
    for kind in ("line", "cell"):
        of_kind = shell.magics_manager.magics[kind]
        for name in ("millstream", "sql"):
            if getattr(of_kind.get(name), "__self__", None) is magics:
                del of_kind[name]
    shell.Completer.custom_matchers.remove(magics.completion.matcher)
    del shell.millstream_magics


def _opened(words: list[str], line: str) -> Connection:
    """The connection. It reads from the beginning unless that is SET otherwise, because notebooks explore existing
    data."""
    match words:
        case ["embedded", *folder] if len(folder) < 2:
            return connect(*folder, properties=_EARLIEST)
        case [url] if url.startswith(("http://", "https://")):
            return connect(url, properties=_EARLIEST)
        case _:
            raise MagicUsage(f'"{line}" is nothing to connect to', hint=_CONNECT)


def _form(result: Relation, options: Options) -> Any:
    """The form requested by `--as`, `--live` and `--chart`."""
    kept = {} if options.rows is None else {"rows_max": options.rows}
    if options.chart:
        return result.live_chart(options.x, options.y, by=options.by, kind=options.kind, title=options.title, **kept)
    if options.live or (result.endless and options.into is None and options.form == "relation"):
        return result.live_table(**kept)
    return result if options.form == "relation" else getattr(result, options.form)()


def _show(result: Relation) -> None:
    """Displays the rows, or a description of a query without an end."""
    if not isinstance(result, Answer) or result.entities:
        display(result.bundle(), raw=True)


@contextlib.contextmanager
def _placed(text: str, statement: Span) -> Generator[None]:
    try:
        yield
    except MillstreamError as error:
        placed_in_cell(error, text, statement)
        raise


@contextlib.contextmanager
def _told_shortly() -> Generator[None]:
    """Displays Millstream's errors like the shell, without a traceback."""
    try:
        yield
    except MillstreamError as error:
        lines = coloured(error)
        error._render_traceback_ = lambda: lines  # pyrefly: ignore[missing-attribute] - IPython asks for it
        raise
