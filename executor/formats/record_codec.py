"""The decoder and the encoder for formats that are read and written record by record.

Such a format has a `RecordReader` and a `RecordWriter` for single records. `typed_values.py` converts between their
plain values and columns. If a format has its own representation of a type, its `reads` and `writes` convert it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...planner.formats import FORMATS
from ...planner.schema import Column
from ...sql.types import SqlType
from .codec import Decoded, Decoder, Encoder, RowError, UnwritableRows, boolean_array, one_array
from .coding import Coding, RecordPart
from .reading import Convert, FieldReader, Mismatch, convert_fields, describe
from .typed_values import converter, plain_columns
from .wire import Unreadable, Unwritable

SMALL_BATCH = 64  # rows; smaller batches are read faster record by record than by a compiled pass
NULL_ROW, REDO = 1, 2  # status of a row after a scan, besides 0: no value at all; uncertain, read the record alone

Scanned = tuple[list[pa.Array], NDArray[np.uint8]]
_Read = tuple[list[pa.Array], NDArray[np.bool_], list[RowError]]


class RecordReader:
    """Reads one record's bytes as a plain value."""

    def read(self, data: bytes) -> Any:
        """The plain value; None is NULL. Raises `Unreadable`."""
        raise AssertionError(f"{type(self).__name__} reads nothing")

    def scan(self, rows: pa.BinaryArray, columns: Sequence[Column]) -> Scanned | None:
        """The columns of a batch, read by a compiled pass, and the status of each row; None if there is no such
        pass."""
        return None


class RecordWriter(Protocol):
    def write(self, value: Any) -> bytes:
        """Raises `Unwritable`."""
        ...


class RecordCoding(Coding):
    """A format that is read and written record by record."""

    def reader(self, part: RecordPart) -> RecordReader:
        raise AssertionError(f"{type(self).__name__} reads nothing")

    def writer(self, part: RecordPart) -> RecordWriter:
        raise AssertionError(f"{type(self).__name__} writes nothing")

    def reads(self, type_: SqlType) -> Convert | None:
        """A conversion from plain values to `type_`; None if it is the same as for other formats."""
        return None

    def writes(self, type_: SqlType) -> Convert | None:
        """A conversion of plain values of `type_` (never None) for the writer; None if they need none."""
        return None

    def decoder(self, part: RecordPart) -> Decoder:
        return RecordDecoder(self, part)

    def encoder(self, part: RecordPart) -> Encoder:
        return RecordEncoder(self, part)


class RecordDecoder:
    """Decodes record by record, or by the reader's compiled pass. Columns that are not wanted are all NULL."""

    def __init__(self, coding: RecordCoding, part: RecordPart) -> None:
        self._reader = coding.reader(part)
        self._columns = part.columns
        self._wanted = part.wanted
        self._bare = part.bare
        self._read = part.read
        self._names = [column.name for column in self._read]
        self._fields = FieldReader(self._names)
        self._converters: list[Convert] = [converter(column.type, coding.reads) for column in self._read]

    def decode(self, data: pa.Array | pa.ChunkedArray) -> Decoded:
        rows = one_array(data)
        scanned = None if self._bare or len(rows) < SMALL_BATCH else self._by_scan(rows)
        arrays, null, errors = scanned or self._by_rows(rows.to_pylist())
        read = iter(arrays)
        columns = [
            next(read) if wanted else pa.nulls(len(rows), column.type.arrow)
            for column, wanted in zip(self._columns, self._wanted, strict=True)
        ]
        return Decoded(columns, boolean_array(null), errors)

    def _by_scan(self, rows: pa.BinaryArray) -> _Read | None:
        """Reads by the compiled pass, and the remaining rows record by record; None if the pass does not apply to this
        batch."""
        scanned = self._reader.scan(rows, self._read)
        if scanned is None:
            return None
        arrays, status = scanned
        null = status == NULL_ROW
        again = np.flatnonzero(status == REDO)
        if not len(again):
            return arrays, null, []
        exact, exact_null, errors = self._by_rows(rows.take(pa.array(again)).to_pylist())
        null[again] = exact_null
        order = np.arange(len(rows))
        order[again] = len(rows) + np.arange(len(again))
        arrays = [
            pa.concat_arrays([array, fixed]).take(pa.array(order)) for array, fixed in zip(arrays, exact, strict=True)
        ]
        return arrays, null, [RowError(int(again[error.row]), error.message) for error in errors]

    def _by_rows(self, rows: list[bytes | None]) -> _Read:
        nothing = [None] * len(self._read)
        null = np.zeros(len(rows), np.bool_)
        errors: list[RowError] = []
        values: list[list[Any]] = []
        for number, row in enumerate(rows):
            found: list[Any] | None = None
            try:
                record = None if row is None else self._reader.read(row)
                null[number] = record is None
                found = None if record is None else self._row(record)
            except (Unreadable, Mismatch) as error:
                errors.append(RowError(number, str(error)))
            values.append(nothing if found is None else found)
        arrays = [pa.array([row[i] for row in values], column.type.arrow) for i, column in enumerate(self._read)]
        return arrays, null, errors

    def _row(self, record: Any) -> list[Any]:
        if self._bare:
            return [convert(record) for convert in self._converters]
        if not isinstance(record, dict):
            raise Mismatch(f"a record wanted, {describe(record)} came")
        return convert_fields(self._names, self._converters, self._fields.read(record))


class RecordEncoder:
    """Encodes record by record. Formats do not contain headers columns.

    A bare NULL has no bytes at all. If the caller passes `null_rows`, a key that is not among them is written even if
    it is NULL, if the format has bytes for that.
    """

    def __init__(self, coding: RecordCoding, part: RecordPart) -> None:
        self._writer = coding.writer(part)
        self._writes = coding.writes
        self._columns = part.held
        self._numbers = part.numbers
        self._bare = part.bare
        self._names = [column.name for column in part.held]
        self._is_key = bool(part.held) and all(column.role == "KEY" for column in part.held)
        self._holds_bare_null = FORMATS[part.spec.name].holds_bare_null

    def encode(
        self,
        columns: Sequence[pa.Array],
        *,
        null_rows: pa.BooleanArray | None = None,
        window_start: pa.Array | None = None,
        window_end: pa.Array | None = None,
    ) -> pa.BinaryArray:
        """One byte string per row. Raises `UnwritableRows` if values do not fit the schema."""
        plain = plain_columns(self._columns, [columns[number] for number in self._numbers], self._writes)
        count = len(columns[0]) if columns else 0 if null_rows is None else len(null_rows)
        absent = [False] * count if null_rows is None else null_rows.to_pylist()
        cells = zip(*plain, strict=True) if plain else [()] * count
        nothing = self._null_is_nothing(null_rows is not None)
        rows: list[bytes | None] = []
        errors: list[RowError] = []
        for number, (row, missing) in enumerate(zip(cells, absent, strict=True)):
            data: bytes | None = None
            try:
                if not (missing or (nothing and all(cell is None for cell in row))):
                    data = self._record(row)
            except Unwritable as error:
                errors.append(RowError(number, str(error)))
            rows.append(data)
        if errors:
            raise UnwritableRows(errors)
        return pa.array(rows, pa.binary())

    def _null_is_nothing(self, rows_are_said: bool) -> bool:
        """Whether a row of NULLs has no bytes."""
        if self._is_key:
            return not rows_are_said or (self._bare and not self._holds_bare_null)
        return self._bare

    def _record(self, row: Sequence[Any]) -> bytes:
        return self._writer.write(row[0] if self._bare else dict(zip(self._names, row, strict=True)))
