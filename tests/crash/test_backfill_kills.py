"""Kills of the process while a query reads its history on Spark, and at every moment of its move to DuckDB."""

from __future__ import annotations

import signal
from pathlib import Path

import backfill_workload
import pytest
from forked import forking

KILLS = (
    "txn.after_prepare:3:kill9",  # a bucket's first batch is decided, and no marker of it is written
    "txn.committed:9:kill9",  # some buckets have done a batch that others have not
    "backfill.stopped:1:kill9",  # nobody runs it
    "spark.aligning:1:kill9",  # in the start that follows, which is one on DuckDB
    "query.before_store_commit:1:kill9",  # the first batch on DuckDB is in the log, and not in the state file
)


@pytest.mark.parametrize("kills", [KILLS, *[pytest.param((each,), marks=pytest.mark.soak) for each in KILLS[:3]]])
def test_history_counts_once_however_often_the_process_is_killed(tmp_path: Path, kills: tuple[str, ...]) -> None:
    backfill_workload.prepare(tmp_path)
    for failpoint in kills:
        assert _run(tmp_path, failpoint) == -signal.SIGKILL, f"{failpoint} was not hit"
    assert _run(tmp_path) == 0
    backfill_workload.check(tmp_path)


def _run(directory: Path, failpoint: str = "") -> int | None:
    process = forking().Process(target=backfill_workload.run_and_exit, args=(str(directory), failpoint))
    process.start()
    process.join(280)
    if process.exitcode is None:
        process.kill()
        process.join()
    return process.exitcode
