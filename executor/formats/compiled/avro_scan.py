# pyrefly: ignore-errors[implicit-any-parameter, unannotated-return]
"""Reads flat AVRO records with compiled code: one pass over a batch gives the columns. It is only an optimization.

A record is flat if each field is a boolean, a number, a text or bytes, or a union of one of these and null. Rows for
which the scan is uncertain (another schema, a number out of range, bytes that do not fit) are read record by record,
and that code decides what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....planner.schema import Column
from ....planner.schemas import avro_schemas
from ....planner.specs import RecordSchema
from ....sql.compiling.loops import loop
from ....sql.types import Primitive
from ..codec import byte_view, valid_flags
from ..limits import INTEGER_RANGES, UNITS
from ..reading import fold

OK, NULL_ROW, REDO = 0, 1, 2

_BOOLEAN, _INTEGER, _FLOAT, _DOUBLE, _BYTES = 0, 1, 2, 3, 4
_OPCODES = {
    "boolean": _BOOLEAN, "int": _INTEGER, "long": _INTEGER, "float": _FLOAT, "double": _DOUBLE, "string": _BYTES,
    "bytes": _BYTES,
}  # fmt: skip
_READ_FROM = {
    "BOOLEAN": ("boolean",),
    "INTEGER": ("int", "long"),
    "BIGINT": ("int", "long"),
    "DATE": ("int", "long"),
    "TIME": ("int", "long"),
    "TIMESTAMP": ("int", "long"),
    "DOUBLE": ("float", "double"),
    "STRING": ("string",),
    "BYTES": ("bytes",),
}
_NOT_NULLABLE = -1


@dataclass(frozen=True, slots=True)
class FlatRecord:
    """The plan for reading records of one schema as these columns. `fields`: each column's place in the record; -1:
    none.

    `null_branches`: for each field, the branch of its union that is null.
    """

    schema_id: int
    opcodes: NDArray[np.int64]
    null_branches: NDArray[np.int64]
    columns: tuple[Column, ...]
    fields: tuple[int, ...]


def flat_record(schema: RecordSchema, columns: Sequence[Column]) -> FlatRecord | None:
    """The plan for this schema; None if the schema or a column requires reading record by record."""
    node = avro_schemas.load(schema.text)
    if not isinstance(node, dict) or cast(dict[str, Any], node).get("type") != "record" or schema.references:
        return None
    names: list[str] = []
    kinds: list[str] = []
    null_branches: list[int] = []
    for field in cast(dict[str, Any], node)["fields"]:
        flat = _flat(field["type"])
        if flat is None:
            return None
        names.append(field["name"])
        kinds.append(flat[0])
        null_branches.append(flat[1])
    places = tuple(_place(column.name, names) for column in columns)
    for column, place in zip(columns, places, strict=True):
        if not isinstance(column.type, Primitive) or (place >= 0 and kinds[place] not in _READ_FROM[column.type.name]):
            return None
    opcodes = np.array([_OPCODES[kind] for kind in kinds], np.int64)
    return FlatRecord(schema.id, opcodes, np.array(null_branches, np.int64), tuple(columns), places)


def _flat(node: Any) -> tuple[str, int] | None:
    """The kind of a field and its null branch; None if it is not flat."""
    if isinstance(node, list):
        branches = cast(list[Any], node)
        if len(branches) != 2 or "null" not in branches:
            return None
        null_branch = branches.index("null")
        inner = _flat(branches[1 - null_branch])
        return None if inner is None or inner[1] != _NOT_NULLABLE else (inner[0], null_branch)
    if isinstance(node, dict):
        said = cast(dict[str, Any], node)
        if said.get("logicalType") == "decimal" or not isinstance(said["type"], str):
            return None
        node = said["type"]
    return (node, _NOT_NULLABLE) if node in _OPCODES else None


def _place(name: str, names: list[str]) -> int:
    """The place of the field: the exact spelling first, then any case; the last one of several."""
    if name in names:
        return names.index(name)
    folded = [i for i, other in enumerate(names) if fold(other) == fold(name)]
    return folded[-1] if folded else -1


def scan(record: FlatRecord, rows: pa.BinaryArray) -> tuple[list[pa.Array], NDArray[np.uint8]] | None:
    """The columns, and each row's status; a row that is REDO has NULL in all columns. None if a text is not UTF-8."""
    data, offsets = byte_view(rows)
    count, width = len(rows), len(record.opcodes)
    status = np.where(valid_flags(rows) != 0, OK, NULL_ROW).astype(np.uint8)
    values = np.zeros((width, count), np.int64)
    lengths = np.zeros((width, count), np.int64)
    valid = np.zeros((width, count), np.bool_)
    header = np.frombuffer(b"\0" + record.schema_id.to_bytes(4, "big"), np.uint8)
    _scan(data, offsets, header, record.opcodes, record.null_branches, status, values, lengths, valid)
    for column, place in zip(record.columns, record.fields, strict=True):
        limits = INTEGER_RANGES.get(str(column.type))
        if place >= 0 and limits is not None:
            outside = valid[place] & ((values[place] < limits[0]) | (values[place] > limits[1]))
            status[outside] = REDO
    good = status == OK
    arrays: list[pa.Array] = []
    for column, place in zip(record.columns, record.fields, strict=True):
        if place < 0:
            arrays.append(pa.nulls(count, column.type.arrow))
            continue
        opcode, present = int(record.opcodes[place]), valid[place] & good
        try:
            arrays.append(_column(column, opcode, data, values[place], lengths[place], present))
        except pa.ArrowInvalid:
            return None  # a text is not UTF-8; reading record by record finds out which one
    return arrays, status


