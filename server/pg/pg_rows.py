"""Rows for a client of PostgreSQL's protocol: their sources, and their bytes."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.types as pt

from ...sql.functions.java.calendar_days import python_values
from ...sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    SqlType,
)
from . import backend
from .backend import ResultColumn
from .pg_types import OID_TYPE, encoder, modifier_of, oid_of, size_of
from .sqlstates import CANCELED, PgRefused

BATCH_ROWS: Final = 1000
"""The most rows that a source returns at a time; they are encoded together."""
BUFFER_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class PgColumn:
    """A column of an answer; `name`: as the client sees it."""

    name: str
    type: SqlType

    def described(self, format: int) -> ResultColumn:
        return ResultColumn(self.name, oid_of(self.type), size_of(self.type), modifier_of(self.type), format)


@dataclass(frozen=True, slots=True)
class RowPiece:
    """Some rows: the values of each column, in the form of `python_values`."""

    columns: Sequence[Sequence[Any]]
    count: int


class RowSource(Protocol):
    """Returns rows once, in order."""

    async def take(self, most: int) -> RowPiece | None:
        """Waits for rows, and returns at least one, at most `most` and BATCH_ROWS. None at the end. Raises the error
        that ended the rows."""
        ...

    def close(self) -> None:
        """Ends the rows early. Any thread, repeatable."""
        ...


class FixedRows:
    """Rows that are all in memory. After a `close` before the last one was taken, `take` raises `PgRefused`: else the
    client would take a part for the whole answer."""

    def __init__(self, table: Sequence[pa.ChunkedArray | pa.Array], count: int) -> None:
        self._columns = table
        self._count = count
        self._at = 0
        self._ended_early = False
        self.closed: Callable[[], None] = lambda: None
        """Called when all rows are taken, or nobody takes any more."""

    async def take(self, most: int) -> RowPiece | None:
        columns = self._columns  # another thread may close them now
        if self._ended_early:
            raise PgRefused(CANCELED, "the query was terminated")
        size = min(most, BATCH_ROWS, self._count - self._at)
        if size <= 0:
            self.close()
            return None
        piece = RowPiece([python_values(column.slice(self._at, size)) for column in columns], size)
        self._at += size
        return piece

    def close(self) -> None:
        self._ended_early = self._ended_early or self._at < self._count
        self._columns = ()
        self.closed()

    @property
    def runs(self) -> bool:
        return False

    def join(self, timeout_s: float) -> None:
        pass


class ListedRows:
    """A few rows as tuples."""

    def __init__(self, rows: Sequence[Sequence[Any]], width: int) -> None:
        self._rows = rows
        self._width = width
        self._at = 0

    async def take(self, most: int) -> RowPiece | None:
        rows = self._rows[self._at : self._at + min(most, BATCH_ROWS)]
        if not rows:
            return None
        self._at += len(rows)
        return RowPiece([[row[at] for row in rows] for at in range(self._width)], len(rows))

    def close(self) -> None:
        self._at = len(self._rows)


class ComingRows:
    """Rows of a push query. A separate thread reads them ahead, as far as the buffer allows. Implements `OpenRows`,
    too.

    In: `tables` ends soon after `close_source`. Only `close`, `runs` and `join` may be called from other threads.
    """

    def __init__(
        self, name: str, tables: Iterator[pa.Table], close_source: Callable[[], None], ended: Callable[[], None]
    ) -> None:
        """In: `ended`: called once on the loop, when the last row was taken or nobody takes any more."""
        self._tables = tables
        self._close_source = close_source
        self._tell_ended = ended
        self._loop = asyncio.get_running_loop()
        self._room = threading.Condition()
        self._waiting: collections.deque[pa.Table] = collections.deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._ended = self._closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"millstream-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def take(self, most: int) -> RowPiece | None:
        while True:
            with self._room:
                self._filled.clear()
                if self._waiting:
                    return self._piece(min(most, BATCH_ROWS))
                if self._ended:
                    self._finish()
                    if self._failure is not None:
                        raise self._failure
                    return None
            await self._filled.wait()

    def close(self) -> None:
        with self._room:
            self._closed = True
            self._room.notify()
        self._close_source()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._finish)

    def fail(self, reason: Exception) -> None:
        """Ends the rows with an error."""
        self._failure = reason
        self.close()

    def _finish(self) -> None:
        tell, self._tell_ended = self._tell_ended, lambda: None
        tell()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        if self.runs:
            self._thread.join(timeout_s)

    def _piece(self, most: int) -> RowPiece:
        table = self._waiting.popleft()
        self._bytes -= table.nbytes
        if table.num_rows > most:
            rest = table.slice(most)
            self._waiting.appendleft(rest)
            self._bytes += rest.nbytes
            table = table.slice(0, most)
        self._room.notify()
        return RowPiece([python_values(column) for column in table.columns], table.num_rows)

    def _run(self) -> None:
        try:
            for table in self._tables:
                if table.num_rows and not self._put(table):
                    break
        except Exception as error:
            self._failure = self._failure or error
        finally:
            self._close_source()
            with self._room:
                self._ended = True
                self._tell()

    def _put(self, table: pa.Table) -> bool:
        with self._room:
            while self._bytes >= BUFFER_BYTES_MAX and not self._closed:
                self._room.wait()
            self._waiting.append(table)
            self._bytes += table.nbytes
            self._tell()
            return not self._closed

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._filled.set)
        except RuntimeError:  # the loop is closed: nobody reads any more
            self._closed = True


class CursorRows:
    """A part of a cursor's rows: the number that FETCH asks for, or the rows that arrive within its timeout."""

    def __init__(self, rows: RowSource, count: int | None, timeout_s: float | None) -> None:
        self._rows = rows
        self._left = count
        self._timeout_s = timeout_s
        self._until: float | None = None

    async def take(self, most: int) -> RowPiece | None:
        wanted = most if self._left is None else min(most, self._left)
        if wanted <= 0:
            return None
        piece = await self._in_time(wanted)
        if piece is not None and self._left is not None:
            self._left -= piece.count
        return piece

    def close(self) -> None:
        """Ends the cursor. This only happens if its client cancels a FETCH that waits."""
        self._rows.close()

    async def _in_time(self, wanted: int) -> RowPiece | None:
        if self._timeout_s is None:
            return await self._rows.take(wanted)
        loop = asyncio.get_running_loop()
        if self._until is None:
            self._until = loop.time() + self._timeout_s
        try:
            async with asyncio.timeout_at(max(self._until, loop.time() + 0.001)):
                return await self._rows.take(wanted)
        except TimeoutError:
            self._left = 0
            return None


