"""Pieces: the rows for one bucket from reading one range of a lane. Spark moves a piece as bytes in one row.

Pieces only go between the processes of one Spark application, which trust each other. So their heads are pickled.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from ...logcore.client import TopicPartition
from ..figures import OperatorCounts
from ..record_error import RecordError

ORDER = "_order"  # column of a piece: the lane's largest time in the batch, up to and including the row's record
ORIGIN = "_origin"  # column of a piece from the repartition topic: the number of the row's source (`causes.py`)
RECORD_HEADERS = "_record_headers"  # column of a piece if records have headers: the headers of the row's record

_LENGTH = struct.Struct("<q")


def path_name(number: int) -> str:
    """Column of a piece from the repartition topic: one number of the row's path (`causes.py`)."""
    return f"_path{number}"


@dataclass(frozen=True, slots=True)
class PieceHead:
    """`end`: the offset up to which the lane was read. `times`: by source id, as in `ChangeBatch.stream_time_ms`.
    `operators`: the counts of the stage that read the piece. `largest_ms`: the largest rowtime of the lane's records.

    Counts and errors of a lane's records are in the pieces of one bucket only, so that their sums are right.
    """

    lane: TopicPartition
    end: int
    times: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    record_count: int = 0
    byte_count: int = 0
    errors: tuple[RecordError, ...] = ()
    operators: tuple[OperatorCounts, ...] = ()
    largest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """`rows`: by the id of the leaf that reads them. Rows have the `_offset` and `_rowpartition` of their record, and
    ORDER."""

    head: PieceHead
    rows: Mapping[str, pa.Table]


def encode_piece(piece: Piece) -> bytes:
    parts = [pickle.dumps((piece.head, list(piece.rows)), protocol=pickle.HIGHEST_PROTOCOL)]
    for table in piece.rows.values():
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
        parts.append(stream.getvalue())
    return b"".join(part for data in parts for part in (_LENGTH.pack(len(data)), memoryview(data)))


def decode_piece(data: pa.Buffer) -> Piece:
    """Decodes a piece without copying: the columns of its rows point into `data`."""
    parts: list[pa.Buffer] = []
    position = 0
    while position < data.size:
        (length,) = _LENGTH.unpack(data.slice(position, _LENGTH.size))
        parts.append(data.slice(position + _LENGTH.size, length))
        position += _LENGTH.size + length
    head, names = pickle.loads(parts[0])
    return Piece(head, {name: _read(part) for name, part in zip(names, parts[1:], strict=True)})


def _read(part: pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(part) as reader:
        return reader.read_all()
