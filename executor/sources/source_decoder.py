"""Decodes the records of one source from bytes or Arrow columns to the columns of its schema.

`topic_feed.py` and `source_reader.py` decide which records are read, and in which order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...planner.expressions.readable import column_names, used_columns
from ...planner.schema import Column
from ...planner.specs import FormatSpec
from ...planner.steps.source import Source
from ...sql.functions.java.calendar_days import python_values
from ...sql.functions.udf import shown
from ..batch import KEYED
from ..columnar import ARROW, split_columnar
from ..formats.codec import Decoder
from ..formats.registry import decoder
from ..formats.wire import SchemaLookup, no_schemas
from ..record_error import RecordError
from ..row_times import row_times
from ..state.equal_keys import with_one_zero

Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NO_KEY = FormatSpec("NONE")
HEADER_TYPE = pa.list_(pa.struct([("KEY", pa.string()), ("VALUE", pa.binary())]))


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a topic, in row form (`rows`) or columnar form (`columns`). All arrays have one entry per record."""

    partitions: npt.NDArray[np.int32]
    offsets: Offsets
    rows: pa.Table | None = None
    columns: pa.RecordBatch | None = None
    timestamp_ms: int = 0  # the timestamp of a columnar batch

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, begin: int, end: int) -> Records:
        """The records between the two places, without a copy."""
        if begin == 0 and end == len(self):
            return self
        return Records(
            self.partitions[begin:end],
            self.offsets[begin:end],
            None if self.rows is None else self.rows.slice(begin, end - begin),
            None if self.columns is None else self.columns.slice(begin, end - begin),
            self.timestamp_ms,
        )


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """One row per record. For skipped records `ok` is false: records that failed, whose columns are NULL, and a table's
    records without a key, which belong to no row.

    `table`: the columns of a ChangeBatch without `_seq`, which the reader adds with its order. `times`: rowtimes; -1
    for failed records.
    """

    table: pa.Table
    times: npt.NDArray[np.int64]
    ok: Mask
    errors: list[RecordError]

    def slice(self, begin: int, end: int, partition: int, offsets: Offsets) -> DecodedRecords:
        """The records between the two places, without a copy. In: `partition`, `offsets`: those of these records."""
        if begin == 0 and end == len(self.times):
            return self
        errors: list[RecordError] = []
        if self.errors and len(offsets):
            low, high = int(offsets[0]), int(offsets[-1])
            errors = [each for each in self.errors if each.partition == partition and low <= each.offset <= high]
        return DecodedRecords(self.table.slice(begin, end - begin), self.times[begin:end], self.ok[begin:end], errors)

    @classmethod
    def joined(cls, parts: Sequence[DecodedRecords]) -> DecodedRecords:
        """In: parts of one source; at least one."""
        return cls(
            pa.concat_tables([part.table for part in parts]).combine_chunks(),
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.ok for part in parts]),
            [error for part in parts for error in part.errors],
        )


def has_key_marks(source: Source) -> bool:
    """Whether its rows have the column `_keyed`: they may have a key whose columns are all NULL."""
    return source.kind == "STREAM" and len(source.schema.key) > 1


