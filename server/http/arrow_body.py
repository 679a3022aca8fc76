"""Reads Arrow IPC streams from untrusted clients so that a small body cannot use much memory.

Compressed buffers are refused, because a few bytes can expand to gigabytes. Types in which many rows share one large
value are refused, too, unless the expanded values are small enough.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .errors import BAD_REQUEST, TOO_LARGE, WRONG_CONTENT_TYPE, RequestRefused

EXPANSION_MAX: Final = 64  # bytes in memory for each byte of a body
_ROWS_PER_BYTE: Final = 8  # BOOLEAN; a type without data (NULL) could declare any number of rows

_RECORD_BATCH: Final = "record batch"
_DICTIONARY_BATCH: Final = "dictionary"


def read_table(body: bytes) -> pa.Table:
    """The rows of the body. Raises `RequestRefused`."""
    try:
        _refuse_compressed(body)
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            for field in reader.schema:
                _refuse_type(field.name, field.type, nested=False)
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error, IndexError) as error:
        raise RequestRefused(BAD_REQUEST, f"the body is not an Arrow IPC stream: {error}") from None
    if table.num_rows > _ROWS_PER_BYTE * len(body):
        raise RequestRefused(TOO_LARGE, "the body declares more rows than it has data for")
    for name in table.column_names:
        if sum(map(_size, table[name].chunks)) > EXPANSION_MAX * len(body):
            hint = "Send fewer rows, or the column's plain values."
            raise RequestRefused(TOO_LARGE, f'the column "{name}" is too large when decoded', hint=hint)
    return table


def _refuse_compressed(body: bytes) -> None:
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
    while True:
        try:
            message: Any = messages.read_next_message()
        except StopIteration:
            return
        if message.type in (_RECORD_BATCH, _DICTIONARY_BATCH) and _is_compressed(message.metadata.to_pybytes()):
            hint = "Write the stream without compression."
            raise RequestRefused(WRONG_CONTENT_TYPE, "compressed Arrow buffers are not accepted", hint=hint)


def _is_compressed(metadata: bytes) -> bool:
    """Reads the flatbuffer of a message (Message.fbs, RecordBatch.compression), which pyarrow does not show."""
    (root,) = struct.unpack_from("<I", metadata)
    kind_at, header_at = _field(metadata, root, 1), _field(metadata, root, 2)
    if kind_at is None or header_at is None:
        return False
    batch = _followed(metadata, header_at)
    if metadata[kind_at] == 2:  # the dictionary batch contains its values as a record batch
        data_at = _field(metadata, batch, 1)
        if data_at is None:
            return False
        batch = _followed(metadata, data_at)
    return _field(metadata, batch, 3) is not None


def _field(buffer: bytes, table: int, slot: int) -> int | None:
    """The position of a table's field; None if it is absent."""
    (back,) = struct.unpack_from("<i", buffer, table)
    layout = table - back
    if layout < 0:
        raise ValueError("a table points outside its message")
    (size,) = struct.unpack_from("<H", buffer, layout)
    if 4 + 2 * slot >= size:
        return None
    (offset,) = struct.unpack_from("<H", buffer, layout + 4 + 2 * slot)
    return table + offset if offset else None


def _followed(buffer: bytes, at: int) -> int:
    (offset,) = struct.unpack_from("<I", buffer, at)
    return at + offset


def _refuse_type(name: str, type_: pa.DataType, *, nested: bool) -> None:
    types = pa.types
    shared = types.is_dictionary(type_) or _is_view(type_)
    if (shared and nested) or types.is_run_end_encoded(type_) or _is_list_view(type_):
        message = f'the column "{name}" has the type {type_}, which is not accepted'
        raise RequestRefused(WRONG_CONTENT_TYPE, message, hint="Send the column's plain values.")
    if types.is_dictionary(type_):
        _refuse_type(name, type_.value_type, nested=True)
    for position in range(type_.num_fields):
        _refuse_type(name, type_.field(position).type, nested=True)


def _is_view(type_: pa.DataType) -> bool:
    return pa.types.is_string_view(type_) or pa.types.is_binary_view(type_)


def _is_list_view(type_: pa.DataType) -> bool:
    return pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_)


def _size(array: pa.Array) -> int:
    """The size of the values in bytes; a shared value counts each time it is used."""
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        if not len(values) or not _has_lengths(values.type):
            return values.nbytes * len(array) if pa.types.is_nested(values.type) else array.nbytes
        lengths = pc.binary_length(values)
        return pc.sum(pc.take(lengths, array.indices)).as_py() or 0
    if _is_view(array.type):
        views = array.buffers()[1]
        if views is None:
            return 0
        lengths = np.frombuffer(views, np.int32)[::4][array.offset : array.offset + len(array)]
        return int(lengths.sum(dtype=np.int64))
    return array.nbytes


def _has_lengths(type_: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_string(type_) or types.is_binary(type_) or types.is_large_string(type_) or types.is_large_binary(type_)
    )
