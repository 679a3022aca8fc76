"""Requests of partition leaders and administrators to the coordinator of a share group: bodies of `ForGroup`.

| body | answer |
| --- | --- |
| `ShareHeartbeat` | `ConsumerBeat` |
| `LookForRecords` | `RecordsFound` |
| `AcquireRecords` | `RecordsAcquired` |
| `AcknowledgeRecords`, `ReleaseRecords` | `RecordsAcknowledged` |
| `AskShareOffsets` | `ShareOffsets` |
| `ResetShareOffsets`, `DeleteShareOffsets` | `ShareChanged` |

A reader of a partition asks its leader, which may be another node than the coordinator, so these are messages (tuples).
Only the coordinator decides which member has which record, and its decisions are committed before it answers: a leader
that was replaced without knowing it can acquire no record that its successor has given to a member.
"""

from __future__ import annotations

from typing import NamedTuple

from ...cores.share_groups import ShareHeartbeat
from ..replica.replica_messages import PartitionId

START_UNKNOWN = -1
"""In place of an offset: the group has not read this partition yet."""
NOTHING_NOW = -2
"""In place of an offset: the limit of records in flight is reached."""


class LeaderView(NamedTuple):
    """A partition, as its leader sees it. `start`: where a group without a start offset should begin; START_UNKNOWN if
    that should not be decided now."""

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
    """In the order of the views. `known`: False if there is no such share group."""

    known: bool
    places: tuple[WhereToRead, ...] = ()


class ReadOffsets(NamedTuple):
    """What the leader has read: batches of the log, each as first and last offset, and whether it has no record that
    the group may see."""

    partition: PartitionId
    batches: tuple[tuple[int, int, bool], ...]


class AcquireRecords(NamedTuple):
    """`exact`: at most `records_max` records, instead of whole batches."""

    member_id: str
    records_max: int
    exact: bool
    read: tuple[ReadOffsets, ...]


class AcquiredOffsets(NamedTuple):
    """`spans`: first and last offset, and how often these records were delivered, including this time."""

    partition: PartitionId
    spans: tuple[tuple[int, int, int], ...]


class RecordsAcquired(NamedTuple):
    """`lock_ms`: how long the member has them."""

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
    """Releases all records of these partitions that the member has."""

    member_id: str
    partitions: tuple[PartitionId, ...]


class RecordsAcknowledged(NamedTuple):
    """An error code for each partition, in the order of the request. `lock_ms`: for records that were renewed."""

    codes: tuple[int, ...]
    lock_ms: int = 0


class AskShareOffsets(NamedTuple):
    """Asks for the offsets of all partitions that the group has read."""


class ShareOffset(NamedTuple):
    """`end_offset`: nothing was delivered from there on; `in_flight`: the number of delivered, unfinished records."""

    partition: PartitionId
    start_offset: int
    end_offset: int
    in_flight: int


class ShareOffsets(NamedTuple):
    known: bool
    offsets: tuple[ShareOffset, ...] = ()


class ResetShareOffsets(NamedTuple):
    """Sets the offset at which the group continues, for each partition. Creates the group if there is none."""

    offsets: tuple[tuple[PartitionId, int], ...]


class DeleteShareOffsets(NamedTuple):
    """Deletes the group's state for the topics with these ids."""

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
