"""Encodes the rows that reach the Sink as records, split by partition. `query.py` writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..logcore.client import ColumnarRecords, RowRecords
from ..planner.steps.sink import Sink
from .batch import ChangeBatch
from .columnar import ARROW, columnar_batch
from .formats.codec import Encoder, RowError, encode_writable
from .formats.registry import encoder
from .partitioning import Partitions, RowsOfPartition, key_encoder, sink_partitions, split_by_partition
from .record_error import RecordError
from .row_times import row_times
from .sources.source_reader import ReadBatch, RecordHeaders
from .updates import settle
from .work_pool import slices, work_pool

PART_ROWS = 2_000  # with fewer rows per partition on average, all partitions are encoded together


_Encode = Callable[[Encoder, Sequence[pa.Array], pa.BooleanArray], tuple[pa.Array, Sequence[RowError]]]


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """A row that could not be encoded, and the `_seq` of its input record."""

    sequence: int
    error: RecordError


@dataclass(frozen=True, slots=True)
class Output:
    """What a batch writes to the sink's topic: per partition one entry, or several in the order of their rows.

    `cause_count`: the number of input records (distinct `_seq`) of the written records, without those that also have an
    error.
    """

    records: Sequence[tuple[int, RowRecords | ColumnarRecords]] = ()
    record_count: int = 0
    cause_count: int = 0
    errors: list[RecordError] = field(default_factory=list)

    @property
    def byte_count(self) -> int:
        """The size of the records as Arrow, before compression."""
        tables = (item.table if isinstance(item, RowRecords) else item.batch for _, item in self.records)
        return sum(table.nbytes for table in tables)


class SinkWriter:
    """Encodes the rows of one Sink step."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._encoded = tuple(
            (index, column) for index, column in enumerate(sink.schema.value) if column.role == "VALUE"
        )
        self._key_encoder = key_encoder(sink.key_format, sink.schema.key, sink.key_window)
        self._value_encoder: Encoder | None = None
        if sink.value_format.name != ARROW:
            self._value_encoder = encoder(sink.value_format, tuple(column for _, column in self._encoded))
        self._timestamps = _Timestamps(sink) if sink.timestamp else None

    def encode(self, changes: ChangeBatch, batch: ReadBatch) -> Output:
        """Encodes the rows for the sink. In: `batch`: their input, whose headers are passed on."""
        rows, failed = changes.rows, np.empty(0, np.int64)
        if rows.num_rows and self._timestamps is not None:
            rows, failed = self._timestamps.apply(rows)
        untimed = self._errors(f"the timestamp of a row for {self._sink.name} is NULL or negative", failed, batch)
        errors = [replace(error, in_time=True) for error in untimed]
        if self._sink.kind == "TABLE":
            rows = settle(rows)
        if not rows.num_rows:
            return Output(errors=errors)
        if self._value_encoder is None and self._sink.partition_count == 1:  # keys are not needed as bytes
            records = self._columnar(rows, self._null_rows(rows), [RowsOfPartition(0, range(len(rows)))])
            return Output(records, rows.num_rows, _cause_count(rows, failed), errors)
        keys, refused = self._keys(rows, batch)
        unwritten: list[_Unwritten] = []
        if refused:
            unwritten = _unwritten(rows, "k", refused)
            rows, keys = _without(rows, refused), _without(keys, refused)
        if self._must_have_keys and keys.null_count:
            rows, keys, unnamed = _without_null_keys(rows, keys)
            failed = np.union1d(failed, unnamed)
            errors += self._errors(
                f"the key of a row for {self._sink.name} is NULL, which the key format "
                f"{self._sink.key_format.name} cannot write; JSON can: WITH (KEY_FORMAT='JSON')",
                unnamed,
                batch,
            )
        null_rows = self._null_rows(rows)
        parts = split_by_partition(self._partitions(rows, keys))
        if self._value_encoder is None:
            records = self._columnar(rows, null_rows, parts)
            return self._output(records, rows, failed, errors, unwritten, batch)
        records, more = self._rows(rows, keys, null_rows, batch.headers, parts)
        return self._output(records, rows, failed, errors, [*unwritten, *more], batch)

    @staticmethod
    def _output(
        records: Sequence[tuple[int, RowRecords | ColumnarRecords]],
        rows: pa.Table,
        failed: npt.NDArray[np.int64],
        errors: list[RecordError],
        unwritten: Sequence[_Unwritten],
        batch: ReadBatch,
    ) -> Output:
        """In: `unwritten`: if several rows of an input record cannot be written, the first one's error is reported."""
        count = sum(item.row_count for _, item in records)
        causes: dict[int, RecordError] = {}
        for row in unwritten:
            causes.setdefault(row.sequence, row.error)
        for sequence in causes.keys() - set(failed.tolist()):
            topic, partition, offset = batch.origin(sequence)
            errors.append(replace(causes[sequence], topic=topic, partition=partition, offset=offset))
        return Output(records, count, _cause_count(rows, np.union1d(failed, np.array(list(causes), np.int64))), errors)

    def _partitions(self, rows: pa.Table, keys: pa.Array) -> Partitions:
        tasks = _array(rows, "_part")

        def part(begin: int, end: int) -> Partitions:
            of_keys, of_tasks = keys.slice(begin, end - begin), tasks.slice(begin, end - begin)
            return sink_partitions(of_keys, of_tasks, self._sink.partition_count, self._sink.key_window)

        parts = [partial(part, *bounds) for bounds in slices(rows.num_rows)]
        return np.concatenate(work_pool().side_by_side(parts))

    @staticmethod
    def _errors(message: str, failed: npt.NDArray[np.int64], batch: ReadBatch) -> list[RecordError]:
        """One error for each of the input records with these `_seq`."""
        return [RecordError("compute", message, *batch.origin(number)) for number in failed.tolist()]

    @property
    def _must_have_keys(self) -> bool:
        return self._sink.kind == "TABLE" and len(self._sink.schema.key) > 0

    def _keys(self, rows: pa.Table, batch: ReadBatch) -> tuple[pa.Array, Sequence[RowError]]:
        starts, ends = self._window(rows)
        return _encoded(
            self._key_encoder,
            [_array(rows, f"k{i}") for i in range(len(self._sink.schema.key))],
            self._null_keys(rows, batch),
            starts,
            ends,
        )

    def _null_keys(self, rows: pa.Table, batch: ReadBatch) -> pa.BooleanArray | None:
        """Which keys are null; None if the columns decide: a stream's key is null when all its columns are, unless it
        has several and the record that it comes from has a key. A table's key is never null: a key of NULLs is a key
        like any other."""
        columns, count = len(self._sink.schema.key), rows.num_rows
        if columns == 0:
            return pa.array(np.ones(count, np.bool_))
        if self._sink.kind == "TABLE" or (columns > 1 and self._sink.computed_key):
            return pa.array(np.zeros(count, np.bool_))
        if columns == 1:
            return None
        empty = np.logical_and.reduce([rows[f"k{i}"].is_null().to_numpy() for i in range(columns)])
        if empty.any():
            empty[empty] = ~batch.keyed(rows["_seq"].to_numpy()[empty])
        return pa.array(empty)

    def _null_rows(self, rows: pa.Table) -> pa.BooleanArray:
        null_rows = _array(rows, "_null")
        if self._sink.kind == "TABLE":
            taken_back = rows["_weight"].to_numpy() < 0
            return pc.or_(null_rows, pa.array(taken_back)) if taken_back.any() else null_rows
        return null_rows

    def _window(self, rows: pa.Table) -> tuple[pa.Array | None, pa.Array | None]:
        if self._sink.key_window is None:
            return None, None
        return _array(rows, "_ws"), _array(rows, "_we")

    def _rows(
        self,
        rows: pa.Table,
        keys: pa.Array,
        null_rows: pa.BooleanArray,
        headers: RecordHeaders | None,
        parts: Sequence[RowsOfPartition],
    ) -> tuple[list[tuple[int, RowRecords]], Sequence[_Unwritten]]:
        """Encodes the rows of each partition. In a large batch, partitions are encoded separately and in parallel; if
        there are more cores than partitions, a partition is written in pieces, since joining these took 3 % of the time
        of a query with one group. In a small batch, all rows are encoded together and then split by partition, because
        each call of an encoder has a fixed cost."""
        names = [f"v{index}" for index, _ in self._encoded]
        columns = {"timestamp": _array(rows, "_ts"), "key": keys, "_null": null_rows, "_seq": rows["_seq"]}
        if headers is not None:
            columns["headers"] = headers.of(_array(rows, "_seq"))
        table = pa.table({**columns, **{name: rows[name] for name in names}})
        if rows.num_rows < PART_ROWS * len(parts):
            encoded, refused = self._values(table, _encoded)
            unwritten = _unwritten(table, "v", refused)
            whole = _with_bytes(table, encoded)
            if refused:
                parts = [part.without([error.row for error in refused]) for part in parts]
            return _that_are_some([(part.partition, RowRecords(part.of(whole))) for part in parts]), unwritten
        pieces = [piece for part in parts for piece in _pieces(part, len(parts))]
        found = work_pool().side_by_side([partial(self._piece, table, piece) for piece in pieces])
        records = [(piece.partition, RowRecords(own)) for piece, (own, _) in zip(pieces, found, strict=True)]
        return _that_are_some(records), [row for _, rows in found for row in rows]

    def _piece(self, table: pa.Table, piece: RowsOfPartition) -> tuple[pa.Table, Sequence[_Unwritten]]:
        own = piece.of(table)
        encoded, refused = self._values(own, encode_writable)
        return _without(_with_bytes(own, encoded), refused), _unwritten(own, "v", refused)

    def _values(self, table: pa.Table, encoded: _Encode) -> tuple[pa.Array, Sequence[RowError]]:
        assert self._value_encoder is not None
        values = [_array(table, f"v{index}") for index, _ in self._encoded]
        return encoded(self._value_encoder, values, _array(table, "_null"))

    def _columnar(
        self, rows: pa.Table, null_rows: pa.BooleanArray, parts: Sequence[RowsOfPartition]
    ) -> list[tuple[int, RowRecords | ColumnarRecords]]:
        schema = self._sink.schema
        meta = {"_ts": _array(rows, "_ts"), "_null": null_rows}
        starts, ends = self._window(rows)
        if starts is not None and ends is not None:
            meta |= {"_ws": starts, "_we": ends}
        arrays = [_array(rows, f"k{i}") for i in range(len(schema.key))]
        arrays += [_array(rows, f"v{index}") for index, _ in self._encoded]
        whole = columnar_batch([*schema.key, *(column for _, column in self._encoded)], arrays, meta)

        def records(part: RowsOfPartition) -> tuple[int, ColumnarRecords]:
            batch = part.of(whole)
            return part.partition, ColumnarRecords(batch, pc.max(batch["_ts"]).as_py())

        calls = [partial(records, part) for part in parts]
        large = rows.num_rows >= PART_ROWS * len(parts)
        return list(work_pool().side_by_side(calls) if large else [call() for call in calls])


