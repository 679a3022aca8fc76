"""How a query recovers: the log comes first, and the local state follows it.

The order matters. First a new producer decides the transaction that the last run left open, before anything is read.
Then the state file is brought to the end of the changelog. Then reading continues at the committed offsets. Whatever
happened to the local file, the result is the state right after the last committed batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from ...logcore.client import LogClient, TopicPartition, TransactionalProducer
from ...logcore.errors import TopicExists
from ...logcore.failpoints import fp
from ...planner.physical import PhysicalPlan
from .. import processing_log
from ..figures import Meters
from ..partitioning import RekeyPartitioner
from ..pipeline import Pipeline
from ..state.changelog import replay
from ..state.databases import OpenDatabase, alone
from ..state.lost_state import check_ends, check_not_ahead, committed_ends, whole_state
from ..state.state_commits import StateCommits
from ..state.state_file import StateFile, open_state
from ..tasks import changelog_partition_count, is_stateful
from .query_log import STATE_CONFIG, changelog_topic, start_positions, take_id
from .query_settings import QuerySettings
from .recovery_watch import RecoveryWatch
from .store_filling import StoreFilling

log = structlog.get_logger("millstream.queries")


TakeOver = Callable[[], TransactionalProducer]
"""Acquires the query's transactional id, which fences the query's previous run on another executor."""


@dataclass(frozen=True, slots=True)
class RecoveredQuery:
    """A query that is ready for its next batch."""

    producer: TransactionalProducer
    state: StateFile
    pipeline: Pipeline
    commits: StateCommits
    positions: dict[TopicPartition, int]


def recover(
    plan: PhysicalPlan,
    client: LogClient,
    state_directory: Path | None,
    settings: QuerySettings,
    watch: RecoveryWatch,
    meters: Meters | None = None,
    take_over: TakeOver | None = None,
    open_database: OpenDatabase = alone,
) -> RecoveredQuery:
    """Brings the query to the state after its last committed batch. Fences the previous runtime.

    In: `state_directory`: the query's own; None keeps its state in memory. `open_database`: opens the database for its
    state. `watch`: may end it early, with `RecoveryInterrupted`.
    """
    producer = take_id(client, plan, plan.query_id) if take_over is None else take_over()
    fp("query.fenced")
    processing_log.create_topic(client)
    stateful = is_stateful(plan)
    noted = committed_ends(client, plan.query_id) if stateful else {}
    with whole_state(plan.query_id):
        ends = _changelog_ends(plan, client) if stateful else {}
    check_ends(plan.query_id, noted, ends)
    filling = StoreFilling.of(client, plan) if stateful else None
    if filling is not None:
        filling.write(client, producer, settings.engine, watch)
        noted, ends = committed_ends(client, plan.query_id), _changelog_ends(plan, client)
    state = open_state(
        state_directory if stateful else None,
        plan,
        producer.epoch,
        ends,
        settings.engine,
        open_database=open_database,
    )
    try:
        pipeline = Pipeline(
            plan,
            state.connection,
            emit=settings.emit,
            partitioner=RekeyPartitioner(),
            write_behind=True,
            meters=meters,
            side=state.side,
            names_expired=not client.capabilities.columnar,
        )
        state.lock()
        replay_changelog(plan, client, state, pipeline, ends, noted, watch)
        commits = StateCommits(state, pipeline)
        return RecoveredQuery(producer, state, pipeline, commits, start_positions(client, plan, settings.start))
    except BaseException as error:
        state.close(error)
        raise


def _changelog_ends(plan: PhysicalPlan, client: LogClient) -> dict[int, int]:
    """The end of each changelog partition; creates the topic at the first start."""
    topic = changelog_topic(plan.query_id)
    with contextlib.suppress(TopicExists):
        if client.topic(topic) is None:
            client.create_topic(topic, changelog_partition_count(plan), STATE_CONFIG)
    count = client.partition_count(topic)
    return {partition: client.offsets(topic, partition).last_stable_offset for partition in range(count)}


def replay_changelog(
    plan: PhysicalPlan,
    client: LogClient,
    state: StateFile,
    pipeline: Pipeline,
    ends: Mapping[int, int],
    noted: Mapping[int, int],
    watch: RecoveryWatch,
) -> None:
    """Brings the stores to the end of the changelog. Each fetched batch is one transaction, so it can be interrupted.

    In: `noted`: the ends that belong to the query's position. Raises `StateLost` and `RecoveryInterrupted`.
    """
    with whole_state(plan.query_id):
        for partition in ends:
            check_not_ahead(plan.query_id, noted, partition, state.applied.get(partition, 0))
        _replay(plan, client, state, pipeline, ends, noted, watch)


def _replay(
    plan: PhysicalPlan,
    client: LogClient,
    state: StateFile,
    pipeline: Pipeline,
    ends: Mapping[int, int],
    noted: Mapping[int, int],
    watch: RecoveryWatch,
) -> None:
    topic = changelog_topic(plan.query_id)
    replayed = 0
    left = sum(end - state.applied.get(partition, 0) for partition, end in ends.items())
    for partition in ends:
        for change, offset in replay(client, topic, partition, state.applied.get(partition, 0), pipeline.stores):
            if change.store not in pipeline.stores:
                continue  # of a replaced plan, or of another subplan on Spark, which records its own ends
            check_not_ahead(plan.query_id, noted, partition, offset)
            watch.at(left)
            left -= offset - state.applied.get(partition, 0)
            state.connection.execute("BEGIN")
            try:
                pipeline.restore(change.store, change.rows)
                fp("query.replaying")
                pipeline.settle()
                state.commit({partition: offset}, change.rows.num_rows)
            except BaseException:
                with contextlib.suppress(Exception):
                    state.connection.execute("ROLLBACK")
                raise
            replayed += change.rows.num_rows
    if replayed:
        log.info("state replayed", query_id=plan.query_id, rows=replayed)
