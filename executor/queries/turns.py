"""Schedules queries: they take turns on shared threads, and an idle query uses no thread.

A turn is one batch. A query with more to do queues behind the others, so none starves while another catches up. A
query with nothing to read waits here at no cost, until one of its partitions has a new record, its time has come, or a
caller wakes it. A log in this process announces when a partition advances; any other log is polled, by a few threads
for all queries. When a query begins to wait, an idle thread polls for it at once. So queries that have been idle for
a while share long polls, and busy queries have short ones.

| state   | what happens to the query       | next                                                     |
| ------- | ------------------------------- | -------------------------------------------------------- |
| QUEUED  | it is in the pool's queue, once | RUNNING, when a thread takes it                          |
| RUNNING | a thread is in its `turn`       | the result of `turn` decides: QUEUED, WAITING or removed |
| WAITING | nothing                         | QUEUED, by the thread that finds it due and claims it    |

A wake is never lost: a wake of a RUNNING query is recorded, and a query that begins to wait checks the log once more
after other threads can see that it waits.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Protocol, runtime_checkable

import structlog

from millstream.errors import LogError

from ...logcore.client import LogClient, TopicPartition
from ..sources.source_reader import PARTITIONS_S
from ..work_pool import WorkPool

log = structlog.get_logger("millstream.queries")

LOOK_EVERY_S = 0.2
"""Interval of checks for what is not announced: a deleted topic, a partition without a replica on this cluster node."""

PATIENCE_S = 0.1  # if a turn waits this long for a thread, the pool gets one more thread
ASK_S = 0.5  # length of one poll of a remote log
_ASKERS_MAX = 4
_LAST_ASK_S = 0.02  # poll length of the last free asker: queries that begin to wait meanwhile must wait for it
_LOOK_SHARE = 2  # after a look at the log, the pause before the next one is this many times the length of the look


@dataclass(frozen=True, slots=True)
class Due:
    """When a query's next turn is due: once one of the partitions has a record at or after its position, or at `at_s`
    (`time.monotonic`), whichever comes first. `over`: the query takes no more turns."""

    positions: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    at_s: float = math.inf
    over: bool = False


AT_ONCE = Due(at_s=0.0)
WHEN_WOKEN = Due()
NEVER = Due(over=True)


class TakesTurns(Protocol):
    def turn(self) -> Due:
        """Does about one batch of work. Runs on one thread at a time. Raises nothing."""
        ...


@runtime_checkable
class Announcing(Protocol):
    """A log that announces which partitions have advanced."""

    def listen(self, listener: Callable[[TopicPartition], None]) -> Callable[[], None]: ...


class _State(Enum):
    QUEUED = auto()
    RUNNING = auto()
    WAITING = auto()


@dataclass(slots=True, eq=False)
class _Entry:
    query: TakesTurns
    state: _State = _State.WAITING
    due: Due = WHEN_WOKEN
    woken: bool = False  # `wake` was called while it was running


class Turns:
    """In: `pool`: its threads run the turns. Call `close` once all queries are over."""

    def __init__(self, client: LogClient, pool: WorkPool) -> None:
        self._client = client
        self._pool = pool
        self._changed = threading.Condition()  # guards all below; its holder must not call the log or a query
        self._entries: dict[TakesTurns, _Entry] = {}
        self._awaited: Counter[TopicPartition] = Counter()  # number of queries that wait for its records; never 0
        self._looking = False  # a look is in progress
        self._late = False  # a partition advanced since that look began, or before the next look is allowed
        self._look_from_s = 0.0  # no look before this time
        self._wakes_at_s = 0.0  # when the watcher wakes unless it is notified earlier
        self._watcher: threading.Thread | None = None
        self._closed = False
        self._unasked: dict[_Entry, None] = {}  # queries that wait for records and are not yet polled for
        self._askers = self._idle_askers = 0
        self._last_asks = False  # the last free asker polls, briefly; askers that return meanwhile leave entries to it
        self._unlisten = client.listen(self._advanced) if isinstance(client, Announcing) else None

    def wake(self, query: TakesTurns) -> None:
        """Makes the query's turn due now. The first call for a query registers it."""
        with self._changed:
            entry = self._entries.get(query)
            if entry is None:
                entry = self._entries[query] = _Entry(query)
                self._begin_watching()
            if entry.state is _State.RUNNING:
                entry.woken = True
            if entry.state is not _State.WAITING:
                return
            self._leave(entry)
        self._queue(entry)

    def close(self) -> None:
        """Ends the watcher and the askers."""
        if self._unlisten is not None:
            self._unlisten()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -------------------------------------------------------------- on a thread of the pool

    def _queue(self, entry: _Entry) -> None:
        self._pool.later(partial(self._take_turns, entry))
        if self._pool.is_busy:
            with self._changed:
                self._watch_at(time.monotonic() + PATIENCE_S)

    def _take_turns(self, entry: _Entry) -> None:
        """Runs turns until the query has nothing to do or another query waits for the thread."""
        while True:
            with self._changed:
                entry.state, entry.woken = _State.RUNNING, False
            if not self._goes_on(entry, self._turn_of(entry.query)):
                return
            if self._pool.others_wait:
                self._queue(entry)
                return

    @staticmethod
    def _turn_of(query: TakesTurns) -> Due:
        try:
            return query.turn()
        except Exception as error:
            log.error("query's turn failed", error=str(error), exc_info=True)
            return NEVER

    def _goes_on(self, entry: _Entry, due: Due) -> bool:
        """Whether its next turn is already due; if not, the query waits or, when over, is removed."""
        with self._changed:
            if entry.woken or due.at_s <= time.monotonic():
                entry.state = _State.QUEUED
                return True
            if due.over:
                del self._entries[entry.query]
                return False
            entry.state, entry.due = _State.WAITING, due
            self._awaited.update(due.positions.keys())
            self._watch_at(due.at_s)
            if self._unlisten is None and due.positions:
                self._unasked[entry] = None
                self._begin_asking()
        return self._unlisten is not None and self._is_due(due, {}) and self._claim(entry, due)

    def _claim(self, entry: _Entry, due: Due) -> bool:
        """Whether the query still waits for `due`. If so, it is now QUEUED: the caller must run or queue its turn."""
        with self._changed:
            if entry.state is not _State.WAITING or entry.due is not due:
                return False
            self._leave(entry)
            return True

    def _leave(self, entry: _Entry) -> None:
        """Moves a waiting query to QUEUED. The caller holds the lock."""
        for at in entry.due.positions:
            self._awaited[at] -= 1
            if not self._awaited[at]:
                del self._awaited[at]
        self._unasked.pop(entry, None)
        entry.state, entry.due = _State.QUEUED, WHEN_WOKEN

    def _look(self) -> None:
        """Finds the queries whose turn is due because of new records. Runs the first one on this thread."""
        with self._changed:
            self._late = False
            waiting = [(each, each.due) for each in self._entries.values() if each.state is _State.WAITING]
        began = time.monotonic()
        ends: dict[TopicPartition, int | None] = {}
        found = [(entry, due) for entry, due in waiting if self._is_due(due, ends, or_shorter=True)]
        with self._changed:
            now = time.monotonic()
            self._looking, self._look_from_s = False, now + _LOOK_SHARE * (now - began)
            if self._late:
                self._watch_at(self._look_from_s)
        claimed = [entry for entry, due in found if self._claim(entry, due)]
        for entry in claimed[1:]:
            self._queue(entry)
        if claimed:
            self._take_turns(claimed[0])

    def _is_due(self, due: Due, ends: dict[TopicPartition, int | None], *, or_shorter: bool = False) -> bool:
        """In: `ends`: a cache of partition ends; None where the log has no answer: the query's turn then finds out why.
        `or_shorter`: a query is also due if a partition ends before the position, as after its topic was created again;
        its turn finds out. Only occasional looks use this, since the query may wait for the same position again."""
        for at, position in due.positions.items():
            if at not in ends:
                try:
                    ends[at] = self._client.offsets(*at).last_stable_offset
                except Exception:
                    ends[at] = None
            end = ends[at]
            if end is None or end > position or (or_shorter and end < position):
                return True
        return False

    def _look_for_partitions(self) -> None:
        """Finds the queries whose turn is due because a topic gained partitions, which no log announces. Asks once per
        topic for all queries."""
        with self._changed:
            waiting = [(each, each.due) for each in self._entries.values() if each.state is _State.WAITING]
        last: dict[str, TopicPartition | None] = {}  # None where the log has no answer
        for entry, due in waiting:
            for topic in {at.topic for at in due.positions} - last.keys():
                last[topic] = self._last_partition(topic)
            has_grown = any(last[at.topic] is not None and last[at.topic] not in due.positions for at in due.positions)
            if has_grown and self._claim(entry, due):
                self._queue(entry)

    def _last_partition(self, topic: str) -> TopicPartition | None:
        try:
            return TopicPartition(topic, self._client.partition_count(topic) - 1)
        except LogError:  # the query notices a deleted topic by its offsets
            return None

    # -------------------------------------------------------------- news

    def _advanced(self, where: TopicPartition) -> None:
        """Called by the log while it holds its own locks. A batch of one record advances about five partitions, most of
        which no query reads: looking each time cost more than computing the batch."""
        if self._late or where not in self._awaited:
            return
        with self._changed:
            if self._looking or time.monotonic() < self._look_from_s:
                self._late = True
                if not self._looking:
                    self._watch_at(self._look_from_s)
                return
            self._looking = True
        self._pool.begin(self._look)

    def _watch_at(self, at_s: float) -> None:
        """Makes the watcher wake at this time at the latest. The caller holds the lock."""
        if at_s < self._wakes_at_s:
            self._changed.notify_all()

    def _begin_watching(self) -> None:
        """The caller holds the lock."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="millstream-turns", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        """Queues queries whose time has come, starts looks, and adds threads if turns wait too long for one."""
        look_at_s = 0.0
        partitions_at_s = time.monotonic() + PARTITIONS_S
        while True:
            with self._changed:
                now = time.monotonic()
                if now >= look_at_s:
                    look_at_s = now + LOOK_EVERY_S
                self._late = self._late and bool(self._awaited)  # a query that begins to wait checks the log itself
                self._wakes_at_s = self._next_s(now, look_at_s)
                if not self._closed:
                    self._changed.wait(self._wakes_at_s - now)
                if self._closed:
                    return
                self._wakes_at_s, now = 0.0, time.monotonic()
                timed = [e for e in self._entries.values() if e.state is _State.WAITING and e.due.at_s <= now]
                for entry in timed:
                    self._leave(entry)
                looks = now >= look_at_s or (self._late and now >= self._look_from_s)
                looks = looks and bool(self._awaited) and not self._looking and self._unlisten is not None
                self._looking = self._looking or looks
            for entry in timed:
                self._queue(entry)
            if looks:
                self._pool.begin(self._look)
            if now >= partitions_at_s:
                partitions_at_s = now + PARTITIONS_S
                self._pool.begin(self._look_for_partitions)
            self._pool.relieve(PATIENCE_S)

    def _next_s(self, now: float, look_at_s: float) -> float:
        """The time of the watcher's next work. The caller holds the lock."""
        times = [each.due.at_s for each in self._entries.values() if each.state is _State.WAITING]
        times += [look_at_s, *([self._look_from_s] if self._late and not self._looking else [])]
        times += [now + PATIENCE_S] if self._pool.others_wait else []
        return max(now, min(times))

    def _begin_asking(self) -> None:
        """The caller holds the lock."""
        if self._idle_askers == 0 and self._askers < _ASKERS_MAX:
            self._askers += 1
            self._idle_askers += 1
            threading.Thread(target=self._ask, name="millstream-news", daemon=True).start()
        self._changed.notify_all()

    def _ask(self) -> None:
        """Polls for records when the log announces none."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._unasked and not self._last_asks))
                if self._closed:
                    return
                asked = [(entry, entry.due) for entry in self._unasked]
                self._unasked.clear()
                self._idle_askers -= 1
                is_last = self._last_asks = self._idle_askers == 0 and self._askers == _ASKERS_MAX
            found = self._asked_for([due for _, due in asked], _LAST_ASK_S if is_last else ASK_S)
            for entry, due in asked:
                if _has_come(due, found) and self._claim(entry, due):
                    self._queue(entry)
            with self._changed:
                self._idle_askers += 1
                self._last_asks = self._last_asks and not is_last
                self._unasked.update({entry: None for entry, due in asked if entry.due is due})

    def _asked_for(self, dues: Sequence[Due], wait_s: float) -> Mapping[TopicPartition, int | None]:
        """The ends of the partitions with records that one of these waits for; None after an error: the query's turn
        then finds out why."""
        positions: dict[TopicPartition, int] = {}
        for due in dues:
            for at, position in due.positions.items():
                positions[at] = min(position, positions.get(at, position))
        try:
            return self._client.advanced(positions, wait_s)
        except Exception as error:
            if not isinstance(error, LogError):
                log.exception("a log could not be asked for records")
            time.sleep(_LAST_ASK_S)
            return dict.fromkeys(positions)


def _has_come(due: Due, ends: Mapping[TopicPartition, int | None]) -> bool:
    """Whether a partition has a record that the query waits for."""
    return any(at in ends and ((end := ends[at]) is None or end > position) for at, position in due.positions.items())