def _pieces(part: RowsOfPartition, beside: int) -> list[RowsOfPartition]:
    """Splits the rows for the threads. In: `beside`: how many partitions are encoded in parallel."""
    bounds = slices(len(part.numbers), beside=beside)
    return [RowsOfPartition(part.partition, part.numbers[begin:end]) for begin, end in bounds]


def _with_bytes(table: pa.Table, values: pa.Array) -> pa.Table:
    """The table of records. In: a table with their keys and times, and the bytes of their values."""
    table = table.select([name for name in ("timestamp", "key", "headers") if name in table.column_names])
    return table.add_column(2, "value", values)


def _that_are_some(records: list[tuple[int, RowRecords]]) -> list[tuple[int, RowRecords]]:
    """The entries that have rows."""
    return [part for part in records if part[1].row_count]


def _unwritten(rows: pa.Table, prefix: str, refused: Sequence[RowError]) -> list[_Unwritten]:
    """In: the rows with their columns `k0`… or `v0`…, and which of them cannot be written. Retracted rows are skipped:
    such a row was never written, so nothing is missing."""
    if not refused:
        return []
    table = rows.take(pa.array([error.row for error in refused]))
    values = table.select([name for name in table.column_names if name[0] == prefix]).to_pylist()
    appears = [1] * len(refused) if "_weight" not in table.column_names else table["_weight"].to_pylist()
    return [
        _Unwritten(
            sequence,
            RecordError("encode", error.message, "", -1, -1, value=repr(value).encode(), in_key=prefix == "k"),
        )
        for error, sequence, value, weight in zip(refused, table["_seq"].to_pylist(), values, appears, strict=True)
        if weight > 0
    ]


