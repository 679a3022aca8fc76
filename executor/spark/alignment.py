"""How a query begins under a new run: all its buckets at one place, and every earlier run shut out. Needs no Spark.

A run that ended in the middle of a batch leaves buckets that have done it and buckets that have not. The latter do it
here, in process, so that what follows begins at one position everywhere; then another executor may take over as well.

Whose the query is, the transactional id of its own decides, on every executor: who takes it, has it, and then marks the
buckets as his. The order matters. A taker who was slow may still write markers after the next one has taken the id; so
each proves, once his markers are written, that the id is still his, and does no batch before. Whoever takes it later
writes markers later, and the tasks of the run before find them.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from ...logcore.client import LogClient, TopicPartition, TransactionalProducer
from ...logcore.errors import ProducerFenced, TopicExists
from ...logcore.failpoints import fp
from ...planner.physical import PhysicalPlan
from .. import processing_log
from ..queries.query_log import (
    FORGOTTEN,
    STATE_CONFIG,
    changelog_topic,
    check_position,
    marker_topic,
    offset_group,
    start_positions,
)
from ..queries.start_offsets import StartSettings
from ..state.lost_state import forget_ends
from ..tasks import changelog_partition_count
from .bucket import BucketRuntime, bucket_id
from .lanes import Positions, ranges_between
from .markers import StaleRun, StateMarker, last_marker
from .pieces import Piece
from .stage_one import StageOne
from .stages import Stages, split

log = structlog.get_logger()

T = TypeVar("T")

NO_RUN = ""
"""The run of a query that does not run on Spark."""


def take_from_spark(plan: PhysicalPlan, client: LogClient, properties: Mapping[str, str]) -> TransactionalProducer:
    """Readies a query for another executor, which goes on with this producer of the query's id. A Spark run that is
    still alive ends. Raises `ProducerFenced` where somebody else takes the query meanwhile."""
    owner = client.transactional_producer(plan.query_id)  # before the look: a run that begins now finds itself fenced
    if marker_topic(plan.query_id) in client.topics():
        try:
            align(plan, client, properties, NO_RUN, owner)
        except StaleRun as error:
            raise ProducerFenced(f"query {plan.query_id} was taken over: {error.message}") from error
    return owner


def align(
    plan: PhysicalPlan, client: LogClient, properties: Mapping[str, str], run: str, owner: TransactionalProducer
) -> Positions:
    """Begins the run and gives the positions where all buckets stand; they are the query's committed offsets now.

    In: `owner`: of the query's id, taken right before. Raises `ProducerFenced`, `StaleRun` where the query was taken by
    another meanwhile.
    """
    settings = {**properties, **plan.properties}
    stages = split(plan)
    _create_topics(stages, client)
    known = client.committed_offsets(offset_group(plan.query_id))
    committed = start_positions(client, plan, StartSettings.of(settings))
    topic = marker_topic(plan.query_id)
    before = [last_marker(client, topic, bucket) for bucket in range(stages.bucket_count)]
    if run != NO_RUN or any(last is not None and last.run != NO_RUN for last in before):
        forget_ends(client, plan.query_id)  # the markers note them now, or the next batch on DuckDB does
    for last in before:
        _check_positions(client, plan.query_id, last, known)
    markers = [
        _undisturbed(owner, partial(_begin_run, stages, bucket, run, client, committed))
        for bucket in range(stages.bucket_count)
    ]
    fp("spark.aligning")
    target = {lane: max(marker.positions[lane] for marker in markers) for lane in committed}
    behind = [bucket for bucket, marker in enumerate(markers) if marker.positions != target]
    if behind and target != committed:
        log.info("batch finished in process", query_id=plan.query_id, buckets=behind)
        _finish(stages, client, settings, run, behind, committed, target, owner)
    moved = {lane: offset for lane, offset in target.items() if committed[lane] != offset}
    if moved:
        owner.begin()
        owner.send_offsets(offset_group(plan.query_id), moved)
        owner.commit()
    else:
        _check_owner(owner)
    fp("spark.aligned")
    return target


def _check_owner(owner: TransactionalProducer) -> None:
    """Raises `ProducerFenced` where somebody else has taken the query."""
    owner.begin()
    owner.abort()


def _undisturbed(owner: TransactionalProducer, work: Callable[[], T]) -> T:
    """The result of work with a bucket, which is done again where a task of an earlier run has taken the bucket's id in
    the middle of it: that task finds that its run is over, and writes nothing. Raises `ProducerFenced` where the query
    itself has another owner."""
    while True:
        try:
            return work()
        except ProducerFenced:
            _check_owner(owner)


def _create_topics(stages: Stages, client: LogClient) -> None:
    processing_log.create_topic(client)
    known = client.topics()
    query_id = stages.plan.query_id
    wanted = {marker_topic(query_id): stages.bucket_count}
    if stages.stateful:
        wanted[changelog_topic(query_id)] = changelog_partition_count(stages.plan)
    for topic, partition_count in wanted.items():
        if topic not in known:
            with contextlib.suppress(TopicExists):
                client.create_topic(topic, partition_count, STATE_CONFIG)


def _begin_run(stages: Stages, bucket: int, run: str, client: LogClient, committed: Positions) -> StateMarker:
    """Writes the marker that makes the bucket this run's. Nothing the bucket has done is before a committed offset:
    those move when all buckets have done a batch, or under another executor."""
    query_id = stages.plan.query_id
    producer = client.transactional_producer(bucket_id(query_id, bucket))
    last = last_marker(client, marker_topic(query_id), bucket)
    positions = {lane: max(_still_there(client, last, lane), offset) for lane, offset in committed.items()}
    ends = {} if last is None or last.run == NO_RUN else last.ends
    if last is None:
        marker = StateMarker(run, positions)
    elif positions == last.positions:
        marker = replace(last, run=run, ends=ends)
    else:
        marker = replace(last, run=run, positions=positions, ends=ends, token=uuid.uuid4().hex)
    producer.begin()
    producer.append(marker_topic(query_id), bucket, marker.as_records())
    producer.commit()
    return marker


def _check_positions(
    client: LogClient, query_id: str, last: StateMarker | None, known: Mapping[TopicPartition, int]
) -> None:
    """Raises `PositionLost`. A topic that was made anew is not known to the query's group."""
    for lane, position in last.positions.items() if last is not None else ():
        if known.get(lane, FORGOTTEN) != FORGOTTEN:
            check_position(query_id, lane, position, client.offsets(*lane))


def _still_there(client: LogClient, last: StateMarker | None, lane: TopicPartition) -> int:
    """The bucket's place in the lane; 0 where the topic was made anew since."""
    position = 0 if last is None else last.positions.get(lane, 0)
    return position if position <= client.offsets(*lane).log_end_offset else 0


def _finish(
    stages: Stages,
    client: LogClient,
    properties: Mapping[str, str],
    run: str,
    behind: list[int],
    start: Positions,
    end: Positions,
    owner: TransactionalProducer,
) -> None:
    pieces: dict[int, list[Piece]] = {bucket: [] for bucket in behind}
    reading = StageOne(stages, client)
    for bucket, piece in reading.read(ranges_between(start, end)):
        if bucket in pieces:
            pieces[bucket].append(piece)
    reading.close()
    for bucket, own in pieces.items():
        if own:
            runtime = BucketRuntime(stages, bucket, run, client, properties)
            _undisturbed(owner, partial(runtime.apply, own, end))
            runtime.close()


def remove_markers(client: LogClient, query_id: str) -> None:
    """Forgets that the query ever ran on Spark."""
    topic = marker_topic(query_id)
    if topic in client.topics():
        client.delete_topic(topic)
