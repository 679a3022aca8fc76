"""Writes rows of clients, not of queries, to a source's topic, in the source's formats."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidStatement, did_you_mean

from ...executor.columnar import ARROW, columnar_batch
from ...executor.formats import Encoder, encoder
from ...executor.formats.codec import UnwritableRows
from ...executor.partitioning import key_encoder, sink_partitions, split_by_partition
from ...logcore.client import ColumnarRecords, LogClient, RowRecords, Topic
from ...logcore.topic_rules import TRANSACTIONS_TOPIC, check_not_reserved
from ...logcore.topic_settings import TIME_AFTER, TIME_BEFORE, settings_of
from ...planner.schema import Column
from ...planner.source_info import SourceInfo
from ...sql.types import BIGINT
from .nested_names import in_shape

_ROWTIME = "ROWTIME"

Arrays = Mapping[Column, pa.Array]
PartitionRecords = tuple[int, RowRecords | ColumnarRecords]

_TRANSACTIONAL_ID = "millstream-insert"  # shared by all engines: only one uses the log, and a new one fences the old


class Appender:
    """Writes rows to topics of `log`; concurrent calls wait for each other. In: `now_ms`: the time of an append."""

    def __init__(self, log: LogClient, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._now_ms = now_ms
        self._turn = threading.Lock()

    def recover(self) -> None:
        """Aborts the transaction that an engine left open if it was killed during an insert. Otherwise all later rows
        stay hidden until the transaction times out. Raises `LogError`."""
        if TRANSACTIONS_TOPIC in self._log.topics():
            self._log.transactional_producer(_TRANSACTIONAL_ID)

    def append(self, source: SourceInfo, columns: Arrays, rowtimes: pa.Int64Array) -> None:
        """Writes the rows so that they appear together, each in the partition of its key.

        In: an array for each key and value column of `source`, in the column's Arrow type; `rowtimes` in ms. Rows
        without a key go to partition 0. Before any row is written, it raises `InvalidStatement` for a table's row
        without a key, for a time that the topic does not accept, and for a row that the format cannot encode.
        """
        self._write(source, self.records(source, columns, rowtimes))

    def records(self, source: SourceInfo, columns: Arrays, rowtimes: pa.Int64Array) -> list[PartitionRecords]:
        """What `append` would write. In and raises: as `append`."""
        topic = self._log.topic(source.topic)
        if topic is not None:
            self._check_times(topic, rowtimes)
        return _records(source, columns, rowtimes, _partition_count(source, topic))

    def _check_times(self, topic: Topic, rowtimes: pa.Int64Array) -> None:
        bounds = settings_of(topic.config).times(self._now_ms())
        if bounds is None:
            return
        for limit, bound, is_outside in ((TIME_BEFORE, bounds[0], pc.less), (TIME_AFTER, bounds[1], pc.greater)):
            row = is_outside(rowtimes, bound).index(True).as_py()
            if row >= 0:
                side = "after" if limit == TIME_AFTER else "before"
                limited = f'topic "{topic.name}" takes nothing {side} {bound} now'
                raise InvalidStatement(
                    f"the ROWTIME of row {row + 1} is {rowtimes[row]}, and {limited}",
                    hint=f"Insert rows with other times, or raise {limit} of the topic (millstream topic alter).",
                )

    def delete(self, source: SourceInfo, keys: Arrays, rowtimes: pa.Int64Array) -> None:
        """Writes a tombstone for each of these keys of a table, all or none. In: `keys`: an array per key column."""
        nothing = {column: pa.nulls(len(rowtimes), column.type.arrow) for column in source.schema.value}
        count = _partition_count(source, self._log.topic(source.topic))
        self._write(source, _records(source, {**nothing, **keys}, rowtimes, count, gone=True))

    def _write(self, source: SourceInfo, records: list[PartitionRecords]) -> None:
        check_not_reserved(source.topic, self._log.capabilities.reserved)
        if len(records) == 1:
            self._log.append(source.topic, *records[0])
            return
        with self._turn:
            self._append_together(source.topic, records)

    def _append_together(self, topic: str, records: list[PartitionRecords]) -> None:
        producer = self._log.transactional_producer(_TRANSACTIONAL_ID)
        producer.begin()
        try:
            for partition, part in records:
                producer.append(topic, partition, part)
        except BaseException:
            producer.abort()
            raise
        producer.commit()


def check_writable(source: SourceInfo) -> None:
    """Raises `InvalidStatement` for a source that users may not write to."""
    if source.read_only or source.key_window is not None:
        what = "is read-only" if source.read_only else "has windows in its keys"
        raise InvalidStatement(f"Cannot insert values into {source.kind.lower()} {source.name}: it {what}.")


def rows_for(source: SourceInfo, rows: pa.Table, now_ms: int) -> tuple[dict[Column, pa.Array], pa.Int64Array]:
    """Converts `rows` to the columns of the source, and the rowtimes.

    Columns are found by name, else by name in upper case, because that is how SQL reads a name without quotes. A column
    of the source that `rows` lack is NULL. The same holds for the fields of a STRUCT. Values are cast if nothing is
    lost. ROWTIME (BIGINT ms or TIMESTAMP) is the records' time; without it, the current time. Raises `InvalidStatement`
    for a column that the source lacks, for a value that does not fit, and for a source that users may not write to.
    """
    check_writable(source)
    writable = {column.name: column for column in source.schema if column.role != "HEADERS"}
    given: dict[str, pa.Array] = {}
    for name in rows.column_names:
        found = name if name in writable or name == _ROWTIME else name.upper()
        if found != _ROWTIME and found not in writable:
            hint = did_you_mean(found, writable) or f"It has {', '.join(writable)}."
            message = f"Column name {name} does not exist in {source.kind.lower()} {source.name}"
            raise InvalidStatement(message, hint=hint)
        if found in given:
            raise InvalidStatement(f"two columns of the rows are {found} of {source.name}")
        given[found] = rows[name].combine_chunks()
    times = given.pop(_ROWTIME, None)
    rowtimes = pa.array(np.full(rows.num_rows, now_ms)) if times is None else _rowtimes(times)
    missing = (column for name, column in writable.items() if name not in given)
    columns = {writable[name]: _fitting(array, writable[name]) for name, array in given.items()}
    return columns | {column: pa.nulls(rows.num_rows, column.type.arrow) for column in missing}, rowtimes


def _rowtimes(times: pa.Array) -> pa.Int64Array:
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("ms"), safe=False)
    rowtimes = _fitting(times, Column(_ROWTIME, BIGINT))
    if rowtimes.null_count or (len(rowtimes) and pc.min(rowtimes).as_py() < 0):
        raise InvalidStatement("ROWTIME must not be NULL or negative.")
    return rowtimes


def _fitting(array: pa.Array, column: Column) -> pa.Array:
    """The array in the column's type. A time with a zone becomes its time in UTC; times are cut to microseconds."""
    wanted = column.type.arrow
    if array.type == wanted:
        return array
    try:
        return in_shape(array, column.type, column.name).cast(wanted, safe=not pa.types.is_timestamp(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidStatement(
            f"Column {column.name} is {column.type}, and the given {array.type} does not fit: {error}",
            hint="Cast it first, or leave the column out.",
        ) from None


def _partition_count(source: SourceInfo, topic: Topic | None) -> int:
    """The topic's count, which other producers use: it may have grown since the source was declared."""
    return source.partition_count if topic is None else topic.partition_count


def _records(
    source: SourceInfo, columns: Arrays, rowtimes: pa.Int64Array, partition_count: int, *, gone: bool = False
) -> list[PartitionRecords]:
    """The records to append, by partition. In: `gone`: write tombstones."""
    count = len(rowtimes)
    held = tuple(column for column in source.schema.value if column.role == "VALUE")
    keys = [columns[column] for column in source.schema.key]
    values = [columns[column] for column in held]
    no_keys = None if keys else _all(True, count)  # with key columns, a key is NULL if all of them are
    key_bytes = _encoded(source, key_encoder(source.key_format, source.schema.key), keys, no_keys, "key")
    if source.kind == "TABLE" and key_bytes.null_count:
        raise InvalidStatement(
            f"Failed to insert values into '{source.name}'. Value for primary key column(s) "
            f"{', '.join(column.name for column in source.schema.key)} is required for tables"
        )
    parts = split_by_partition(sink_partitions(key_bytes, pa.array(np.zeros(count, np.int32)), partition_count))
    if source.value_format.name == ARROW:
        meta = {"_ts": rowtimes, "_null": _all(gone, count)}
        batch = columnar_batch((*source.schema.key, *held), [*keys, *values], meta)
        return [(part.partition, _columnar(part.of(batch))) for part in parts]
    value_bytes = _encoded(source, encoder(source.value_format, held), values, _all(gone or not values, count), "value")
    table = pa.table({"timestamp": rowtimes, "key": key_bytes, "value": value_bytes})
    return [(part.partition, RowRecords(part.of(table))) for part in parts]


def _encoded(
    source: SourceInfo, part: Encoder, columns: list[pa.Array], null_rows: pa.BooleanArray | None, what: str
) -> pa.BinaryArray:
    """The keys or the values as bytes. Raises `InvalidStatement`."""
    try:
        return part.encode(columns, null_rows=null_rows)
    except UnwritableRows as refused:
        first = refused.errors[0]
        where = f" of row {first.row + 1}" if len(columns[0]) > 1 else ""
        reason = f"Could not serialize the {what}{where}: {first.message}"
        raise InvalidStatement(f"Failed to insert values into '{source.name}'. {reason}") from None


def _columnar(batch: pa.RecordBatch) -> ColumnarRecords:
    return ColumnarRecords(batch, int(np.max(batch["_ts"].to_numpy())))


def _all(value: bool, count: int) -> pa.BooleanArray:
    return pa.array(np.full(count, value))
