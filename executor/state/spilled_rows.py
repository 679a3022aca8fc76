"""Rows by slot in a temporary file: the rows that do not fit into memory.

The slot of a row determines its place in the file. In memory there is only whether it was written. A new version
overwrites the old one. Texts and nested values are appended to a second file; the row has their offset and length. Both
files have no name from the start: they disappear with the process, and only this object reads them.

A DuckDB table finds 100 of 10M rows by a scan in 30 ms; this file takes 0.3 to 0.7 ms. Reading uses a memory mapping of
the file, writing does not: then a full disk is an error of `write`, whereas with a mapping it would end the process.
Only written places are read: on a disk in memory (tmpfs), reading a gap through a mapping allocates memory, too.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from ...sql.compiling.loops import loop, read_only
from ...sql.functions.aggregation.aggregate_values import as_physical, physical
from ..operators.columns import Ints
from .key_hash import Vector, bytes_of
from .key_index import grown
from .row_codec import decode_rows, encode_rows, is_text
from .state_columns import is_number

_PIECE_ROWS: Final = 100_000  # of values that are moved at once
_PIECE_BYTES: Final = 16 * 1024 * 1024  # of values that are moved at once, plus one value
_OUTDATED_MIN: Final = 64 * 1024 * 1024  # bytes; fewer are not worth removing
_SEEN_MAX: Final = 512  # places read, each with 64 KB around it, until their pages are released from our memory
_OFFSET_MAX: Final = (1 << 31) - 1


class SpillFailed(OSError):
    """The disk is full or fails while rows must leave the memory. This is not the query's fault."""


