"""Requests of producers to the coordinator of their transactions, and its messages to leaders and to groups.

Requests are bodies of `ForTransaction(transactional_id, …)`. Each is answered as its docstring says, or with `Refused`.
An answer is sent once it is committed, so it stays true forever; a client without an answer asks again.
"""

from __future__ import annotations

from typing import NamedTuple

from ..replica.replica_messages import (
    AlterRefused,
    Diverging,
    EndMarker,
    EndOrphan,
    FetchedBatches,
    FetchRefused,
    FetchRequest,
    MetadataChanged,
    PartitionId,
    Problem,
    Refused,
)

# Producers


class ProducerGiven(NamedTuple):
    """The producer id and epoch with which the producer continues."""

    producer_id: int
    epoch: int


class Included(NamedTuple):
    """The partition, group or offsets belong to the open transaction."""


class GroupRefused(NamedTuple):
    """`code`: the error code of the protocol, from the coordinator of the group."""

    code: int


class OffsetRow(NamedTuple):
    """An offset that a group commits. The topic is a name, as in all data of groups."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class InitProducer(NamedTuple):
    """Acquires the transactional id: fences its previous holder, and aborts its open transaction. `ProducerGiven`.

    With `producer_id` and `epoch`, the producer continues after an error, and must still be the holder of the id.
    """

    timeout_ms: int
    producer_id: int = -1
    epoch: int = -1


class IncludePartitions(NamedTuple):
    """AddPartitionsToTxn, for all partitions or none; begins a transaction if none is open. `Included`."""

    producer_id: int
    epoch: int
    partitions: tuple[PartitionId, ...]


class IncludeGroup(NamedTuple):
    """AddOffsetsToTxn. `Included`."""

    producer_id: int
    epoch: int
    group: str


class SendOffsets(NamedTuple):
    """TxnOffsetCommit: what the group commits if the transaction is committed. `Included`, or `GroupRefused` if
    generation or member are not current.

    `announces`: newer clients do not send `IncludeGroup` before (KIP-890).
    """

    producer_id: int
    epoch: int
    group: str
    offsets: tuple[OffsetRow, ...]
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    announces: bool = False


class SentOffsets(NamedTuple):
    """The offsets that a group commits with a transaction."""

    group: str
    rows: tuple[OffsetRow, ...]


class EndTransaction(NamedTuple):
    """`ProducerGiven`, when the decision is final; markers and offsets follow. `raises_epoch`: the producer continues
    with another epoch, and may ask again if the answer is lost (KIP-890).

    `offsets`: those of a client in the coordinator's process, which keeps them until it commits, and does not announce
    when it begins: one record opens the transaction, names its partitions, and decides it. The groups hold nothing
    before, so readers of their offsets may see the old ones until this is answered, which is when `AwaitEnd` would be.
    Only with `raises_epoch`.
    """

    producer_id: int
    epoch: int
    committed: bool
    raises_epoch: bool = False
    offsets: tuple[SentOffsets, ...] | None = None


class AwaitEnd(NamedTuple):
    """`Included`, once the id's last transaction has ended everywhere: its records and offsets are visible, or gone."""


class ForgetProducer(NamedTuple):
    """Forgets an id that will not be used again. `Included`, once nothing is left of it. `producer_id` and `epoch` must
    be those of its current producer."""

    producer_id: int
    epoch: int


class CheckProducer(NamedTuple):
    """`Included`, if this producer holds the id, or will hold it when the decided end is written everywhere."""

    producer_id: int
    epoch: int


class DescribeTransaction(NamedTuple):
    """`DescribedTransaction`."""


class AskUnapplied(NamedTuple):
    """A question to all shards of a node: why offsets of committed transactions are not in the group yet, as `Refused`;
    None if there are no such offsets."""

    group: str


class ListTransactions(NamedTuple):
    """A question to a node, not `ForTransaction`: a tuple of `DescribedTransaction`, one for each id that it
    coordinates."""


class DescribedTransaction(NamedTuple):
    """`state`: named as in Kafka's tools. `open_ms`: how long the transaction has been open here; -1 if none is."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    timeout_ms: int
    open_ms: int
    partitions: tuple[PartitionId, ...]


class AskProducerId(NamedTuple):
    """A request to a node, not `ForTransaction`: a producer id that is unique in the cluster, forever. Answered with
    `ProducerGiven` of epoch 0. For producers without transactions."""


# From leaders of partitions: may this batch open the transaction here?


class VerifyTransaction(NamedTuple):
    """To the shard of the transactional id. `includes`: the write adds the partition to the transaction (KIP-890).
    `here`: the producer ends with the shard's process, so no record is written: see `kept_transactions.py`."""

    partition: PartitionId
    sender: PartitionId
    leader_epoch: int  # the sender's
    correlation: int
    transactional_id: str
    producer_id: int
    epoch: int
    includes: bool
    here: bool = False

    def answered(self, of: PartitionId, epoch: int, problem: Problem | None, text: str) -> TransactionVerified:
        """In: `of`, `epoch`: the shard's partition, and the leader epoch in which it coordinates."""
        return TransactionVerified(
            self.sender, of, epoch, self.leader_epoch, self.correlation, self.producer_id, problem, text
        )


