"""Fills the new stores of a query that was replaced: with the rows of a table, from the table's topic.

CREATE OR REPLACE may make a query keep further columns of a table's rows: a join of a stream with the table reads one
more column, or a filter does. The rows in the store lack it, so the new plan has a new store, with a number in its
name. Before the query continues, a pipeline of its own reads the table's topic from its first record to the committed
position, and its state changes are written to the changelog, from where the query recovers them like any other state.

Reading the same records again gives the same rows, so a crash in the middle needs no care: filling begins anew. Once
the stores are full, their highest number is stored, and later starts do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import structlog

from millstream.errors import LogError

from ...logcore.client import LogClient, TopicPartition, TransactionalProducer
from ...logcore.failpoints import fp
from ...planner.physical import PhysicalPlan
from ...planner.steps.source import sources_below
from ...planner.steps.step import Step, store_id
from ..partitioning import RekeyPartitioner
from ..pipeline import Pipeline
from ..sources.source_reader import ReadBatch, SourceReader
from ..state.changelog import changelog_records, offsets_used
from ..state.connection import MEMORY, EngineSettings, lock
from ..state.databases import alone
from ..state.lost_state import with_ends
from ..state.store import StoreChanges
from ..tasks import in_tasks
from .query_log import FORGOTTEN, changelog_topic, filling_group, offset_group

log = structlog.get_logger()

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
        steps = tuple(step for step in plan.steps() if step.store_number > filled)
        return StoreFilling(plan, steps, client.committed_offsets(offset_group(plan.query_id))) if steps else None

    def changes(self, client: LogClient, settings: EngineSettings) -> Iterator[list[StoreChanges]]:
        """The rows of the stores, batch by batch."""
        for step in self.steps:
            yield from self._changes_of(step, client, settings)

    def write(self, client: LogClient, producer: TransactionalProducer, settings: EngineSettings) -> None:
        """Writes the rows to the changelog, a transaction for each batch. Raises `LogError`."""
        topic = changelog_topic(self.plan.query_id)
        count, columnar, rows = client.partition_count(topic), client.capabilities.columnar, 0
        for changes in self.changes(client, settings):
            producer.begin()
            ends: dict[int, int] = {}
            for partition, records in changelog_records(changes, count, columnar=columnar):
                if partition not in ends:
                    ends[partition] = client.offsets(topic, partition).log_end_offset
                producer.append(topic, partition, records)
                ends[partition] += offsets_used(records)
            producer.send_offsets(offset_group(self.plan.query_id), with_ends({}, self.plan.query_id, ends))
            producer.commit()
            rows += sum(change.rows.num_rows for change in changes)
            fp("query.filling")
        self.note(client)
        log.info("stores filled", query_id=self.plan.query_id, stores=[*map(store_id, self.steps)], rows=rows)

    def note(self, client: LogClient) -> None:
        """Stores that the stores are full."""
        at = TopicPartition(self.plan.sources()[0].topic, 0)
        client.commit_offsets(filling_group(self.plan.query_id), {at: _number(self.plan)})

    def _changes_of(self, step: Step, client: LogClient, settings: EngineSettings) -> Iterator[list[StoreChanges]]:
        sources = [source for below in step.filled_by for source in sources_below(below)]
        ends = {
            at: offset
            for at, offset in self.positions.items()
            if offset > FORGOTTEN and at.topic in {source.topic for source in sources}
        }
        begins = {at: min(end, client.offsets(*at).log_start_offset) for at, end in ends.items()}
        plan = replace(self.plan, root=step)
        database = alone(MEMORY, settings)
        with database.closed_on_error():
            pipeline = Pipeline(plan, database.connection, partitioner=RekeyPartitioner())
            own = {name for name in pipeline.stores if name == store_id(step) or name.startswith(f"{store_id(step)}.")}
            lock(database.connection)
            reader = SourceReader(client, sources, begins)
            while (batch := _next_batch(reader, ends)) is not None:
                database.connection.execute("BEGIN")
                pipeline.process(in_tasks(plan, batch.inputs))
                pipeline.take_failures()  # the query has reported them when it read these records
                database.connection.execute("COMMIT")
                yield [change for change in pipeline.take_changes() if change.store in own]
        database.close()


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