def _column(
    column: Column,
    opcode: int,
    data: NDArray[np.uint8],
    values: NDArray[np.int64],
    lengths: NDArray[np.int64],
    present: NDArray[np.bool_],
) -> pa.Array:
    mask = None if present.all() else ~present
    type_ = column.type.arrow
    if opcode == _BYTES:
        found = _spans(data, values, np.where(present, lengths, 0), present)
        return found if type_ == pa.binary() else found.cast(pa.string())
    if opcode == _BOOLEAN:
        return pa.array(values != 0, mask=mask)
    if opcode == _DOUBLE:
        return pa.array(values.view(np.float64), mask=mask)
    if opcode == _FLOAT:
        return pa.array(values.astype(np.uint32).view(np.float32).astype(np.float64), mask=mask)
    if str(column.type) in ("INTEGER", "DATE"):
        found = pa.array(np.where(present, values, 0).astype(np.int32), mask=mask)
    else:
        found = pa.array(np.where(present, values, 0) * UNITS.get(str(column.type), 1), mask=mask)
    return found if found.type == type_ else found.view(type_)


def _spans(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], present: NDArray[np.bool_]
) -> pa.BinaryArray:
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    bitmap = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)


@loop
def _scan(data, offsets, header, opcodes, null_branches, status, values, lengths, valid):
    for row in range(len(status)):
        if status[row] != 0:
            continue
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        good = end - at >= len(header)
        if good:
            for i in range(len(header)):
                good = good and data[at + i] == header[i]
        at += len(header)
        for place in range(len(opcodes)):
            if not good:
                break
            present = True
            if null_branches[place] >= 0:
                branch, at, good = _number(data, at, end)
                good = good and 0 <= branch <= 1
                present = branch != null_branches[place]
            if not (good and present):
                continue
            opcode = opcodes[place]
            if opcode == 0:
                good = at < end and data[at] <= 1
                if good:
                    values[place, row] = data[at]
                    at += 1
            elif opcode == 1:
                values[place, row], at, good = _number(data, at, end)
            elif opcode == 4:
                length, at, good = _number(data, at, end)
                good = good and 0 <= length <= end - at
                if good:
                    values[place, row] = at
                    lengths[place, row] = length
                    at += length
            else:
                size = 4 if opcode == 2 else 8
                good = end - at >= size
                if good:
                    bits = np.uint64(0)
                    for i in range(size):
                        bits |= np.uint64(data[at + i]) << np.uint64(8 * i)
                    values[place, row] = np.int64(bits)
                    at += size
            valid[place, row] = good
        if not good or at != end:
            status[row] = 2


@loop
def _number(data, at, end):
    """Reads a zigzag number. Out: the number, the position after it, and whether it is valid."""
    bits = np.uint64(0)
    for i in range(10):
        if at >= end:
            return np.int64(0), at, False
        byte = data[at]
        at += 1
        bits |= np.uint64(byte & 0x7F) << np.uint64(7 * i)
        if byte < 0x80:
            return np.int64(bits >> np.uint64(1)) ^ -np.int64(bits & np.uint64(1)), at, i < 9 or byte <= 1
    return np.int64(0), at, False
