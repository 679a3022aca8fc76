"""The share groups of a shard: which member has which record now.

The group's shard has both the members and the records that they acquired, so records of a member that left are
available immediately. The leaders of partitions only read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ...cores.all_groups import AllGroups
from ...cores.share_groups import ShareHeartbeat
from ...cores.share_partition import AckBatch, LoggedBatch, ShareFault, SharePartition
from ...cores.share_settings import ShareLimits, in_force, limits_of
from ...error_codes import ErrorCode
from ...log_settings import ALL_BROKERS, of_group
from ...records.key_values import KeyValue
from ..machine import RequestId
from ..replica.replica_messages import PartitionId, Problem, Refused
from .led_log import OUT_OF_TOUCH, LedLog
from .share_messages import (
    NOTHING_NOW,
    START_UNKNOWN,
    AcknowledgeRecords,
    AcquiredOffsets,
    AcquireRecords,
    AskShareOffsets,
    DeleteShareOffsets,
    LeaderView,
    LookForRecords,
    ReadOffsets,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsFound,
    ReleaseRecords,
    ResetShareOffsets,
    ShareAnswer,
    ShareChanged,
    ShareOffset,
    ShareOffsets,
    ShareRequest,
    Verdicts,
    WhereToRead,
)
from .share_states import ShareStates

_NEVER: Final = 1 << 62


class ShareShard:
    """State: the records that the groups have acquired, and when the next acquisition expires."""

    def __init__(self, log: LedLog, groups: AllGroups, write_groups: Callable[[], None]) -> None:
        """In: `write_groups`: writes changes of the groups and their members."""
        self._log = log
        self._groups = groups
        self._write_groups = write_groups
        self._states = ShareStates()
        self._due_ms = _NEVER

    def begin(self, entries: Mapping[bytes, bytes]) -> None:
        self._states.load(entries)
        for group in self._states.groups():
            self._states.begin(group, self._log.now_ms, self._limits(group))
        self._renew_deadline()

    def _limits(self, group: str) -> ShareLimits:
        configs = self._log.image.configs
        return limits_of(in_force(configs.get(ALL_BROKERS, {}), configs.get(of_group(group), {})))

    # Requests

    def ask(self, request: RequestId, group: str, body: ShareRequest) -> None:
        match body:
            case ShareHeartbeat():
                raise AssertionError("heartbeats are the shard's own")
            case LookForRecords() | AskShareOffsets() if not self._log.leads_for_certain:
                self._log.reply_now(request, Refused(Problem.NOT_COORDINATOR, OUT_OF_TOUCH))
            case LookForRecords(views):
                self._reply(request, group, [view.partition for view in views], self._look(group, views))
            case AcquireRecords():
                self._reply(request, group, [each.partition for each in body.read], self._acquire(group, body))
            case AcknowledgeRecords(member_id, verdicts):
                codes = tuple(int(self._acknowledge(group, member_id, each)) for each in verdicts)
                answer = RecordsAcknowledged(codes, self._limits(group).lock_ms)
                self._reply(request, group, [each.partition for each in verdicts], answer)
            case ReleaseRecords(member_id, partitions):
                limits = self._limits(group)
                for place in partitions:
                    self._on(group, place, lambda partition: partition.release(member_id, limits))
                self._reply(request, group, partitions, RecordsAcknowledged((0,) * len(partitions)))
            case AskShareOffsets():
                self._log.reply(request, self._offsets(group))
            case ResetShareOffsets(offsets):
                self._log.reply(request, ShareChanged(self._reset(group, offsets)))
            case DeleteShareOffsets(topics):
                self._log.reply(request, ShareChanged(self._delete(group, topics)))

    def _reply(self, request: RequestId, group: str, places: Sequence[PartitionId], answer: ShareAnswer) -> None:
        """Writes the changes of these partitions, and answers once they are committed."""
        self._write(self._states.changes(group, places))
        known = (self._states.of(group, place) for place in places)
        due_ms = min((each.next_deadline_ms() for each in known if each is not None), default=_NEVER)
        self._due_ms = min(self._due_ms, due_ms)
        self._log.reply(request, answer)

    def _write(self, changes: list[KeyValue]) -> None:
        self._log.write(changes)

    def _on(self, group: str, place: PartitionId, act: Callable[[SharePartition], None]) -> None:
        partition = self._states.of(group, place)
        if partition is not None:
            act(partition)

    def _look(self, group: str, views: tuple[LeaderView, ...]) -> RecordsFound:
        if not self._groups.share.has(group):
            return RecordsFound(known=False)
        return RecordsFound(True, tuple(self._where_to_read(group, view) for view in views))

    def _where_to_read(self, group: str, view: LeaderView) -> WhereToRead:
        place, log_start_offset, start = view
        partition = self._states.of(group, place)
        if partition is None and start != START_UNKNOWN and self._log.image.partition(place) is not None:
            self._write(self._states.put(group, place, start))
            partition = self._states.of(group, place)
        if partition is None:
            return WhereToRead(place, START_UNKNOWN)
        partition.log_starts_at(log_start_offset)
        first = partition.look(self._log.now_ms, self._limits(group))
        return WhereToRead(place, NOTHING_NOW if first is None else first)

    def _acquire(self, group: str, asked: AcquireRecords) -> RecordsAcquired:
        """The first partition gets the most records; next time another one is first."""
        limits, left = self._limits(group), asked.records_max
        acquired: list[AcquiredOffsets] = []
        for read in asked.read:
            given = self._acquired_of(group, asked, read, left, limits)
            left -= sum(last - first + 1 for first, last, _ in given)
            acquired.append(AcquiredOffsets(read.partition, given))
        return RecordsAcquired(tuple(acquired), limits.lock_ms)

    def _acquired_of(
        self, group: str, asked: AcquireRecords, read: ReadOffsets, left: int, limits: ShareLimits
    ) -> tuple[tuple[int, int, int], ...]:
        partition = self._states.of(group, read.partition)
        if partition is None:
            return ()
        batches = [LoggedBatch(*batch) for batch in read.batches]
        spans = partition.acquire(asked.member_id, batches, left, self._log.now_ms, limits, exact=asked.exact)
        return tuple((span.first, span.last, span.deliveries) for span in spans)

    def _acknowledge(self, group: str, member_id: str, verdicts: Verdicts) -> ShareFault:
        partition = self._states.of(group, verdicts.partition)
        if partition is None:
            return ShareFault.INVALID_RECORD_STATE
        batches = [AckBatch(*batch) for batch in verdicts.batches]
        return partition.acknowledge(member_id, batches, self._log.now_ms, self._limits(group))

    # Time

    def tick(self) -> None:
        """Makes records available again whose acquisition has expired."""
        now_ms = self._log.now_ms
        if now_ms < self._due_ms:
            return
        for group in self._states.groups():
            limits = self._limits(group)
            for partition in self._states.all_of(group).values():
                partition.expire(now_ms, limits)
            self._write(self._states.changes(group, self._states.all_of(group)))
        self._renew_deadline()

    def release_gone(self) -> None:
        """Releases the records of members that left. Call it when members may have left."""
        for group, member_id in self._groups.share.take_gone():
            limits = self._limits(group)
            for partition in self._states.all_of(group).values():
                partition.release(member_id, limits)
            self._write(self._states.changes(group, self._states.all_of(group)))

    def _renew_deadline(self) -> None:
        deadlines = (partition.next_deadline_ms() for _, _, partition in self._states.everything())
        self._due_ms = min(deadlines, default=_NEVER)

    def forget_deleted(self) -> None:
        """Forgets the state of deleted topics."""
        image = self._log.image
        for group in self._states.groups():
            gone = [place for place in self._states.all_of(group) if place.topic not in image.topics]
            self._write(self._states.forget(group, gone))

    # Administration

    def _offsets(self, group: str) -> ShareOffsets:
        if not self._groups.share.has(group):
            return ShareOffsets(known=False)
        found = sorted(self._states.all_of(group).items())
        rows = (ShareOffset(place, each.start_offset, each.end_offset, each.in_flight) for place, each in found)
        return ShareOffsets(True, tuple(rows))

    def _reset(self, group: str, offsets: tuple[tuple[PartitionId, int], ...]) -> int:
        if self._groups.has(group) and not self._groups.share.has(group):
            return ErrorCode.group_id_not_found
        if self._groups.share.is_in_use(group):
            return ErrorCode.non_empty_group
        self._groups.share.create(group)
        self._write_groups()
        for place, offset in offsets:
            self._write(self._states.put(group, place, offset))
        self._renew_deadline()
        return ErrorCode.none

    def _delete(self, group: str, topics: tuple[str, ...]) -> int:
        if not self._groups.share.has(group):
            return ErrorCode.group_id_not_found
        if self._groups.share.is_in_use(group):
            return ErrorCode.non_empty_group
        named = [place for place in self._states.all_of(group) if place.topic in topics]
        self._write(self._states.forget(group, named))
        return ErrorCode.none

    def forget(self, group: str) -> None:
        """The group is deleted."""
        self._write(self._states.forget(group, self._states.all_of(group)))
