"""Begins a new run of a query: brings all buckets to one position and fences every earlier run. Needs no Spark.

A run that ended in the middle of a batch leaves some buckets that have done the batch and some that have not. The
latter do it here, in process, subplan after subplan. Then all buckets are at one position and no rows are left between
subplans, so another executor may take over as well.

The query's own transactional id decides which run owns the query, on every executor. A run first acquires the id, then
writes its markers into the buckets. The order matters. A slow run may still write markers after the next run has
acquired the id. So each run checks, after it has written its markers, that it still holds the id, and it does no batch
before that. A run that acquires the id later also writes its markers later, and the tasks of the earlier run find them.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar, cast

import structlog

from ...logcore.client import LogAdmin, LogClient, TopicPartition, TransactionalProducer
from ...logcore.errors import ProducerFenced, TopicExists, UnknownTopic
from ...logcore.failpoints import fp
from ...planner.physical import PhysicalPlan
from .. import processing_log
from ..inspection import StateSeen
from ..queries.known_topics import digest_of
from ..queries.query_log import (
    FORGOTTEN,
    REPARTITION_CONFIG,
    STATE_CONFIG,
    changelog_topic,
    check_position,
    marker_topic,
    offset_group,
    repartition_topic,
    start_positions,
    take_id,
)
from ..queries.start_offsets import StartSettings
from ..state.lost_state import committed_ends, forget_ends
from ..tasks import changelog_partition_count
from .batch_records import BatchRecord, adopted, read_batch
from .batches import ranges_of_subplan
from .bucket import BucketRuntime, bucket_id
from .lanes import LaneRange, Positions, ranges_between
from .markers import NO_BATCH, SentRange, StaleRun, StateMarker, last_marker
from .pieces import Piece
from .spark_figures import BucketFigures
from .stage_one import StageOne
from .stages import Stages, split

log = structlog.get_logger("millstream.queries")

T = TypeVar("T")

NO_RUN = ""
"""The name of the run while the query does not run on Spark."""

_THREADS = 16  # buckets begin in parallel: each waits for the log, and one sync of the log serves several


@dataclass(frozen=True, slots=True)
class AlignedBuckets:
    """The position that all buckets have reached. `positions`: the query's committed offsets. `last`: the previous
    batch; None if no batch was ever done. `seen`: what the state of each stateful bucket contains; None if unknown."""

    positions: Positions
    last: BatchRecord | None
    seen: Mapping[int, StateSeen | None]


def take_from_spark(plan: PhysicalPlan, client: LogClient, properties: Mapping[str, str]) -> TransactionalProducer:
    """Prepares a query for another executor, which continues with the returned producer of the query's id. This ends a
    Spark run that is still alive. Raises `ProducerFenced` if another run acquires the query meanwhile."""
    owner = take_id(client, plan, plan.query_id)  # before the markers are read: a run that begins now is fenced
    if client.topic(marker_topic(plan.query_id)) is not None:
        try:
            align(plan, client, properties, NO_RUN, owner)
        except StaleRun as error:
            raise ProducerFenced(f"query {plan.query_id} was taken over: {error.message}") from error
    return owner


def align(
    plan: PhysicalPlan, client: LogClient, properties: Mapping[str, str], run: str, owner: TransactionalProducer
) -> AlignedBuckets:
    """Brings all buckets to one position and begins the run there.

    In: `owner`: the producer of the query's id, acquired right before this call. Raises `ProducerFenced` or `StaleRun`
    if another run acquired the query meanwhile; `StateLost`; `PositionLost`.
    """
    settings = {**properties, **plan.properties}
    stages = split(plan)
    _create_topics(stages, client)
    known = client.committed_offsets(offset_group(plan.query_id))
    committed = start_positions(client, plan, StartSettings.of(settings))
    topic = marker_topic(plan.query_id)
    before = _side_by_side(partial(last_marker, client, topic), range(stages.bucket_count))
    is_new = not committed_ends(client, plan.query_id)  # the query had no state on another executor
    if run != NO_RUN or any(last is not None and last.run != NO_RUN for last in before):
        forget_ends(client, plan.query_id)  # from now on they are in the markers, or in the next batch on DuckDB
    markers = _begin_run(stages, run, client, owner, StateSeen() if is_new else None)
    fp("spark.aligning")
    last, markers = _last_batch(stages, client, run, markers)
    target = committed if last is None else _target(client, plan.query_id, known, committed, last)
    seen = {bucket: markers[bucket].seen for each in stages.subplans if each.stateful for bucket in each.buckets}
    if last is not None and target != committed:
        read = ranges_between(committed, target)
        finished = _finish(stages, client, settings, run, markers, last, read, owner)
        seen |= {bucket: state for bucket, state in finished.items() if bucket in seen}
    moved = {lane: offset for lane, offset in target.items() if committed[lane] != offset}
    if moved:
        owner.begin()
        owner.send_offsets(offset_group(plan.query_id), moved)
        owner.commit()
    else:
        _check_owner(owner)
    fp("spark.aligned")
    return AlignedBuckets(target, last, seen)


def _check_owner(owner: TransactionalProducer) -> None:
    """Raises `ProducerFenced` if another run has acquired the query."""
    owner.begin()
    owner.abort()


def _side_by_side(work: Callable[[int], T], buckets: Sequence[int]) -> list[T]:
    if len(buckets) < 2:
        return [work(bucket) for bucket in buckets]
    with ThreadPoolExecutor(min(_THREADS, len(buckets)), "spark-align") as threads:
        return list(threads.map(work, buckets))


def _undisturbed(check_owner: Callable[[], None], work: Callable[[], T]) -> T:
    """The result of `work`, which works with a bucket. It is repeated if a task of an earlier run acquired the bucket's
    id meanwhile; that task then finds that its run is over, and writes nothing. Raises `ProducerFenced` if the query
    itself has another owner."""
    while True:
        try:
            return work()
        except ProducerFenced:
            check_owner()


def batch_partition(stages: Stages) -> int:
    """The partition of the batch records, after the partitions with the buckets' markers."""
    return stages.bucket_count


