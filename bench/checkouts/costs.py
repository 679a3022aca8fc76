"""What one checkout's code costs, run by that checkout's own Python: `python costs.py PART`, which prints JSON.

It stands alone: only what both checkouts offer is imported, and nothing of `bench`. Each part gives the processor
seconds of this process by the name of what was done; `memory` and times by the wall are the driver's to measure.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import tempfile
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import structlog

import millstream
from millstream.logcore.client import RowRecords, TopicPartition
from millstream.logcore.log import open_log
from millstream.testing import Sandbox

_SINGLE, _BATCHES, _ROWS, _TRANSACTIONS = 500, 100, 1_000, 100
_UNTIL_COMPILED: Final = 50_000  # rows after which the compiled codec is loaded, which takes 0.3 s once
_TOPICS, _PARTITIONS = 10, 1_000
_SANDBOXES, _CONNECTIONS = 5, 5
_JSON: Final = "WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');"


def log_costs() -> dict[str, float]:
    """Per record or per transaction, each of them synced."""
    one, many = RowRecords(_records(1)), RowRecords(_records(_ROWS))
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder, open_log(folder) as log:
        for topic in ("single", "batches", "transactions"):
            log.create_topic(topic, 3)
        log.append("single", 1, one)
        log.append("batches", 1, RowRecords(_records(_UNTIL_COMPILED)))

        def append(topic: str, records: Any, times: int) -> None:
            for _ in range(times):
                log.append(topic, 0, records)

        def fetch() -> None:
            position = 0
            while position < _BATCHES * _ROWS:
                position = log.fetch("batches", 0, position).next_offset

        def transactions(times: int = _TRANSACTIONS) -> None:
            with_offsets = log.transactional_producer("bench")
            for number in range(times):
                with_offsets.begin()
                for partition in range(3):
                    with_offsets.append("transactions", partition, one)
                with_offsets.send_offsets("readers", {TopicPartition("single", 0): number})
                with_offsets.commit()

        transactions(1)  # what is loaded with the first one is no cost of each
        return {
            "append one record": _cpu(lambda: append("single", one, _SINGLE)) / _SINGLE,
            "append 1,000 records": _cpu(lambda: append("batches", many, _BATCHES)) / _BATCHES,
            "fetch 100,000 records": _cpu(fetch),
            "transaction over 3 partitions": _cpu(transactions) / _TRANSACTIONS,
        }


def opening_costs() -> dict[str, float]:
    """A log of 10,000 partitions with a record each, closed properly before."""
    one = RowRecords(_records(1))
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        with open_log(folder, sync="never") as log:
            for number in range(_TOPICS):
                log.create_topic(f"t{number}", _PARTITIONS)
                for partition in range(_PARTITIONS):
                    log.append(f"t{number}", partition, one)
        return {"opening 10,000 partitions": _cpu(lambda: open_log(folder).close())}


def engine_costs() -> dict[str, float]:
    """A connection and a Sandbox, each with a stream, a query and a row; the first of each is not counted."""

    def connection() -> None:
        with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder, millstream.connect(folder) as opened:
            opened.execute(f"CREATE STREAM s (k STRING KEY, v INT) {_JSON}")

    def sandbox() -> None:
        with Sandbox() as engine:
            engine.execute(f"CREATE STREAM s (k STRING KEY, v INT) {_JSON}")
            engine.execute("CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;")
            engine.execute("INSERT INTO s VALUES ('a', 1);")
            assert list(engine.query("SELECT * FROM t;"))

    return {
        "millstream.connect() and one stream": _repeated(connection, _CONNECTIONS),
        "a Sandbox test": _repeated(sandbox, _SANDBOXES),
    }


PARTS: Final[dict[str, Callable[[], dict[str, float]]]] = {
    "log": log_costs,
    "opening": opening_costs,
    "engine": engine_costs,
}


def _records(count: int) -> pa.Table:
    values = [b'{"price": %d, "text": "%s"}' % (number, b"x" * 80) for number in range(count)]
    return pa.table({"timestamp": list(range(count)), "key": [b"key"] * count, "value": values})


def _repeated(work: Callable[[], None], times: int) -> float:
    work()
    return min(_cpu(work) for _ in range(times))


def _cpu(work: Callable[[], None]) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF)
    work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    json.dump(PARTS[sys.argv[1]](), sys.stdout)
