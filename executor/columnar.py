"""The layout of columnar topics (`VALUE_FORMAT='ARROW'`): typed Arrow columns instead of key and value bytes.

A batch has the key and value columns under their SQL names, in the order of the schema, and then

    _ts    int64  rowtime, ms
    _null  bool   the value as a whole is null (a table's tombstone, a stream's record without value)
    _ws    int64  window start and
    _we    int64  window end, ms, if the key is windowed

These meta columns carry the field metadata `millstream.meta`, so a user's column may have the same name. Readers find
columns by name: a missing column is NULL, a column of another type is cast, unknown columns are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ..planner.schema import Column

ARROW = "ARROW"
NO_TIME = -1  # a rowtime that no record can have
_META = {b"millstream.meta": b"1"}
_META_TYPES = {"_ts": pa.int64(), "_null": pa.bool_(), "_ws": pa.int64(), "_we": pa.int64()}


@dataclass(frozen=True, slots=True)
class ColumnarPart:
    """The parts of a columnar batch. `columns`: one array per requested column. `errors`: column name → message."""

    columns: list[pa.Array]
    timestamps: pa.Array
    null_rows: pa.Array
    window_start: pa.Array | None
    window_end: pa.Array | None
    errors: dict[str, str]


def columnar_schema(columns: Sequence[Column], *, windowed: bool) -> pa.Schema:
    """The Arrow schema of a topic with these columns."""
    fields = [pa.field(column.name, column.type.arrow) for column in columns]
    names = ["_ts", "_null", "_ws", "_we"] if windowed else ["_ts", "_null"]
    return pa.schema(fields + [pa.field(name, _META_TYPES[name], metadata=_META) for name in names])


def columnar_batch(
    columns: Sequence[Column], arrays: Sequence[pa.Array], meta: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """Builds a batch. In: one array per column, and `_ts`, `_null` and, if windowed, `_ws` and `_we`."""
    schema = columnar_schema(columns, windowed="_ws" in meta)
    names = schema.names[len(columns) :]
    return pa.RecordBatch.from_arrays([*arrays, *(meta[name] for name in names)], schema=schema)


def split_columnar(batch: pa.RecordBatch, columns: Sequence[Column], timestamp_ms: int) -> ColumnarPart:
    """Splits a batch into its parts. A column that cannot be cast is NULL and listed in `errors`.

    In: `timestamp_ms`: the rowtime for batches without `_ts`.
    """
    own: dict[str, pa.Array] = {}
    meta: dict[str, pa.Array] = {}
    for field, array in zip(batch.schema, batch.columns, strict=True):
        (meta if _is_meta(field) else own)[field.name] = array
    errors: dict[str, str] = {}
    rows = batch.num_rows
    typed = {name: _typed(meta.get(name), name, type_, rows, errors) for name, type_ in _META_TYPES.items()}
    return ColumnarPart(
        columns=[_typed(own.get(column.name), column.name, column.type.arrow, rows, errors) for column in columns],
        timestamps=typed["_ts"].fill_null(NO_TIME)
        if "_ts" in meta
        else pa.nulls(rows, pa.int64()).fill_null(timestamp_ms),
        null_rows=typed["_null"].fill_null(False),
        window_start=typed["_ws"] if "_ws" in meta else None,
        window_end=typed["_we"] if "_we" in meta else None,
        errors=errors,
    )


def own_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch without the meta columns, for callers that do not know its schema."""
    return batch.select([field.name for field in batch.schema if not _is_meta(field)])


def _is_meta(field: pa.Field) -> bool:
    return field.metadata is not None and b"millstream.meta" in field.metadata


def _typed(array: pa.Array | None, name: str, type_: pa.DataType, rows: int, errors: dict[str, str]) -> pa.Array:
    if array is None:
        return pa.nulls(rows, type_)
    if array.type == type_:
        return array
    try:
        return pc.cast(array, type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        errors[name] = f"column {name} has the Arrow type {array.type}, not {type_}: {error}"
        return pa.nulls(rows, type_)
