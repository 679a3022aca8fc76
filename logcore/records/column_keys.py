"""The keys of columnar batches, as comparable bytes. Compaction uses them.

The Arrow schema's metadata may have these entries: `millstream.key`, a JSON list of the columns that form the key;
`millstream.deleted`, the boolean column that is true for a row that only deletes its key; `millstream.family`: keys of
different families are different; and `millstream.expires`, in a batch that lists which rows have expired.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

KEY: Final = b"millstream.key"
DELETED: Final = b"millstream.deleted"
FAMILY: Final = b"millstream.family"
EXPIRES: Final = b"millstream.expires"


class ColumnKeys(NamedTuple):
    """`tombstones`: true for a row that only deletes its key."""

    family: bytes
    keys: pa.BinaryArray
    tombstones: npt.NDArray[np.bool_]


def key_metadata(key: list[str], *, deleted: str | None = None, family: str = "") -> dict[bytes, bytes]:
    """The schema metadata with which batches of these columns are compacted."""
    metadata = {KEY: json.dumps(key).encode(), FAMILY: family.encode()}
    return metadata if deleted is None else {**metadata, DELETED: deleted.encode()}


def expiry_metadata(family: str, group: str, column: str) -> dict[bytes, bytes]:
    """The schema metadata of a batch whose rows expire earlier rows. Each row expires the rows in batches of `family`
    that have the same value in column `group` and a smaller value in `column`."""
    target = json.dumps([family, group, column]).encode()
    return {EXPIRES: target, **key_metadata([group], family=f"{family}/expired/{column}")}


class ColumnExpiry(NamedTuple):
    """Which rows of `family` have expired: for each of the `groups`, those whose `column` is less than the number at
    the same position in `below`."""

    family: bytes
    group: str
    column: str
    groups: list[int]
    below: list[int]


def expiry_of(columns: pa.RecordBatch) -> ColumnExpiry | None:
    """Which rows this batch expires; None if it is an ordinary batch."""
    text = (columns.schema.metadata or {}).get(EXPIRES)
    if text is None:
        return None
    try:
        family, group, column = json.loads(text)
        return ColumnExpiry(
            str(family).encode(), group, column, columns.column(group).to_pylist(), columns.column(column).to_pylist()
        )
    except (KeyError, ValueError, TypeError):
        return None


def family_of(columns: pa.RecordBatch) -> bytes:
    return (columns.schema.metadata or {}).get(FAMILY, b"")


def column_keys(columns: pa.RecordBatch) -> ColumnKeys | None:
    """The keys; None if the batch does not name its key columns. Then compaction may not remove any of its rows."""
    metadata = columns.schema.metadata or {}
    try:
        names: Any = json.loads(metadata[KEY])
        arrays = [columns.column(name) for name in names]
    except (KeyError, ValueError, TypeError):
        return None
    if not arrays:
        return None
    types = ",".join(str(array.type) for array in arrays).encode()
    return ColumnKeys(
        b"columns/" + metadata.get(FAMILY, b"") + b"/" + types,
        _side_by_side(arrays),
        _tombstones(columns, metadata.get(DELETED)),
    )


def _tombstones(columns: pa.RecordBatch, name: bytes | None) -> npt.NDArray[np.bool_]:
    index = -1 if name is None else columns.schema.get_field_index(name.decode())
    if index < 0 or not pa.types.is_boolean(columns.column(index).type):
        return np.zeros(columns.num_rows, np.bool_)
    return columns.column(index).fill_null(False).to_numpy(zero_copy_only=False)


def _side_by_side(arrays: Sequence[pa.Array]) -> pa.BinaryArray:
    """The key of each row: first the values of fixed width, then the others."""
    fixed = [array for array in arrays if _has_fixed_bytes(array.type)]
    others = [_as_bytes(array) for array in arrays if not _has_fixed_bytes(array.type)]
    parts = [_rows_of(np.concatenate([_fixed_bytes(array) for array in fixed], axis=1)), *others] if fixed else others
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def _has_fixed_bytes(type_: pa.DataType) -> bool:
    """True for types whose bytes can be compared. Floats are excluded: equal numbers may have different bytes, and only
    as text there is a single NaN."""
    types = pa.types
    whole = types.is_integer(type_) or types.is_boolean(type_)
    return whole or types.is_timestamp(type_) or types.is_date(type_) or types.is_time(type_)


def _fixed_bytes(array: pa.Array) -> npt.NDArray[np.uint8]:
    """For each value a byte that is 0 for NULL, followed by its own bytes."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    elif not pa.types.is_integer(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    found = np.empty((len(array), 1 + values.itemsize), np.uint8)
    found[:, 0] = array.is_valid().to_numpy(zero_copy_only=False)
    found[:, 1:] = values.view(np.uint8).reshape(len(array), values.itemsize)
    return found


def _rows_of(matrix: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Each row as bytes."""
    rows, width = matrix.shape
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(matrix)])


def _as_bytes(array: pa.Array) -> pa.BinaryArray:
    """For each value its length and its text, so that different sequences have different bytes; NULL is a value."""
    text = _as_text(array)
    length = pc.binary_length(text).cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(length, text, b":").fill_null(b"n")


def _as_text(array: pa.Array) -> pa.BinaryArray:
    if pa.types.is_binary(array.type):
        return array
    if not pa.types.is_nested(array.type):
        try:
            return array.cast(pa.string()).cast(pa.binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    return pa.array([None if value is None else repr(value).encode() for value in array.to_pylist()], pa.binary())
