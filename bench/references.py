"""What Millstream is measured against, on the same data: DuckDB over NDJSON, and Spark's own groupBy(window)."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb

from .bids import PRICE_ABOVE, WINDOW_MS
from .measuring import Measured, median, timed

_READ: Final = """read_json('{path}', format = 'newline_delimited', columns = {{
auction: 'BIGINT', bidder: 'BIGINT', price: 'BIGINT', channel: 'VARCHAR', url: 'VARCHAR', ts: 'BIGINT'}})"""
_FILTER: Final = f"SELECT auction, bidder, price, channel FROM {_READ} WHERE price > {PRICE_ABOVE}"
_AGGREGATE: Final = f"""SELECT auction, ts // {WINDOW_MS} AS minute, count(*) AS bids, sum(price) AS total
FROM {_READ} GROUP BY auction, minute"""
_SCHEMA: Final = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, ts BIGINT"


def duckdb_rates(path: Path, rows: int, rounds: int) -> dict[str, Measured]:
    """Batch queries with the columns' types given, the result kept in memory; a first run is not counted."""
    rates: dict[str, Measured] = {}
    with duckdb.connect() as connection:
        for name, sql in (("filter", _FILTER), ("aggregate", _AGGREGATE)):
            text = sql.format(path=str(path).replace("'", "''"))
            rates[name] = _repeated(rows, rounds, lambda text=text: connection.sql(text).to_arrow_table())
    return rates


def spark_rates(session: Any, path: Path, rows: int, rounds: int) -> dict[str, Measured]:
    """groupBy(window) as a batch and as Structured Streaming in update mode; results go nowhere.

    Of the latter only the time of its micro-batches counts: the query under comparison is running already.
    """
    batch = _repeated(rows, rounds, lambda: _spark_batch(session, path), children=True)
    _spark_streaming(session, path)
    streaming = [Measured(rows, _spark_streaming(session, path), None) for _ in range(rounds)]
    return {"batch": batch, "streaming": median(streaming)}


def _repeated(rows: int, rounds: int, work: Callable[[], object], *, children: bool = False) -> Measured:
    work()
    runs: Sequence[Measured] = [timed(rows, work, children=children) for _ in range(rounds)]
    return median(runs)


def _grouped(read: Any, path: Path) -> Any:
    functions = importlib.import_module("pyspark.sql.functions")
    minute = functions.window(functions.timestamp_millis("ts"), f"{WINDOW_MS // 1000} seconds")
    frame = read.schema(_SCHEMA).json(str(path))
    return frame.groupBy(minute, "auction").agg(functions.count("*"), functions.sum("price"))


def _spark_batch(session: Any, path: Path) -> None:
    _with_few_partitions(session)
    _grouped(session.read, path).write.format("noop").mode("overwrite").save()


def _spark_streaming(session: Any, path: Path) -> float:
    """The seconds that the micro-batches took, planning and checkpoints included."""
    _with_few_partitions(session)
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as checkpoint:
        writer = _grouped(session.readStream, path.parent).writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress) / 1000


def _with_few_partitions(session: Any) -> None:
    """As many as cores: Spark's default of 200 is for clusters."""
    session.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
