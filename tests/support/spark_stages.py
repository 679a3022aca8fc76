"""The two stages of a query as Spark would call them, batch by batch, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from hand_plans import read_all, rows
from planning import Planner

from millstream.executor.queries.known_topics import KnownTopics
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.queries.query_log import marker_topic
from millstream.executor.spark.alignment import align, batch_partition
from millstream.executor.spark.batch_ends import BatchEnds
from millstream.executor.spark.batch_records import BatchRecord
from millstream.executor.spark.batch_size import BatchSize
from millstream.executor.spark.batches import ranges_of_subplan
from millstream.executor.spark.bucket import BucketRuntime, Report
from millstream.executor.spark.lanes import Positions, ranges_between
from millstream.executor.spark.markers import NO_BATCH, BatchId, SentRange
from millstream.executor.spark.pieces import Piece, decode_piece, encode_piece
from millstream.executor.spark.spark_executor import SparkExecutor
from millstream.executor.spark.stage_one import StageOne
from millstream.executor.spark.stages import Subplan, split
from millstream.logcore.client import LogClient, TopicPartition
from millstream.logcore.murmur2 import partitions_of
from millstream.planner.physical import PhysicalPlan

MakeSparkExecutor = Callable[..., SparkExecutor]


class StagedRun:
    """One run of a query. `step` is a batch; `only` leaves the other buckets undone, as a crash would."""

    def __init__(
        self, plan: PhysicalPlan, client: LogClient, run: str, directory: Path | None = None, records_max: int = 10**6
    ) -> None:
        self.stages = split(plan)
        self.client = client
        self.run = run
        self.directory = directory
        self.topics = KnownTopics(client, plan).ids()
        aligned = align(plan, client, {}, run, client.transactional_producer(plan.query_id))
        self.at: Positions = aligned.positions
        self.last = NO_BATCH if aligned.last is None else aligned.last.id
        self.ends = BatchEnds(plan, client, BatchSize(records_max))
        self.buckets: dict[int, BucketRuntime] = {}

    def step(self, only: set[int] | None = None) -> list[Report]:
        """Gives nothing once nothing is left to read. Subplans behind one that is left undone in part do nothing."""
        end = self.ends.next(self.at, self.ends.available(self.at))
        if end == self.at:
            return []
        batch = BatchRecord.following(self.last, self.run, self.at, end, self.topics)
        batch.write(self.client, marker_topic(self.stages.plan.query_id), batch_partition(self.stages))
        reports = self.apply(batch.id, self.at, end, only)
        if only is None:
            self.client.commit_offsets(self.stages.plan.query_id, batch.ends)
        self.at, self.last = end, batch.id
        return reports

    def apply(self, batch: BatchId, start: Positions, end: Positions, only: set[int] | None = None) -> list[Report]:
        reports: list[Report] = []
        sent: dict[int, SentRange] = {}
        for subplan in self.stages.subplans:
            pieces = self.pieces(subplan, start, end, sent)
            found = [
                self.bucket(number).apply(own, batch)
                for number, own in pieces.items()
                if only is None or number in only
            ]
            sent |= {report.bucket: SentRange(report.sent_start, report.sent_end) for report in found}
            reports += found
            if len(found) < len(pieces):
                break
        return reports

    def drain(self) -> list[Report]:
        reports: list[Report] = []
        while found := self.step():
            reports += found
        return reports

    def pieces(
        self, subplan: Subplan, start: Positions, end: Positions, sent: Mapping[int, SentRange]
    ) -> dict[int, list[Piece]]:
        reading = StageOne(self.stages, subplan, self.client)
        found: dict[int, list[Piece]] = {}
        ranges = ranges_of_subplan(self.stages, subplan, ranges_between(start, end), sent)
        for bucket, piece in reading.read(ranges, {}):
            found.setdefault(bucket, []).append(decode_piece(pa.py_buffer(encode_piece(piece))))
        reading.close()
        return found

    def bucket(self, number: int) -> BucketRuntime:
        if number not in self.buckets:
            self.buckets[number] = BucketRuntime(self.stages, number, self.run, self.client, {}, self.directory)
        return self.buckets[number]

    def close(self) -> None:
        for bucket in self.buckets.values():
            bucket.close()


STATEMENTS = """
    CREATE STREAM clicks (user STRING KEY, page STRING, n BIGINT)
      WITH (kafka_topic='clicks', value_format='JSON', partitions=3);
    CREATE TABLE users (user STRING PRIMARY KEY, city STRING)
      WITH (kafka_topic='users', value_format='JSON', partitions=3);
    CREATE STREAM c2 (user STRING KEY, page STRING, n BIGINT)
      WITH (kafka_topic='clicks', value_format='JSON', partitions=3);
    CREATE TABLE u2 (user STRING PRIMARY KEY, city STRING)
      WITH (kafka_topic='users', value_format='JSON', partitions=3);
