"""The decoder of text formats: a compiled scan for batches, and an exact reference for everything else.

Small batches, and rows for which the scan is uncertain, are read row by row by the reference. So both ways give the
same result (a property test checks it); the scan is only faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...planner.schema import Column
from .codec import Decoded, RowError, boolean_array, byte_view, one_array, valid_flags
from .compiled import scan
from .compiled.spans import Bytes, Positions, Spans, to_arrow

SMALL_BATCH = 12  # rows; for smaller batches the reference is faster than the calls into numpy and Arrow


class UnreadableRow(Exception):
    """A row's bytes do not fit the format."""


class TextFormat(Protocol):
    """The two ways in which a format reads the needed columns."""

    words: bool  # the texts true and false are booleans

    def read_row(self, data: bytes) -> list[Any] | None:
        """The values of the columns, as `pyarrow.array` takes them; None if there is no value. Raises:
        UnreadableRow."""
        ...

    def scan(
        self, data: Bytes, starts: Positions, ends: Positions, status: Bytes, wide: Bytes
    ) -> tuple[Positions, Positions, Bytes]:
        """Out: start, end and kind of each value, as [column, row]. Sets `status`, and `wide` for rows that are not
        ASCII."""
        ...


class TextDecoder:
    """Reads the `needed` columns with the format, in their order. The others are all NULL."""

    def __init__(self, format_: TextFormat, columns: Sequence[Column], needed: Sequence[bool]) -> None:
        self._format = format_
        self._columns = columns
        self._needed = needed
        self._read = [column for column, wanted in zip(columns, needed, strict=True) if wanted]

    def decode(self, data: pa.Array | pa.ChunkedArray) -> Decoded:
        rows = one_array(data)
        if len(rows) < SMALL_BATCH:
            arrays, null, errors = self._by_rows(rows.to_pylist())
        else:
            arrays, null, errors = self._by_scan(rows)
        read = iter(arrays)
        columns = [
            next(read) if wanted else pa.nulls(len(rows), column.type.arrow)
            for column, wanted in zip(self._columns, self._needed, strict=True)
        ]
        return Decoded(columns, boolean_array(null), errors)

    def _by_rows(self, rows: list[bytes | None]) -> tuple[list[pa.Array], NDArray[np.bool_], list[RowError]]:
        nothing = [None] * len(self._read)
        null = np.zeros(len(rows), np.bool_)
        errors: list[RowError] = []
        values: list[list[Any]] = []
        for number, row in enumerate(rows):
            try:
                read = None if row is None else self._format.read_row(row)
                null[number] = read is None
            except UnreadableRow as error:
                read = None
                errors.append(RowError(number, str(error)))
            values.append(nothing if read is None else read)
        arrays = [pa.array([row[i] for row in values], column.type.arrow) for i, column in enumerate(self._read)]
        return arrays, null, errors

    def _by_scan(self, rows: pa.BinaryArray) -> tuple[list[pa.Array], NDArray[np.bool_], list[RowError]]:
        data, offsets = byte_view(rows)
        status = np.where(valid_flags(rows) != 0, scan.OK, scan.NULL_ROW).astype(np.uint8)
        wide = np.zeros(len(rows), np.uint8)
        starts, ends, kinds = self._format.scan(data, offsets[:-1], offsets[1:], status, wide)
        _check_utf8(rows, status, wide)
        numbers = np.arange(len(rows))
        arrays = [
            to_arrow(column.type, Spans(data, starts[i], ends[i], kinds[i], numbers, self._format.words), status)
            for i, column in enumerate(self._read)
        ]
        null = status == scan.NULL_ROW
        again = np.flatnonzero(status == scan.REDO)
        if not len(again):
            return arrays, null, []
        exact, exact_null, errors = self._by_rows(rows.take(pa.array(again)).to_pylist())
        null[again] = exact_null
        merged = numbers.copy()
        merged[again] = len(rows) + np.arange(len(again))
        order = pa.array(merged)
        arrays = [pa.concat_arrays([array, fixed]).take(order) for array, fixed in zip(arrays, exact, strict=True)]
        return arrays, null, [RowError(int(again[error.row]), error.message) for error in errors]


def _check_utf8(rows: pa.BinaryArray, status: Bytes, wide: Bytes) -> None:
    if not wide.any():
        return
    try:
        rows.cast(pa.string())
    except pa.ArrowInvalid:
        for number in np.flatnonzero(wide):
            try:
                rows[int(number)].as_py().decode()
            except UnicodeDecodeError:
                status[number] = scan.REDO
