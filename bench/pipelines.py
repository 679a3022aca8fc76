"""Millstream under test: an engine on a log of its own, and queries that are measured one at a time."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from millstream.executor.executor import QueryStatus
from millstream.logcore.client import FetchedColumns, FetchedRows, LogClient, RowRecords
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.executors import why_no_spark
from millstream.server.engine.session import Session

from .bids import COLUMNS, PRICE_ABOVE
from .measuring import Measured, Stopwatch, timed

ExecutorKind = Literal["duckdb", "spark"]

BATCH_ROWS: Final = 50_000  # in one append
_LOOK_S: Final = 0.01  # a look costs 0.2 ms: a thousand of them a second took a quarter of the query's core
_PATIENCE_S: Final = 300.0

FILTER: Final = "SELECT auction, bidder, price, channel FROM {source} WHERE price > " + str(PRICE_ABOVE)
AGGREGATE: Final = """SELECT auction, COUNT(*) AS bids, SUM(price) AS total
FROM {source} WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY auction"""

_EVERY_CHANGE = "SET 'ksql.streams.cache.max.bytes.buffering'='0';"
_BIDS = "CREATE STREAM bids ({columns}) WITH (KAFKA_TOPIC='bids', VALUE_FORMAT='JSON', PARTITIONS={partitions});"


class QueryBroke(RuntimeError):
    """A query under test has stopped, or gives nothing any more."""


class Pipelines:
    """The stream `bids` and queries on it; all are paused but the one under test, on DuckDB.

    Pausing a query on Spark ends its streaming query, which takes seconds to begin again: there each query is dropped
    after its turn, and the append is inside the measured time.
    """

    def __init__(
        self, engine: EmbeddedEngine, executor: ExecutorKind, partitions: int, *, look_s: float = _LOOK_S
    ) -> None:
        """In: `look_s`: how often it is looked whether a query is done; on brokers elsewhere a look is dear."""
        self._look_s = look_s
        self._engine = engine
        self._session = Session()
        self.executor = executor
        self.partitions = partitions
        self.execute(_EVERY_CHANGE)
        self.execute(_BIDS.format(columns=COLUMNS, partitions=partitions))

    @property
    def log(self) -> LogClient:
        return self._engine.log

    def execute(self, text: str) -> str:
        """Runs a statement; the id of the query that it started."""
        entities = self._engine.execute(text, self._session)
        command = getattr(entities[0], "command_status", None) if entities else None
        return (command.query_id or "") if command is not None else ""

    def append(self, table: pa.Table, topic: str = "bids") -> Measured:
        """Appends batch by batch, the rows in turn to all partitions; each is durable before the next one begins."""
        return timed(table.num_rows, lambda: self._append(table, topic))

    def drain(self, query_id: str, rows: int) -> Measured:
        """How long the paused query takes for the `rows` that wait for it; it is paused again."""
        stopwatch = Stopwatch(rows, children=False)
        with stopwatch.running():
            self.execute(f"RESUME {query_id};")
            self.wait(query_id)
        self.execute(f"PAUSE {query_id};")
        return stopwatch.measured

    def append_and_drain(self, query_id: str, table: pa.Table) -> Measured:
        """How long it takes from the first append until the running query is done with all of `table`."""
        stopwatch = Stopwatch(table.num_rows, children=self.executor == "spark")
        with stopwatch.running():
            self._append(table, "bids")
            self.wait(query_id)
        return stopwatch.measured

    def wait(self, query_id: str) -> None:
        """Until nothing is left to read. Raises `QueryBroke`."""
        deadline = time.monotonic() + _PATIENCE_S
        while not _is_done(self.status(query_id)):
            if time.monotonic() > deadline:
                raise QueryBroke(f"query {query_id} is not done after {_PATIENCE_S:.0f} s")
            time.sleep(self._look_s)

    def status(self, query_id: str) -> QueryStatus:
        """Raises `QueryBroke` where it has failed."""
        status = self._engine.executor.status(query_id)
        if status.state == "ERROR":
            raise QueryBroke(f"query {query_id}: {status.error}")
        return status

    def records_in(self, topic: str) -> int:
        """How many committed records the topic has."""
        return sum(
            run.table.num_rows if isinstance(run, FetchedRows) else run.batch.num_rows for run in self._runs(topic)
        )

    def _runs(self, topic: str) -> Iterator[FetchedRows | FetchedColumns]:
        for partition in range(self.log.topics()[topic].partition_count):
            offset, fetched = -1, self.log.fetch(topic, partition, 0)
            while fetched.next_offset > offset:
                yield from fetched.runs
                offset = fetched.next_offset
                fetched = self.log.fetch(topic, partition, offset)

    def counted_in(self, topic: str) -> int:
        """How many rows the results of `AGGREGATE` in the topic count, however far it is compacted."""
        counts: list[pa.Table] = []
        for run in self._runs(topic):
            if isinstance(run, FetchedRows):
                values = [orjson.loads(value)["BIDS"] for value in run.table["value"].to_pylist()]
                table = pa.table({"key": run.table["key"], "BIDS": pa.array(values, pa.int64())})
                counts.append(table.group_by("key").aggregate([("BIDS", "max")]))
            else:
                table = pa.table(run.batch).select(["AUCTION", "_ws", "BIDS"])
                counts.append(table.group_by(["AUCTION", "_ws"]).aggregate([("BIDS", "max")]))
        keys = [name for name in counts[0].column_names if name != "BIDS_max"]
        final = pa.concat_tables(counts).group_by(keys).aggregate([("BIDS_max", "max")])
        return pc.sum(final["BIDS_max_max"]).as_py()

    def _append(self, table: pa.Table, topic: str) -> None:
        for begin in range(0, table.num_rows, BATCH_ROWS):
            batch = table.slice(begin, BATCH_ROWS)
            for partition in range(self.partitions):
                part = (
                    batch
                    if self.partitions == 1
                    else batch.take(pa.array(range(partition, len(batch), self.partitions)))
                )
                self.log.append(topic, partition, RowRecords(part))


@contextlib.contextmanager
def pipelines(
    executor: ExecutorKind, partitions: int, settings: Mapping[str, str] | None = None
) -> Generator[Pipelines]:
    """In a temporary directory on the disk of this machine, every append synced. In: `settings`: further ones."""
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        properties = {"millstream.executor": executor, "auto.offset.reset": "earliest", **(settings or {})}
        with open_engine(Path(folder), properties) as engine:
            yield Pipelines(engine, executor, partitions)


def executors() -> Sequence[ExecutorKind]:
    """Those that can run here."""
    return ("duckdb",) if why_no_spark() is not None else ("duckdb", "spark")


def _is_done(status: QueryStatus) -> bool:
    return bool(status.lag) and not any(status.lag.values())
