"""What leaders of partitions ask the coordinator of a share group, and what administrators do: bodies of `ForGroup`.

| body | answer |
| --- | --- |
| `ShareHeartbeat` | `ConsumerBeat` |
| `LookForRecords` | `RecordsFound` |
| `AcquireRecords` | `RecordsAcquired` |
| `AcknowledgeRecords`, `ReleaseRecords` | `RecordsAcknowledged` |
| `AskShareOffsets` | `ShareOffsets` |
| `ResetShareOffsets`, `DeleteShareOffsets` | `ShareChanged` |

Who reads a partition asks its leader, which may be another node than the coordinator: so these are messages of tuples.
The coordinator alone decides who has which record, and what it has decided is committed before it is told: a leader
that was replaced without knowing it can acquire nothing that its successor has given away.
"""

from __future__ import annotations

from typing import NamedTuple

from ...cores.share_groups import ShareHeartbeat
from ..replica.replica_messages import PartitionId

START_UNKNOWN = -1
"""In the place of an offset: nobody has read this partition for the group yet."""
NOTHING_NOW = -2
"""In the place of an offset: as many records are in flight as may be."""


class LeaderView(NamedTuple):
    """Of a partition, as its leader has it. `start`: where a group is to begin that has no start offset yet;
    START_UNKNOWN where that is not to be decided now."""

    partition: PartitionId
    log_start_offset: int
    start: int = START_UNKNOWN


class LookForRecords(NamedTuple):
    views: tuple[LeaderView, ...]


class WhereToRead(NamedTuple):
    """`first`: an offset, START_UNKNOWN or NOTHING_NOW."""

    partition: PartitionId
    first: int


class RecordsFound(NamedTuple):
    """In the order of the views. `known`: False where there is no such share group."""

    known: bool
    places: tuple[WhereToRead, ...] = ()


class ReadOffsets(NamedTuple):
    """What the leader has read: batches of the log, each as first and last offset, and whether it holds no record that
    the group may see."""

    partition: PartitionId
    batches: tuple[tuple[int, int, bool], ...]


class AcquireRecords(NamedTuple):
    """`exact`: not one record more than `records_max`, instead of whole batches."""

    member_id: str
    records_max: int
    exact: bool
    read: tuple[ReadOffsets, ...]


class AcquiredOffsets(NamedTuple):
    """`spans`: first and last offset, and how often these records were delivered, this time included."""

    partition: PartitionId
    spans: tuple[tuple[int, int, int], ...]


class RecordsAcquired(NamedTuple):
    """`lock_ms`: for how long the member has them."""

    acquired: tuple[AcquiredOffsets, ...]
    lock_ms: int


class Verdicts(NamedTuple):
    """`batches`: first and last offset, and the verdict on all of them or on each (`share_partition.Verdict`)."""

    partition: PartitionId
    batches: tuple[tuple[int, int, tuple[int, ...]], ...]


class AcknowledgeRecords(NamedTuple):
    member_id: str
    verdicts: tuple[Verdicts, ...]


class ReleaseRecords(NamedTuple):
    """Of these partitions, all that the member has."""

    member_id: str
    partitions: tuple[PartitionId, ...]


class RecordsAcknowledged(NamedTuple):
    """An error code for each partition, in the order of the request. `lock_ms`: of records that were renewed."""

    codes: tuple[int, ...]
    lock_ms: int = 0


class AskShareOffsets(NamedTuple):
    """Of all partitions that the group has read."""


class ShareOffset(NamedTuple):
    """`end_offset`: from there on nothing was delivered yet; `in_flight`: what was, and is not done with."""

    partition: PartitionId
    start_offset: int
    end_offset: int
    in_flight: int


class ShareOffsets(NamedTuple):
    known: bool
    offsets: tuple[ShareOffset, ...] = ()


class ResetShareOffsets(NamedTuple):
    """Where the group goes on: a partition and an offset each. Makes the group where there is none."""

    offsets: tuple[tuple[PartitionId, int], ...]


class DeleteShareOffsets(NamedTuple):
    """What the group knows of the topics with these ids."""

    topics: tuple[str, ...]


class ShareChanged(NamedTuple):
    """`code`: an error code."""

    code: int


ShareRequest = (
    ShareHeartbeat
    | LookForRecords
    | AcquireRecords
    | AcknowledgeRecords
    | ReleaseRecords
    | AskShareOffsets
    | ResetShareOffsets
    | DeleteShareOffsets
)
ShareAnswer = RecordsFound | RecordsAcquired | RecordsAcknowledged | ShareOffsets | ShareChanged
