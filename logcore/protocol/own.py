"""What a client may ask of the node that it shares its process with, and of no other one."""

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
    """As EndTxn is answered: the identity to go on with, -1 where there is an error code."""

    error_code: int
    producer_id: int
    producer_epoch: int


class TransactionsHere(Protocol):
    """Transactions of a client that keeps what they are to commit for groups. Answers are error codes, 0 for none."""

    def is_fenced(self, who: Identity) -> int:
        """Whether somebody else has the transactional id by now."""
        ...

    def why_not(self, who: Identity, group: str, places: Iterable[TopicPartition]) -> int:
        """Whether this producer may commit offsets of these partitions for the group."""
        ...

    def write(self, who: Identity, where: TopicPartition, batch: EncodedBatch) -> ProduceResult:
        """Returns when the batch is in the log: durable it is once the transaction is committed."""
        ...

    def flush(self, written: Iterable[TopicPartition]) -> int:
        """Returns when what is in these logs is durable: an abort is seen at once then, as a commit is."""
        ...

    def commit(
        self,
        who: Identity,
        written: Iterable[TopicPartition],
        offsets: Mapping[str, Mapping[TopicPartition, int]],
    ) -> EndedHere:
        """Returns when everybody sees the outcome. In: `written`: where the transaction has records; `offsets`: by
        group, all of the transaction."""
        ...


class Own(Door, Protocol):
    """A node of this process. Its own address is none that anybody connects to."""

    @property
    def node(self) -> int: ...

    def produce(
        self, where: TopicPartition, batch: EncodedBatch, transactional_id: str | None, timeout_ms: int
    ) -> ProduceResult:
        """As `Line.produce`."""
        ...

    @property
    def transactions(self) -> TransactionsHere: ...

    def leader_epoch(self, where: TopicPartition) -> int | None:
        """Of a node that is alone: the epoch in which it leads the partition, as metadata say it; None where nobody
        does. Raises `UnknownTopic`."""
        ...

    def coordinates(self, kind: KeyKind, key: str) -> bool:
        """Whether this node coordinates the group or transactional id now. Makes the topic of the coordinators."""
        ...

    def full(self) -> LogFull | None:
        """What an error code does not say: that it is for want of room that the disk takes nothing now."""
        ...
