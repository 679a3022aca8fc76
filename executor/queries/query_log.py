"""What a query keeps in the log beside its output: names, committed offsets and where reading begins."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping

from millstream.errors import MillstreamError

from ...logcore.client import LogClient, Offsets, TopicPartition, TransactionalProducer
from ...logcore.errors import LogUnavailable
from ...logcore.topic_rules import NOTES
from ...planner.physical import PhysicalPlan
from ...planner.steps.sink import Sink
from ..errors import PositionLost
from .start_offsets import StartSettings, first_offset

_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
FORGOTTEN = -1
"""As a committed offset: the query has none here."""


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
"""Of the topics that hold a query's state: the latest row of each key is enough to come back."""


def marker_topic(query_id: str) -> str:
    """The topic in which the Spark executor notes what each bucket of the query has done; partition n is bucket n."""
    return f"_millstream-{safe_name(query_id)}-markers"


def repartition_topic(query_id: str) -> str:
    """The topic through which rows of the query go on Spark where their task changes behind state; partition n is
    written by bucket n."""
    return f"_millstream-{safe_name(query_id)}-repartition"


REPARTITION_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(16 * 1024 * 1024),
}
"""What was read is removed by who reads it, and nothing else."""


def safe_name(query_id: str) -> str:
    """The id as part of a topic's or a folder's name: a quoted SQL name in it may hold anything."""
    if _SAFE.fullmatch(query_id):
        return query_id
    digest = hashlib.sha256(query_id.encode()).hexdigest()[:12]
    return _UNSAFE.sub("_", query_id)[:80] + "-" + digest


def offset_group(query_id: str) -> str:
    """The consumer group under which the query commits its offsets."""
    return query_id


def topics_group(query_id: str) -> str:
    """The group whose committed offsets, of partition 0 of each topic that the query reads or writes, are what the
    topics' ids come to (`known_topics.py`)."""
    return f"{NOTES}topics-of-{query_id}"


def take_id(log: LogClient, plan: PhysicalPlan, transactional_id: str) -> TransactionalProducer:
    """Shuts out whoever wrote for the query under this id, whose last transaction is decided then.

    Raises `CorruptLog` where that cannot end because a partition of its is damaged: the log only says that it waits for
    the end.
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
    """Where the query goes on. Topics that it has never read begin where `start` says, and that is committed at once:
    after a restart "latest" must not mean a later place. A partition that such a topic got later begins with its first
    record: all of them are new. A position that retention has passed moves to the log's start.

    Raises `InvalidProperty`, `UnknownTopic`; `PositionLost` where a source ends before the position.
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
            elif source.topic in read:
                positions[at] = bounds.log_start_offset
            else:
                positions[at] = first_offset(log, at, source, start)
    new = {at: offset for at, offset in positions.items() if committed.get(at) != offset}
    if new:
        log.commit_offsets(group, new)
    return positions


def settle_start(log: LogClient, plan: PhysicalPlan, properties: Mapping[str, str]) -> None:
    """Commits where the query begins: "latest" means the moment at which it was started, not the later one at which it
    gets its first turn. In: `properties`: the plan's own go first. What is wrong with a topic or a property, the query
    finds out again then, and says it in its status."""
    with contextlib.suppress(MillstreamError):
        start_positions(log, plan, StartSettings.of({**properties, **plan.properties}))


def check_position(query_id: str, at: TopicPartition, position: int, bounds: Offsets) -> None:
    """Raises `PositionLost`. Committed offsets go with their topic, so this is no new topic of the same name."""
    if position > bounds.log_end_offset:
        raise PositionLost(
            f'query {query_id} has read partition {at.partition} of topic "{at.topic}" up to offset {position}, and it'
            f" ends at {bounds.log_end_offset} now: records are lost",
            hint=f"Restore the files from a backup, or rebuild the query from what its sources hold: RESET {query_id};",
        )


def begin_anew(log: LogClient, plan: PhysicalPlan) -> None:
    """The query reads its sources from their first records, whatever its properties say. Raises `UnknownTopic`."""
    topics = log.topics()
    positions = {
        at: log.offsets(*at).log_start_offset
        for source in plan.sources()
        if source.topic in topics
        for at in (TopicPartition(source.topic, n) for n in range(topics[source.topic].partition_count))
    }
    log.commit_offsets(offset_group(plan.query_id), positions)


def empty_topic(log: LogClient, topic: str) -> None:
    """Removes all records; of a topic that is gone, too."""
    known = log.topics().get(topic)
    for partition in range(known.partition_count if known is not None else 0):
        log.delete_records(topic, partition, log.offsets(topic, partition).high_watermark)


def forget_query(log: LogClient, query_id: str) -> None:
    """Nothing of a dropped query is left in the log's own topics, and a query of this id begins anew."""
    log.forget_producer(query_id)
    log.forget_group(offset_group(query_id))
    log.forget_group(topics_group(query_id))
