"""The encoder of text formats: compiled writers for batches, Python for a few rows. Both write the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...planner.schema import Column
from .codec import valid_flags
from .json_text import quote
from .text_columns import TextColumn, join_json, to_binary, to_text
from .writing import Write, wire_type, writer

SMALL_BATCH = 32  # rows; for smaller batches Python is faster than the calls into Arrow and numpy


class RecordLayout(Protocol):
    """How the texts of the columns become one record."""

    json: bool  # how the values are written

    def join(self, columns: Sequence[TextColumn], present: NDArray[np.uint8]) -> TextColumn: ...

    def join_row(self, texts: list[str | None]) -> str | None: ...


class JsonObject:
    """{"A":1,"B":null}"""

    json = True

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._keys = [f"{quote(name)}:" for name in names]

    def join(self, columns: Sequence[TextColumn], present: NDArray[np.uint8]) -> TextColumn:
        return join_json(self._names, columns, present)

    def join_row(self, texts: list[str | None]) -> str | None:
        members = (key + ("null" if text is None else text) for key, text in zip(self._keys, texts, strict=True))
        return "{" + ",".join(members) + "}"


class BareValue:
    """The JSON value of the only column. NULL has no value at all, as in ksqlDB (but see `TextEncoder`)."""

    json = True

    def join(self, columns: Sequence[TextColumn], present: NDArray[np.uint8]) -> TextColumn:
        column = columns[0]
        return TextColumn(column.offsets, column.data, column.valid & present)

    def join_row(self, texts: list[str | None]) -> str | None:
        return texts[0]


class TextEncoder:
    """In: `columns`: without headers columns, which no format holds; `numbers`: their positions in the arguments of
    `encode`.

    If the caller passes `null_rows`, a key that is not among them is written even if it is NULL: as the text null.
    """

    def __init__(self, layout: RecordLayout, columns: Sequence[Column], numbers: Sequence[int]) -> None:
        self._layout = layout
        self._columns = columns
        self._numbers = numbers
        self._is_key = bool(columns) and all(column.role == "KEY" for column in columns)
        self._writers: list[Write] = [writer(column.type, json=layout.json) for column in columns]
        self._wire_types = [wire_type(column.type) for column in columns]

    def encode(
        self,
        columns: Sequence[pa.Array],
        *,
        null_rows: pa.BooleanArray | None = None,
        window_start: pa.Array | None = None,
        window_end: pa.Array | None = None,
    ) -> pa.BinaryArray:
        arrays = [columns[number] for number in self._numbers]
        count = _row_count(columns, null_rows)
        present = np.ones(count, np.uint8)
        if null_rows is not None:
            known = null_rows.fill_null(False) if null_rows.null_count else null_rows
            present &= 1 - known.to_numpy(zero_copy_only=False).astype(np.uint8)
        elif self._is_key:
            present &= np.maximum.reduce([valid_flags(array) for array in arrays])
        if self._is_key and null_rows is not None:
            return _with_nulls_as_text(self._texts(arrays, present), present)
        return self._texts(arrays, present)

    def _texts(self, arrays: list[pa.Array], present: NDArray[np.uint8]) -> pa.BinaryArray:
        if len(present) < SMALL_BATCH:
            return self._by_rows(arrays, present)
        texts = [
            to_text(column.type, array, json=self._layout.json)
            for column, array in zip(self._columns, arrays, strict=True)
        ]
        present.flags.writeable = False
        return to_binary(self._layout.join(texts, present))

    def _by_rows(self, arrays: list[pa.Array], present: NDArray[np.uint8]) -> pa.BinaryArray:
        values: list[list[Any]] = [
            (array if array.type == wire else array.cast(wire)).to_pylist()
            for array, wire in zip(arrays, self._wire_types, strict=True)
        ]
        rows: list[bytes | None] = []
        for row, wanted in enumerate(present):
            text = None
            if wanted:
                texts = [
                    None if column[row] is None else write(column[row])
                    for write, column in zip(self._writers, values, strict=True)
                ]
                text = self._layout.join_row(texts)
            rows.append(None if text is None else text.encode())
        return pa.array(rows, pa.binary())


def _with_nulls_as_text(rows: pa.BinaryArray, present: NDArray[np.uint8]) -> pa.BinaryArray:
    if rows.null_count == 0:
        return rows
    unwritten = rows.is_null().to_numpy(zero_copy_only=False) & (present != 0)
    return pc.if_else(pa.array(unwritten), pa.scalar(b"null"), rows)


def _row_count(columns: Sequence[pa.Array], null_rows: pa.BooleanArray | None) -> int:
    if columns:
        return len(columns[0])
    return 0 if null_rows is None else len(null_rows)
