"""A replica's log after a killed process and after a power cut, anywhere: what was durable is there."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from millstream.logcore import failpoints
from tests.logcore.soak import count_of

from .disk_log_workload import Workload, reaches
from .power import Power, PowerCut

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
def _disarmed() -> object:
    yield
    failpoints.arm("")


@pytest.mark.usefixtures("fast_disk")
@pytest.mark.parametrize("name", FAILPOINTS)
def test_a_process_that_dies_anywhere_loses_nothing_that_was_durable(memory_folder: Path, name: str) -> None:
    hits = sum(killed_at(memory_folder / str(seed), name, seed) for seed in range(8))
    assert hits > 3, f"{name} was hardly ever reached"


def killed_at(folder: Path, name: str, seed: int) -> bool:
    return reaches(Workload(folder, Random(seed)), name, within=4)


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
