"""Processes that are killed at every step of the protocol: nothing is lost, nothing happens twice.

C1 to C8 are the crash points of the exactly-once protocol. A process runs two queries, dies at the failpoint, and is
started again; then the topics are compared with a model. Per-record changes are on, so that every record counts.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import crash_workload
import pytest
from drawn import sampled
from forked import forking

START_S = 60

POINTS = (
    "query.fenced",  # C1
    "query.processed",  # C3
    "query.appended",  # C4, between the appends of a transaction
    "txn.data_written",  # C4, inside the log
    "txn.before_prepare",
    "txn.after_prepare",  # C5
    "txn.marker",  # C6
    "txn.committed",  # C7
    "query.before_store_commit",  # C8
    "query.store_commit",
    "query.store_committed",
)
ONCE = POINTS[-2:]  # in this run, unless the state file is to commit after each batch

Run = Callable[..., int]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the input, to be copied."""
    directory = tmp_path_factory.mktemp("prepared")
    crash_workload.prepare(directory)
    return directory


@pytest.fixture(scope="module")
def run_process() -> Run:
    """Runs the workload in a process of its own and returns its exit code."""

    def run(directory: Path, failpoints: str = "", *, together: bool = False) -> int:
        process = forking().Process(target=crash_workload.run_and_exit, args=(str(directory), failpoints, together))
        process.start()
        process.join(START_S)
        assert process.exitcode is not None, "the process hangs"
        return process.exitcode

    return run


@pytest.fixture
def directory(prepared: Path, tmp_path: Path) -> Path:
    copied = tmp_path / "crash"
    shutil.copytree(prepared, copied)
    return copied


@pytest.mark.parametrize(
    ("point", "nth"), [(point, nth) for point in POINTS for nth in (1, 2) if nth == 1 or point not in ONCE]
)
def test_a_kill_loses_and_repeats_nothing(point: str, nth: int, directory: Path, run_process: Run) -> None:
    assert run_process(directory, f"{point}:{nth}:kill9") == -signal.SIGKILL, f"{point} was not hit {nth} times"
    assert run_process(directory, "") == 0
    assert crash_workload.differences(directory) == []


@pytest.mark.parametrize("point", sampled(POINTS, 2))
def test_a_kill_while_several_batches_are_under_way_loses_and_repeats_nothing(
    point: str, directory: Path, run_process: Run
) -> None:
    killed = run_process(directory, f"{point}:{2 if point == 'query.fenced' else 4}:kill9", together=True)
    assert killed == -signal.SIGKILL
    assert run_process(directory, together=True) == 0
    assert crash_workload.differences(directory) == []


@pytest.mark.parametrize("nth", [1, 2])
def test_a_kill_while_the_changelog_is_replayed_does_no_harm(nth: int, directory: Path, run_process: Run) -> None:  # C2
    assert run_process(directory, "query.before_store_commit:5:kill9") == -signal.SIGKILL
    shutil.rmtree(directory / "state")
    assert run_process(directory, f"query.replaying:{nth}:kill9") == -signal.SIGKILL
    assert run_process(directory, "") == 0
    assert crash_workload.differences(directory) == []


@pytest.mark.parametrize("damage", ["garbage", "torn", "torn wal", "deleted"])
def test_a_broken_state_file_is_rebuilt_from_the_changelog(damage: str, directory: Path, run_process: Run) -> None:
    assert run_process(directory, "query.before_store_commit:7:kill9") == -signal.SIGKILL
    files = list((directory / "state").rglob("*.duckdb"))
    assert files
    for file in files:
        _damage(file, damage)
    assert run_process(directory, "") == 0
    assert crash_workload.differences(directory) == []


def _damage(file: Path, damage: str) -> None:
    wal = file.with_name(file.name + ".wal")
    match damage:
        case "garbage":
            file.write_bytes(random.Random(7).randbytes(50_000))
        case "torn":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        case "torn wal":
            if wal.exists():
                wal.write_bytes(wal.read_bytes()[: wal.stat().st_size * 2 // 3])
        case _:
            shutil.rmtree(file.parent)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_chains_of_eight_kills_lose_and_repeat_nothing(seed: int, directory: Path, run_process: Run) -> None:
    draw = random.Random(seed)
    for _ in range(8):
        point = draw.choice((*POINTS, "query.replaying"))
        assert run_process(directory, f"{point}:{draw.randint(1, 6)}:kill9") in (0, -signal.SIGKILL)
    assert run_process(directory, "") == 0
    assert crash_workload.differences(directory) == []