def cells(piece: RowPiece, columns: Sequence[PgColumn], formats: Sequence[int]) -> list[list[bytes | None]]:
    """The values as bytes, by column."""
    found: list[list[bytes | None]] = []
    for values, column, format in zip(piece.columns, columns, formats, strict=True):
        encode = encoder(column.type, format)
        found.append([None if value is None else encode(value) for value in values])
    return found


def data_rows(piece: RowPiece, columns: Sequence[PgColumn], formats: Sequence[int]) -> bytes:
    """A DataRow message for each row."""
    if not columns:
        return backend.data_row(()) * piece.count
    return b"".join(map(backend.data_row, zip(*cells(piece, columns, formats), strict=True)))


def fixed(table: pa.Table) -> tuple[list[PgColumn], FixedRows]:
    """An Arrow table, whose columns get the nearest SQL types; types without an equivalent become text."""
    columns: list[PgColumn] = []
    arrays: list[Any] = []
    for name, array in zip(table.column_names, table.columns, strict=True):
        type_ = _sql_type(array.type)
        if type_ is None:
            texts = [None if value is None else str(value) for value in array.to_pylist()]
            array = pa.chunked_array([pa.array(texts, pa.string())])
        columns.append(PgColumn(name, type_ or STRING))
        arrays.append(array)
    return columns, FixedRows(arrays, table.num_rows)


def _sql_type(type_: pa.DataType) -> SqlType | None:
    if pt.is_list(type_) or pt.is_large_list(type_):
        element = _sql_type(type_.value_type)
        return None if element is None else Array(element)
    if pt.is_decimal(type_):
        return Decimal(type_.precision, type_.scale)
    return next((found for fits, found in _NEAREST if fits(type_)), None)


_NEAREST: Final = (
    (pt.is_boolean, BOOLEAN), (pt.is_uint32, OID_TYPE), (lambda t: pt.is_integer(t) and t.bit_width <= 32, INTEGER),
    (lambda t: pt.is_integer(t) and t != pa.uint64(), BIGINT), (pt.is_floating, DOUBLE),
    (lambda t: pt.is_string(t) or pt.is_large_string(t) or pt.is_null(t), STRING), (pt.is_binary, BYTES),
    (pt.is_date, DATE), (pt.is_time, TIME), (pt.is_timestamp, TIMESTAMP),
)  # fmt: skip