class TransactionVerified(NamedTuple):
    """`problem` None: the transaction is open with this producer and epoch, and the partition belongs to it.

    `sender`: the shard, in its leader epoch `sender_epoch`. Answers of a shard that was replaced are ignored.
    """

    partition: PartitionId
    sender: PartitionId
    sender_epoch: int
    leader_epoch: int
    correlation: int
    producer_id: int
    problem: Problem | None
    message: str = ""


# To leaders of partitions: the transaction has ended


class WriteMarker(NamedTuple):
    """From the shard `sender`, in its leader epoch `sender_epoch`. It repeats the message until it is answered."""

    partition: PartitionId
    sender: PartitionId
    sender_epoch: int
    transactional_id: str
    marker: EndMarker


class MarkerWritten(NamedTuple):
    """The marker is committed, now or already before the request. Not `durable`: it is in the log of a node that is
    alone, so readers see the outcome, but a crash may still lose it. Then the shard sends it again, because the shard
    records the end only when all markers are durable."""

    partition: PartitionId
    transactional_id: str
    producer_id: int
    number: int
    of: PartitionId
    durable: bool = True


class EndRefused(NamedTuple):
    """A marker, or a group's offsets, do not fit on the disk; the shard asks again."""

    partition: PartitionId
    producer_id: int
    number: int
    message: str


# With the groups whose offsets are part of a transaction: `number` is the one that the transaction will end with


class HoldOffsets(NamedTuple):
    """The transaction may commit offsets of these partitions: until it ends they are unsettled."""

    partition: PartitionId
    sender: PartitionId
    group: str
    transactional_id: str
    producer_id: int
    number: int
    generation: int
    member_id: str
    instance_id: str | None
    partitions: tuple[tuple[str, int], ...]


class OffsetsHeld(NamedTuple):
    """`problem`: 0, or the error code of the protocol."""

    partition: PartitionId
    transactional_id: str
    producer_id: int
    number: int
    group: str
    problem: int


class ApplyOffsets(NamedTuple):
    """The transaction has ended with these offsets; without offsets if it was aborted."""

    partition: PartitionId
    sender: PartitionId
    group: str
    transactional_id: str
    producer_id: int
    number: int
    offsets: tuple[OffsetRow, ...]


class OffsetsApplied(NamedTuple):
    """`durable`: as in `MarkerWritten`."""

    partition: PartitionId
    transactional_id: str
    producer_id: int
    number: int
    group: str
    durable: bool = True


# From leaders of partitions that may have lost markers: how did this transaction end?


class AskOutcome(NamedTuple):
    """To every shard. The producer's shard answers with `WriteMarker` or `TransactionGoesOn`, unless it cannot know.

    `ended`: the number of the producer's last transaction whose end the partition has; -1 if it has none. `whole`: no
    other node has the log, and nothing of it was lost, so a missing marker was never durable: then the answer may be
    `EndOrphan`."""

    partition: PartitionId
    sender: PartitionId
    leader_epoch: int  # the sender's
    producer_id: int
    epoch: int
    ended: int
    whole: bool = False


class TransactionGoesOn(NamedTuple):
    """The transaction is undecided, and its producer may continue to write."""

    partition: PartitionId
    leader_epoch: int
    producer_id: int


TransactionMessage = AskOutcome | VerifyTransaction | MarkerWritten | EndRefused | OffsetsHeld | OffsetsApplied
"""Messages to the shard of a transactional id."""

GroupMessage = HoldOffsets | ApplyOffsets
"""Messages to the shard of a group."""

ShardMessage = TransactionMessage | GroupMessage
"""Messages to the shard whose log is the message's partition, not to the replica of that partition."""

ReplicaMessage = (
    FetchRequest
    | FetchedBatches
    | Diverging
    | FetchRefused
    | MetadataChanged
    | WriteMarker
    | TransactionVerified
    | TransactionGoesOn
    | EndOrphan
    | AlterRefused
)
"""Messages to the replica of the message's partition, from any sender."""


class ToCoordinator(NamedTuple):
    """A replica's message to the shard of this transactional id. The broker knows which node that is."""

    transactional_id: str
    message: VerifyTransaction  # the broker fills `partition`


class ToEveryCoordinator(NamedTuple):
    """Like `ToCoordinator`, if only the producer id is known: it does not determine the shard."""

    message: AskOutcome  # likewise


TransactionRequest = (
    InitProducer
    | IncludePartitions
    | IncludeGroup
    | SendOffsets
    | EndTransaction
    | AwaitEnd
    | ForgetProducer
    | CheckProducer
    | DescribeTransaction
)
TakenRequest = TransactionRequest | VerifyTransaction
"""Everything that a shard decides about a transactional id, including questions of leaders."""

TransactionAnswer = ProducerGiven | Included | GroupRefused | DescribedTransaction | Refused
TransactionQuestion = ListTransactions | AskUnapplied
ForCoordinators = ToCoordinator | ToEveryCoordinator
