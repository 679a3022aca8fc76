"""The logs of a simulated broker, all on the disk of its node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from millstream.logcore.replication.machine_messages import Change
from millstream.logcore.replication.replica.replica_core import SyncLog
from millstream.logcore.replication.replica.replica_messages import PartitionId

from .disk import SimDisk
from .replica_log import LOST, SimReplicaLog

_PREFIX: Final = "replica-"
_BESIDE: Final = (".point", LOST)
_INCARNATION: Final = "incarnation"

Synced = Callable[[PartitionId, int], None]


class WatchedLog(SimReplicaLog):
    """A log that says what of it is safe: for the checks, which know more than any node."""

    def __init__(
        self, disk: SimDisk, name: str, partition: PartitionId, safe: Synced, counters: Counter[str] | None = None
    ) -> None:
        self._counters = counters if counters is not None else Counter[str]()
        self._safe_up_to = lambda offset: safe(partition, offset)
        super().__init__(disk, name)
        self._safe_up_to(self.end_offset)

    def truncate(self, offset: int) -> None:
        self._counters["truncations"] += 1
        super().truncate(offset)

    def restart_at(self, offset: int) -> None:
        self._counters["began behind a deletion"] += offset > self.end_offset
        self._counters["began inside a batch"] += offset < self.end_offset
        super().restart_at(offset)

    def sync(self) -> None:
        super().sync()
        self._safe_up_to(self.end_offset)


class SimReplicaLogs:
    """`ReplicaLogs` and the `Storage` of a broker. Made at each start of the process: recovery."""

    opens_late = False  # they are clean or not from the start, so a world may have it either way

    def __init__(self, disk: SimDisk, safe: Synced, counters: Counter[str]) -> None:
        self._disk = disk
        self._counters = counters
        self._safe = safe
        self.incarnation = self._count_start()
        self._open = {partition: self._opened(partition) for partition in self.stored()}
        self._dirty: dict[PartitionId, None] = {}
        self.clean = all(log.clean for log in self._open.values())
        self.failed = False  # a machine hears of each sync that fails

    def registered(self) -> None:
        with suppress(OSError):  # it is said once more
            for log in self._open.values():
                log.loss_is_known()

    def configure(self, topic: str, name: str, config: Mapping[str, str]) -> None:
        """Nothing here depends on it."""

    def open(self, partition: PartitionId) -> SimReplicaLog:
        if partition not in self._open:
            self._open[partition] = self._opened(partition)
        return self._open[partition]

    def remove(self, partition: PartitionId) -> None:
        self._open.pop(partition, None)
        self._dirty.pop(partition, None)
        beside = (_name(partition) + suffix for suffix in _BESIDE)
        for name in (
            *beside,
            _name(partition),
        ):  # what is left after a crash says nothing about the next log of this name
            if self._disk.get(name) is not None:
                self._disk.remove(name)

    def stored(self) -> Iterable[PartitionId]:
        return stored_on(self._disk)

    def apply(self, change: Change) -> None:
        assert isinstance(change, SyncLog)
        self._dirty[change.partition] = None

    def sync(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for partition in dirty:
            self._open[partition].sync()

    def _opened(self, partition: PartitionId) -> WatchedLog:
        return WatchedLog(self._disk, _name(partition), partition, self._safe, self._counters)

    def _count_start(self) -> int:
        file = self._disk.get(_INCARNATION)
        incarnation = 1 + (int(file.read()) if file is not None else 0)
        new = self._disk.create(_INCARNATION + ".new")
        new.append(str(incarnation).encode())
        new.sync()
        self._disk.rename(_INCARNATION + ".new", _INCARNATION)
        self._disk.sync_folder()
        return incarnation


def stored_on(disk: SimDisk) -> list[PartitionId]:
    """The partitions that have a log on this disk."""
    names = [name for name in disk.names() if name.startswith(_PREFIX) and not name.endswith(_BESIDE)]
    found: list[PartitionId] = []
    for name in names:
        topic, _, number = name.removeprefix(_PREFIX).rpartition("-")
        found.append(PartitionId(topic, int(number)))
    return found


def _name(partition: PartitionId) -> str:
    return f"{_PREFIX}{partition.topic}-{partition.number}"