class SourceDecoder:
    """Decodes the needed columns (`Source.columns`). Of the other columns, value columns are left out of the table, and
    key columns are NULL. Thread-safe."""

    def __init__(self, source: Source, schemas: SchemaLookup = no_schemas) -> None:
        self._source = source
        self._schemas = schemas
        schema = source.schema
        self._encoded = tuple(column for column in schema.value if column.role == "VALUE")
        self._value_needed = [self._is_needed(column) for column in self._encoded]
        self._key_needed = [self._is_needed(column) for column in schema.key]
        self._header_columns = {index for index, column in enumerate(schema.value) if column.role == "HEADERS"}
        self._listed = [(f"v{i}", i, column, self._is_needed(column)) for i, column in enumerate(schema.value)]
        self._key_decoder = self._decoder_of_key()
        self._value_decoder = self._decoder_of_value()
        self._timestamp = row_times(source.timestamp) if source.timestamp else None

    def decode(self, records: Records) -> DecodedRecords:
        """Decodes the records. The content of a record never makes it raise: see `DecodedRecords.errors`."""
        if records.columns is not None:
            return self._decode_columns(records, records.columns)
        assert records.rows is not None
        return self._decode_rows(records, records.rows)

    def _is_needed(self, column: Column) -> bool:
        if column.role == "KEY" and self._source.kind == "TABLE":
            return True  # every reader needs it: it identifies the row
        return self._source.columns is None or self._source.schema.physical_name(column) in self._source.columns

    def _decoder_of_key(self) -> Decoder | None:
        """The decoder of the keys. Without key columns it accepts all bytes, whatever the format is."""
        source = self._source
        if source.key_format.name == ARROW:
            return None
        return decoder(
            source.key_format if source.schema.key else _NO_KEY,
            source.schema.key,
            needed=self._key_needed,
            window=source.key_window,
            schemas=self._schemas,
        )

    def _decoder_of_value(self) -> Decoder | None:
        source = self._source
        if source.value_format.name == ARROW:
            return None
        return decoder(source.value_format, self._encoded, needed=self._value_needed, schemas=self._schemas)

    def _decode_rows(self, records: Records, rows: pa.Table) -> DecodedRecords:
        if self._key_decoder is None or self._value_decoder is None:
            return self._all_failed(records, rows, f"the source {self._source.name} is columnar, this record is not")
        key = self._key_decoder.decode(rows["key"])
        value = self._value_decoder.decode(rows["value"])
        names: dict[str, pa.Array] = {f"k{i}": with_one_zero(array) for i, array in enumerate(key.columns)}
        names |= self._value_columns(value.columns, rows["headers"] if self._header_columns else None, len(records))
        names["_null"] = value.null_rows
        if has_key_marks(self._source):
            names[KEYED] = rows["key"].is_valid()
        if self._source.key_window is not None:
            assert key.window_start is not None and key.window_end is not None
            names["_ws"], names["_we"] = key.window_start, key.window_end
        ok = np.ones(len(records), np.bool_)
        failed: list[tuple[int, str, bool]] = []
        for failures, in_key in ((key.errors, True), (value.errors, False)):
            failed += [(failure.row, failure.message, in_key) for failure in failures if ok[failure.row]]
            ok[[failure.row for failure in failures]] = False
        errors = _errors_of(self._source.topic, records, failed)
        times = _int64s(rows["timestamp"])
        decoded = self._with_times(records, pa.table(names), times, ok, errors)
        if self._source.kind == "TABLE" and rows["key"].null_count:
            decoded.ok[rows["key"].is_null().to_numpy()] = False
        return decoded

    def _decode_columns(self, records: Records, batch: pa.RecordBatch) -> DecodedRecords:
        key_columns = self._source.schema.key
        part = split_columnar(batch, [*key_columns, *self._encoded], records.timestamp_ms)
        keys, values = part.columns[: len(key_columns)], part.columns[len(key_columns) :]
        names: dict[str, pa.Array] = {f"k{i}": with_one_zero(array) for i, array in enumerate(keys)}
        names |= self._value_columns(values, None, len(records))
        names["_null"] = part.null_rows
        if has_key_marks(self._source):
            names[KEYED] = pa.array(np.zeros(batch.num_rows, np.bool_))
        if self._source.key_window is not None:
            empty = pa.nulls(batch.num_rows, pa.int64())
            names["_ws"], names["_we"] = part.window_start or empty, part.window_end or empty
        if part.errors:
            return self._all_failed(records, None, "; ".join(part.errors.values()))
        ok = np.ones(len(records), np.bool_)
        return self._with_times(records, pa.table(names), _int64s(part.timestamps), ok, [])

    def _value_columns(
        self, encoded: Sequence[pa.Array], headers: pa.ChunkedArray | None, rows: int
    ) -> dict[str, pa.Array]:
        names: dict[str, pa.Array] = {}
        remaining = iter(encoded)
        for name, index, column, needed in self._listed:
            array = None if index in self._header_columns else next(remaining)
            if needed:
                names[name] = _header_column(column, headers, rows) if array is None else array
        return names

    def _with_times(
        self, records: Records, table: pa.Table, times: npt.NDArray[np.int64], ok: Mask, errors: list[RecordError]
    ) -> DecodedRecords:
        if self._timestamp is not None:
            computed = self._timestamp.of(table.append_column("_ts", pa.array(times)))
            null_rows = table["_null"].combine_chunks()
            times = _int64s(pc.coalesce(pc.if_else(null_rows, pa.array(times), computed), -1))
        unusable = np.flatnonzero(ok & (times < 0)).tolist()
        listed = [(row, self._no_time(table, row, int(times[row])), False) for row in unusable]
        untimed = _errors_of(self._source.topic, records, listed)
        errors = errors + [replace(error, in_time=True) for error in untimed]
        ok = ok & (times >= 0)
        return self._decoded(records, table, np.where(ok, times, -1), ok, errors)

    def _no_time(self, table: pa.Table, row: int, time: int) -> str:
        """Why a row has no time: with the column that was to give it."""
        if self._source.timestamp is None:
            return f"the timestamp is not usable: {time}"
        names = column_names(self._source.schema)
        given = [
            f"{names[each]} is {shown(python_values(table[each].slice(row, 1))[0])}"
            for each in used_columns(self._source.timestamp.sql).values
            if each in table.column_names
        ]
        return f"no timestamp from 1970 on: {', '.join(given)}"

    def _decoded(
        self, records: Records, table: pa.Table, times: npt.NDArray[np.int64], ok: Mask, errors: list[RecordError]
    ) -> DecodedRecords:
        """Adds the columns that the records of all topics have, once for all queries that share the result. In:
        `table`: without these columns."""
        count, null_rows = len(records), table["_null"]
        weight = np.ones(count, np.int8)
        if self._source.kind == "TABLE":
            weight[null_rows.to_numpy()] = -1
        partitions = pa.array(records.partitions)
        columns = {name: table[name] for name in table.column_names if name != "_null"} | {
            "_sub": np.zeros(count, np.int32),
            "_part": partitions,
            "_ts": times,
            "_weight": weight,
            "_null": null_rows,
            "_rowpartition": partitions,
            "_offset": records.offsets,
        }
        return DecodedRecords(pa.table(columns), times, ok, errors)

    def _all_failed(self, records: Records, rows: pa.Table | None, message: str) -> DecodedRecords:
        source, count = self._source, len(records)
        names = {f"k{i}": pa.nulls(count, column.type.arrow) for i, column in enumerate(source.schema.key)}
        names |= self._value_columns([pa.nulls(count, column.type.arrow) for column in self._encoded], None, count)
        names["_null"] = pa.nulls(count, pa.bool_()).fill_null(True)
        if has_key_marks(source):
            names[KEYED] = pa.array(np.zeros(count, np.bool_))
        if source.key_window is not None:
            names |= {"_ws": pa.nulls(count, pa.int64()), "_we": pa.nulls(count, pa.int64())}
        errors = _errors_of(source.topic, records, [(row, message, False) for row in range(count)])
        times, ok = np.full(count, -1, np.int64), np.zeros(count, np.bool_)
        return self._decoded(records, pa.table(names), times, ok, errors)


