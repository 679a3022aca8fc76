"""Fills the new stores of a query that was replaced: with the rows of a table, from the table's topic.

CREATE OR REPLACE may make a query keep further columns of a table's rows: a join with the table reads one more column,
or a filter does. The rows in the store lack it, so the new plan has a new store, with a number in its name. The same
goes for a table that was only copied and whose rows are stored from now on, for a filter. Before the query continues,
a pipeline of its own reads the table's topic from its first record to the committed position, and its state changes are
written to the changelog, from where the query recovers them like any other state.

Reading the same records again gives the same rows, so a crash in the middle needs no care: filling begins anew. Once
the stores are full, their highest number is stored, and later starts do nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import structlog

from millstream.errors import LogError

from ...logcore.client import ColumnarRecords, LogClient, RowRecords, TopicPartition, TransactionalProducer
from ...logcore.failpoints import fp
from ...planner.physical import PhysicalPlan
from ...planner.steps.source import sources_below
from ...planner.steps.step import Step, store_id
from ..partitioning import RekeyPartitioner
from ..pipeline import Pipeline
from ..sources.source_reader import ReadBatch, SourceReader
from ..state.changelog import append_changes, changelog_records, replay
from ..state.connection import MEMORY, EngineSettings, lock
from ..state.databases import alone
from ..state.lost_state import with_ends
from ..state.store import StoreChanges
from ..tasks import in_tasks
from .query_log import FORGOTTEN, changelog_topic, filling_group, offset_group
from .recovery_watch import RecoveryWatch

log = structlog.get_logger("millstream.queries")

_READ_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoreFilling:
    """The stores that a query has to fill before it continues. `positions`: the committed ones."""

    plan: PhysicalPlan
    steps: tuple[Step, ...]
    positions: Mapping[TopicPartition, int]

    @staticmethod
    def of(client: LogClient, plan: PhysicalPlan) -> StoreFilling | None:
        """None if all stores are full. Raises `LogError`."""
        if not _number(plan):
            return None
        filled = max(client.committed_offsets(filling_group(plan.query_id)).values(), default=0)
        steps = tuple(step for step in plan.steps() if step.store_number > filled and step.filled_by)
        return StoreFilling(plan, steps, client.committed_offsets(offset_group(plan.query_id))) if steps else None

    def changes(
        self, client: LogClient, settings: EngineSettings, watch: RecoveryWatch
    ) -> Iterator[list[StoreChanges]]:
        """The rows of the stores, batch by batch. Raises `LogError` and `RecoveryInterrupted`."""
        for step in self.steps:
            yield from self._changes_of(step, client, settings, watch)

    def write(
        self, client: LogClient, producer: TransactionalProducer, settings: EngineSettings, watch: RecoveryWatch
    ) -> None:
        """Writes the rows to the changelog, a transaction for each batch, and deletes those of the stores that the new
        ones replace. Raises `LogError` and `RecoveryInterrupted`."""
        changelog = _ChangelogWriter(client, producer, self.plan.query_id)
        rows = 0
        for changes in self.changes(client, settings, watch):
            changelog.append(changes)
            rows += sum(change.rows.num_rows for change in changes)
            fp("query.filling")
        changelog.delete(self._is_replaced, watch)
        self.note(client)
        log.info("stores filled", query_id=self.plan.query_id, stores=[*map(store_id, self.steps)], rows=rows)

    def _is_replaced(self, store: str) -> bool:
        """Whether a new store has taken the place of this one."""
        for step in self.steps:
            found = re.fullmatch(rf"{re.escape(step.id)}(?:\.(\d+))?(?:\.(?:left|right))?", store)
            if found is not None:
                return int(found[1] or 0) < step.store_number
        return False

    def note(self, client: LogClient) -> None:
        """Stores that the stores are full."""
        at = TopicPartition(self.plan.sources()[0].topic, 0)
        client.commit_offsets(filling_group(self.plan.query_id), {at: _number(self.plan)})

    def _changes_of(
        self, step: Step, client: LogClient, settings: EngineSettings, watch: RecoveryWatch
    ) -> Iterator[list[StoreChanges]]:
        sources = [source for below in step.filled_by for source in sources_below(below)]
        topics = {source.topic for source in sources}
        ends = {at: offset for at, offset in self.positions.items() if offset > FORGOTTEN and at.topic in topics}
        begins = {at: min(end, client.offsets(*at).log_start_offset) for at, end in ends.items()}
        plan = replace(self.plan, root=step)
        database = alone(MEMORY, settings)
        with database.closed_on_error():
            pipeline = Pipeline(plan, database.connection, partitioner=RekeyPartitioner())
            own = {name for name in pipeline.stores if name == store_id(step) or name.startswith(f"{store_id(step)}.")}
            lock(database.connection)
            reader = SourceReader(client, sources, begins)
            while (batch := _next_batch(reader, ends)) is not None:
                watch.at(sum(max(0, end - reader.positions[at]) for at, end in ends.items()) + batch.record_count)
                database.connection.execute("BEGIN")
                pipeline.process(in_tasks(plan, batch.inputs))
                pipeline.take_failures()  # the query has reported them when it read these records
                database.connection.execute("COMMIT")
                yield [change for change in pipeline.take_changes() if change.store in own]
        database.close()


class _ChangelogWriter:
    """Writes to the query's changelog. Each call is a transaction."""

    def __init__(self, client: LogClient, producer: TransactionalProducer, query_id: str) -> None:
        self._client = client
        self._producer = producer
        self._query_id = query_id
        self._topic = changelog_topic(query_id)
        self._partition_count = client.partition_count(self._topic)
        self._columnar = client.capabilities.columnar

    def append(self, changes: Sequence[StoreChanges]) -> None:
        self._write(changelog_records(changes, self._partition_count, columnar=self._columnar))

    def delete(self, is_unwanted: Callable[[str], bool], watch: RecoveryWatch) -> None:
        """Deletes all rows of some stores, so that compaction removes them. In row form, only replaying finds out which
        store a record belongs to: there they stay."""
        for partition in range(self._partition_count if self._columnar else 0):
            end = self._client.offsets(self._topic, partition).last_stable_offset
            for change, offset in replay(self._client, self._topic, partition, 0):
                if offset > end:
                    break  # deletions that were just written
                watch.at(end - offset)
                if is_unwanted(change.store) and change.expired_column is None:
                    self._write([(partition, _deleted(change.rows))])

    def _write(self, records: Sequence[tuple[int, ColumnarRecords | RowRecords]]) -> None:
        self._producer.begin()
        ends = append_changes(self._client, self._producer, self._topic, records)
        self._producer.send_offsets(offset_group(self._query_id), with_ends({}, self._query_id, ends))
        self._producer.commit()


def _deleted(rows: pa.Table) -> ColumnarRecords:
    """The rows as deletions. The metadata of their schema names the store and its key."""
    deleted = rows.set_column(rows.column_names.index("_deleted"), "_deleted", pa.array(np.ones(len(rows), np.bool_)))
    (batch,) = deleted.replace_schema_metadata(rows.schema.metadata).combine_chunks().to_batches()
    return ColumnarRecords(batch, 0)


def _next_batch(reader: SourceReader, ends: Mapping[TopicPartition, int]) -> ReadBatch | None:
    """None once everything before the ends is read. A fetch may return only markers of transactions."""
    while late := {at: end for at, end in ends.items() if reader.positions[at] < end}:
        before = reader.fetch_positions
        batch = reader.read(_READ_BYTES, ends)
        if batch is not None:
            return batch
        if reader.fetch_positions == before:
            at, end = next(iter(late.items()))
            raise LogError(
                f'partition {at.partition} of topic "{at.topic}" was read to offset {end}, and ends before it'
            )
    return None


def _number(plan: PhysicalPlan) -> int:
    """The number of its newest stores; 0 if no store was replaced."""
    return max(step.store_number for step in plan.steps())
