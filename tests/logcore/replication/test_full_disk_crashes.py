"""A replica on a disk that is full now and then, when its process dies or the power goes, anywhere."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from millstream.logcore import failpoints
from millstream.logcore.replication.disk.disk_checkpoint import EARLIER
from millstream.logcore.storage.recovery import read_checkpoint

from .disk_log_workload import Workload, reaches
from .full_disk import FullDisk
from .power import Power, PowerCut


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


@pytest.fixture(autouse=True)
def _disarmed() -> Generator[None]:
    yield
    failpoints.arm("")


class Filling(Workload):
    """On a disk that is full now and then: then nothing is appended.

    State: `told_start`, where the log begins, as somebody was told.
    """

    def __init__(self, folder: Path, random: Random, disk: FullDisk) -> None:
        super().__init__(folder, random)
        self.disk = disk
        self.told_start = 0

    def step(self) -> None:
        self.disk.full = self.random.random() < 0.4
        if self.disk.full:
            self.random.choice([self.move_start, self.sync, self.truncate_to_checkpoint])()
        else:
            super().step()

    def truncate_to_checkpoint(self) -> None:
        """Where one of them ends, or just behind it. The process ends where there is no room to do so."""
        known = read_checkpoint(self.folder, EARLIER) or read_checkpoint(self.folder)
        if known is not None:
            at = next((at for at, each in enumerate(self.written) if each[0] >= known.state.end_offset), None)
            if at is not None and self.written[at][0] >= self.log.log_start_offset:
                self.durable = min(self.durable, at)
                try:
                    self.log.truncate(self.written[at][0])
                except OSError:
                    self.recover()
                else:
                    self.written, self.durable = self.written[:at], at

    def sync(self) -> None:
        super().sync()
        self.told_start = self.log.log_start_offset

    def recover(self) -> None:
        self.disk.full = self.random.random() < 0.2
        super().recover()
        assert self.log.log_start_offset >= self.told_start, "deleted records are back"


def filled_up_and(folder: Path, disk: FullDisk, name: str, seed: int) -> bool:
    return reaches(Filling(folder, Random(seed), disk), name, within=3)


@pytest.mark.usefixtures("fast_disk")
@pytest.mark.parametrize("name", ["start.marked", "replica.before_checkpoint", "retention.removed"])
def test_a_process_that_dies_on_a_disk_that_fills_up_loses_nothing(
    memory_folder: Path, disk: FullDisk, name: str
) -> None:
    hits = sum(filled_up_and(memory_folder / str(seed), disk, name, seed) for seed in range(12))
    assert hits > 3, f"{name} was hardly ever reached"


def test_a_power_cut_on_a_disk_that_fills_up_loses_nothing(
    memory_folder: Path, disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(20):
        random, root = Random(seed), memory_folder / str(seed)
        root.mkdir()
        with monkeypatch.context() as patch:
            power = Power(root, patch)
            workload = Filling(root / "log-0", random, disk)
            for _ in range(4):
                power.syncs_left = random.randint(1, 40)
                with suppress(PowerCut):
                    for _ in range(random.randint(5, 80)):
                        workload.step()
                power.syncs_left = -1
                power.cut(random)
                workload.recover()
