"""The log of one node after a power cut, anywhere: what was acknowledged is there, and nothing is there in part.

Each way to write is there: appends, transactions over several segments, committed offsets, deleted records, compaction,
new topics. Without the sync of a file or of a folder, one of these tests fails.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from waiting import eventually

from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log, open_log

from .log_model import LogModel
from .log_records import rows, values_of
from .replication.power import Disk, Power, lay_out
from .soak import count_of

SOURCE = TopicPartition("src", 0)
PER_TRANSACTION = 4  # of 300 bytes each: in segments of 1024 bytes nearly each transaction has parts in two


class PoweredModel(LogModel):
    """A log that waits for its disk, and whose machine stops instead of its process."""

    def __init__(self, folder: Path, seed: int, power: Power) -> None:
        self._power = power
        super().__init__(folder, seed)

    def _opened(self, path: Path) -> Log:
        self.durable = True
        return super()._opened(path)

    def crash(self) -> None:
        acknowledged = [self.log.offsets("t", part.number).high_watermark for part in self.parts]
        disk = self._power.possible(self.random)
        self.log.close()
        self._power.become(disk)
        self._sequenced.clear()  # the last batches of an open transaction may be gone, or not
        self._come_back(self._folder / "0")
        for part, end_offset in zip(self.parts, acknowledged, strict=True):
            assert self.log.offsets("t", part.number).log_end_offset >= end_offset, "what was acknowledged is lost"
            for offset in [offset for offset in part.records if offset >= end_offset]:
                assert part.records.pop(offset).aborted
                part.times_known = False
        assert not losses(self.log)


def losses(log: Log) -> list[str]:
    """What the log complains of; that it cut off and kept what nobody was told of is no loss."""
    return [problem for problem in log.problems() if "dropped-from" not in problem]


def test_what_was_acknowledged_outlasts_a_power_cut(memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (0, 1, 16, 58):
        cut_between_steps(memory_folder / str(seed), seed, monkeypatch)


def test_a_transaction_is_there_as_a_whole_whenever_the_power_goes(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power goes before and after syncs, also those inside of a commit, and while the log is opened again."""
    for seed in range(2):
        cut_around_syncs(memory_folder / str(seed), seed, monkeypatch)


@pytest.mark.soak
def test_many_power_cuts_take_nothing_that_was_acknowledged(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(1000, 1000 + count_of("LOG_POWER_CUTS", 300)):
        cut_between_steps(memory_folder / f"steps-{seed}", seed, monkeypatch)
        cut_around_syncs(memory_folder / f"syncs-{seed}", seed, monkeypatch)


def cut_between_steps(root: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir()
    with monkeypatch.context() as patch:
        model = PoweredModel(root, seed, Power(root, patch))
        try:
            for _ in range(6):
                for _ in range(10):
                    model.step()
                    model.check()
                model.crash()
                model.check_all()
        finally:
            model.close()
    shutil.rmtree(root)


def cut_around_syncs(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each life begins with what one of the disks of the life before had."""
    random = Random(seed)
    root = folder
    root.mkdir()
    count = 0
    for life in range(3):
        found = disks_of_a_life(root, count, random, monkeypatch)
        assert found
        for number, (disk, acknowledged) in enumerate(found):
            root = folder / f"{life}-{number}"
            root.mkdir()
            lay_out(disk, root)
            with monkeypatch.context() as patch:
                patch.setattr("os.sync", lambda: None)
                count = check(root, acknowledged)
    shutil.rmtree(folder)


def disks_of_a_life(
    root: Path, acknowledged: int, random: Random, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Disk, int]]:
    """Opens the log and writes to it; gives what its disk may have at some moments, and how many transactions were
    acknowledged then."""
    found: list[tuple[Disk, int]] = []

    def now_and_then() -> None:
        if random.random() < 0.05:
            found.append((power.possible(random), acknowledged))

    with monkeypatch.context() as patch:
        power = Power(root, patch)
        power.around_syncs = now_and_then
        with open_log(root / "log") as log:
            for topic, partitions in (("src", 1), ("out", 2)):
                if topic not in log.topics():
                    log.create_topic(topic, partitions, {"segment.bytes": "1024"})
            assert acknowledged == log.committed_offsets("query").get(SOURCE, 0)
            producer = log.transactional_producer("query")
            for _ in range(6):
                number = acknowledged
                producer.begin()
                for partition in (0, 1) * PER_TRANSACTION:
                    producer.append("out", partition, rows(b"%0300d" % number))
                producer.send_offsets("query", {SOURCE: number + 1})
                if random.random() < 0.2:
                    producer.abort()
                    continue
                producer.commit()
                acknowledged = number + 1
        power.close()
    return found


def is_stable(log: Log, topic: str, partition: int) -> bool:
    offsets = log.offsets(topic, partition)
    return offsets.last_stable_offset == offsets.high_watermark


def check(root: Path, acknowledged: int) -> int:
    """How many transactions are there: those that were acknowledged, and maybe one more, each as a whole."""
    if not (root / "log").is_dir():
        assert acknowledged == 0
        return 0
    with open_log(root / "log") as log:
        if "out" not in log.topics():
            assert acknowledged == 0
            return 0
        count = log.committed_offsets("query").get(SOURCE, 0)
        assert count in (acknowledged, acknowledged + 1)
        log.transactional_producer("query")  # what it had open is aborted
        for partition in range(2):
            eventually(lambda partition=partition: is_stable(log, "out", partition))
            expected = [b"%0300d" % number for number in range(count) for _ in range(PER_TRANSACTION)]
            assert values_of(log, "out", partition) == expected
        assert not losses(log)
        return count
