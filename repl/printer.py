"""The output of the shell: answers and rows go to standard output, errors and remarks to standard error. `row_lines`
formats the rows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO

from millstream.errors import UNWRITABLE, MillstreamError, ServerError

from ..server.client import Rows
from .settings import Settings
from .terminal import has_colours, is_terminal, width
from .text import row_lines
from .text.entity_text import entity_lines, entity_table, warning_lines
from .text.excerpts import is_carets, shown_lines
from .text.tables import printable, render_table

if TYPE_CHECKING:  # most commands do not need Arrow, whose import takes 0.2 s
    import pyarrow as pa

    from ..server.client import ResultTables

Pager = Callable[[Iterator[str], Callable[[str], None]], None]
"""Shows the lines itself, or writes each with the function."""

_RED, _BOLD, _DIM, _RESET = "\033[31m", "\033[1m", "\033[2m", "\033[0m"
_ESCAPES: Final = re.compile(r"\033\[[0-9;]*m")
_FOR_PROGRAMS: Final = ("json", "jsonl", "csv", "arrow")


class ResultsUnwritable(ServerError):
    """The file of `\\o` cannot be written any more, for example because its disk is full."""

    code = "RESULTS_UNWRITABLE"


class NotForScreens(ServerError):
    """Arrow output is binary, and a terminal cannot show it."""

    code = "NOT_FOR_SCREENS"


@dataclass(slots=True)
class Printer:
    """Prints the results, in colour and with tables cut to the width if the output is a terminal.

    If `redirected` is set, results go there and not to `out`; `spool` gets a copy of everything that is printed.
    `pager` shows results that are longer than the screen, if a user is present.
    """

    out: TextIO
    err: TextIO
    settings: Settings = field(default_factory=Settings)
    redirected: TextIO | None = None
    spool: TextIO | None = None
    pager: Pager | None = None

    @property
    def results(self) -> TextIO:
        return self.redirected or self.out

    @property
    def on_screen(self) -> bool:
        return is_terminal(self.results)

    @property
    def colour(self) -> bool:
        return has_colours(self.results)

    @property
    def width_max(self) -> int | None:
        """The greatest width of a table; None if the output is not a screen."""
        return width() if self.on_screen and self.settings.cut else None

    @property
    def vertical(self) -> bool:
        return self.settings.format == "vertical" or (self.settings.expanded and self.settings.format == "table")

    @property
    def for_eyes(self) -> bool:
        """Whether results are shown to a person, as rows and columns."""
        return self.on_screen and self.settings.format in ("table", "vertical")

    def entity(self, entity: Mapping[str, Any]) -> None:
        """Prints an answer. If the output format is for data, text that is not data goes to standard error."""
        if self.settings.format in ("json", "jsonl"):
            self._show([row_lines.json_text(entity)])
        elif self.settings.format == "table" and not self.vertical:
            self._show(self.entity_lines(entity, self.width_max))
        else:
            self._entity_as_data(entity)

    def entity_lines(self, entity: Mapping[str, Any], width_max: int | None) -> list[str]:
        """The answer as text for people."""
        return entity_lines(entity, width_max, colour=self.colour)

    def rows(self, rows: Rows) -> None:
        """Prints all rows as they arrive. Raises what the query raises."""
        lines = self.lines_of(rows, self.width_max)
        self._show(lines, streaming=rows.kind != "PULL")
        self.last_words(rows)

    def last_words(self, rows: Rows) -> None:
        """Prints the final message of the engine."""
        if rows.final_message and self.settings.format == "table":
            self.remark(rows.final_message)

    def lines_of(self, rows: Rows, width_max: int | None) -> Iterator[str]:
        """The rows in the current format; a table is at most `width_max` wide. Rows are read only as the lines are
        taken."""
        if rows.kind == "PRINT":
            return row_lines.print_lines(rows)
        match "vertical" if self.vertical else self.settings.format:
            case "json":
                return row_lines.json_array(rows)
            case "jsonl":
                return row_lines.json_lines(rows)
            case "csv":
                return row_lines.csv_lines(rows)
            case "markdown":
                return row_lines.markdown_lines(rows)
            case "vertical":
                return row_lines.vertical_lines(rows)
            case _:
                return row_lines.table_lines(rows, width_max, colour=self.colour, column_width=self.settings.width)

    def arrow(self, tables: ResultTables) -> None:
        """Prints the rows as one Arrow IPC stream. Raises `NotForScreens`, and what the query raises."""
        binary = getattr(self.results, "buffer", None)
        if binary is None or self.results.isatty():
            raise NotForScreens("Arrow is bytes, and no terminal can show them", hint="Write it to a file: \\o FILE.")
        self._write_arrow(tables.schema, tables, binary)

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Prints a small table that the shell itself made."""
        format = "vertical" if self.vertical else self.settings.format
        match format:
            case "json" | "jsonl":
                objects = [dict(zip(titles, row, strict=True)) for row in rows]
                self._show(map(row_lines.json_text, objects if format == "jsonl" else [objects]))
            case "table" | "arrow":
                self._show(render_table(titles, rows, self.width_max, colour=self.colour))
            case _:
                self._show(row_lines.small_table_lines(format, titles, rows))

    def error(self, error: MillstreamError) -> None:
        """Prints the error with its position and its hint."""
        for line in shown_lines(error.render()):
            self._to_err(self._coloured(line))

    def remark(self, text: str) -> None:
        """Prints text that is only for people, and so is not part of the output."""
        self._to_err(f"{_DIM}{text}{_RESET}" if has_colours(self.err) else text)

    def line(self, text: str) -> None:
        self._write(text)
        self.results.flush()

    def lines(self, lines: Iterable[str]) -> None:
        """Prints a text of the shell's own, which may be long."""
        self._show(lines)

    def note(self, text: str) -> None:
        """Writes to the spool what is already on the screen."""
        self._to_spool(text)

    @contextlib.contextmanager
    def refuses_full_disks(self) -> Generator[None]:
        """Results go to the screen again, and the error is raised as `ResultsUnwritable`, if their file fails."""
        try:
            yield
        except OSError as error:
            if self.redirected is None or error.errno not in UNWRITABLE:
                raise
            message = f"{self.redirected.name} cannot be written: {(error.strerror or str(error)).lower()}"
            with contextlib.suppress(OSError):
                self.redirected.close()
            self.redirected = None
            raise ResultsUnwritable(message, hint="Results go to the screen again.") from None

    def _entity_as_data(self, entity: Mapping[str, Any]) -> None:
        table = entity_table(entity)
        if table is None:
            lines = self.entity_lines(entity, self.width_max)
            if self.settings.format in _FOR_PROGRAMS:
                for line in lines:
                    self.remark(line)
            else:
                self._show(lines)
            return
        if self.settings.format == "arrow" and not self.results.isatty():
            self._entity_as_arrow(*table)
        else:
            self.table(*table)
        for warning in warning_lines(entity):
            self.remark(warning)

    def _entity_as_arrow(self, titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        import pyarrow as pa

        binary = getattr(self.results, "buffer", None)
        columns = [[None if row[index] is None else str(row[index]) for row in rows] for index in range(len(titles))]
        table = pa.table([pa.array(column, pa.string()) for column in columns], names=list(titles))
        if binary is not None:
            self._write_arrow(table.schema, [table], binary)

    def _write_arrow(self, schema: pa.Schema, tables: Iterable[pa.Table], binary: BinaryIO) -> None:
        import pyarrow as pa

        self.results.flush()
        with pa.ipc.new_stream(binary, schema) as writer:
            binary.flush()
            for table in tables:
                writer.write_table(table)
                binary.flush()
        binary.flush()

    def _show(self, lines: Iterable[str], *, streaming: bool = False) -> None:
        """Writes each line as it comes, or shows the lines in the pager."""
        if self.settings.format in _FOR_PROGRAMS and self.results.isatty():
            lines = map(printable, lines)  # these formats have no colours
        if self.pager is not None and self.settings.pager and self.on_screen and not streaming:
            self.pager(iter(lines), self._write)
            self.results.flush()
            return
        for line in lines:
            self._write(line)
            if streaming:
                self.results.flush()
        self.results.flush()

    def _write(self, text: str) -> None:
        self.results.write(text + "\n")
        self._to_spool(text)

    def _coloured(self, line: str) -> str:
        if not has_colours(self.err):
            return line
        label, separator, rest = line.partition(": ")
        if separator and label in ("error", "hint"):
            colour = _RED + _BOLD if label == "error" else _BOLD
            return f"{colour}{label}:{_RESET} {rest}"
        return f"{_RED}{line}{_RESET}" if is_carets(line) else line

    def _to_err(self, text: str) -> None:
        self.err.write(text + "\n")
        self.err.flush()
        self._to_spool(text)

    def _to_spool(self, text: str) -> None:
        if self.spool is not None:
            with contextlib.suppress(OSError):  # a full disk does not end the session
                self.spool.write(_ESCAPES.sub("", text) + "\n")
                self.spool.flush()
