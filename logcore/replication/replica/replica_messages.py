"""Messages between the replicas of a partition, their clients and the controller.

Every message names the partition by topic id and number (R20: a topic that was deleted and created again is another
log), and the leader epoch of its sender (R6). Messages are tuples, because the simulator creates millions of them.
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
"""Placeholder for the leader of the metadata quorum: the broker replaces it with the node that it believes leads."""

COORDINATOR: Final = NodeId(-2)
"""Placeholder for the coordinator of the transactional id in the message; the broker replaces it likewise."""


class PartitionId(NamedTuple):
    topic: str  # the topic's id, not its name
    number: int


class Problem(Enum):
    """Why a request was refused. The values are the error codes of Kafka's protocol."""

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
    """`offset`: everything below it is durable on the follower, so the request is also the acknowledgement."""

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
    """The follower's log differs from the leader's, where `epoch` ends at `end_offset`."""

    partition: PartitionId
    leader_epoch: int
    correlation: int
    epoch: int
    end_offset: int


class FetchRefused(NamedTuple):
    """`log_start_offset`: where to begin after OFFSET_OUT_OF_RANGE."""

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
    """The controller refused the change. It may still accept an earlier copy of the same request."""

    partition: PartitionId
    leader_epoch: int
    partition_epoch: int


class MetadataChanged(NamedTuple):
    """To this node's replica: the partition's committed metadata, as of the record at index `as_of` (R7)."""

    state: PartitionState
    as_of: int

    @property
    def partition(self) -> PartitionId:
        return PartitionId(self.state.topic_id, self.state.partition)


# Clients' requests and their answers


Acks = Literal[-1, 0, 1]


class Produce(NamedTuple):
    """`verified`: the transaction's coordinator has confirmed that it is open with this producer epoch (R19).

    Otherwise a batch that opens the transaction here waits while the leader asks the coordinator of `transactional_id`.
    `announces`: the write itself adds the partition to the transaction (KIP-890).

    `here`: the producer runs in the process of a node that is alone. It is answered as soon as the records are in the
    log, and sends `AwaitCommitted` before it commits.

    `base_offset`: the offset where a copier wants the first batch; if the log does not end there, it is refused.
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
    """Answered with `CommittedTo` once everything that is now in the log is committed."""


class CommittedTo(NamedTuple):
    offset: int


class EndMarker(NamedTuple):
    """From a coordinator: ends the producer's transaction here.

    `epoch` is that of the producer's next transaction (R19, KIP-890), so the marker fences late records of this one.
    With older clients it stays the same. `number` counts the ends of the producer's transactions: each is marked once,
    and a late copy of this request cannot end the next one.
    """

    producer_id: int
    epoch: int
    committed: bool
    timestamp_ms: int
    number: int


class EndHanging(NamedTuple):
    """From an administrator: ends the producer's open transaction here, whatever its coordinator knows. Answered like
    `EndMarker`."""

    producer_id: int
    epoch: int
    committed: bool
    timestamp_ms: int


class EndOrphan(NamedTuple):
    """To a replica of a node that is alone: no coordinator knows the producer's transaction that is open here. The
    marker has the number of the producer's last end, so that its next end is still marked."""

    partition: PartitionId
    leader_epoch: int
    marker: EndMarker


class Ended(NamedTuple):
    """The marker is committed, now or already before the request."""

    leader_epoch: int


class Read(NamedTuple):
    """`leader_epoch`: the one that the client knows; -1: none."""

    offset: int
    max_bytes: int
    committed_only: bool = False
    leader_epoch: int = -1


class ReadBatches(NamedTuple):
    """`batches` may begin below the asked offset. With `committed_only`, the reader skips the records in `aborted`."""

    batches: Sequence[EncodedBatch]
    limit: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: AbortedRanges


class AskOffsets(NamedTuple):
    leader_epoch: int = -1


class DeleteRecords(NamedTuple):
    """Moves the log's start to `offset`; -1: to the high watermark. Records of open transactions stay."""

    offset: int


class Deleted(NamedTuple):
    """The new start is durable on the leader; followers will take it over."""

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
    """A request to a broker, for one of its replicas."""

    partition: PartitionId
    body: ReplicaRequest