"""

# One whose rows change their task behind state has a number in `SUBPLANS` of test_stages.py, too.
QUERIES = {
    "stateless": "STREAM AS SELECT user, page, n * 2 AS n2 FROM clicks WHERE n % 3 != 0",
    "partition by": "STREAM AS SELECT * FROM clicks PARTITION BY page",
    "group by the key": "TABLE AS SELECT user, COUNT(*) AS c, SUM(n) AS s FROM clicks GROUP BY user",
    "group by another column": "TABLE AS SELECT page, COUNT(*) AS c, MAX(ROWOFFSET) AS o FROM clicks GROUP BY page",
    "distinct values, and counts with conditions": (
        "TABLE AS SELECT page, COUNT(DISTINCT user) AS users, COUNT(*) FILTER (WHERE n % 2 = 0) AS even, "
        "COUNT(DISTINCT n % 5) FILTER (WHERE n > 50) AS high FROM clicks GROUP BY page"
    ),
    "tumbling window": (
        "TABLE AS SELECT user, COUNT(*) AS c, LATEST_BY_OFFSET(page) AS p FROM clicks "
        "WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 1 SECOND) WHERE n % 2 = 0 GROUP BY user"
    ),
    "session window by another column": (
        "TABLE AS SELECT page, COUNT(*) AS c FROM clicks WINDOW SESSION (2 SECONDS) GROUP BY page"
    ),
    "final results": (
        "TABLE AS SELECT user, COUNT(*) AS c FROM clicks "
        "WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY user EMIT FINAL"
    ),
    "join with a table": (
        "STREAM AS SELECT clicks.user, page, city FROM clicks LEFT JOIN users ON clicks.user = users.user"
    ),
    "join of streams": (
        "STREAM AS SELECT clicks.user, clicks.page, c2.n FROM clicks LEFT JOIN c2 "
        "WITHIN 2 SECONDS GRACE PERIOD 1 SECOND ON clicks.user = c2.user"
    ),
    "join of tables": (
        "TABLE AS SELECT users.user, users.city, u2.city AS c2 FROM users JOIN u2 ON users.user = u2.user"
    ),
    "join by a foreign key": (
        "TABLE AS SELECT users.user, users.city, u2.city AS c2 FROM users LEFT JOIN u2 ON users.city = u2.user"
    ),
    "table to table": "TABLE AS SELECT user, UCASE(city) AS city FROM users WHERE city != 'oslo'",
    "count of a table": "TABLE AS SELECT city, COUNT(*) AS c FROM users GROUP BY city",
    "average of maxima": (
        "TABLE AS SELECT page, AVG(top) AS a, MIN(top) AS low FROM (SELECT user, page, MAX(n) AS top FROM clicks "
        "GROUP BY user, page) q GROUP BY page"
    ),
    "the first of each user": (
        "STREAM AS SELECT user, page, n FROM DEDUPLICATE(TABLE clicks PARTITION BY user, INTERVAL '2' SECOND)"
    ),
    "the changes of each page": (
        "STREAM AS SELECT user, page, n FROM CHANGED(TABLE clicks PARTITION BY page, DESCRIPTOR(user))"
    ),
    "two streams as one": "STREAM AS SELECT user, page FROM clicks UNION ALL SELECT page, user FROM c2 WHERE n > 50",
    "join of streams by two columns": (
        "STREAM AS SELECT a.user, a.n AS x, b.n AS y FROM clicks a JOIN clicks b WITHIN UNBOUNDED "
        "ON a.user = b.user AND a.page = b.page AND a.n < b.n"
    ),
    "rows of a stream and of a table": (
        "TABLE AS SELECT c.n, q.city, q.people FROM clicks c JOIN (SELECT city, COUNT(*) AS people FROM users GROUP BY "
        "city) q ON c.n = q.people AND c.page != q.city"
    ),
    "rows of two aggregates": (
        "TABLE AS WITH n AS (SELECT user, page, COUNT(*) AS c FROM clicks GROUP BY user, page) SELECT n.user, n.page, "
        "n.c FROM n JOIN (SELECT user, MAX(c) AS top FROM n GROUP BY user) m ON n.user = m.user AND n.c = m.top"
    ),
}
"""What follows CREATE STREAM/TABLE name."""


def plan_of(query: str, sink: str, partitions: int = 3) -> PhysicalPlan:
    """The plan of a query of QUERIES that writes to the topic `sink`. Every change is emitted."""
    properties = {"auto.offset.reset": "earliest", "ksql.streams.cache.max.bytes.buffering": "0"}
    planner = Planner(properties=properties)
    kind, _, rest = QUERIES[query].partition(" ")
    text = f"{STATEMENTS} CREATE {kind} {sink} WITH (partitions=3) {rest} EMIT CHANGES;"
    text = text.replace("EMIT FINAL EMIT CHANGES", "EMIT FINAL").replace("partitions=3", f"partitions={partitions}")
    (plan,) = planner.plans(text)
    return replace(plan, query_id=f"{sink}_1")


def create_topics(client: LogClient, *sinks: str, partitions: int = 3) -> None:
    for topic in ("clicks", "users", *sinks):
        client.create_topic(topic, partitions)


def produce(client: LogClient, begin: int, end: int) -> None:
    """Clicks and users: partitions by key, times that go back a little now and then, some records that are broken."""
    by_lane: dict[TopicPartition, list[tuple[str | None, bytes | dict[str, object] | None, int]]] = {}
    partitions = client.partition_count("clicks")
    for i in range(begin, end):
        user = f"u{i * 7 % 11}"
        time = 10_000 + i * 150 - (4_000 if i % 17 == 0 else 0)
        click: bytes | dict[str, object] = {"PAGE": f"p{i * 5 % 4}", "N": i} if i % 23 != 22 else b"{broken"
        lane = int(partitions_of(pa.array([user.encode()]), partitions)[0])
        by_lane.setdefault(TopicPartition("clicks", lane), []).append((user, click, time))
        if i % 4 == 0:
            city: dict[str, object] | None = None if i % 20 == 16 else {"CITY": ("oslo", "rome", "bonn")[i % 3]}
            by_lane.setdefault(TopicPartition("users", lane), []).append((user, city, time + 1))
    for (topic, partition), records in by_lane.items():
        client.append(topic, partition, rows(records))


def contents(client: LogClient, topic: str) -> dict[tuple[int, object], list[tuple[object, ...]]]:
    """What is committed, by partition and key: the order of a key's records is what a topic promises."""
    found: dict[tuple[int, object], list[tuple[object, ...]]] = {}
    for record in read_all(client, topic, range(client.partition_count(topic))):
        rest = (record["value"], record["timestamp"], record["headers"])
        found.setdefault((record["partition"], record["key"]), []).append(rest)
    return found


class OnDuckDB:
    """The same query on the other executor, as what to compare with."""

    def __init__(self, plan: PhysicalPlan, client: LogClient) -> None:
        self._runtime = QueryRuntime(plan, client, None)

    def drain(self) -> None:
        while self._runtime.step():
            pass

    def close(self) -> None:
        self._runtime.close()
