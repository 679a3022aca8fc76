"""What handlers of requests ask of the log that they serve: this node's part of a cluster's (`cluster_log.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol, TypeVar

from ..client import Topic, TopicPartition
from ..cores.expiry import ExpiryTimes
from ..cores.group_messages import (
    CheckCommit,
    CommitNote,
    CommittedOffset,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupDescription,
    GroupFault,
    Message,
    Reply,
)
from ..cores.transaction_records import Identity
from ..cores.transactions import TransactionDescription
from ..log_settings import Changes
from ..replication.replica.replica_messages import PartitionId
from ..replication.shards.share_messages import ShareRequest
from ..storage.partition_keeping import KeptPartition

_Wanted = TypeVar("_Wanted")


class ServedGroups(Protocol):
    """The groups that are coordinated here. Methods raise `LogError`."""

    def ask(self, message: Message) -> Future[Reply]: ...

    def beat(self, beat: ConsumerHeartbeat, partition_counts: Mapping[str, int]) -> ConsumerBeat: ...

    def commit(
        self, check: CheckCommit, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, CommitNote]
    ) -> GroupFault: ...

    def check(self, check: CheckCommit) -> GroupFault: ...

    def describe(self, group: str) -> GroupDescription: ...

    def names(self) -> list[str]: ...

    def delete(self, group: str) -> GroupFault: ...

    def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupFault] | GroupFault: ...

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]: ...


class ServedShares(Protocol):
    """What share groups have acquired. Questions and answers: `share_messages.py`. Methods raise `LogError`."""

    def place(self, where: TopicPartition) -> PartitionId: ...

    def where(self, place: PartitionId) -> TopicPartition | None:
        """None where the topic is gone."""
        ...

    def ask(self, group: str, body: ShareRequest, kind: type[_Wanted]) -> _Wanted:
        """The answer of the group's coordinator, on whatever node it is, which is of this kind."""
        ...

    def ask_here(self, group: str, body: ShareRequest, kind: type[_Wanted]) -> _Wanted:
        """The same, of this node."""
        ...

    def end_offset(self, place: PartitionId) -> int:
        """Of what everybody sees, as the partition's leader knows it, on whatever node that is."""
        ...


class ServedLog(Protocol):
    """Methods raise `LogError`; any thread may call them."""

    @property
    def id(self) -> str: ...

    @property
    def path(self) -> Path: ...

    @property
    def secret(self) -> str: ...

    @property
    def expiry(self) -> ExpiryTimes: ...

    @property
    def groups(self) -> ServedGroups: ...

    @property
    def shares(self) -> ServedShares: ...

    def topics(self) -> Mapping[str, Topic]: ...

    def topic(self, name: str) -> Topic | None: ...

    @property
    def partitions_here(self) -> int:
        """Of all topics together, those whose files are here."""
        ...

    def topic_id(self, topic: str) -> str:
        """32 hexadecimal digits."""
        ...

    def topic_name(self, id: bytes) -> str | None:
        """Of the topic that has this id now. Cheap."""
        ...

    def delete_topic(self, name: str) -> None: ...

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None: ...

    def settings(self, resource: str) -> Mapping[str, str]:
        """Of what is no topic: see `log_settings.py`."""
        ...

    def resources(self, prefix: str) -> Iterable[str]:
        """Those that have settings."""
        ...

    def change_settings(self, resource: str, changes: Changes) -> None:
        """All at once; durable on return."""
        ...

    def partition(self, topic: str, partition: int) -> KeptPartition:
        """The one whose files are here."""
        ...

    def partition_if_open(self, topic: str, partition: int) -> KeptPartition | None:
        """`partition`, as far as that needs no disk; None where it is not open, or not here."""
        ...

    def unsettled_offsets(self, group: str) -> frozenset[TopicPartition]: ...

    def transactions(self) -> list[TransactionDescription]: ...

    def listen(self, listener: Callable[[TopicPartition], None]) -> Callable[[], None]: ...


class ServedTransactions(Protocol):
    """Producers that ask for an identity, and the transactions that are coordinated here. Methods raise `LogError`."""

    def new_producer_id(self) -> int:
        """For a producer without transactions."""
        ...

    def start(self, transactional_id: str, timeout_ms: int, known: tuple[int, int] | None) -> Identity:
        """Fences whoever had the id. `known`: the producer id and epoch of who goes on after a mishap, and must still
        be the one that has it."""
        ...

    def add_partitions(self, who: Identity, partitions: frozenset[TopicPartition]) -> None:
        """All or none. Begins the transaction where none is open."""
        ...

    def add_offsets(self, who: Identity, group: str) -> None: ...

    def commit_offsets(
        self,
        who: Identity,
        check: CheckCommit,
        offsets: Mapping[TopicPartition, int],
        notes: Mapping[TopicPartition, CommitNote],
        *,
        announces: bool,
    ) -> GroupFault:
        """Offsets that the group commits with the transaction. `announces`: this makes them a part of it."""
        ...

    def end(self, who: Identity, *, commit: bool) -> None: ...

    def end_and_raise(self, who: Identity, *, commit: bool, visibly: bool = False) -> Identity:
        """The identity to go on with. In: `visibly`: returns when everybody sees the outcome. Where that takes too
        long it raises `NotNow`, and is to be asked again."""
        ...

    def end_hanging(self, where: TopicPartition, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Ends what the producer has open in this partition, which is led here, whatever its coordinator knows."""
        ...

    def end_overdue(self) -> None:
        """Called every few seconds: what was open for longer than its producer asked for is aborted."""
        ...
