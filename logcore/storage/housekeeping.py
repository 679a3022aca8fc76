"""Background work of a log: retention, compaction, and the expiry of unused producers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import structlog

from millstream.errors import LogError

from ..compaction.cleaning import compact, is_due
from .partition_keeping import KeptPartition
from .retention import drop_expired

INTERVAL_S: Final = 15.0
_BUSY_SHARE_MAX: Final = 0.2  # of the time of one processor, while there is work
_log = structlog.get_logger("millstream.logcore")


@dataclass(frozen=True, slots=True)
class HousekeepingProblem:
    """Why the last round failed for a partition. The partition itself can still be used."""

    partition: str
    message: str


class Kept(NamedTuple):
    """What one round did."""

    dropped: int  # partitions with deleted segments
    compacted: int


class HousekeepingTarget(NamedTuple):
    """A partition to look after. `open` returns None if there is nothing to do; it may raise `LogError`."""

    name: str
    open: Callable[[], KeptPartition | None]


class _Stopped(Exception):
    """The log closes while a partition is compacted."""


class Housekeeper:
    """State: its two chores. Retention does not wait for the end of a compaction, which may take minutes, because
    retention may be what frees disk space."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[HousekeepingTarget]],
        now_ms: Callable[[], int],
        expire_ids: Callable[[], object],
        *,
        producer_expiry_ms: int,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._partitions = partitions
        self._now_ms = now_ms
        self._expire_ids = expire_ids
        self._producer_expiry_ms = producer_expiry_ms
        self._retention = _Chore("retention", self._forget, partitions, interval_s, after=self._expire_unused)
        self._compaction = _Chore("compaction", self._compact, partitions, interval_s)

    def start(self) -> None:
        """Starts one thread. It waits for the first round, and only then starts the second thread. Many logs (of
        notebooks and tests) are closed before the first round, and starting a thread costs more than opening them."""
        self._retention.start(before_first=self._compaction.start)

    def stop(self) -> None:
        """Returns when no round is running."""
        self._retention.end()
        self._compaction.end()
        self._retention.join()  # first, because it may be about to start the other thread
        self._compaction.join()

    @property
    def problems(self) -> Mapping[str, HousekeepingProblem]:
        return self._compaction.problems | self._retention.problems

    def round(self) -> Kept:
        """Does all work that is due now. A failure of one partition does not stop the others: errors of the log or the
        disk are added to `problems` and to the process's log. Raises any other error after all partitions are done."""
        dropped, unforeseen = self._retention.round()
        compacted, others = self._compaction.round()
        for error in (*unforeseen, *others):
            raise error
        return Kept(dropped, compacted)

    def _forget(self, partition: KeptPartition, pause: Callable[[], None]) -> bool:
        dropped = drop_expired(partition, self._now_ms())
        partition.expire_producers(self._producer_expiry_ms)
        return dropped

    def _expire_unused(self) -> None:
        try:
            self._expire_ids()
        except LogError as error:
            _log.error("transactional ids not expired", error=error.message)

    def _compact(self, partition: KeptPartition, pause: Callable[[], None]) -> bool:
        if not partition.settings.compacted:
            return False
        partition.roll_if_old()
        if not is_due(partition, self._now_ms()):
            return False
        done = compact(partition, self._now_ms(), pause=pause)
        if done is not None:
            _log.info("compacted", partition=partition.name, before=done.bytes_before, after=done.bytes_after)
        return done is not None


class _Chore:
    """One kind of work, done for one partition after the other.

    State: a thread, once started, and the failures of the last round, by partition. Only one round runs at a time.
    """

    def __init__(
        self,
        name: str,
        act: Callable[[KeptPartition, Callable[[], None]], bool],
        partitions: Callable[[], Iterable[HousekeepingTarget]],
        interval_s: float,
        *,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """In: `act`: does the work for one partition and returns whether it changed something; it calls its second
        argument (`pause`) between pieces of work; `after`: called at the end of each round."""
        self._name = name
        self._act = act
        self._partitions = partitions
        self._interval_s = interval_s
        self._after = after
        self._problems: dict[str, HousekeepingProblem] = {}
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, before_first: Callable[[], None] | None = None) -> None:
        """In: `before_first`: called on the new thread, after one interval and before the first round. None: the caller
        has already waited, so the first round starts at once."""
        run = partial(self._run, before_first)
        self._thread = threading.Thread(target=run, name=f"millstream-log-{self._name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._stop.set()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    @property
    def problems(self) -> dict[str, HousekeepingProblem]:
        return dict(self._problems)

    def round(self, pause: Callable[[], None] = lambda: None) -> tuple[int, Sequence[Exception]]:
        """Returns how many partitions it changed, and the unexpected errors."""
        changed = 0
        unforeseen: list[Exception] = []
        with self._turn:
            for target in self._partitions():
                try:
                    changed += self._keep(target, pause)
                except _Stopped:
                    raise
                except Exception as error:
                    self._note(target.name, error)
                    unforeseen.append(error)
                pause()
            self._after()
        return changed, unforeseen

    def _keep(self, target: HousekeepingTarget, pause: Callable[[], None]) -> bool:
        partition: KeptPartition | None = None
        try:
            partition = target.open()
            if partition is None or partition.is_idle:
                return False
            changed = self._act(partition, pause)
            self._problems.pop(target.name, None)
        except (LogError, OSError) as error:
            if partition is None or not partition.is_idle:  # not closed or deleted meanwhile
                self._note(target.name, error)
            return False
        return changed

    def _note(self, name: str, error: Exception) -> None:
        message = error.message if isinstance(error, LogError) else str(error) or type(error).__name__
        known = self._problems.get(name)
        if known is None or known.message != message:
            _log.error("housekeeping failed", chore=self._name, partition=name, error=message)
        self._problems[name] = HousekeepingProblem(name, message)

    def _run(self, before_first: Callable[[], None] | None) -> None:
        if before_first is not None and not self._stop.wait(self._interval_s):
            before_first()
        while not self._stop.is_set():
            self._one_round()
            self._stop.wait(self._interval_s)

    def _one_round(self) -> None:
        try:
            _, unforeseen = self.round(_Share(self._stop).pause)
        except _Stopped:
            return
        except Exception as error:
            unforeseen = (error,)
        for error in unforeseen:
            _log.error("housekeeping failed", chore=self._name, exc_info=error)


class _Share:
    """Limits the thread to a share of one processor, by pauses. State: the thread's CPU time at the last pause."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._since = time.thread_time()

    def pause(self) -> None:
        """Raises `_Stopped`."""
        worked_s = time.thread_time() - self._since
        if self._stop.wait(worked_s * (1 / _BUSY_SHARE_MAX - 1)):
            raise _Stopped
        self._since = time.thread_time()