_Rows = TypeVar("_Rows", pa.Table, pa.Array)


def _without(rows: _Rows, refused: Sequence[RowError]) -> _Rows:
    return rows.filter(_writable(len(rows), refused)) if refused else rows


def _writable(count: int, refused: Sequence[RowError]) -> pa.BooleanArray:
    flags = np.ones(count, np.bool_)
    flags[[error.row for error in refused]] = False
    return pa.array(flags)


def _encoded(
    encoder: Encoder,
    columns: Sequence[pa.Array],
    null_rows: pa.BooleanArray | None,
    window_start: pa.Array | None = None,
    window_end: pa.Array | None = None,
) -> tuple[pa.Array, Sequence[RowError]]:
    """The encoded rows, and the errors of rows that cannot be encoded, which are null. The rows of a large batch are
    split and encoded in parallel."""
    given = [*columns, null_rows, window_start, window_end]
    rows = next((len(array) for array in given if array is not None), 0)

    def part(begin: int, end: int) -> tuple[pa.Array, Sequence[RowError]]:
        *values, nulls, starts, ends = (None if each is None else each.slice(begin, end - begin) for each in given)
        encoded, refused = encode_writable(encoder, values, nulls, starts, ends)
        return encoded, [RowError(begin + error.row, error.message) for error in refused]

    parts = slices(rows)
    if len(parts) < 2:
        return encode_writable(encoder, columns, null_rows, window_start, window_end)
    found = work_pool().side_by_side([partial(part, *bounds) for bounds in parts])
    return pa.concat_arrays([encoded for encoded, _ in found]), [error for _, refused in found for error in refused]


