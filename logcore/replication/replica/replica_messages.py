"""What the replicas of a partition, their clients and the controller say to each other.

Every message names the partition by topic id and number (R20: a topic that is deleted and made anew is another log),
and the leader epoch it was said in (R6). They are tuples: the simulator makes millions of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple

from ...records.batch import EncodedBatch
from ...storage.epoch_cache import EpochBoundary
from ...storage.transaction_index import AbortedRanges
from ..controller.metadata_records import PartitionState
from ..machine import NodeId

ACTIVE_CONTROLLER: Final = NodeId(-1)
"""Whoever leads the metadata quorum: the broker puts the node it believes in in its place."""

COORDINATOR: Final = NodeId(-2)
"""Whoever coordinates the transactional id that the message names: the same."""


class PartitionId(NamedTuple):
    topic: str  # the topic's id, not its name
    number: int


class Problem(Enum):
    """Why a request was not done. The values are the error codes of Kafka's protocol."""

    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    NOT_LEADER = 6
    NOT_ENOUGH_REPLICAS = 19
    OUT_OF_ORDER_SEQUENCE = 45
    PRODUCER_FENCED = 47
    STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_NOT_FOUND = 105
    UNKNOWN_PARTITION = 3
    COORDINATOR_LOADING = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16


# Between replicas


class FetchRequest(NamedTuple):
    """`offset`: everything below it is durable at the follower, so the request is the acknowledgement."""

    partition: PartitionId
    leader_epoch: int
    broker_epoch: int
    correlation: int
    offset: int
    last_epoch: int  # of the follower's last batch
    max_bytes: int


class FetchedBatches(NamedTuple):
    partition: PartitionId
    leader_epoch: int
    correlation: int
    offset: int
    batches: Sequence[EncodedBatch]
    high_watermark: int
    log_start_offset: int


class Diverging(NamedTuple):
    """The follower's log is not the leader's: at the leader, `epoch` ends at `end_offset`."""

    partition: PartitionId
    leader_epoch: int
    correlation: int
    epoch: int
    end_offset: int


class FetchRefused(NamedTuple):
    """`log_start_offset` says where to begin for OFFSET_OUT_OF_RANGE."""

    partition: PartitionId
    leader_epoch: int
    correlation: int
    problem: Problem
    log_start_offset: int


# With the controller


class InSync(NamedTuple):
    node: NodeId
    broker_epoch: int


class AlterPartition(NamedTuple):
    partition: PartitionId
    leader: NodeId
    broker_epoch: int  # the leader's
    leader_epoch: int
    partition_epoch: int
    in_sync: tuple[InSync, ...]


class AlterRefused(NamedTuple):
    """The controller has not done it. It may still do an earlier copy of the same request."""

    partition: PartitionId
    leader_epoch: int
    partition_epoch: int


class MetadataChanged(NamedTuple):
    """To this node's replica: the partition as committed metadata has it, as of the record at index `as_of` (R7)."""

    state: PartitionState
    as_of: int

    @property
    def partition(self) -> PartitionId:
        return PartitionId(self.state.topic_id, self.state.partition)


# Clients' requests and their answers


Acks = Literal[-1, 0, 1]


class Produce(NamedTuple):
    """`verified`: the transaction's coordinator has confirmed that it is open with this producer epoch (R19).

    Where it has not, a batch that opens the transaction here waits while the leader asks it, by `transactional_id`;
    `announces`: the write itself makes the partition a part of the transaction (KIP-890).

    `here`: of a producer in the process of a node that is alone. It is answered as soon as the records are in the log,
    and asks `AwaitCommitted` before it commits.

    `base_offset`: of a copier, who knows where the first batch belongs: elsewhere it is refused.
    """

    batches: Sequence[EncodedBatch]
    acks: Acks = -1
    verified: bool = False
    transactional_id: str | None = None
    announces: bool = False
    here: bool = False
    base_offset: int | None = None


class Produced(NamedTuple):
    first_offset: int
    leader_epoch: int


class AwaitCommitted(NamedTuple):
    """`CommittedTo`, once all that is in the log now is committed."""


class CommittedTo(NamedTuple):
    offset: int


class EndMarker(NamedTuple):
    """A coordinator's: ends the producer's transaction here.

    `epoch` is that of the producer's next transaction (R19, KIP-890): a late record of this one is fenced off by the
    marker. With older clients it stays the same. `number` counts the ends of the producer's transactions: each is
    marked once, and a late copy of this request cannot end the next one.
    """

    producer_id: int
    epoch: int
    committed: bool
    timestamp_ms: int
    number: int


class EndHanging(NamedTuple):
    """An administrator's: ends what the producer has open here, whatever its coordinator knows. Answered as
    `EndMarker`."""

    producer_id: int
    epoch: int
    committed: bool
    timestamp_ms: int


class EndOrphan(NamedTuple):
    """To the replica of a node that is alone: what the producer has open here, nobody knows of. With the number of the
    producer's last end, so that its next one still is one."""

    partition: PartitionId
    leader_epoch: int
    marker: EndMarker


class Ended(NamedTuple):
    """The marker is committed, now or since long."""

    leader_epoch: int


class Read(NamedTuple):
    """`leader_epoch`: the one the client knows, -1 for none."""

    offset: int
    max_bytes: int
    committed_only: bool = False
    leader_epoch: int = -1


class ReadBatches(NamedTuple):
    """`batches` may begin below the asked offset; with `committed_only` those of `aborted` are to be passed over."""

    batches: Sequence[EncodedBatch]
    limit: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: AbortedRanges


class AskOffsets(NamedTuple):
    leader_epoch: int = -1


class DeleteRecords(NamedTuple):
    """The log is to begin at `offset`; -1: at the high watermark. Records of open transactions stay."""

    offset: int


class Deleted(NamedTuple):
    """Durable at the leader; followers follow."""

    log_start_offset: int


class PartitionOffsets(NamedTuple):
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


class AskEpochEnd(NamedTuple):
    """OffsetForLeaderEpoch: where does this epoch end?"""

    epoch: int
    leader_epoch: int = -1


class Refused(NamedTuple):
    problem: Problem
    message: str


ReplicaRequest = Produce | AwaitCommitted | EndMarker | EndHanging | Read | AskOffsets | DeleteRecords | AskEpochEnd
ReplicaAnswer = Produced | CommittedTo | Ended | ReadBatches | PartitionOffsets | Deleted | EpochBoundary | Refused


class ForPartition(NamedTuple):
    """What a broker is asked: a request for one of its replicas."""

    partition: PartitionId
    body: ReplicaRequest
