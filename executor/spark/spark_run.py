"""One run of a query on Spark: batch by batch, from the position that all its buckets have reached."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ...logcore.client import LogClient, TopicPartition
from ...logcore.errors import LogError
from ...logcore.failpoints import fp
from ...planner.physical import PhysicalPlan
from ..queries.known_topics import KnownTopics
from ..queries.query_log import marker_topic, offset_group, take_id
from ..sources.same_topic import SameTopic
from ..sources.source_reader import PARTITIONS_S
from .alignment import align, batch_partition
from .batch_records import BatchRecord, forget_batches
from .batch_size import BatchSize
from .batches import BatchPlanner, Round, ranges_of_subplan, ranges_of_tasks
from .bucket import Report
from .homes.known_homes import KnownHomes
from .lanes import Positions, ranges_between
from .markers import NO_BATCH, SentRange
from .spec import RunSpec

PURGE_S = 30.0  # how often the part of the repartition topic that was read is removed; same as in Kafka Streams


class SparkRun:
    """Fences every earlier run, and continues from the query's position.

    In: `run_round` does a subplan's part of a batch and returns what its buckets did. If it raises, any subset of the
    buckets may have done their part. `parallelism`: how many tasks may read.

    A run is over after an exception: the next run brings all buckets to one position. Raises `StaleRun` if another run
    has begun, `PositionLost` if a topic of the query was deleted or recreated, and the errors of the log.

    `seen`: what the state contained when the run began (`alignment.py`). `homes`: the homes of buckets, by bucket; the
    run keeps the record up to date, and the next run continues with it.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        client: LogClient,
        spec: RunSpec,
        run_round: Callable[[Round], Sequence[Report]],
        parallelism: Callable[[], int],
        size: BatchSize,
        homes: dict[int, str],
    ) -> None:
        self._spec = spec
        self._client = client
        self._run_round = run_round
        self._parallelism = parallelism
        self._homes = homes
        self._planner = BatchPlanner(spec.stages, client, size, parallelism)
        self._topics = KnownTopics(client, plan)
        self._same = [SameTopic(client, topic) for topic in self._topics.names]
        # After `SameTopic` has read the ids: a topic that is recreated from now on is found before a batch reads it.
        self._topics.check()
        self._topic_ids = self._topics.ids()
        self._producer = take_id(client, plan, plan.query_id)
        aligned = align(plan, client, spec.properties, spec.run, self._producer)
        self._at = aligned.positions
        self.seen = aligned.seen
        self._last = NO_BATCH if aligned.last is None else aligned.last.id
        self._run_before = None if aligned.last is None or aligned.last.run == spec.run else aligned.last.run
        self._read: dict[int, int] = {}  # by bucket: the offset up to which its rows in the repartition topic were read
        self._purged_at = time.monotonic()
        self._partitions_due_s = self._topics_due_s = time.monotonic() + PARTITIONS_S

    def step(self, until: Positions | None = None) -> Sequence[Report] | None:
        """Does the next batch. None if no record arrived within a short wait, or nothing is left before `until`."""
        ends = self._planner.next(self._at, until)
        self._check_topics(at_once=ends is not None)
        if ends is None:
            return None
        topic, partition = marker_topic(self._spec.query_id), batch_partition(self._spec.stages)
        batch = BatchRecord.following(self._last, self._spec.run, self._at, ends, self._topic_ids)
        batch.write(self._client, topic, partition)
        fp("spark.before_batch")
        reports = self._rounds(batch)
        self._commit(batch.ends)
        self._at, self._last = {**self._at, **batch.ends}, batch.id
        if reports and self._run_before is not None:
            forget_batches(self._client, topic, partition, self._run_before)
            self._run_before = None
        self._purge(reports)
        return reports

    def available(self) -> Positions:
        """The offset up to which each lane can be read now."""
        return self._planner.available(self._at)

    def has_grown(self) -> bool:
        """Whether a topic has partitions that this run does not read; the next run reads them. New partitions are not
        announced, so this asks the log every `PARTITIONS_S`."""
        if time.monotonic() < self._partitions_due_s:
            return False
        self._partitions_due_s = time.monotonic() + PARTITIONS_S
        with contextlib.suppress(LogError):  # a deleted topic: its readers report that
            read = Counter(lane.topic for lane in self._at)
            return any(self._client.partition_count(topic) > count for topic, count in read.items())
        return False

    def _check_topics(self, *, at_once: bool) -> None:
        """Checks that no topic was recreated. This must happen after the topics' ends were read and before a task reads
        or writes; otherwise the query would skip records of a recreated topic. Without a batch it checks every
        `PARTITIONS_S`, so that an idle query reports the problem as well. Raises `PositionLost`."""
        if at_once or time.monotonic() >= self._topics_due_s:
            self._topics_due_s = time.monotonic() + PARTITIONS_S
            with self._topics.said():
                for topic in self._same:
                    topic.check()

    def _rounds(self, batch: BatchRecord) -> list[Report]:
        """Runs one subplan after the other: each reads the rows that earlier ones sent."""
        stages, read = self._spec.stages, ranges_between(self._at, batch.ends)
        reports: list[Report] = []
        sent: dict[int, SentRange] = {}
        for subplan in stages.subplans:
            ranges = ranges_of_subplan(stages, subplan, read, sent)
            if ranges:
                parallelism = self._parallelism()
                tasks = ranges_of_tasks(subplan, ranges, parallelism)
                homes = KnownHomes.of(subplan.buckets, self._homes, parallelism)
                found = self._run_round(Round(batch.id, subplan.number, tasks, batch.topics, homes))
                self._homes |= {report.bucket: report.home for report in found if report.home}
                sent |= {report.bucket: SentRange(report.sent_start, report.sent_end) for report in found}
                reports += found
        return reports

    def _commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commits the offsets in a transaction of the query's own id, so that a fenced run can no longer move them."""
        fp("spark.before_offsets")
        self._producer.begin()
        self._producer.send_offsets(offset_group(self._spec.query_id), positions)
        self._producer.commit()
        fp("spark.after_offsets")

    def _purge(self, reports: Sequence[Report]) -> None:
        """Removes processed rows from the repartition topic. If that fails, the next call tries again."""
        self._read |= {report.bucket: report.sent_end for report in reports if report.sent_end}
        if time.monotonic() - self._purged_at < PURGE_S:
            return
        self._purged_at = time.monotonic()
        with contextlib.suppress(LogError):
            while self._read:
                bucket, end = self._read.popitem()
                self._client.delete_records(*self._spec.stages.lane_of(bucket), end)
