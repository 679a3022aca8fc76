"""Manages topics, and the groups that read them with their positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from millstream.errors import LogError

from ..client import Topic, TopicPartition
from ..cores.group_messages import CheckCommit, GroupDescription, GroupFault, GroupState, MemberDescription
from ..cores.subscriptions import decode_assignment
from ..errors import UnknownTopic
from .client_groups import GroupLog


class GroupChangeRefused(LogError):
    """The group is in use, or does not exist."""

    code = "GROUP_CHANGE_REFUSED"


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A group's position in a partition. `lag`: the number of committed records that it has not read; `lead`: how far
    it is ahead of the log start offset, where retention deletes. `member_id`: the member that has the partition."""

    partition: TopicPartition
    committed_offset: int | None
    log_start_offset: int
    log_end_offset: int
    member_id: str | None = None

    @property
    def lag(self) -> int:
        position = self.log_start_offset if self.committed_offset is None else self.committed_offset
        return max(0, self.log_end_offset - position)

    @property
    def lead(self) -> int:
        position = self.log_start_offset if self.committed_offset is None else self.committed_offset
        return max(0, position - self.log_start_offset)


class Admin:
    """Works on a log of this process or over the network. Any thread may call any method."""

    def __init__(self, log: GroupLog) -> None:
        self._log = log

    # Topics

    def topics(self) -> Mapping[str, Topic]:
        return self._log.topics()

    def topic(self, name: str) -> Topic:
        """Raises `UnknownTopic`."""
        found = self._log.topic(name)
        if found is None:
            raise UnknownTopic(f'topic "{name}" does not exist')
        return found

    def create_topic(self, name: str, partition_count: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Raises `TopicExists`, `InvalidTopic`."""
        self._log.create_topic(name, partition_count, config)

    def delete_topic(self, name: str) -> None:
        self._log.delete_topic(name)

    def set_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Changes these settings and keeps the others; None resets a setting to its default. Raises `UnknownTopic`,
        `InvalidTopic`."""
        config = {**self.topic(name).config, **changes}
        self._log.alter_topic(name, {key: value for key, value in config.items() if value is not None})

    def add_partitions(self, name: str, partition_count: int) -> None:
        """In: `partition_count`: the new total. Existing records do not move, so a key may be in two partitions after
        this."""
        self._log.add_partitions(name, partition_count)

    def delete_records(self, partition: TopicPartition, before_offset: int) -> int:
        """Deletes the records before this offset. Returns the log start offset."""
        return self._log.delete_records(*partition, before_offset)

    # Groups

    def groups(self) -> list[GroupDescription]:
        return [self._log.groups.describe(name) for name in sorted(self._log.groups.names())]

    def group(self, name: str) -> GroupDescription:
        """Raises `GroupChangeRefused` if the group does not exist."""
        found = self._log.groups.describe(name)
        if found.state is GroupState.DEAD:
            raise GroupChangeRefused(f'group "{name}" does not exist', hint="A group exists once it has committed.")
        return found

    def positions(self, group: str) -> list[GroupPosition]:
        """The positions in all partitions that the group reads or has committed offsets for, in order."""
        described = self.group(group)
        owners = {partition: member.member_id for member in described.members for partition in assigned_to(member)}
        committed = self._log.committed_offsets(group)
        found: list[GroupPosition] = []
        for partition in sorted({*committed, *owners}):
            try:
                offsets = self._log.offsets(*partition)
            except UnknownTopic:
                continue
            found.append(
                GroupPosition(
                    partition,
                    committed.get(partition),
                    offsets.log_start_offset,
                    offsets.last_stable_offset,
                    owners.get(partition),
                )
            )
        return found

    def reset_offsets(
        self, group: str, topic: str, to: Literal["earliest", "latest"] | int, *, by_time: bool = False
    ) -> Mapping[TopicPartition, int]:
        """Sets the offsets of a group without members: `to` is "earliest", "latest", an offset, or, with `by_time`, a
        time in ms.

        Returns the offsets, which are durable. Raises `GroupChangeRefused` while the group has members.
        """
        partitions = [TopicPartition(topic, number) for number in range(self.topic(topic).partition_count)]
        offsets = {partition: self._target(partition, to, by_time) for partition in partitions}
        fault = self._log.groups.commit(CheckCommit(group), offsets, {})
        if fault is not GroupFault.NONE:
            raise GroupChangeRefused(
                f'the offsets of group "{group}" cannot be changed while it has members',
                hint="Stop its consumers, or wait until their sessions have ended.",
            )
        return offsets

    def _target(self, partition: TopicPartition, to: Literal["earliest", "latest"] | int, by_time: bool) -> int:
        known = self._log.offsets(*partition)
        if to == "earliest":
            return known.log_start_offset
        if to == "latest":
            return known.last_stable_offset
        if by_time:
            found = self._log.offset_at(*partition, to)
            return known.last_stable_offset if found is None else found
        return min(max(to, known.log_start_offset), known.last_stable_offset)

    def delete_group(self, group: str) -> None:
        """Raises `GroupChangeRefused` if the group has members or does not exist."""
        fault = self._log.groups.delete(group)
        if fault is not GroupFault.NONE:
            raise GroupChangeRefused(f'group "{group}" cannot be deleted: {fault.value.replace("_", " ")}')


def assigned_to(member: MemberDescription) -> tuple[TopicPartition, ...]:
    """The partitions of a member; none if it is no consumer."""
    try:
        return decode_assignment(member.assignment)
    except ValueError:
        return ()
