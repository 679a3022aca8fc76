"""The logs of a node's replicas on its disk, one folder per partition: how they are opened, synced and closed."""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import structlog

from millstream.errors import LogError

from ...cores.expiry import DEFAULT, ExpiryTimes
from ...errors import CorruptLog, unusable_directory
from ...storage.disk import sync_folder
from ...storage.housekeeping import Housekeeper, HousekeepingTarget, Kept
from ...storage.open_files import OpenFiles
from ...storage.partition_files import PartitionContext
from ...topic_settings import TopicSettings, settings_of
from ..machine_messages import Change
from ..node.node_directory import NodeDirectory
from ..replica.replica_core import SyncLog
from ..replica.replica_messages import PartitionId
from .begun_logs import BegunLogs
from .disk_log import DiskLog
from .disk_recovery import begin_log
from .disk_room import DiskRoom

_DELETED: Final = "-delete"
_LOST: Final = "records-lost"
_RESTORE: Final = "Restore it from a backup, or delete the topic."
_THREADS: Final = 8
_log = structlog.get_logger("millstream.logcore")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class _Configured(NamedTuple):
    name: str
    settings: TopicSettings


class DiskLogs:
    """`ReplicaLogs`, and the `Storage` of a broker machine.

    State: the open logs. All are opened at the start, so that the node can report whether they are `clean`. If they
    were not, a file records that until the controller knows (`registered`). A node that is alone (`opens_late`) opens
    each log when it is requested: no other node has lost records, so the log continues after them and reports the loss.

    The node's thread calls the methods for machines, its storage thread `apply` and `sync`; any thread may get a log.
    """

    def __init__(
        self,
        path: Path,
        node: int,
        cluster: str,
        *,
        opens_late: bool = False,
        others: bool = False,
        on_advance: Callable[[PartitionId], None] = lambda partition: None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        expiry: ExpiryTimes = DEFAULT,
        durable: bool = True,
    ) -> None:
        """In: `path`: the node's data directory, created if missing; `opens_late`: the node is alone, so each log is
        opened when it is requested; `others`: there are other nodes; `on_advance`: called in the node's thread whenever
        readers of a log see more; `now_ms`: the time of day; `durable`: whether a sync waits for the disk. Raises
        `LogError`."""
        self._directory = NodeDirectory(path, node, cluster, alone=opens_late, others=others, durable=durable)
        self.disk, self.incarnation = self._directory.disk, self._directory.incarnation
        self._folder = path / "replicas"
        self.opens_late = opens_late
        self.wake: Callable[[PartitionId], object] = lambda partition: None
        """Makes the node open a resting log, for housekeeping."""
        self._stored: dict[PartitionId, None] = {}
        self.room = DiskRoom(alone=opens_late)
        self._open: dict[PartitionId, DiskLog] = {}
        self._unreadable: dict[PartitionId, str] = {}
        self._configured: dict[str, _Configured] = {}
        self._dirty: dict[PartitionId, None] = {}
        self._noting = threading.Lock()  # of `_begun`
        self._closed = False
        self.failed = False
        self.cuts = 0
        """How often records were removed from a log because another node leads it."""
        self._on_advance = on_advance
        self._context = PartitionContext(
            OpenFiles(),
            now_ms,
            lambda: None,
            durable=durable,
            on_failure=self._note_failure,
            on_cut=self._note_cut,
        )
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="millstream-replicas")
        try:
            self._folder.mkdir(exist_ok=True)
            if durable:
                sync_folder(path)
            self._begun = BegunLogs(self._folder, durable=durable)
            self._list()
            self._recover()
        except OSError as error:
            self._directory.close()
            raise unusable_directory(error, path) from error
        self._housekeeper = Housekeeper(self._targets, now_ms, lambda: None, producer_expiry_ms=expiry.producer_ids_ms)

    def _note_failure(self) -> None:
        """Called on any thread, because housekeeping syncs, too."""
        self.failed = True

    def _note_cut(self) -> None:
        self.cuts += 1

    def _targets(self) -> list[HousekeepingTarget]:
        logs = self._open
        resting = [each for each in list(self._stored) if each not in logs and each not in self._unreadable]
        return [
            *(HousekeepingTarget(log.name, lambda log=log: log) for log in list(logs.values())),
            *(HousekeepingTarget(self._path(each).name, partial(self._woken, each)) for each in resting),
        ]

    def _woken(self, partition: PartitionId) -> DiskLog | None:
        self.wake(partition)
        return self._open.get(partition)

    def _list(self) -> None:
        """Lists the existing folders, and removes those that were set aside for deletion."""
        for found in list(os.scandir(self._folder)):
            topic, _, number = found.name.rpartition("-")
            if found.name.endswith(_DELETED):
                shutil.rmtree(found.path, ignore_errors=True)
            elif topic and number.isdecimal() and found.is_dir():
                self._stored[PartitionId(topic, int(number))] = None

    def _recover(self) -> None:
        for partition, log in self._for_each([] if self.opens_late else sorted(self._stored), self._opened_or_why):
            if isinstance(log, DiskLog):
                self._open[partition] = log
            else:
                self._unreadable[partition] = log
                _log.error("a replica's log cannot be opened", partition=partition, error=log)
        lossy = [log for log in self._open.values() if not log.clean]
        self.clean = not lossy and not self._unreadable and not self._lost.exists()
        if not self.clean:
            self._lost.touch()
            sync_folder(self._folder)
            for log in lossy:
                log.note_loss()

    def _for_each(self, items: Sequence[_Item], work: Callable[[_Item], _Result]) -> list[tuple[_Item, _Result]]:
        """Works on several items at once. Each thread gets its share as a whole: handing over one log costs as much as
        opening it. The calling thread takes a share, too: a small engine has two or three logs, and starting a
        thread is most of the cost of closing them."""

        def share_done(share: Sequence[_Item]) -> list[tuple[_Item, _Result]]:
            return [(item, work(item)) for item in share]

        own, *others = [items[first::_THREADS] for first in range(min(len(items), _THREADS))] or [items]
        try:
            handed_over = self._pool.map(share_done, others)
        except RuntimeError:  # the interpreter is ending: it stops pools before it runs `atexit` callbacks
            return share_done(items)
        done = share_done(own)
        return [*done, *(pair for share in handed_over for pair in share)]

    def _opened_or_why(self, partition: PartitionId) -> DiskLog | str:
        try:
            return self._opened(partition)
        except (OSError, LogError) as error:
            return str(error)

    # For machines

    def registered(self) -> None:
        """The controller now knows whether the logs are clean; the next start need not report that again."""
        if self._lost.exists() and not self._unreadable:
            with suppress(OSError):  # reporting it once more is harmless
                self._lost.unlink()
                sync_folder(self._folder)

    def stored(self) -> Iterable[PartitionId]:
        return list(self._stored)

    def configure(self, topic: str, name: str, config: Mapping[str, str]) -> None:
        """Sets the settings of a topic, for its open logs and those opened later. In: the topic's id and name."""
        configured = _Configured(name, settings_of(config))
        if configured == self._configured.get(topic):
            return
        self._configured[topic] = configured
        for partition, log in self._open.items():
            if partition.topic == topic:
                log.name = _name_of(partition, name)
                log.configure(configured.settings)

    def open(self, partition: PartitionId) -> DiskLog:
        """The log of the partition; a new, empty one if there is none. Raises OSError, `LogError`."""
        if partition not in self._open:
            if self.opens_late:
                self._open[partition] = self._opened_late(partition)
            else:
                self._open[partition] = self._opened_or_begun(partition)
            self._unreadable.pop(partition, None)
        return self._open[partition]

    def _opened_late(self, partition: PartitionId) -> DiskLog:
        """Only this node has the log: lost records are lost for good, and the loss is recorded before anything is
        written after them."""
        try:
            if partition in self._begun and not self._path(partition).exists():
                raise CorruptLog(f"{self._path(partition)} is missing")
            log = self._opened_or_begun(partition)
            if not log.clean:
                log.note_loss()
        except LogError as error:
            self._unreadable[partition] = f"{self._name(partition)} cannot be opened: {error.message}"
            raise CorruptLog(self._unreadable[partition], hint=_RESTORE) from error
        return log

    def _opened_or_begun(self, partition: PartitionId) -> DiskLog:
        folder = self._path(partition)
        if not folder.exists():
            begin_log(folder, self._context.files)
            self._stored[partition] = None
        return self._opened(partition)

    def why_unreadable(self, partition: PartitionId) -> CorruptLog | None:
        """On a node that is alone: the damage that prevents opening the log, if any."""
        why = self._unreadable.get(partition) if self.opens_late else None
        return None if why is None else CorruptLog(why, hint=_RESTORE)

    def _opened(self, partition: PartitionId) -> DiskLog:
        settings = self._configuration(partition).settings
        context = replace(self._context, on_advance=partial(self._on_advance, partition))
        return DiskLog(
            self._name(partition), self._path(partition), settings, context, self.room, alone=self.opens_late
        )

    def _name(self, partition: PartitionId) -> str:
        return _name_of(partition, self._configuration(partition).name)

    def _configuration(self, partition: PartitionId) -> _Configured:
        return self._configured.get(partition.topic) or _Configured(partition.topic, settings_of({}))

    def remove(self, partition: PartitionId) -> None:
        """Renames the folder immediately, so that half a log is never mistaken for a log; then deletes its files."""
        log = self._open.pop(partition, None)
        self._unreadable.pop(partition, None)
        self._stored.pop(partition, None)
        self._begun.forget(partition)
        if not any(other.topic == partition.topic for other in self._open):
            self._configured.pop(partition.topic, None)
        if log is not None:
            log.mark_deleted()
        folder = self._path(partition)
        if folder.exists():
            aside = folder.with_name(f"{uuid.uuid4().hex}{_DELETED}")
            folder.rename(aside)
            self._pool.submit(shutil.rmtree, aside, ignore_errors=True)

    # Storage

    def apply(self, change: Change) -> None:
        """Marks the log for the next `sync`: its batches are in the files already."""
        if not isinstance(change, SyncLog):
            raise TypeError(f"not a change of a replica: {change!r}")
        self._dirty[change.partition] = None

    def sync(self) -> None:
        """Makes the marked logs durable: each by itself, several at once, the last one on this thread.

        Raises `LogError`.
        """
        dirty, self._dirty = self._dirty, {}
        logs = {partition: log for partition in dirty if (log := self._open.get(partition)) is not None}
        if len(logs) == 1:
            _sync(*logs.values())
        elif logs:
            self._sync_together(list(logs.values()))
        self._note_begun(logs)

    def sync_to(self, partition: PartitionId, end_offset: int) -> int:
        """Makes a log durable at least up to this offset, on the calling thread: see `DiskLog.sync_to`. Any thread may
        call it. Raises `LogError`."""
        log = self._open.get(partition)
        if log is None:
            return end_offset  # it was deleted
        try:
            durable_to = log.sync_to(end_offset)
        except (LogError, OSError):
            if not log.deleted:
                raise
            return end_offset
        if partition not in self._begun:
            self._note_begun((partition,))
        return durable_to

    def sync_each(self, ends: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """The same for several logs, at the same time. Raises `LogError`."""
        asked = {partition: self._pool.submit(self.sync_to, partition, end) for partition, end in ends.items()}
        wait(asked.values())
        return {partition: done.result() for partition, done in asked.items()}

    def _note_begun(self, partitions: Iterable[PartitionId]) -> None:
        if self.opens_late and any(partition not in self._begun for partition in partitions):
            with self._noting:
                self._begun.note(each for each in partitions if each in self._open)

    def _sync_together(self, logs: Sequence[DiskLog]) -> None:
        others = [self._pool.submit(_sync, log) for log in logs[:-1]]
        try:
            _sync(logs[-1])
        finally:
            wait(others)
        for other in others:
            other.result()

    # For readers and operators

    def log(self, partition: PartitionId) -> DiskLog | None:
        """The open log of the partition, for readers, which see what the machine has published."""
        return self._open.get(partition)

    def log_in(self, folder: str) -> DiskLog | None:
        """The open log in the folder of this name."""
        topic, _, number = folder.rpartition("-")
        return self._open.get(PartitionId(topic, int(number))) if number.isdecimal() else None

    @property
    def without_room(self) -> int:
        """How many logs refuse records because the disk is full."""
        return self.room.without

    def problems(self) -> list[str]:
        """What is wrong: damage that was found, logs that cannot be opened or have no space, failed housekeeping."""
        lacks = "lacks" if self.opens_late else "lacked"  # in a cluster, other nodes send the lost records
        damage = [f"{log.name} {lacks} {lost}" for log in list(self._open.values()) for lost in log.damage]
        kept = [problem.message for problem in self._housekeeper.problems.values()]
        return [*self._unreadable.values(), *self.room.problems(), *damage, *kept]

    def start_housekeeping(self) -> None:
        """Starts retention and compaction, in threads of their own; each replica does them by itself."""
        self._housekeeper.start()

    def keep_house(self) -> Kept:
        """Runs now what otherwise runs in the background."""
        return self._housekeeper.round()

    def close(self) -> None:
        """Writes checkpoints of all logs, so that the next start reads no records, and releases the directory. Call it
        when the node has stopped. It may be called twice.

        Raises `LogError` if a disk refused; what was durable stays durable.
        """
        if self._closed:
            return
        self._closed = True
        self._housekeeper.stop()
        failures = [error for _, error in self._for_each(list(self._open.values()), _close) if error is not None]
        self._pool.shutdown()
        if self.opens_late and not failures:
            self._begun.note(self._stored)
        self._begun.close()
        self._directory.close()
        if failures:
            raise failures[0]

    # Files

    @property
    def _lost(self) -> Path:
        return self._folder / _LOST

    def _path(self, partition: PartitionId) -> Path:
        return self._folder / f"{partition.topic}-{partition.number}"


def _name_of(partition: PartitionId, topic: str) -> str:
    return f'partition {partition.number} of topic "{topic}"'


def _close(log: DiskLog) -> LogError | None:
    try:
        log.close()
    except LogError as error:
        return error
    return None


def _sync(log: DiskLog) -> None:
    try:
        log.sync_all()
    except (LogError, OSError):
        if not log.deleted:
            raise
