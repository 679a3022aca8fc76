"""The header of records with a registered schema: a zero byte and the schema's id in four bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...planner.specs import RecordSchema
from .codec import byte_view, valid_flags

HEADER_BYTES = 5

SchemaLookup = Callable[[int], RecordSchema | None]
"""Finds the schema with an id; None if there is none."""


class Unreadable(Exception):
    """The bytes do not match the format or their schema."""


class Unwritable(Exception):
    """A value does not fit the schema with which it should be written."""


def no_schemas(schema_id: int) -> RecordSchema | None:
    """The lookup if only a format's own schema is known."""
    del schema_id
    return None


def header(schema_id: int) -> bytes:
    return struct.pack(">bI", 0, schema_id)


def schema_id_of(data: bytes) -> int:
    """Raises `Unreadable`."""
    if len(data) < HEADER_BYTES or data[0] != 0:
        raise Unreadable(
            "the record does not begin with the id of a schema (a zero byte and four bytes)"
            + (": it is empty" if not data else "")
        )
    return int.from_bytes(data[1:HEADER_BYTES], "big")


def with_header(rows: pa.BinaryArray, schema_id: int) -> pa.BinaryArray:
    """Each row with the header before it; nulls stay null."""
    nothing = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(pa.scalar(header(schema_id), pa.binary()), rows, nothing)


def blank_header(rows: pa.BinaryArray) -> tuple[pa.BinaryArray, np.ndarray]:
    """The rows with their headers overwritten by spaces, and which rows have a header. Rows without one become null."""
    data, offsets = byte_view(rows)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    good = (valid_flags(rows) != 0) & (lengths >= HEADER_BYTES)
    good[good] = data[starts[good]] == 0
    blanked = data.copy()
    blanked[starts[good][:, None] + np.arange(HEADER_BYTES)] = ord(" ")
    bitmap = None if good.all() else pa.py_buffer(np.packbits(good, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(blanked)]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers), good
