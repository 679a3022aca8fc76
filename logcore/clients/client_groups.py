"""A log with consumer groups: what `Consumer` and `Admin` need beyond `LogClient`. `Log` and `RemoteLog` provide it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Protocol

from ..client import LogAdmin, LogClient, TopicPartition
from ..cores.group_messages import (
    CheckCommit,
    CommitNote,
    CommittedOffset,
    GroupDescription,
    GroupFault,
    Message,
    Reply,
)


class GroupClient(Protocol):
    """Any thread may call any method."""

    def ask(self, message: Message) -> Future[Reply]: ...

    def commit(
        self, check: CheckCommit, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, CommitNote]
    ) -> GroupFault:
        """Durable on return, unless there is a fault."""
        ...

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]: ...

    def describe(self, group: str) -> GroupDescription: ...

    def names(self) -> list[str]: ...

    def delete(self, group: str) -> GroupFault: ...

    def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupFault] | GroupFault: ...


class GroupLog(LogClient, LogAdmin, Protocol):
    """`offset_at`: the offset of the first record with this time or a later one; None if there is none."""

    @property
    def groups(self) -> GroupClient: ...

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None: ...
