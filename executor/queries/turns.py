"""Whose turn it is: queries take turns on the threads that they share, and one that has nothing to do has none.

A turn is a batch. A query that has more to do queues behind the others, so none starves while another catches up. One
that has nothing to read waits here, and costs nothing, until a partition that it reads has a record for it, its time
has come, or somebody wakes it. A log in this process says when a partition advanced; any other is asked, by a few
threads for all queries. One that begins to wait is asked for at once, by a thread that does not ask yet: so queries
that have had nothing to read for a while share long questions, and those with news have short ones.

| state   | what happens to the query       | next                                                     |
| ------- | ------------------------------- | -------------------------------------------------------- |
| QUEUED  | it is in the pool's queue, once | RUNNING, when a thread takes it                          |
| RUNNING | a thread is in its `turn`       | as `turn` says: QUEUED, WAITING, or forgotten            |
| WAITING | nothing                         | QUEUED, by whoever finds that it is due, and claims it   |

A wake is never lost: one that comes while the query is RUNNING is noted, and who begins to wait looks once more at the
log, after it can be seen waiting.
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

log = structlog.get_logger()

LOOK_EVERY_S = 0.2
"""For what nobody announces: a topic that was deleted, a partition of which this node of a cluster has no replica."""

PATIENCE_S = 0.1  # a turn that waits for a thread for so long gets one more
ASK_S = 0.5  # how long a log elsewhere is asked at once
_ASKERS_MAX = 4
_LAST_ASK_S = 0.02  # by the last asker that was free: who begins to wait meanwhile waits for it
_LOOK_SHARE = 2  # a look at the log is followed by so many times its own length without one


@dataclass(frozen=True, slots=True)
class Due:
    """When a query's next turn is due: once one of the partitions has a record at its position or after it, at the
    latest at `at_s` (of `time.monotonic`). `over`: it takes no more turns."""

    positions: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    at_s: float = math.inf
    over: bool = False


AT_ONCE = Due(at_s=0.0)
WHEN_WOKEN = Due()
NEVER = Due(over=True)


class TakesTurns(Protocol):
    def turn(self) -> Due:
        """Does what there is to do, about a batch; on one thread at a time. Raises nothing."""
        ...


@runtime_checkable
class Announcing(Protocol):
    """A log that says of which partition there is news."""

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
    woken: bool = False  # while it was running


class Turns:
    """In: `pool`: its threads take the turns. Until `close`, which is for when all queries are over."""

    def __init__(self, client: LogClient, pool: WorkPool) -> None:
        self._client = client
        self._pool = pool
        self._changed = threading.Condition()  # guards all below; whoever holds it calls neither the log nor a query
        self._entries: dict[TakesTurns, _Entry] = {}
        self._awaited: Counter[TopicPartition] = Counter()  # by how many that wait for its records; never 0
        self._looking = False  # a look is on its way
        self._late = False  # there was news since it began, or before the time for the next one
        self._look_from_s = 0.0
        self._wakes_at_s = 0.0  # the watcher, by itself
        self._watcher: threading.Thread | None = None
        self._closed = False
        self._unasked: dict[_Entry, None] = {}  # wait for records, and nobody asks for these yet
        self._askers = self._idle_askers = 0
        self._last_asks = False  # briefly, again and again; who has come back meanwhile leaves it to take all
        self._unlisten = client.listen(self._advanced) if isinstance(client, Announcing) else None

    def wake(self, query: TakesTurns) -> None:
        """Its turn is due now. The first call for a query makes it take turns."""
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
        """Ends the threads that watch."""
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
        """As long as it has something to do, and no other query waits for the thread."""
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
        """Whether its next turn is due already; else it waits."""
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
        """Whether it still waits for that: then who asks has to see to its turn."""
        with self._changed:
            if entry.state is not _State.WAITING or entry.due is not due:
                return False
            self._leave(entry)
            return True

    def _leave(self, entry: _Entry) -> None:
        """It waits no more. With the lock."""
        for at in entry.due.positions:
            self._awaited[at] -= 1
            if not self._awaited[at]:
                del self._awaited[at]
        self._unasked.pop(entry, None)
        entry.state, entry.due = _State.QUEUED, WHEN_WOKEN

    def _look(self) -> None:
        """Whose turn is due by what is in the log. The first one is taken at once, on this thread."""
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
        """`ends`: those that were asked for already; None where the log has no answer: the query finds out why.
        `or_shorter`: also where a partition ends before the position, as one of a topic that was created again. The
        query finds out, too; where it may wait again, this is for who looks now and then only."""
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
        """Whose turn is due because a topic got partitions, which no log announces: asked once for all queries."""
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
        except LogError:  # of a topic that is gone the query hears by its offsets
            return None

    # -------------------------------------------------------------- news

    def _advanced(self, where: TopicPartition) -> None:
        """Called by the log, with locks of its own held. A batch of one record advances five partitions or so, and most
        of them nobody reads: to look each time cost more than to compute the batch."""
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
        """The watcher wakes then at the latest. With the lock."""
        if at_s < self._wakes_at_s:
            self._changed.notify_all()

    def _begin_watching(self) -> None:
        """With the lock."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="millstream-turns", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        """For times that come, and turns that wait too long for a thread."""
        look_at_s = 0.0
        partitions_at_s = time.monotonic() + PARTITIONS_S
        while True:
            with self._changed:
                now = time.monotonic()
                if now >= look_at_s:
                    look_at_s = now + LOOK_EVERY_S
                self._late = self._late and bool(self._awaited)  # who begins to wait looks for himself
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
        """When something is to be done. With the lock."""
        times = [each.due.at_s for each in self._entries.values() if each.state is _State.WAITING]
        times += [look_at_s, *([self._look_from_s] if self._late and not self._looking else [])]
        times += [now + PATIENCE_S] if self._pool.others_wait else []
        return max(now, min(times))

    def _begin_asking(self) -> None:
        """With the lock."""
        if self._idle_askers == 0 and self._askers < _ASKERS_MAX:
            self._askers += 1
            self._idle_askers += 1
            threading.Thread(target=self._ask, name="millstream-news", daemon=True).start()
        self._changed.notify_all()

    def _ask(self) -> None:
        """Waits for records where the log announces none."""
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
        """Where the partitions end that have what one of these waits for; None: the query finds out why."""
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
    """Whether a partition has what it waits for."""
    return any(at in ends and ((end := ends[at]) is None or end > position) for at, position in due.positions.items())