def _create_topics(stages: Stages, client: LogClient) -> None:
    processing_log.create_topic(client)
    query_id = stages.plan.query_id
    wanted = {marker_topic(query_id): (stages.bucket_count + 1, STATE_CONFIG)}
    if stages.stateful:
        wanted[changelog_topic(query_id)] = changelog_partition_count(stages.plan), STATE_CONFIG
    if len(stages.subplans) > 1:
        wanted[repartition_topic(query_id)] = stages.bucket_count, REPARTITION_CONFIG
    for topic, (partition_count, config) in wanted.items():
        found = client.topic(topic)
        if found is None:
            with contextlib.suppress(TopicExists):
                client.create_topic(topic, partition_count, config)
        elif found.partition_count < partition_count:  # an earlier version had fewer buckets and no batch records
            cast(LogAdmin, client).add_partitions(topic, partition_count)


def _begin_run(
    stages: Stages, run: str, client: LogClient, owner: TransactionalProducer, seen: StateSeen | None
) -> list[StateMarker]:
    """Writes the markers that assign the buckets to this run, and returns them. In: `seen`: what a bucket's first
    marker says about its state."""
    topic = marker_topic(stages.plan.query_id)
    guard = threading.Lock()  # only one thread at a time may use a producer

    def begin(bucket: int) -> StateMarker:
        producer = take_id(client, stages.plan, bucket_id(stages.plan.query_id, bucket))
        last = last_marker(client, topic, bucket)
        if last is None:
            marker = StateMarker(run, seen=seen)
        elif last.run == NO_RUN:  # another executor had the state
            marker = replace(last, run=run, ends={}, token=uuid.uuid4().hex, seen=None)
        else:
            marker = replace(last, run=run)
        producer.begin()
        producer.append(topic, bucket, marker.as_records())
        producer.commit()
        return marker

    def check_owner() -> None:
        with guard:
            _check_owner(owner)

    return _side_by_side(lambda bucket: _undisturbed(check_owner, partial(begin, bucket)), range(stages.bucket_count))


def _last_batch(
    stages: Stages, client: LogClient, run: str, markers: list[StateMarker]
) -> tuple[BatchRecord | None, list[StateMarker]]:
    """The last batch that any bucket has done, and the markers. Markers of versions that named no batches are converted
    to markers that do."""
    query_id, partition = stages.plan.query_id, batch_partition(stages)
    topic = marker_topic(query_id)
    record, markers = adopted(run, markers)
    if record is not None:
        record.write(client, topic, partition)
        return record, markers
    newest = max(marker.batch for marker in markers)
    return (None if newest == NO_BATCH else read_batch(client, query_id, topic, partition, newest)), markers


def _target(
    client: LogClient, query_id: str, known: Mapping[TopicPartition, int], committed: Positions, last: BatchRecord
) -> Positions:
    """The position that all buckets will reach: the end of the batch, or the position that another executor has reached
    since. The end of the batch does not apply to a topic that was recreated since, even if the group already has
    offsets of the new topic: such a topic is read from its committed offset. Raises `PositionLost`."""
    target = dict(committed)
    anew = {topic for topic, id in last.topics.items() if digest_of(client, topic) != id}
    for lane, end in last.ends.items():
        is_known = lane.topic not in anew and known.get(lane, FORGOTTEN) != FORGOTTEN
        if is_known and end > committed.get(lane, end):
            check_position(query_id, lane, end, client.offsets(*lane))
            target[lane] = end
    return target


def _finish(
    stages: Stages,
    client: LogClient,
    properties: Mapping[str, str],
    run: str,
    markers: Sequence[StateMarker],
    last: BatchRecord,
    read: Sequence[LaneRange],
    owner: TransactionalProducer,
) -> dict[int, StateSeen | None]:
    """Does the batch, in process, in the buckets that have not done it. Out: what their states contain now."""
    finished: dict[int, StateSeen | None] = {}
    sent = {bucket: marker.sent for bucket, marker in enumerate(markers) if marker.batch == last.id}
    for subplan in stages.subplans:
        behind = [bucket for bucket in subplan.buckets if markers[bucket].batch != last.id]
        if not behind:
            continue
        log.info("batch finished in process", query_id=stages.plan.query_id, buckets=behind)
        pieces: dict[int, list[Piece]] = {bucket: [] for bucket in behind}
        reading = StageOne(stages, subplan, client)
        for bucket, piece in reading.read(ranges_of_subplan(stages, subplan, read, sent), last.topics):
            if bucket in pieces:
                pieces[bucket].append(piece)
        reading.close()
        for bucket, own in pieces.items():
            if own:
                runtime = BucketRuntime(stages, bucket, run, client, properties)
                report = _undisturbed(partial(_check_owner, owner), partial(runtime.apply, own, last.id))
                runtime.close()
                sent[bucket] = SentRange(report.sent_start, report.sent_end)
                finished[bucket] = BucketFigures.from_json(report.figures).state if report.figures else None
    return finished


def remove_run_topics(client: LogClient, query_id: str) -> None:
    """Removes the topics that the query has only on Spark."""
    for topic in (marker_topic(query_id), repartition_topic(query_id)):
        if client.topic(topic) is not None:
            with contextlib.suppress(UnknownTopic):
                client.delete_topic(topic)
