"""A process that is killed at each failpoint: every number is there exactly once after it was started again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from millstream.logcore.log import open_log

from . import killable
from .crash_workload import SOURCE
from .log_records import values_of

pytestmark = pytest.mark.usefixtures("only_processes_die")
COUNT = 12
WORKLOAD = Path(__file__).with_name("crash_workload.py")
POINTS = (
    "txn.begin",
    "txn.data_written",
    "txn.before_prepare",
    "txn.after_prepare",
    "txn.marker",
    "txn.committed",
    "append.write",
    "replica.before_sync",
    "replica.after_sync",
    "segment.roll",
)


def run(folder: Path, failpoint: str = "") -> tuple[int, list[int]]:
    """The exit code, and the numbers whose commit returned."""
    started = killable.start(WORKLOAD, [str(folder), str(COUNT)], folder.with_name("printed"), failpoint)
    code = started.wait()
    assert code in (0, -signal.SIGKILL), started.errors()
    return code, [int(line) for line in started.printed().split()]


def committed_numbers(folder: Path) -> int:
    """Asserts that the log is consistent and says how many numbers are committed."""
    with open_log(folder) as log:
        if "out" not in log.topics():
            return 0
        log.transactional_producer("query")  # what was open is aborted, what was decided is ended
        count = log.committed_offsets("query").get(SOURCE, 0)
        for partition in range(2):
            assert values_of(log, "out", partition) == [b"%0300d" % number for number in range(count)]
            offsets = log.offsets("out", partition)
            assert offsets.last_stable_offset == offsets.high_watermark
        return count


@pytest.mark.parametrize("nth", [1, 5])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_loses_and_repeats_nothing(memory_folder: Path, point: str, nth: int) -> None:
    code, acknowledged = run(memory_folder / "log", f"{point}:{nth}:kill9")
    assert code == -signal.SIGKILL, "the failpoint was not hit"
    assert committed_numbers(memory_folder / "log") in (len(acknowledged), len(acknowledged) + 1)
    assert run(memory_folder / "log")[0] == 0
    assert committed_numbers(memory_folder / "log") == COUNT


@pytest.mark.parametrize("second", ["txn.marker:1", "append.write:1", "replica.after_sync:2"])
def test_a_second_kill_during_recovery_changes_nothing(memory_folder: Path, second: str) -> None:
    _, acknowledged = run(memory_folder / "log", "txn.after_prepare:5:kill9")
    assert acknowledged == [0, 1, 2, 3]
    assert run(memory_folder / "log", f"{second}:kill9")[0] == -signal.SIGKILL
    assert committed_numbers(memory_folder / "log") >= 5
    assert run(memory_folder / "log")[0] == 0
    assert committed_numbers(memory_folder / "log") == COUNT
