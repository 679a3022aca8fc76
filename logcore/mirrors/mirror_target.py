"""The log that a mirror copies to."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Protocol

from ..clients.client_groups import GroupLog
from ..clients.remote_cluster import RemoteCluster
from ..records.batch import EncodedBatch


class MirrorLog(GroupLog, Protocol):
    """A log whose `capabilities` have `copies`."""

    @property
    def cluster(self) -> RemoteCluster: ...

    def topic_id(self, name: str) -> uuid.UUID | None: ...

    def append_copies(self, topic: str, partition: int, batches: Sequence[EncodedBatch], mirror: str) -> None:
        """Appends batches at the offsets in their headers; they are durable on return. Raises `OffsetOutOfRange` if the
        partition ends at another offset, also if it already has them; `ReadOnlyTopic` if the topic does not belong to
        `mirror`."""
        ...
