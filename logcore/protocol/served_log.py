"""What handlers of requests need of the log that they serve: this node's part of a cluster's (`cluster_log.py`)."""

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
    """The groups that this node coordinates. Methods raise `LogError`."""

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
    """Share groups, and the records that they have acquired. Requests and answers are in `share_messages.py`. Methods
    raise `LogError`."""

    def place(self, where: TopicPartition) -> PartitionId: ...

    def where(self, place: PartitionId) -> TopicPartition | None:
        """None if the topic was deleted."""
        ...

    def ask(self, group: str, body: ShareRequest, kind: type[_Wanted]) -> _Wanted:
        """The answer of the group's coordinator, on any node. In: `kind`: the type of the answer."""
        ...

    def ask_here(self, group: str, body: ShareRequest, kind: type[_Wanted]) -> _Wanted:
        """The same, if this node coordinates the group."""
        ...

    def end_offset(self, place: PartitionId) -> int:
        """The end of what all readers see, from the partition's leader, on any node."""
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
        """The number of partitions, of all topics, whose files are on this node."""
        ...

    def topic_id(self, topic: str) -> str:
        """The topic's id as 32 hexadecimal digits."""
        ...

    def topic_name(self, id: bytes) -> str | None:
        """The name of the topic that has this id now; None if there is none. Fast."""
        ...

    def delete_topic(self, name: str) -> None: ...

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None: ...

    def settings(self, resource: str) -> Mapping[str, str]:
        """The settings of a resource that is not a topic: see `log_settings.py`."""
        ...

    def resources(self, prefix: str) -> Iterable[str]:
        """The resources with settings."""
        ...

    def change_settings(self, resource: str, changes: Changes) -> None:
        """Applies all changes as one; durable on return."""
        ...

    def partition(self, topic: str, partition: int) -> KeptPartition:
        """The partition, whose files are on this node."""
        ...

    def partition_if_open(self, topic: str, partition: int) -> KeptPartition | None:
        """Like `partition`, without reading the disk; None if it is not open, or not on this node."""
        ...

    def unsettled_offsets(self, group: str) -> frozenset[TopicPartition]: ...

    def transactions(self) -> list[TransactionDescription]: ...

    def listen(self, listener: Callable[[TopicPartition], None]) -> Callable[[], None]: ...


class ServedTransactions(Protocol):
    """Producer ids, and the transactions that this node coordinates. Methods raise `LogError`."""

    def new_producer_id(self) -> int:
        """For a producer without transactions."""
        ...

    def start(self, transactional_id: str, timeout_ms: int, known: tuple[int, int] | None) -> Identity:
        """Acquires the transactional id: it fences its previous holder. `known`: the producer id and epoch of a
        producer that continues after an error, and must still hold the id."""
        ...

    def add_partitions(self, who: Identity, partitions: frozenset[TopicPartition]) -> None:
        """Adds all or none. Begins a transaction if none is open."""
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
        """Adds offsets that the group commits with the transaction. `announces`: this also adds the group to it."""
        ...

    def end(self, who: Identity, *, commit: bool) -> None: ...

    def end_and_raise(self, who: Identity, *, commit: bool, visibly: bool = False) -> Identity:
        """Returns the identity with which the producer continues. In: `visibly`: return when all readers see the
        outcome; if that takes too long it raises `NotNow`, and the caller asks again."""
        ...

    def end_hanging(self, where: TopicPartition, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Ends the producer's open transaction in this partition, which this node leads, whatever its coordinator
        knows."""
        ...

    def end_overdue(self) -> None:
        """Aborts transactions that are open longer than their producer's timeout. Called every few seconds."""
        ...