class _Timestamps:
    """Replaces the rowtimes by the sink's TIMESTAMP column."""

    def __init__(self, sink: Sink) -> None:
        assert sink.timestamp is not None
        self._times = row_times(sink.timestamp)

    def apply(self, rows: pa.Table) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Out: the rows with a usable timestamp, and the `_seq` of the input records of the other rows (each once).
        Deletions and rows without value keep their rowtime."""
        computed = self._times.of(rows)
        keep = pc.or_(_array(rows, "_null"), pc.less(_array(rows, "_weight"), 0))
        times = pc.if_else(keep, _array(rows, "_ts"), pc.coalesce(computed, -1))
        rows = rows.set_column(rows.column_names.index("_ts"), "_ts", times)
        usable = np.asarray(times) >= 0
        if usable.all():
            return rows, np.empty(0, np.int64)
        return rows.filter(pa.array(usable)), np.unique(rows["_seq"].to_numpy()[~usable])


def _without_null_keys(rows: pa.Table, keys: pa.Array) -> tuple[pa.Table, pa.Array, npt.NDArray[np.int64]]:
    """The rows that have a key, their keys, and the `_seq` of the input records of the added rows without one (each
    once)."""
    known = keys.is_valid()
    appears = rows["_weight"].to_numpy() > 0
    unnamed = rows["_seq"].to_numpy()[appears & ~np.asarray(known)]
    return rows.filter(known), keys.filter(known), np.unique(unnamed)


def _cause_count(rows: pa.Table, failed: npt.NDArray[np.int64]) -> int:
    """The number of input records of the rows. An input record with a failed row counts as failed, not here."""
    sequence = rows["_seq"].to_numpy()
    if len(failed):
        sequence = sequence[~np.isin(sequence, failed)]
    return int(np.count_nonzero(sequence[1:] != sequence[:-1])) + (1 if len(sequence) else 0)


def _array(rows: pa.Table, name: str) -> pa.Array:
    """The column in one piece."""
    column = rows[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
