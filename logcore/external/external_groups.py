"""Consumer groups of programs on an external log. They have the same names as at the brokers. The groups of
Millstream's own queries are not listed and not changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import TypeVar

from ..client import TopicPartition
from ..clients.remote_groups import RemoteGroups
from ..cores.group_messages import (
    CheckCommit,
    CommitNote,
    CommittedOffset,
    GroupDescription,
    GroupFault,
    Message,
    Reply,
)
from .names import ServiceNames

V = TypeVar("V")


class ExternalGroups:
    """A `GroupClient`. Any thread may call any method."""

    def __init__(self, groups: RemoteGroups, names: ServiceNames) -> None:
        self._groups, self._names = groups, names

    def is_own(self, group: str) -> bool:
        """Whether the group belongs to this Millstream's queries."""
        return group.startswith(self._names.prefix)

    def ask(self, message: Message) -> Future[Reply]:
        return self._groups.ask(message)

    def commit(
        self, check: CheckCommit, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, CommitNote]
    ) -> GroupFault:
        return self._groups.commit(check, self._there(offsets), self._there(notes))

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        found = self._groups.committed(group)
        local = {at: self._names.local_topic(at.topic) for at in found}
        return {TopicPartition(name, at.partition): found[at] for at, name in local.items() if name is not None}

    def describe(self, group: str) -> GroupDescription:
        return self._groups.describe(group)

    def names(self) -> list[str]:
        """All groups except those of this Millstream."""
        return [name for name in self._groups.names() if not self.is_own(name)]

    def delete(self, group: str) -> GroupFault:
        return self._groups.delete(group)

    def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupFault] | GroupFault:
        there = {TopicPartition(self._names.topic(at.topic), at.partition): at for at in partitions}
        found = self._groups.delete_offsets(group, there)
        return found if isinstance(found, GroupFault) else {there[at]: fault for at, fault in found.items()}

    def _there(self, by_place: Mapping[TopicPartition, V]) -> dict[TopicPartition, V]:
        return {TopicPartition(self._names.topic(at.topic), at.partition): value for at, value in by_place.items()}
