"""A replica's log after a killed process and after a power cut, anywhere: what was durable is there."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from random import Random

import pytest

from millstream.logcore import failpoints
from tests.logcore.soak import count_of

from .disk_log_workload import Workload, reaches
from .power import Power, PowerCut
from .replica_logs import entries, open_disk_log, placed

FAILPOINTS = (
    "append.write",
    "segment.roll",
    "replica.before_sync",
    "replica.before_checkpoint",
    "replica.after_sync",
    "replica.before_truncate",
    "replica.truncating",
    "replica.truncated",
    "replica.before_restart",
    "replica.restarting",
    "replica.restart_removed",
    "retention.removed",
)


@pytest.fixture(autouse=True)
def _disarmed() -> Generator[None]:
    yield
    failpoints.arm("")


def test_a_log_that_nothing_was_written_to_waits_for_no_disk(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sync makes its names durable, with the record: file, folder, the folder above, and the checkpoint."""
    power = Power(memory_folder, monkeypatch)
    log = open_disk_log(memory_folder / "log")
    assert power.syncs == 0
    log.append([placed(0, 1)])
    log.sync_all()
    assert power.syncs == 5
    log.append([placed(1, 1)])
    log.sync_all()
    assert power.syncs == 6
    power.become(power.possible(Random(1)))
    assert len(entries(open_disk_log(memory_folder / "log"))) == 2


@pytest.mark.usefixtures("fast_disk")
@pytest.mark.parametrize("name", FAILPOINTS)
def test_a_process_that_dies_anywhere_loses_nothing_that_was_durable(memory_folder: Path, name: str) -> None:
    hits = sum(killed_at(memory_folder / str(seed), name, seed) for seed in range(8))
    assert hits > 3, f"{name} was hardly ever reached"


def killed_at(folder: Path, name: str, seed: int) -> bool:
    return reaches(Workload(folder, Random(seed)), name, within=4)


@pytest.mark.usefixtures("fast_disk")
@pytest.mark.parametrize("name", FAILPOINTS[5:11])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("start", [2, 5, 10])
def test_a_cut_inside_a_batch_that_does_not_end_leaves_a_log_that_is_whole(
    memory_folder: Path, name: str, nth: int, start: int
) -> None:
    folder = memory_folder / "log"
    log = open_disk_log(folder, segment_bytes=600)
    for _ in range(5):
        log.append([placed(log.end_offset, 3, 200, rows=3)])
    log.publish(15, 15)
    log.move_start(start)
    log.sync_all()
    before = entries(log)
    failpoints.arm(f"{name}:{nth}:raise")
    with contextlib.suppress(failpoints.FailpointHit):
        log.truncate(start)
        log.restart_at(start - 1)  # a batch around the start comes
    failpoints.arm("")
    log = open_disk_log(folder)
    assert log.clean and not log.damage
    found = entries(log)
    assert found == before[: len(found)]
    assert log.log_start_offset in (start, start - 1, start // 3 * 3)
    assert log.end_offset == (found[-1][0] + 3 if found else log.log_start_offset)


def test_after_a_power_cut_what_was_durable_is_there(memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(25):
        cut_power_often(memory_folder / str(seed), seed, monkeypatch)


@pytest.mark.soak
def test_after_many_power_cuts_what_was_durable_is_there(memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(1000, 1000 + count_of("POWER_CUTS", 3000)):
        cut_power_often(memory_folder / str(seed), seed, monkeypatch)


def cut_power_often(root: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    root.mkdir()
    with monkeypatch.context() as patch:
        power = Power(root, patch)
        workload = Workload(root / "log-0", random)
        for _ in range(4):
            power.syncs_left = random.randint(1, 40)
            try:
                for _ in range(random.randint(5, 80)):
                    workload.step()
            except PowerCut:
                pass
            power.syncs_left = -1
            power.cut(random)
            workload.recover()
