"""What producers ask of the coordinator of their transactions, and what that says to leaders and to groups.

Requests are bodies of `ForTransaction(transactional_id, …)`; each is answered with what its docstring says, or with
`Refused`. Everything is answered when it is committed, so an answer is true for ever; whoever hears none asks again.
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
    """What the producer goes on with."""

    producer_id: int
    epoch: int


class Included(NamedTuple):
    """It belongs to the open transaction."""


class GroupRefused(NamedTuple):
    """`code`: the error code of the protocol, as the coordinator of the group gave it."""

    code: int


class OffsetRow(NamedTuple):
    """An offset that a group commits; the topic by its name, as in all that groups keep."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class InitProducer(NamedTuple):
    """Takes the transactional id: whoever had it is fenced, and what it has open is aborted. `ProducerGiven`.

    With `producer_id` and `epoch` it is one that goes on after a mishap, and must still be the one that has the id.
    """

    timeout_ms: int
    producer_id: int = -1
    epoch: int = -1


class IncludePartitions(NamedTuple):
    """AddPartitionsToTxn: the transaction begins where none is open. All of them or none. `Included`."""

    producer_id: int
    epoch: int
    partitions: tuple[PartitionId, ...]


class IncludeGroup(NamedTuple):
    """AddOffsetsToTxn. `Included`."""

    producer_id: int
    epoch: int
    group: str


class SendOffsets(NamedTuple):
    """TxnOffsetCommit: what the group commits if the transaction is committed. `Included`, or `GroupRefused` where
    generation and member are not of now.

    `announces`: newer clients do not ask `IncludeGroup` before (KIP-890).
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
    """What a group commits with a transaction."""

    group: str
    rows: tuple[OffsetRow, ...]


class EndTransaction(NamedTuple):
    """`ProducerGiven`, when it is decided for good: markers and offsets follow. `raises_epoch`: the producer goes on
    with another epoch, and may ask again if the answer is lost (KIP-890).

    `offsets`: of a client in the coordinator's process, which keeps them until it commits, and does not say when it
    begins: one record opens the transaction, says where it has written, and decides. The groups hold nothing before, so
    who reads their offsets may see the old ones until this is answered, which is when `AwaitEnd` would be. Only with
    `raises_epoch`.
    """

    producer_id: int
    epoch: int
    committed: bool
    raises_epoch: bool = False
    offsets: tuple[SentOffsets, ...] | None = None


class AwaitEnd(NamedTuple):
    """`Included`, once the id's last transaction has ended everywhere: its records and offsets are visible, or gone."""


class ForgetProducer(NamedTuple):
    """`Included`, once nothing is left of an id that nobody is going to use again. Only its current producer, to which
    these belong, may be forgotten."""

    producer_id: int
    epoch: int


class CheckProducer(NamedTuple):
    """`Included`, where this producer has the id, or will when what is decided is written everywhere."""

    producer_id: int
    epoch: int


class DescribeTransaction(NamedTuple):
    """`DescribedTransaction`."""


class AskUnapplied(NamedTuple):
    """Asked of a node, too: per shard, why offsets that a committed transaction brings are not the group's yet, as
    `Refused`; None where there are none."""

    group: str


class ListTransactions(NamedTuple):
    """Asked of a node, not `ForTransaction`: a tuple of `DescribedTransaction`, of all that it coordinates."""


class DescribedTransaction(NamedTuple):
    """`state` has the names of Kafka's tools. `open_ms`: how long its transaction has been open here, -1 if none is."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    timeout_ms: int
    open_ms: int
    partitions: tuple[PartitionId, ...]


class AskProducerId(NamedTuple):
    """Asked of a node, not `ForTransaction`: an id that nobody else gets, in the whole life of the cluster. Answered
    with `ProducerGiven` of epoch 0, for who writes without transactions."""


# From leaders of partitions: may this batch open the transaction here?


class VerifyTransaction(NamedTuple):
    """To the shard of the transactional id. `includes`: the write makes the partition a part of it (KIP-890).
    `here`: the producer dies with the shard's process, so nothing is written down of that: see
    `kept_transactions.py`."""

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
    """`problem` None: it is open with this producer and epoch, and the partition belongs to it.

    `sender`: the shard, in its leader epoch `sender_epoch`: one that was replaced, and does not know it, says nothing.
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
    """From the shard `sender`, in its leader epoch `sender_epoch`, which asks until it is answered."""

    partition: PartitionId
    sender: PartitionId
    sender_epoch: int
    transactional_id: str
    marker: EndMarker


class MarkerWritten(NamedTuple):
    """The marker is committed, now or since long. Not `durable`: it is in the log of a node that is alone, so readers
    see the outcome, but a crash may take the marker still. Then the shard, which writes it down only when all of them
    are durable, sends it again."""

    partition: PartitionId
    transactional_id: str
    producer_id: int
    number: int
    of: PartitionId
    durable: bool = True


class EndRefused(NamedTuple):
    """A marker, or a group's offsets, do not fit onto the disk; they are asked for again."""

    partition: PartitionId
    producer_id: int
    number: int
    message: str


# With the groups whose offsets are part of a transaction: `number` is the one that the transaction will end with


class HoldOffsets(NamedTuple):
    """The transaction may commit offsets of these partitions: until it ends they are not settled."""

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
    """The transaction has ended, with these offsets; with none, it was aborted."""

    partition: PartitionId
    sender: PartitionId
    group: str
    transactional_id: str
    producer_id: int
    number: int
    offsets: tuple[OffsetRow, ...]


class OffsetsApplied(NamedTuple):
    """`durable`: as of `MarkerWritten`."""

    partition: PartitionId
    transactional_id: str
    producer_id: int
    number: int
    group: str
    durable: bool = True


# From leaders of partitions that may have lost markers: how did this transaction end?


class AskOutcome(NamedTuple):
    """To every shard; that of the producer answers with `WriteMarker` or `TransactionGoesOn`, or cannot know.

    `ended`: the number of the last transaction of the producer whose end the partition has, -1 where it has none.
    `whole`: nobody else has the log, and nothing of it was lost, so a marker that is not there was never durable: the
    answer may be `EndOrphan`."""

    partition: PartitionId
    sender: PartitionId
    leader_epoch: int  # the sender's
    producer_id: int
    epoch: int
    ended: int
    whole: bool = False


class TransactionGoesOn(NamedTuple):
    """It is not decided, and its producer may write on."""

    partition: PartitionId
    leader_epoch: int
    producer_id: int


TransactionMessage = AskOutcome | VerifyTransaction | MarkerWritten | EndRefused | OffsetsHeld | OffsetsApplied
"""What the shard of a transactional id hears."""

GroupMessage = HoldOffsets | ApplyOffsets
"""What the shard of a group hears."""

ShardMessage = TransactionMessage | GroupMessage
"""What is for the shard that the message's partition is the log of, not for its replica."""

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
"""What the replica of the message's partition hears, of whoever says it."""


class ToCoordinator(NamedTuple):
    """What a replica wants said to the shard of this transactional id: the broker knows where that is."""

    transactional_id: str
    message: VerifyTransaction  # the broker fills `partition`


class ToEveryCoordinator(NamedTuple):
    """As `ToCoordinator`, where only a producer id is known, which does not say whose it is."""

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
"""What is decided of a transactional id: leaders ask, too."""

TransactionAnswer = ProducerGiven | Included | GroupRefused | DescribedTransaction | Refused
TransactionQuestion = ListTransactions | AskUnapplied
ForCoordinators = ToCoordinator | ToEveryCoordinator
