"""A push query: a plan without a sink, whose changes go to one client as they arrive. None of its state is stored."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from ...logcore.client import LogClient, TopicPartition
from ...planner.physical import PhysicalPlan
from ...sql.functions.udf import failures_of
from ..partitioning import RekeyPartitioner
from ..pipeline import Pipeline
from ..queries.query_settings import QuerySettings
from ..queries.start_offsets import StartSettings, first_offset
from ..record_error import RecordError, located
from ..sources.source_reader import PARTITIONS_S, ReadBatch, SourceReader
from ..state.connection import MEMORY
from ..state.databases import of_this_process
from ..tasks import in_tasks
from ..updates import settle
from .left_out import LeftOut
from .reading_pace import ReadingPace

WAKE_UP_S = 0.2
ERRORS_KEPT = 100


@dataclass(frozen=True, slots=True)
class PushProgress:
    """The progress of a push query. `lag`: the number of readable records that it has not read yet. `stream_time_ms`:
    the largest rowtime so far, None before the first record. `left_out`: the number of skipped records."""

    lag: int
    stream_time_ms: int | None
    left_out: int = 0


class PushQuery:
    """Iterate over it to get batches of rows: the columns of a ChangeBatch, where `_weight` -1 is a deletion.

    It reads `read_committed`, from the end of the topics, from the start that the properties select
    (`start_offsets.py`), or from `begin`. `time_order`: see `SourceReader`.
    Iteration blocks while there is nothing new. It ends after `limit` rows, or when any thread calls `close`.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        client: LogClient,
        properties: Mapping[str, str] | None = None,
        *,
        limit: int | None = None,
        begin: Mapping[TopicPartition, int] | None = None,
        time_order: bool = True,
    ) -> None:
        settings = self._settings = QuerySettings.of({**(properties or {}), **plan.properties})
        self._plan = plan
        self._client = client
        self._left = limit
        self._closed = False
        self._stream_time_ms: int | None = None
        self._database = of_this_process().open(MEMORY, settings.engine)
        self._connection = self._database.connection
        with self._database.closed_on_error():
            self._pipeline = Pipeline(
                plan, self._connection, emit=settings.emit, partitioner=RekeyPartitioner(), interruptible=True
            )
        positions = first_offsets(plan, client, settings.start) if begin is None else begin
        self._time_order = time_order
        self._reader = SourceReader(client, plan.sources(), positions, time_order=time_order)
        self._partitions_due_s = time.monotonic() + PARTITIONS_S
        self._pace = ReadingPace()
        self.errors: deque[RecordError] = deque(maxlen=ERRORS_KEPT)  # those of the last skipped records
        self._left_out = LeftOut(client, plan.query_id)

    def poll(self, timeout_s: float = 0.0, ends: Mapping[TopicPartition, int] | None = None) -> pa.Table | None:
        """The next rows; None if no input arrives within the time. An empty table means that input gave no rows.

        In: `ends`: read to these offsets, exclusive.
        """
        if self._left == 0 or self._closed:
            return None
        self._read_new_partitions()
        size = self._pace.batch_bytes()
        batch = self._reader.read(size, ends)
        if batch is None and timeout_s > 0 and self._client.wait(self._reader.fetch_positions, timeout_s):
            batch = self._reader.read(size, ends)
        if batch is None:
            return None
        rows = self._rows(batch)
        self._pace.handed_out(more=batch.more)
        return rows

    def _read_new_partitions(self) -> None:
        """If a topic has new partitions, reads them from their first records, because all of these are new."""
        if time.monotonic() < self._partitions_due_s:
            return
        self._partitions_due_s = time.monotonic() + PARTITIONS_S
        if self._reader.has_grown:
            positions, sources = dict(self._reader.positions), self._plan.sources()
            for topic in {source.topic for source in sources}:
                for at in (TopicPartition(topic, n) for n in range(self._client.partition_count(topic))):
                    positions.setdefault(at, self._client.offsets(*at).log_start_offset)
            self._reader.close()
            self._reader = SourceReader(self._client, sources, positions, time_order=self._time_order)

    def await_records(self, timeout_s: float) -> bool:
        """Waits until there is something to read. False if nothing arrived within the time."""
        return self._client.wait(self._reader.fetch_positions, timeout_s)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offsets from which it continues to read."""
        return self._reader.fetch_positions

    def progress(self) -> PushProgress:
        """Its progress. Any thread may call it."""
        positions = self._reader.fetch_positions
        lag = sum(max(0, self._client.offsets(*at).last_stable_offset - offset) for at, offset in positions.items())
        return PushProgress(lag, self._stream_time_ms, self.left_out)

    @property
    def left_out(self) -> int:
        """The number of records skipped so far."""
        return self._left_out.count

    @property
    def finished(self) -> bool:
        """Whether it was closed or has sent all the rows of its limit."""
        return self._closed or self._left == 0

    def __iter__(self) -> Iterator[pa.Table]:
        with self:
            while not self.finished:
                rows = self.poll(WAKE_UP_S)
                if rows is not None and rows.num_rows:
                    yield rows
                del rows  # before the next poll makes others

    def close(self) -> None:
        """Ends the query. A running iteration stops within a fraction of a second, even in the middle of a batch."""
        self._closed = True
        with contextlib.suppress(duckdb.Error):  # its connection is closed already
            failures_of(self._connection).bounds.ends_at = time.monotonic()  # this ends functions in Python
            self._connection.interrupt()

    def __enter__(self) -> PushQuery:
        return self

    def __exit__(self, *exc: object) -> None:
        """Ends the query and closes its database. Call it only when no thread polls any more."""
        self.close()
        self._database.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._database.close()

    def _rows(self, batch: ReadBatch) -> pa.Table | None:
        """The output rows for the batch; None if the query was closed meanwhile."""
        times = [time for changes in batch.inputs.values() for time in changes.stream_time_ms.values()]
        known = [] if self._stream_time_ms is None else [self._stream_time_ms]
        self._stream_time_ms = max(known + times, default=None)
        self._connection.execute("BEGIN")
        try:
            rows = settle(self._pipeline.process(in_tasks(self._plan, batch.inputs)).rows)
            self._pipeline.take_changes()
            errors = [*batch.errors, *located(self._pipeline.take_failures(), batch.origin)]
            self._settings.check_times(self._plan.query_id, errors)
        except BaseException as failure:
            with contextlib.suppress(Exception):
                self._connection.execute("ROLLBACK")
            if self._closed and isinstance(failure, Exception):
                return None
            self._closed = True
            raise
        self._connection.execute("COMMIT")
        self._database.clear_laid_aside()
        self.errors += errors
        self._left_out.note(errors)
        if self._left is not None:
            rows = rows.slice(0, self._left)
            self._left -= rows.num_rows
        return rows


def first_offsets(plan: PhysicalPlan, client: LogClient, start: StartSettings) -> dict[TopicPartition, int]:
    """The start offset of a push query in each partition that it reads."""
    positions: dict[TopicPartition, int] = {}
    for source in plan.sources():
        for partition in range(client.partition_count(source.topic)):
            at = TopicPartition(source.topic, partition)
            positions[at] = first_offset(client, at, source, start)
    return positions
