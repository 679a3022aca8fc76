"""Anything that a machine does to a log in files, at random, and what may be found of it when it is opened again."""

from __future__ import annotations

from pathlib import Path
from random import Random

from millstream.logcore import failpoints
from millstream.logcore.replication.disk.disk_log import DiskLog

from .replica_logs import Entry, entries, entry_of, open_disk_log, placed


class Workload:
    """State: the log, what was written to it, how much of that was told to be durable, and what is being cut.

    Invariant: what a new process finds are the first of `written`, at least `durable` of them; while the log is cut, at
    least those that stay.
    """

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder
        self.random = random
        self.written: list[Entry] = []
        self.durable = 0
        self.start_offset = 0
        self.restarting_at: int | None = None
        self.epoch = 1
        self.log = self._opened()

    def _opened(self) -> DiskLog:
        return open_disk_log(self.folder, segment_bytes=self.random.choice([1024, 2000, 100_000]))

    @property
    def end_offset(self) -> int:
        return self.written[-1][0] + 1 if self.written else self.start_offset

    def step(self) -> None:
        kind = self.random.random()
        if kind < 0.55:
            self.append()
        elif kind < 0.85:
            self.sync()
        elif kind < 0.93:
            self.truncate()
        elif kind < 0.96:
            self.move_start()
        elif kind < 0.98:
            self.restart()
        else:
            self.start_again()

    def append(self) -> None:
        batches = []
        self.epoch += self.random.random() < 0.2
        for _ in range(self.random.randint(1, 4)):
            offset = self.end_offset
            batches.append(placed(offset, self.epoch, self.random.choice([10, 200, 600])))
            self.written.append(entry_of(batches[-1]))
        self.log.append(batches)

    def sync(self) -> None:
        count = len(self.written)
        self.log.sync_all()
        self.durable = count

    def truncate(self) -> None:
        at = self.random.randint(max(0, len(self.written) - 12), len(self.written))
        offset = self.written[at][0] if at < len(self.written) else self.end_offset
        if offset < self.log.log_start_offset:
            return
        self.durable = min(self.durable, at)
        self.log.truncate(offset)
        self.written = self.written[:at]
        self.durable = at

    def move_start(self) -> None:
        """What lies before it may be there or not."""
        self.sync()
        stable = self.log.end_offset
        self.log.publish(stable, stable)
        self.log.move_start(self.random.randint(self.log.log_start_offset, stable))

    def restart(self) -> None:
        offset = self.end_offset + self.random.randint(1, 50)
        self.restarting_at = offset
        self.log.restart_at(offset)
        self.written, self.durable, self.start_offset, self.restarting_at = [], 0, offset, None

    def start_again(self) -> None:
        """After a close, or as a process that was killed: all that is found is durable then."""
        if self.random.random() < 0.5:
            self.log.close()
        self.log = self._opened()
        self.durable = len(self.written)
        self.check_content()

    # What is found

    def check_content(self) -> None:
        assert entries(self.log) == [entry for entry in self.written if entry[0] >= self.log.log_start_offset]

    def recover(self) -> None:
        """After a crash: the log is clean, and is what was durable, or more."""
        log = self.log = self._opened()
        assert log.clean and not log.damage
        if self.restarting_at is not None and log.log_start_offset == self.restarting_at:
            self.written, self.durable, self.start_offset = [], 0, self.restarting_at
        self.restarting_at = None
        found = entries(log)
        kept = [entry for entry in self.written if entry[0] < log.end_offset]
        assert found == [entry for entry in kept if entry[0] >= log.log_start_offset]
        assert len(kept) >= self.durable, f"{len(kept)} of {self.durable} durable batches are left"
        if self.written or self.durable:
            assert log.end_offset == (kept[-1][0] + 1 if kept else self.start_offset)
        self.written, self.durable = kept, len(kept)
        self.epoch = max(self.epoch, log.epochs.last)


def reaches(workload: Workload, name: str, *, within: int) -> bool:
    """Whether the failpoint ended one of three lives, at one of the first so many times that it was reached."""
    hit = False
    for _ in range(3):
        failpoints.arm(f"{name}:{workload.random.randint(1, within)}:raise")
        try:
            for _ in range(60):
                workload.step()
        except failpoints.FailpointHit:
            hit = True
        failpoints.arm("")
        workload.recover()
    return hit
