"""The fields that handlers read of requests about share groups: see `request_shapes.py`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Protocol
from uuid import UUID

from .request_shapes import Since, Versioned


class ShareGroupHeartbeatRequest(Versioned, Protocol):
    group_id: str
    member_id: str
    member_epoch: int
    subscribed_topic_names: tuple[str, ...] | None


class ShareGroupDescribeRequest(Versioned, Protocol):
    group_ids: Sequence[str]


class AcknowledgementBatch(Versioned, Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...]


class AcknowledgedPartition(Versioned, Protocol):
    partition_index: int
    acknowledgement_batches: Sequence[AcknowledgementBatch]


class AcknowledgedTopic(Versioned, Protocol):
    topic_id: UUID | None
    partitions: Sequence[AcknowledgedPartition]


class ForgottenShareTopic(Versioned, Protocol):
    topic_id: UUID | None
    partitions: Sequence[int]


class ShareFetchRequest(Versioned, Protocol):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait: timedelta
    min_bytes: int
    max_bytes: int
    max_records: int
    share_acquire_mode: Annotated[int, Since(2)]
    is_renew_ack: Annotated[bool, Since(2)]
    topics: Sequence[AcknowledgedTopic]
    forgotten_topics_data: Sequence[ForgottenShareTopic]


class ShareAcknowledgeRequest(Versioned, Protocol):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    topics: Sequence[AcknowledgedTopic]


class DescribedShareTopic(Versioned, Protocol):
    topic_name: str
    partitions: Sequence[int]


class DescribedShareGroup(Versioned, Protocol):
    group_id: str
    topics: Sequence[DescribedShareTopic] | None


class DescribeShareGroupOffsetsRequest(Versioned, Protocol):
    groups: Sequence[DescribedShareGroup]


class AlteredSharePartition(Versioned, Protocol):
    partition_index: int
    start_offset: int


class AlteredShareTopic(Versioned, Protocol):
    topic_name: str
    partitions: Sequence[AlteredSharePartition]


class AlterShareGroupOffsetsRequest(Versioned, Protocol):
    group_id: str
    topics: Sequence[AlteredShareTopic]


class DeletedShareTopic(Versioned, Protocol):
    topic_name: str


class DeleteShareGroupOffsetsRequest(Versioned, Protocol):
    group_id: str
    topics: Sequence[DeletedShareTopic]