def _header_column(column: Column, headers: pa.ChunkedArray | None, rows: int) -> pa.Array:
    """All headers of each record, or the last value under the column's header key."""
    if column.header_key is None:
        if headers is None:
            return pa.array([[]] * rows, HEADER_TYPE)
        filled = pc.coalesce(headers.combine_chunks(), pa.scalar([], headers.type))
        parts = filled.values.flatten()
        structs = pa.StructArray.from_arrays(parts, fields=list(HEADER_TYPE.value_type))
        return pa.ListArray.from_arrays(filled.offsets, structs)
    if headers is None:
        return pa.nulls(rows, column.type.arrow)
    wanted = column.header_key
    found = [
        next((header["value"] for header in reversed(record or ()) if header["key"] == wanted), None)
        for record in headers.to_pylist()
    ]
    return pa.array(found, column.type.arrow)


def _int64s(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return array.to_numpy() if isinstance(array, pa.ChunkedArray) else array.to_numpy(zero_copy_only=False)


def _errors_of(topic: str, records: Records, failed: Sequence[tuple[int, str, bool]]) -> list[RecordError]:
    """The errors of failed records. In: `failed`: the row, the message, and whether it is about the key."""
    if not failed:
        return []
    rows = np.array([row for row, _, _ in failed], np.int64)
    keys: list[bytes | None] = [None] * len(failed)
    values: list[bytes | None] = [None] * len(failed)
    if records.rows is not None:
        keys, values = (records.rows[name].take(pa.array(rows)).to_pylist() for name in ("key", "value"))
    places = zip(records.partitions[rows].tolist(), records.offsets[rows].tolist(), strict=True)
    return [
        RecordError("decode", message, topic, partition, offset, key=key, value=value, in_key=in_key)
        for (_, message, in_key), (partition, offset), key, value in zip(failed, places, keys, values, strict=True)
    ]
