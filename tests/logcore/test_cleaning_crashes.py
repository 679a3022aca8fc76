"""A process that is killed while it compacts or drops segments: the log means the same after it was started again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from millstream.logcore.log import open_log

from . import killable
from .cleaning_workload import KEYS
from .log_records import records_of

pytestmark = pytest.mark.usefixtures("only_processes_die")
COUNT = 120
WORKLOAD = Path(__file__).with_name("cleaning_workload.py")
POINTS = (
    "clean.written",
    "clean.before_swap",
    "clean.swapping",
    "clean.replaced",
    "clean.removed",
    "clean.swapped",
    "retention.removed",
)


def run(folder: Path, failpoint: str = "") -> tuple[int, int]:
    """The exit code, and how many numbers are durable."""
    started = killable.start(WORKLOAD, [str(folder), str(COUNT)], folder.with_name("printed"), failpoint)
    code = started.wait()
    assert code in (0, -signal.SIGKILL), started.errors()
    numbers = [int(line) for line in started.printed().splitlines() if line.isdecimal()]
    return code, numbers[-1] + 1 if numbers else 0


def check(folder: Path, durable: int) -> None:
    with open_log(folder) as log:
        end = log.offsets("compacted", 0).log_end_offset
        assert durable <= end <= durable + 1
        last = {number % KEYS: number for number in range(end) if number % 7 != 3}
        deleted = {number % KEYS: number for number in range(end) if number % 7 == 3}
        found = dict(records_of(log, "compacted"))
        assert all(value == (None if offset % 7 == 3 else b"%0100d" % offset) for offset, value in found.items())
        for key, number in last.items():
            assert number in found or deleted.get(key, -1) > number
        start = log.offsets("short", 0).log_start_offset
        short = records_of(log, "short", 0, start)
        assert [offset for offset, _ in short] == list(range(start, log.offsets("short", 0).log_end_offset))
        assert not log.problems()
    assert not list(folder.rglob("*.cleaned"))
    assert not list(folder.rglob("swap.json"))


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_while_segments_are_replaced_or_dropped_changes_nothing(
    memory_folder: Path, point: str, nth: int
) -> None:
    code, durable = run(memory_folder / "log", f"{point}:{nth}:kill9")
    assert code == -signal.SIGKILL, "the failpoint was not hit"
    check(memory_folder / "log", durable)
    assert run(memory_folder / "log") == (0, COUNT)
    check(memory_folder / "log", COUNT)


@pytest.mark.parametrize("second", ["clean.replaced:1", "clean.removed:1"])
def test_a_second_kill_while_a_swap_is_finished_changes_nothing(memory_folder: Path, second: str) -> None:
    _, durable = run(memory_folder / "log", "clean.swapping:2:kill9")
    assert run(memory_folder / "log", f"{second}:kill9")[0] == -signal.SIGKILL
    check(memory_folder / "log", durable)
