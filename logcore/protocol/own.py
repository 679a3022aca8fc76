"""What a client can only ask the node in its own process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from ..client import TopicPartition
from ..cores.transaction_records import Identity
from ..errors import LogFull
from ..records.batch import EncodedBatch
from .layout import KeyKind
from .lines import Door
from .wire.produce_messages import ProduceResult


class EndedHere(NamedTuple):
    """Like the answer to EndTxn: the identity with which to continue; -1 if there is an error code."""

    error_code: int
    producer_id: int
    producer_epoch: int


class TransactionsHere(Protocol):
    """Transactions of a client that keeps the offsets to commit until the end. Answers are error codes; 0: none."""

    def is_fenced(self, who: Identity) -> int:
        """Whether another producer holds the transactional id by now."""
        ...

    def why_not(self, who: Identity, group: str, places: Iterable[TopicPartition]) -> int:
        """Whether this producer may commit offsets of these partitions for the group."""
        ...

    def write(self, who: Identity, where: TopicPartition, batch: EncodedBatch) -> ProduceResult:
        """Returns when the batch is in the log. It becomes durable before the transaction is committed."""
        ...

    def flush(self, written: Iterable[TopicPartition]) -> int:
        """Returns when everything in these logs is durable. Then readers see an abort immediately, like a commit."""
        ...

    def commit(
        self,
        who: Identity,
        written: Iterable[TopicPartition],
        offsets: Mapping[str, Mapping[TopicPartition, int]],
    ) -> EndedHere:
        """Returns when all readers see the outcome. In: `written`: the partitions with records of the transaction;
        `offsets`: all offsets of the transaction, by group."""
        ...


class Own(Door, Protocol):
    """A node in this process. Clients do not connect to its address."""

    @property
    def node(self) -> int: ...

    def produce(
        self, where: TopicPartition, batch: EncodedBatch, transactional_id: str | None, timeout_ms: int
    ) -> ProduceResult:
        """Like `Line.produce`."""
        ...

    @property
    def transactions(self) -> TransactionsHere: ...

    def leader_epoch(self, where: TopicPartition) -> int | None:
        """On a node that is alone: the epoch in which it leads the partition, from the metadata; None if there is no
        leader. Raises `UnknownTopic`."""
        ...

    def coordinates(self, kind: KeyKind, key: str) -> bool:
        """Whether this node coordinates the group or transactional id. Creates the coordinators' topic if needed."""
        ...

    def full(self) -> LogFull | None:
        """The error if the disk refuses writes because it is full, which the error code does not show."""
        ...
