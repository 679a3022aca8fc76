"""Reads topics as Arrow, alone or as a member of a group. `membership.py` joins the group and sends heartbeats."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from millstream.errors import LogError

from ..client import Fetched, FetchedColumns, FetchedRows, Isolation, TopicPartition
from ..cores.group_messages import CheckCommit, CommitNote, GroupFault
from ..errors import OffsetOutOfRange, UnknownTopic
from .assignors import COOPERATIVE
from .client_groups import GroupLog
from .membership import Membership, MembershipRefused, MembershipSettings

Reset = Literal["earliest", "latest", "error"]

_LOOK_FOR_TOPICS_S: Final = 1.0
_STEP_S: Final = 0.1  # how long to wait for records before looking at the group again

OnPartitions = Callable[[Sequence[TopicPartition]], None]


@dataclass(frozen=True, slots=True)
class Consumed:
    """Records of one partition, in order: rows (see `client.ROWS`), or a columnar batch with its columns."""

    partition: TopicPartition
    run: FetchedRows | FetchedColumns

    @property
    def table(self) -> pa.Table:
        if isinstance(self.run, FetchedRows):
            return self.run.table
        return pa.Table.from_batches([self.run.batch])


@dataclass(frozen=True, slots=True)
class Distance:
    """`lag`: the number of records still to be read. `lead`: how far the next record is after the log start offset."""

    lag: int
    lead: int


class Consumer:
    """Reads from a log of this process or over the network: `Consumer(open_log(path))`, `Consumer(RemoteLog(address))`.

    With `subscribe` it shares the topics with the other members of `group`; with `assign` it reads given partitions.
    Positions are committed every `commit_every_ms` and on `close`. The records of a `poll` count as handled when the
    next `poll` is called. With `commit_every_ms` None, only `commit` commits.
    Only one thread at a time may use it. State: the partitions of this member, and the position in each.
    """

    def __init__(
        self,
        log: GroupLog,
        group: str | None = None,
        *,
        reset: Reset = "earliest",
        isolation: Isolation = "read_committed",
        commit_every_ms: int | None = 5_000,
        max_bytes: int = 16 * 1024 * 1024,
        instance_id: str | None = None,
        assignor: Literal["cooperative-sticky", "range"] = "cooperative-sticky",
        session_timeout_ms: int = 45_000,
        heartbeat_ms: int = 3_000,
        rebalance_timeout_ms: int = 300_000,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
    ) -> None:
        self._log = log
        self._group = group
        self._reset: Reset = reset
        self._isolation: Isolation = isolation
        self._commit_every_s = None if commit_every_ms is None or group is None else commit_every_ms / 1000
        self._max_bytes = max_bytes
        self._settings = MembershipSettings(
            group or "", instance_id, assignor, session_timeout_ms, heartbeat_ms, rebalance_timeout_ms
        )
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._membership: Membership | None = None
        self._topics: tuple[str, ...] = ()
        self._partition_counts: Mapping[str, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._unhandled: dict[TopicPartition, int] = {}  # the offset of the first record that is not handled yet
        self._paused: set[TopicPartition] = set()
        self._next_commit = time.monotonic() + (self._commit_every_s or 0)
        self._next_look = 0.0
        self._turn = 0  # which partition is read first

    # Choosing what to read, and reading

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Shares these topics with the members of the group. It also reads partitions that are added later. Raises
        `MembershipRefused`."""
        if self._group is None:
            raise MembershipRefused(
                "a consumer without a group cannot subscribe", hint="Name a group, or use assign()."
            )
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        if self._membership is None:
            self._membership = Membership(self._log.groups, self._settings, self._counts_of)
        self._membership.subscribe(self._topics)

    def assign(self, partitions: Mapping[TopicPartition, int | None] | Iterable[TopicPartition]) -> None:
        """Reads these partitions from the given offsets, else from the group's committed ones, else as `reset` says."""
        given = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        wanted = {TopicPartition(*partition): offset for partition, offset in given.items()}
        self._positions = {}
        self._start([partition for partition, offset in wanted.items() if offset is None])
        self._positions.update({partition: offset for partition, offset in wanted.items() if offset is not None})

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions)

    def poll(self, timeout_s: float = 1.0, max_bytes: int | None = None, *, goes_on: bool = False) -> list[Consumed]:
        """New records, at most `max_bytes`; nothing after `timeout_s`. It also takes part in rebalances, so it must be
        called again within the rebalance timeout. In: `max_bytes`: for this call; None: the consumer's setting;
        `goes_on`: the records of previous calls are not handled yet, so no automatic commit covers them. Raises
        `LogError`."""
        if not goes_on:
            self._unhandled.clear()
        deadline = time.monotonic() + timeout_s
        while True:
            self._keep_membership(max(0.0, deadline - time.monotonic()))
            self._commit_in_time()
            found = self._fetch(self._max_bytes if max_bytes is None else max_bytes)
            left_s = deadline - time.monotonic()
            if found or left_s <= 0:
                return found
            self._wait(min(left_s, _STEP_S) if self._membership is not None else left_s)

    def __iter__(self) -> Iterator[Consumed]:
        """Records as they arrive, forever."""
        while True:
            yield from self.poll()

    def _fetch(self, max_bytes: int) -> list[Consumed]:
        readable = [partition for partition in self._positions if partition not in self._paused]
        self._turn = (self._turn + 1) % max(1, len(readable))
        found: list[Consumed] = []
        left = max_bytes
        for where in readable[self._turn :] + readable[: self._turn]:
            position = self._positions[where]
            try:
                fetched = self._fetch_one(where, left)
            except LogError:
                if found:  # their positions have moved; a later poll, which begins with this partition, raises it
                    break
                raise
            if fetched is None:
                continue
            self._positions[where] = fetched.next_offset
            self._unhandled.setdefault(where, position)
            found += [Consumed(where, run) for run in fetched.runs]
            left -= sum(_size(run) for run in fetched.runs)
            if left <= 0:
                break
        return found

    def _fetch_one(self, where: TopicPartition, max_bytes: int) -> Fetched | None:
        """None if there are no records at the position any more; then it is set as `reset` says."""
        try:
            return self._log.fetch(*where, self._positions[where], max_bytes=max_bytes, isolation=self._isolation)
        except OffsetOutOfRange:
            self._positions[where] = self._reset_offset(where)
            return None

    def _wait(self, timeout_s: float) -> None:
        awaited = {where: at for where, at in self._positions.items() if where not in self._paused}
        if awaited:
            self._log.wait(awaited, timeout_s)
        else:
            time.sleep(timeout_s)

    # Positions

    def position(self, partition: TopicPartition) -> int:
        """The next offset to read. Raises `UnknownTopic` for a partition that is not assigned."""
        if partition not in self._positions:
            raise UnknownTopic(f'partition {partition.partition} of topic "{partition.topic}" is not assigned')
        return self._positions[partition]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.position(partition)
        self._positions[partition] = offset

    def seek_to_time(self, partition: TopicPartition, timestamp_ms: int) -> None:
        """Moves to the first record with this time or a later one; to the end if there is none."""
        self.position(partition)
        found = self._log.offset_at(*partition, timestamp_ms)
        self._positions[partition] = self._end(partition) if found is None else found

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves to the log start offset of these partitions, or of all."""
        for partition in partitions or self._positions:
            self.seek(partition, self._log.offsets(*partition).log_start_offset)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        for partition in partitions or self._positions:
            self.seek(partition, self._end(partition))

    def pause(self, *partitions: TopicPartition) -> None:
        """Reads nothing from these partitions until `resume`; they stay assigned."""
        self._paused.update(TopicPartition(*partition) for partition in partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._paused.difference_update(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused)

    def distance(self) -> dict[TopicPartition, Distance]:
        """Lag and lead of each assigned partition."""
        found: dict[TopicPartition, Distance] = {}
        for partition, position in self._positions.items():
            start = self._log.offsets(*partition).log_start_offset
            found[partition] = Distance(max(0, self._end(partition) - position), max(0, position - start))
        return found

    def _end(self, partition: TopicPartition) -> int:
        offsets = self._log.offsets(*partition)
        return offsets.last_stable_offset if self._isolation == "read_committed" else offsets.high_watermark

    def _start(self, partitions: Sequence[TopicPartition]) -> None:
        """Begins to read all of them, or none if it raises `LogError`."""
        if not partitions:
            return
        committed = {where: offset for where, offset in self.committed().items() if where in partitions}
        found = {where: committed[where] if where in committed else self._reset_offset(where) for where in partitions}
        self._positions.update(found)
        self._committed.update(committed)

    def _reset_offset(self, partition: TopicPartition) -> int:
        match self._reset:
            case "earliest":
                return self._log.offsets(*partition).log_start_offset
            case "latest":
                return self._end(partition)
            case "error":
                raise OffsetOutOfRange(
                    f'no position to start from in partition {partition.partition} of topic "{partition.topic}"',
                    hint='Commit one, seek, or set reset to "earliest" or "latest".',
                )

    # Committing

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        notes: Mapping[TopicPartition, CommitNote] | None = None,
    ) -> None:
        """Commits these offsets, or all positions. Durable on return. Raises `MembershipRefused` if other members read
        these partitions now."""
        if self._group is None:
            raise MembershipRefused("a consumer without a group cannot commit", hint="Name a group.")
        changed = dict(self._positions if offsets is None else offsets)
        if offsets is None:
            changed = {where: at for where, at in changed.items() if self._committed.get(where) != at}
        check = CheckCommit(self._group) if self._membership is None else self._membership.check
        fault = self._log.groups.commit(check, changed, notes or {})
        if fault is GroupFault.NONE:
            self._committed.update(changed)
            return
        if self._membership is not None:
            self._membership.note_fault(fault)
        raise MembershipRefused(
            f'group "{self._group}" did not take the offsets: {fault.value.replace("_", " ")}',
            hint="The group has rebalanced: others read these partitions now, from the offsets committed before.",
        )

    def committed(self) -> Mapping[TopicPartition, int]:
        """The group's committed offsets, for all topics."""
        if self._group is None:
            return {}
        return {where: found.offset for where, found in self._log.groups.committed(self._group).items()}

    def _commit_in_time(self) -> None:
        if self._commit_every_s is None or time.monotonic() < self._next_commit or not self._positions:
            return
        self._next_commit = time.monotonic() + self._commit_every_s
        self._try_to_commit()

    def _try_to_commit(self) -> None:
        """Commits handled records. If that is refused, the new owner of the partition reads the records again: delivery
        is at least once."""
        if self._commit_every_s is not None and self._positions:
            handled = {where: self._unhandled.get(where, at) for where, at in self._positions.items()}
            changed = {where: at for where, at in handled.items() if self._committed.get(where) != at}
            try:
                if changed:
                    self.commit(changed)
            except MembershipRefused:
                return

    # The group

    def _keep_membership(self, timeout_s: float) -> None:
        membership = self._membership
        if membership is None:
            return
        self._look_for_topics(membership)
        if membership.lost:
            self._drop(tuple(self._positions))
        if not membership.stable and not membership.joining:
            if self._positions:
                self._try_to_commit()
            if self._settings.assignor not in COOPERATIVE:
                self._drop(tuple(self._positions))
            membership.ask_to_join(tuple(self._positions))
        if membership.joining or not membership.stable:
            keeps_reading = bool(self._positions)
            assignment = membership.advance(0.0 if keeps_reading else timeout_s)
            if assignment is not None:
                self._take(membership, assignment)

    def _take(self, membership: Membership, assignment: Sequence[TopicPartition]) -> None:
        revoked = [partition for partition in self._positions if partition not in assignment]
        if revoked:
            self._try_to_commit()
            self._drop(revoked)
        added = [partition for partition in assignment if partition not in self._positions]
        try:
            self._start(added)
        except LogError:
            membership.subscribe(self._topics)  # an assignment is given once: the next poll asks for another one
            raise
        if added and self._on_assigned is not None:
            self._on_assigned(added)
        if revoked:  # others get these partitions only after we have joined again without them
            membership.subscribe(self._topics)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions and self._on_revoked is not None:
            self._on_revoked(partitions)
        for partition in partitions:
            del self._positions[partition]
            self._committed.pop(partition, None)
            self._unhandled.pop(partition, None)
            self._paused.discard(partition)

    def _counts_of(self, topics: Sequence[str]) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for topic in topics:
            with suppress(UnknownTopic):
                counts[topic] = self._log.partition_count(topic)
        return counts

    def _look_for_topics(self, membership: Membership) -> None:
        """Begins a rebalance if a topic was created or has more partitions now."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_FOR_TOPICS_S
        counts = self._counts_of(self._topics)
        if counts != self._partition_counts:
            self._partition_counts = counts
            if membership.stable:
                membership.subscribe(self._topics)

    # Closing

    def close(self) -> None:
        """Commits, unless automatic commits are off, and leaves the group. The log stays open. May be called twice."""
        self._unhandled.clear()
        if self._membership is not None:
            self._try_to_commit()
            self._membership.leave()
            self._membership = None
        elif self._group is not None:
            self._try_to_commit()
        self._positions = {}

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _size(run: FetchedRows | FetchedColumns) -> int:
    return run.table.nbytes if isinstance(run, FetchedRows) else run.batch.nbytes
