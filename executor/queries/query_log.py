"""What a query keeps in the log besides its output: its internal topics, committed offsets and start positions."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping

import structlog

from millstream.errors import MillstreamError

from ...logcore.client import LogClient, Offsets, TopicPartition, TransactionalProducer
from ...logcore.errors import LogUnavailable
from ...logcore.topic_rules import NOTES
from ...planner.physical import PhysicalPlan
from ...planner.steps.sink import Sink
from ..errors import PositionLost
from .start_offsets import StartSettings, first_offset

_log = structlog.get_logger("millstream.queries")

_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
FORGOTTEN = -1
"""The committed offset of a partition for which the query has none."""


def changelog_topic(query_id: str) -> str:
    """The topic with every change of the query's stores; partition n belongs to task n.

    One topic for all stores of a query: a commit then syncs one file per task, not one per store and task.
    """
    return f"_millstream-{safe_name(query_id)}-changelog"


STATE_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.5",
}
"""Configuration of the topics that hold a query's state: recovery needs only the latest row of each key."""


def marker_topic(query_id: str) -> str:
    """The topic in which the Spark executor records each bucket's progress; partition n is bucket n."""
    return f"_millstream-{safe_name(query_id)}-markers"


def repartition_topic(query_id: str) -> str:
    """The topic that carries rows on Spark when their task changes after a stateful step; bucket n writes
    partition n."""
    return f"_millstream-{safe_name(query_id)}-repartition"


REPARTITION_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(16 * 1024 * 1024),
}
"""The reader removes the records that it has read; nothing else is removed."""


def safe_name(query_id: str) -> str:
    """The id as part of a topic or folder name. An id may contain any characters, from a quoted SQL name."""
    if _SAFE.fullmatch(query_id):
        return query_id
    digest = hashlib.sha256(query_id.encode()).hexdigest()[:12]
    return _UNSAFE.sub("_", query_id)[:80] + "-" + digest


def offset_group(query_id: str) -> str:
    """The consumer group under which the query commits its offsets."""
    return query_id


def topics_group(query_id: str) -> str:
    """The group that stores the digests of topic ids as committed offsets, in partition 0 of each topic that the query
    reads or writes (`known_topics.py`)."""
    return f"{NOTES}topics-of-{query_id}"


def filling_group(query_id: str) -> str:
    """The group that stores, as a committed offset, the highest number of the stores that the query has filled
    (`store_filling.py`)."""
    return f"{NOTES}filled-stores-of-{query_id}"


def take_id(log: LogClient, plan: PhysicalPlan, transactional_id: str) -> TransactionalProducer:
    """Acquires the transactional id: fences its previous holder and decides the holder's last transaction.

    Raises `CorruptLog` if that transaction cannot end because one of its partitions is damaged: the log itself only
    reports that it waits for the end.
    """
    try:
        return log.transactional_producer(transactional_id)
    except LogUnavailable:
        for topic in _topics_written(plan):
            known = log.topic(topic)
            for partition in range(0 if known is None else known.partition_count):
                log.offsets(topic, partition)
        raise


def _topics_written(plan: PhysicalPlan) -> tuple[str, ...]:
    sink = (plan.root.topic,) if isinstance(plan.root, Sink) else ()
    own = (changelog_topic, marker_topic, repartition_topic)
    return (*sink, *(topic_of(plan.query_id) for topic_of in own))


def start_positions(log: LogClient, plan: PhysicalPlan, start: StartSettings) -> dict[TopicPartition, int]:
    """The positions at which the query continues. For topics that it has never read, `start` decides, and the position
    is committed at once: after a restart "latest" must not mean a later offset. A partition added later to a topic
    that it reads begins at its first record: all of its records are new. If retention has removed the records at a
    position, the position moves to the log start offset, with a warning.

    Raises `InvalidProperty`, `UnknownTopic`; `PositionLost` if a source ends before the position.
    """
    group = offset_group(plan.query_id)
    committed = log.committed_offsets(group)
    topics = log.topics()
    positions: dict[TopicPartition, int] = {}
    read = {at.topic for at, offset in committed.items() if offset > FORGOTTEN}
    for source in plan.sources():
        count = topics[source.topic].partition_count if source.topic in topics else source.partition_count
        for at in (TopicPartition(source.topic, partition) for partition in range(count)):
            bounds = log.offsets(*at)
            if committed.get(at, FORGOTTEN) > FORGOTTEN:
                check_position(plan.query_id, at, committed[at], bounds)
                positions[at] = max(committed[at], bounds.log_start_offset)
                _warn_of_removed(plan.query_id, at, committed[at], positions[at])
            elif source.topic in read:
                positions[at] = bounds.log_start_offset
            else:
                positions[at] = first_offset(log, at, source, start)
    new = {at: offset for at, offset in positions.items() if committed.get(at) != offset}
    if new:
        log.commit_offsets(group, new)
    return positions


def _warn_of_removed(query_id: str, at: TopicPartition, position: int, begin: int) -> None:
    """In: `begin`: the offset at which the query goes on."""
    if position < begin:
        _log.warning(
            "records were removed before they were read",
            query_id=query_id,
            topic=at.topic,
            partition=at.partition,
            from_offset=position,
            to_offset=begin - 1,
        )


def settle_start(log: LogClient, plan: PhysicalPlan, properties: Mapping[str, str]) -> None:
    """Commits the start positions: "latest" means the moment when the query was started, not the later moment of its
    first turn. In: `properties`: the plan's own override them. Errors in a topic or property are ignored here: the
    query's first turn meets them again and reports them in its status."""
    with contextlib.suppress(MillstreamError):
        start_positions(log, plan, StartSettings.of({**properties, **plan.properties}))


def check_position(query_id: str, at: TopicPartition, position: int, bounds: Offsets) -> None:
    """Raises `PositionLost` if the partition ends before the position. The topic cannot be a new one of the same name,
    because committed offsets are deleted with their topic."""
    if position > bounds.log_end_offset:
        raise PositionLost(
            f'query {query_id} has read partition {at.partition} of topic "{at.topic}" up to offset {position}, and it'
            f" ends at {bounds.log_end_offset} now: records are lost",
            hint=f"Restore the files from a backup, or rebuild the query from what its sources hold: RESET {query_id};",
        )


def begin_anew(log: LogClient, plan: PhysicalPlan) -> None:
    """Makes the query read its sources from their first records, whatever its properties say. Raises `UnknownTopic`."""
    topics = log.topics()
    positions = {
        at: log.offsets(*at).log_start_offset
        for source in plan.sources()
        if source.topic in topics
        for at in (TopicPartition(source.topic, n) for n in range(topics[source.topic].partition_count))
    }
    log.commit_offsets(offset_group(plan.query_id), positions)


def empty_topic(log: LogClient, topic: str) -> None:
    """Removes all records. Does nothing if the topic does not exist."""
    known = log.topics().get(topic)
    for partition in range(known.partition_count if known is not None else 0):
        log.delete_records(topic, partition, log.offsets(topic, partition).high_watermark)


def forget_query(log: LogClient, query_id: str) -> None:
    """Removes a dropped query from the log's own topics, so that a new query with this id starts from scratch."""
    log.forget_producer(query_id)
    log.forget_group(offset_group(query_id))
    log.forget_group(topics_group(query_id))
    log.forget_group(filling_group(query_id))
