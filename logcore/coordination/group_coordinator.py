"""Carries out what `all_groups.py` decides: writes their records, gives answers to whoever waits,
lets time pass, and fences commits.

One coordinator serves the consumers of this process and those that come over the network. Nobody is told what is not
durable yet: an answer waits for the records that were written before it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple

import structlog

from millstream.errors import LogError

from ..client import TopicPartition
from ..cores.all_groups import AllGroups
from ..cores.group_expiry import expired, subscribed
from ..cores.group_messages import (
    Answered,
    CheckCommit,
    CommitNote,
    CommittedOffset,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupDescription,
    GroupFault,
    GroupState,
    Message,
    Reply,
)
from ..errors import LogClosed
from ..storage.partition import Mark
from .group_offsets import GroupOffsets
from .group_topic import GroupTopic, NoTopicIds, TopicIds

_log = structlog.get_logger("millstream.logcore")


class _Decided(NamedTuple):
    """Up to where the log is to be durable before anybody is told. `lost`: it could not even be written."""

    mark: Mark | None
    lost: bool = False


def _monotonic_ms() -> int:
    return int(time.monotonic() * 1000)


class GroupCoordinator:
    """State: the pure groups behind a lock, who waits for an answer, and a thread while somebody is to be timed.

    Any thread may call any method.
    """

    def __init__(
        self,
        offsets: GroupOffsets,
        wall_ms: Callable[[], int],
        *,
        topic_ids: TopicIds | None = None,
        now_ms: Callable[[], int] = _monotonic_ms,
    ) -> None:
        self.offsets = offsets
        self.expires: Callable[[str], bool] = lambda group: False
        """Groups whose offsets `expire` may drop; who keeps none of its own there says so."""
        self._wall_ms = wall_ms
        self._now_ms = now_ms
        self._topic = GroupTopic(topic_ids or NoTopicIds(), wall_ms)
        self._mark: Mark | None = None  # up to which what was decided is written
        self._groups = AllGroups()
        self._changed = threading.Condition()
        self._waiting: dict[int, Future[Reply]] = {}
        self._last_ticket = 0
        self._timer: threading.Thread | None = None
        self._closed = False
        self._load()

    def _load(self) -> None:
        """The groups that there were when the log was closed, whose members have not noticed anything."""
        for record in self._topic.decode(self.offsets.entries()):
            self._groups.apply(record)
        with self._changed:
            self._groups.begin(self._now_ms())
            self._time()

    def ask(self, message: Message) -> Future[Reply]:
        """The answer may take as long as the group's rebalance timeout. Waits for the disk. Raises `LogClosed`."""
        future: Future[Reply] = Future()
        future.set_running_or_notify_cancel()  # so nobody can cancel it
        with self._changed:
            self._check_open()
            self._last_ticket += 1
            self._waiting[self._last_ticket] = future
            answers = self._groups.step(message, self._last_ticket, self._now_ms())
            given = self._take(answers)
            decided = self._written()
            self._time()
        self._give(given, decided)
        return future

    def beat(self, beat: ConsumerHeartbeat, partition_counts: Mapping[str, int]) -> ConsumerBeat:
        """For members of groups whose coordinator assigns. Waits for the disk. Raises `LogError`."""
        with self._changed:
            self._check_open()
            answer = self._groups.beat(beat, partition_counts, self._now_ms())
            decided = self._written()
            self._time()
        return answer if self._is_settled(decided) else ConsumerBeat(GroupFault.SHUTTING_DOWN, beat.member_id)

    def commit(
        self, check: CheckCommit, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, CommitNote]
    ) -> GroupFault:
        """Durable on return, unless there is a fault. Raises `LogError`.

        No other member can take over between the check and the write: the write happens under the group's lock.
        """
        with self._changed:
            self._check_open()
            fault = self._groups.check_commit(check, self._now_ms())
            if fault is not GroupFault.NONE or not offsets:
                return fault
            pending = self.offsets.begin_commit(check.group, offsets, self._wall_ms(), notes)
        self.offsets.finish_commit(pending)
        return fault

    def check(self, check: CheckCommit) -> GroupFault:
        """Whether this member may commit offsets, as a part of a transaction."""
        with self._changed:
            self._check_open()
            return self._groups.check_commit(check, self._now_ms())

    # What there is

    def describe(self, group: str) -> GroupDescription:
        """A group that only has offsets is empty; one that has nothing at all is dead."""
        with self._changed:
            description = self._groups.describe(group)
        if description.state is GroupState.DEAD and self.offsets.committed(group):
            return GroupDescription(group, GroupState.EMPTY, generation=0)
        return description

    def names(self) -> list[str]:
        with self._changed:
            live = self._groups.names()
        return list(dict.fromkeys([*live, *self.offsets.groups()]))

    def delete(self, group: str) -> GroupFault:
        """Its offsets are gone on return. A group with members stays."""
        with self._changed:
            self._check_open()
            if self._groups.is_in_use(group):
                return GroupFault.NOT_EMPTY
            known = self._groups.has(group)
            self._groups.forget(group)
            decided = self._written()
            committed = self.offsets.committed(group)
        self.offsets.forget(group, committed)
        if not self._is_settled(decided):
            return GroupFault.SHUTTING_DOWN
        return GroupFault.NONE if known or committed else GroupFault.NOT_FOUND

    def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupFault] | GroupFault:
        """Not those of topics that members of the group are reading."""
        description = self.describe(group)
        if description.state is GroupState.DEAD:
            return GroupFault.NOT_FOUND
        topics = subscribed(description)
        refused = {partition for partition in partitions if partition.topic in topics}
        known = self.offsets.committed(group)
        self.offsets.forget(group, [p for p in partitions if p in known and p not in refused])
        return {p: GroupFault.SUBSCRIBED if p in refused else GroupFault.NONE for p in partitions}

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return self.offsets.committed_with_metadata(group)

    def expire(self, retention_ms: int) -> int:
        """Drops what nobody needs any more, in groups that may expire; says of how many groups. Raises `LogError`."""
        changed = 0
        for group in [name for name in self.names() if self.expires(name)]:
            with self._changed:
                self._check_open()
                changed += self._expire(group, self._wall_ms() - retention_ms)
        return changed

    def _expire(self, group: str, before_ms: int) -> bool:
        """Nobody commits meanwhile. A group that has nothing left is gone."""
        committed = self.offsets.committed_with_metadata(group)
        since_ms = self._topic.empty_since_ms.get(group)
        gone = expired(self.describe(group), committed, since_ms, before_ms)
        self.offsets.forget(group, gone)
        is_over = len(gone) == len(committed) and not self._groups.is_in_use(group)
        if is_over and self._groups.has(group):
            self._groups.forget(group)
            self._written()
        return bool(gone) or is_over

    # Life

    def close(self) -> None:
        """Whoever waits gets `LogClosed`."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = list(self._waiting.values()), {}
            self._changed.notify_all()
            timer = self._timer
        for future in waiting:
            future.set_exception(LogClosed("the log is closed"))
        if timer is not None and timer is not threading.current_thread():
            timer.join()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed")

    def _take(self, answers: list[Answered]) -> list[tuple[Future[Reply], Reply]]:
        return [(self._waiting.pop(answered.ticket), answered.reply) for answered in answers]

    def _time(self) -> None:
        """Wakes the thread that lets time pass; starts it where it is needed first."""
        if self._timer is None and self._groups.next_deadline_ms() is not None:
            self._timer = threading.Thread(target=self._let_time_pass, name="millstream-groups", daemon=True)
            self._timer.start()
        self._changed.notify_all()

    def _let_time_pass(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                deadline_ms = self._groups.next_deadline_ms()
                if deadline_ms is None:
                    self._timer = None
                    return
                now_ms = self._now_ms()
                if deadline_ms > now_ms:
                    self._changed.wait((deadline_ms - now_ms) / 1000)
                    continue
                given = self._take(self._groups.tick(now_ms))
                decided = self._written()
            self._give(given, decided)

    # What is durable

    def _written(self) -> _Decided:
        """Writes what was decided."""
        records = self._groups.take_records()
        if records:
            try:
                self._mark = self.offsets.write(self._topic.encode(records))
            except LogError as error:
                self._lost(error)
                return _Decided(None, lost=True)
        return _Decided(self._mark)

    def _is_settled(self, decided: _Decided) -> bool:
        """Waits for the disk. False where what was decided is lost."""
        if decided.lost or decided.mark is None:
            return not decided.lost
        try:
            self.offsets.settle(decided.mark)
        except LogError as error:
            with self._changed:
                self._lost(error)
            return False
        return True

    def _lost(self, error: LogError) -> None:
        """It is written again with whatever is decided next; until then members are told to come again."""
        _log.warning("changes of groups not written", error=error.message)
        self._groups.rewrite()
        self._mark = None

    def _give(self, answers: list[tuple[Future[Reply], Reply]], decided: _Decided) -> None:
        settled = not answers or self._is_settled(decided)
        for future, reply in answers:
            future.set_result(reply if settled else replace(reply, fault=GroupFault.SHUTTING_DOWN))