class SpilledRows:
    """In: `folder`: for the files. All methods raise `SpillFailed`."""

    def __init__(self, schema: pa.Schema, folder: Path) -> None:
        self._schema = schema
        self._folder = folder
        self._record = np.dtype([part for place, field in enumerate(schema) for part in _parts(place, field.type)])
        self._rows = _MappedFile(folder)
        self._values = _MappedFile(folder)
        self._written = np.empty(0, np.bool_)  # per slot
        self._end = 0  # of the file of values
        self._live = 0  # bytes of values that rows still use

    def put(self, slots: Ints, columns: Sequence[pa.Array]) -> None:
        """In: distinct slots, and all columns of their rows."""
        order = np.argsort(slots)
        slots, back = slots[order], pa.array(order)
        if len(slots):
            self._write(slots, [column.take(back) for column in columns])
        if self._end > 2 * self._live + _OUTDATED_MIN:
            self._clear_values()

    def get(self, slots: Ints, names: Sequence[str]) -> list[pa.Array]:
        """The values of these slots in each column; NULL if a slot was never written."""
        records = self._at(slots)
        return [self._column(records, self._schema.get_field_index(name)) for name in names]

    def _at(self, slots: Ints) -> Vector:
        records = np.zeros(len(slots), self._record)
        self._written = grown(self._written, int(slots.max(initial=-1)) + 1, 0)
        there = self._written[slots]
        if there.any():
            written = slots[there]
            size = (int(written.max()) + 1) * self._record.itemsize
            records[there] = self._rows.read(size, self._record, seen=len(written))[written]
        return records

    def _write(self, slots: Ints, columns: Sequence[pa.Array]) -> None:
        """In: ascending slots."""
        records = np.zeros(len(slots), self._record)
        before = self._at(slots)
        for place, column in enumerate(columns):
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            records[f"valid{place}"] = valid
            if is_number(column.type):
                blank = False if pa.types.is_boolean(column.type) else 0
                records[f"value{place}"] = as_physical(column).fill_null(blank).to_numpy(zero_copy_only=False)
                continue
            values = column if is_text(column.type) else encode_rows([column], len(column), keys=False)
            lengths = self._append(values, records[f"offset{place}"])
            records[f"length{place}"] = lengths
            self._live += int(lengths.sum()) - int(before[f"length{place}"].sum())
        self._write_records(slots, records)
        self._written[slots] = True

    def _write_records(self, slots: Ints, records: Vector) -> None:
        width = self._record.itemsize
        first = np.flatnonzero(np.diff(slots, prepend=-2) != 1)
        content = records.view(np.uint8).data
        for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(slots)], strict=True):
            self._rows.write(int(slots[begin]) * width, content[begin * width : end * width])

    def _append(self, values: pa.Array, offsets: Vector) -> Ints:
        """Appends texts or bytes to the file of values. Out: the length of each; `offsets` gets where each begins."""
        starts, content = bytes_of(values)
        starts = starts.astype(np.int64)
        self._values.write(self._end, content[starts[0] : starts[-1]].data)
        offsets[:] = starts[:-1] - starts[0] + self._end
        self._end += int(starts[-1] - starts[0])
        return np.diff(starts)

    def _column(self, records: Vector, place: int) -> pa.Array:
        type_ = self._schema.field(place).type
        valid = records[f"valid{place}"]
        if is_number(type_):
            column = pa.array(np.ascontiguousarray(records[f"value{place}"]), mask=None if valid.all() else ~valid)
            return column if column.type == type_ else column.cast(type_)
        offsets, lengths = records[f"offset{place}"], records[f"length{place}"]
        values = _gathered(self._values, offsets, lengths)
        if not is_text(type_):
            (column,) = decode_rows(values.filter(pa.array(valid)), [type_])
            return column.take(pa.array(np.cumsum(valid) - 1, mask=~valid))
        buffers = [pa.array(valid).buffers()[1], *values.buffers()[1:]]
        return pa.Array.from_buffers(type_, len(values), buffers)

    def _clear_values(self) -> None:
        """Moves the values that rows still use into a new file."""
        texts = [place for place, field in enumerate(self._schema) if not is_number(field.type)]
        old, self._values, self._end = self._values, _MappedFile(self._folder), 0
        written = np.flatnonzero(self._written)
        for first in range(0, len(written), _PIECE_ROWS):
            slots = written[first : first + _PIECE_ROWS]
            records = self._at(slots)
            for place in texts:
                self._move(old, records[f"offset{place}"], records[f"length{place}"])
            self._write_records(slots, records)

    def _move(self, old: _MappedFile, offsets: Vector, lengths: Vector) -> None:
        """Moves long values in small groups, because all of them together may not fit into memory."""
        begin = 0
        cuts = np.flatnonzero(np.diff(np.cumsum(lengths) // _PIECE_BYTES)) + 1
        for end in [*cuts.tolist(), len(lengths)]:
            self._append(_gathered(old, offsets[begin:end], lengths[begin:end]), offsets[begin:end])
            begin = end


class _MappedFile:
    """A file without a name. Bytes that were never written are zero."""

    def __init__(self, folder: Path) -> None:
        with _failures(folder), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            self._file = os.dup(file.fileno())
        self._folder = folder
        weakref.finalize(self, os.close, self._file)
        self._map: mmap.mmap | None = None
        self._size = self._mapped = self._seen = 0  # bytes written, bytes mapped, places read

    def write(self, offset: int, content: memoryview) -> None:
        with _failures(self._folder):
            while content:
                written = os.pwrite(self._file, content, offset)
                offset, content = offset + written, content[written:]
                self._size = max(self._size, offset)

    def read(self, size: int, kind: np.dtype[Any], seen: int) -> Vector:
        """At least the first `size` bytes as values of this kind; valid until the next `read`. In: `seen`: how many
        places the caller will read."""
        if size > self._mapped:
            enough = -(-max(size, self._size, 2 * self._mapped) // kind.itemsize) * kind.itemsize
            with _failures(self._folder):
                os.ftruncate(self._file, enough)  # bytes that are mapped beyond the end of the file must not be read
                self._map = mmap.mmap(self._file, enough, prot=mmap.PROT_READ)
            self._mapped = enough
        if self._map is None:
            return np.empty(0, kind)
        self._seen += seen
        if self._seen > _SEEN_MAX:
            self._map.madvise(mmap.MADV_DONTNEED)
            self._seen = 0
        return np.frombuffer(self._map, kind)


@contextmanager
def _failures(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        text = f"the memory has no room for all rows, and they cannot be laid aside in {folder}: {error.strerror}"
        raise SpillFailed(error.errno, text) from error


def _gathered(file: _MappedFile, offsets: Vector, lengths: Vector) -> pa.BinaryArray:
    """The values at these offsets. Raises `MemoryError` if they are too many bytes for one array."""
    starts = np.zeros(len(offsets) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    if starts[-1] > _OFFSET_MAX:
        raise MemoryError(f"{starts[-1]:,} bytes of one column are asked for at once")
    content = file.read(int((offsets + lengths).max(initial=0)), np.dtype(np.uint8), seen=len(offsets))
    found = _gather(read_only(content), read_only(np.ascontiguousarray(offsets)), starts)
    buffers = [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(found)]
    return pa.Array.from_buffers(pa.binary(), len(offsets), buffers)


def spill_folder(connection: duckdb.DuckDBPyConnection) -> Path:
    """The folder where DuckDB spills data that does not fit into memory, or its closest existing parent."""
    ((setting,),) = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    folder = Path(setting or tempfile.gettempdir()).absolute()
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _parts(place: int, type_: pa.DataType) -> list[tuple[str, Any]]:
    """The fields of a column in a record."""
    valid = (f"valid{place}", np.bool_)
    if is_number(type_):
        return [valid, (f"value{place}", physical(type_).to_pandas_dtype())]
    return [valid, (f"offset{place}", np.int64), (f"length{place}", np.int64)]


@loop
def _gather(content: Vector, offsets: Vector, starts: Vector) -> Vector:
    """The values at these offsets, concatenated. In: `starts`: where each begins in the result, and the last one
    ends."""
    found = np.empty(starts[-1], np.uint8)
    for row in range(len(offsets)):
        begin, at = starts[row], offsets[row]
        for position in range(starts[row + 1] - begin):
            found[begin + position] = content[at + position]
    return found
