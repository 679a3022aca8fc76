"""From append to visible result: one record every 10 ms, whatever became of the one before."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from millstream.logcore.client import FetchedRows, RowRecords, TopicPartition

from .bids import bids
from .pipelines import Pipelines, QueryBroke

RATE: Final = 100  # records per second
_EVERY: Final = "CREATE STREAM seen AS SELECT auction, price FROM bids WHERE price > 0;"
_LOST_AFTER_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds."""

    p50_ms: float
    p99_ms: float

    @staticmethod
    def of(seconds: list[float]) -> Latency:
        """Without the first ones, which warm up."""
        kept = seconds[len(seconds) // 10 :]
        cuts = statistics.quantiles(kept, n=100, method="inclusive")
        return Latency(cuts[49] * 1000, cuts[98] * 1000)


def append_to_result(run: Pipelines, seconds: float, seed: int) -> Latency:
    """From the moment a record is handed to the log until a reader of committed records has its result."""
    query_id = run.execute(_EVERY)
    run.append(bids(1_000, seed))
    run.wait(query_id)
    records = bids(int(seconds * RATE), seed, 1_000)
    offset = run.log.offsets("SEEN", 0).last_stable_offset
    seen: list[float] = []
    reader = threading.Thread(target=_read, args=(run, offset, records.num_rows, seen))
    reader.start()
    sent: list[float] = []
    _paced(records.num_rows, lambda number: _append(run, records, number, sent))
    reader.join()
    run.execute(f"TERMINATE {query_id};")
    if len(seen) < len(sent):
        raise QueryBroke(f"{len(sent) - len(seen)} of {len(sent)} results did not come")
    return Latency.of([after - before for before, after in zip(sent, seen, strict=True)])


def statement_and_sync(folder: Path, seconds: float, seed: int) -> Latency:
    """The floor: one DuckDB statement over one JSON record, its result appended to a file, and one fsync."""
    values = bids(int(seconds * RATE), seed)["value"].to_pylist()
    taken: list[float] = []
    statement = """SELECT to_json({a: bid.auction, p: bid.price}) FROM (
        SELECT from_json(CAST(? AS VARCHAR), '{"auction":"BIGINT","price":"BIGINT"}') AS bid) WHERE bid.price > 0"""
    with duckdb.connect() as connection, (folder / "results").open("ab", buffering=0) as file:

        def work(number: int) -> None:
            begin = time.perf_counter()
            for (result,) in connection.execute(statement, [values[number].decode()]).fetchall():
                file.write(str(result).encode() + b"\n")
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - begin)

        _paced(len(values), work)
    return Latency.of(taken)


def _paced(count: int, work: Callable[[int], None]) -> None:
    begin = time.perf_counter()
    for number in range(count):
        early_s = begin + number / RATE - time.perf_counter()
        if early_s > 0:
            time.sleep(early_s)
        work(number)


def _append(run: Pipelines, records: pa.Table, number: int, sent: list[float]) -> None:
    sent.append(time.perf_counter())
    run.log.append("bids", 0, RowRecords(records.slice(number, 1)))


def _read(run: Pipelines, offset: int, count: int, seen: list[float]) -> None:
    """Notes when each result could be read. All of it is in one partition, in order."""
    deadline = time.monotonic() + count / RATE + _LOST_AFTER_S
    while len(seen) < count and time.monotonic() < deadline:
        run.log.wait({TopicPartition("SEEN", 0): offset}, 0.1)
        fetched = run.log.fetch("SEEN", 0, offset)
        now = time.perf_counter()
        for part in fetched.runs:
            seen += [now] * (part.table.num_rows if isinstance(part, FetchedRows) else part.batch.num_rows)
        offset = fetched.next_offset
