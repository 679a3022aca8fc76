"""The storage interface for the log of a replica. `disk_log.py` implements it on files; the simulator has its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...records.batch import EncodedBatch
from ...storage.epoch_cache import EpochCache
from ...storage.partition_state import LogState


class ReplicaLog(Protocol):
    """The log as this process reads it; only `Persisted` reports how much of it is durable.

    After a restart it has what recovery found, and all of that is durable.
    """

    @property
    def log_start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """The approximate size on the disk."""
        ...

    @property
    def whole(self) -> bool:
        """Whether it is not known to have lost records."""
        ...

    @property
    def usable(self) -> bool:
        """False once a sync has failed, including syncs that the machine did not request: then the process must end."""
        ...

    @property
    def epochs(self) -> EpochCache: ...

    @property
    def state(self) -> LogState:
        """Producers and transactions: a fold of all batches (R18)."""
        ...

    def append(self, batches: Sequence[EncodedBatch]) -> None:
        """Appends all batches or none. Their headers have offsets and epochs. Raises `LogError` if it cannot."""
        ...

    def move_start(self, offset: int) -> None:
        """Moves the start of the log to this offset, or to the published stable offset if that is lower; never back.

        The next sync makes it durable; after that, records before the start may be deleted.
        """
        ...

    def publish(self, high_watermark: int, last_stable_offset: int) -> None:
        """Readers of this replica see the log up to these offsets. Log start <= stable <= high watermark <= end."""
        ...

    def truncate(self, offset: int) -> None:
        """Removes everything from this offset on; `state` and `epochs` become those of the shorter log.

        In: the start of a batch; or the log's start, even inside of a batch: then nothing is left.

        Raises OSError, `LogError`: then the state of the log is unknown, and the process must end.
        """
        ...

    def restart_at(self, offset: int) -> None:
        """Removes everything; the next batch has this offset. Raises as `truncate` does.

        In: an offset after the end, or any offset if the log is empty.
        """
        ...

    def read(self, offset: int, limit: int, max_bytes: int) -> Sequence[EncodedBatch]:
        """Whole batches below `limit`, starting with the one that contains `offset`; at least one if there is one."""
        ...
