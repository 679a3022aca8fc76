"""The current rows of a push query on a table: a new row replaces the row with the same key."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import Final

from ...server.client import Row, Rows
from ..viewer import Page, ViewerPlace
from .row_lines import shown_values
from .tables import Table, cell_text, fit, is_numeric_type, printable, text_width

_ROWS_MAX: Final = 100_000  # above this, the oldest rows are removed
_FRESH_SECONDS: Final = 1.0
_WIDTH_MAX: Final = 60  # the most width that one long value may take for its column
_BOLD, _RESET = "\033[1m", "\033[0m"


class KeyedRows:
    """Rows, in the order in which their keys first appeared. One thread runs `take`, another one the other methods.

    In: `column_width`: the width of every column, if it is not 0."""

    def __init__(self, rows: Rows, *, colour: bool, column_width: int = 0) -> None:
        assert rows.key is not None
        self._source = rows
        self._key = rows.key
        self._titles = rows.column_names
        self._numeric = [is_numeric_type(type_) for type_ in rows.column_types]
        self._colour = colour
        self._guard = threading.Lock()
        self._rows: dict[str, tuple[Row, float]] = {}  # each row, and when it changed
        self._fixed = column_width > 0
        self._widths = [column_width or text_width(printable(title)) for title in self._titles]

    def take(self) -> Iterator[None]:
        """Reads the rows as they arrive."""
        for row in self._source:
            self._put(row)
            yield

    def page(self, place: ViewerPlace) -> Page:
        """The rows that fit, as a table. Columns grow with their values, and never shrink."""
        room = max(1, place.rows - 2)
        with self._guard:
            total = len(self._rows)
            top = max(0, min(place.top, total - room))
            shown = list(islice(self._rows.values(), top, top + room))
        cells = [self._cells(row) for row, _ in shown]
        self._widen(cells)
        table = self._table(place.columns)
        now = time.monotonic()
        lines = [
            self._marked(table.row(texts), fresh=now - changed < _FRESH_SECONDS)
            for texts, (_, changed) in zip(cells, shown, strict=True)
        ]
        return Page(table.head(), lines, total, top)

    def last_lines(self, width_max: int | None, rows_max: int) -> Iterator[str]:
        """The table in its final state."""
        cells = [self._cells(row) for row, _ in islice(self._rows.values(), rows_max)]
        self._widen(cells)
        table = self._table(width_max)
        yield from table.head()
        yield from map(table.row, cells)
        if len(self._rows) > rows_max:
            yield f"… and {len(self._rows) - rows_max:,} more"

    def __len__(self) -> int:
        return len(self._rows)

    def _put(self, row: Row) -> None:
        key = repr([row.values[index] for index in self._key])
        with self._guard:
            if row.tombstone:
                self._rows.pop(key, None)
                return
            self._rows[key] = (row, time.monotonic())
            if len(self._rows) > _ROWS_MAX:
                del self._rows[next(iter(self._rows))]

    def _cells(self, row: Row) -> list[str]:
        return [cell_text(value) for value in shown_values(row)]

    def _widen(self, cells: list[list[str]]) -> None:
        for texts in () if self._fixed else cells:
            for index, text in enumerate(texts):
                self._widths[index] = max(self._widths[index], min(text_width(text), _WIDTH_MAX))

    def _table(self, width_max: int | None) -> Table:
        return Table(self._titles, fit(self._widths, width_max), self._numeric, cut=True, colour=self._colour)

    def _marked(self, line: str, *, fresh: bool) -> str:
        return f"{_BOLD}{line}{_RESET}" if fresh and self._colour else line
