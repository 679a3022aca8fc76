"""Kills of the process with log and driver at every stage of a batch on Spark: nothing is lost, nothing happens twice.

What buckets and alignment do without Spark is in `tests/executor/spark/test_stages.py`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import backfill_workload
import pytest
import spark_crash_workload
from forked import forking

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # Spark starts up to four times

START_S = 280
KILLS = (
    # A run begins with a transaction per bucket, of which there are 3; a batch has one per bucket, then the offsets'.
    "txn.committed:5:kill9",  # two buckets have committed the batch, the third has not
    "txn.after_prepare:8:kill9",  # a bucket was finished while the run began; all of the next batch is done
)
FIRST = "txn.before_prepare:4:kill9"  # the first bucket's transaction is open; each start takes half a minute


@pytest.mark.parametrize("kills", [KILLS[:1], pytest.param((FIRST, *KILLS), marks=pytest.mark.soak)])
def test_a_chain_of_kills_loses_and_repeats_nothing(tmp_path: Path, kills: tuple[str, ...]) -> None:
    spark_crash_workload.prepare(tmp_path)
    for failpoints in kills:
        assert _run(tmp_path, failpoints) == -signal.SIGKILL, f"{failpoints} was not hit"
    assert _run(tmp_path) == 0
    assert spark_crash_workload.differences(tmp_path) == []


@pytest.mark.soak
def test_history_that_spark_reads_counts_once_though_the_process_is_killed_in_it(tmp_path: Path) -> None:
    """A query with BACKFILL moves to DuckDB when it has read it; `test_backfill_kills.py` has more moments."""
    backfill_workload.prepare(tmp_path)
    assert _run(tmp_path, "txn.committed:8:kill9", backfill_workload.run_on_pyspark) == -signal.SIGKILL
    assert _run(tmp_path, target=backfill_workload.run_on_pyspark) == 0
    backfill_workload.check(tmp_path)


def _run(
    directory: Path, failpoints: str = "", target: Callable[..., None] = spark_crash_workload.run_and_exit
) -> int | None:
    process = forking().Process(target=target, args=(str(directory), failpoints))
    process.start()
    process.join(START_S)
    if process.exitcode is None:
        process.kill()
    time.sleep(1)  # Spark's processes notice that their driver is gone
    return process.exitcode
