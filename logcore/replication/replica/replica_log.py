"""What a replica asks of the storage of its log. Files: `disk_log.py`; the simulator has its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...records.batch import EncodedBatch
from ...storage.epoch_cache import EpochCache
from ...storage.partition_state import LogState


class ReplicaLog(Protocol):
    """The log as it is read by this process; what of it is durable is known from `Persisted` alone.

    After a restart it begins with what recovery found, and all of that is durable.
    """

    @property
    def log_start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """On the disk, about."""
        ...

    @property
    def whole(self) -> bool:
        """Whether nothing is known to be lost of it."""
        ...

    @property
    def usable(self) -> bool:
        """False once the disk failed a sync, also one that the machine did not ask for: then the process has to end."""
        ...

    @property
    def epochs(self) -> EpochCache: ...

    @property
    def state(self) -> LogState:
        """What the batches below the end mean: producers and transactions, a fold of the log (R18)."""
        ...

    def append(self, batches: Sequence[EncodedBatch]) -> None:
        """Takes batches whose headers say their offsets and epochs, all or none. Raises `LogError` where it cannot."""
        ...

    def move_start(self, offset: int) -> None:
        """The log begins here from now on, or at the published stable offset if that is less; never before its start.

        Durable with the next sync, after which what lies before it may go.
        """
        ...

    def publish(self, high_watermark: int, last_stable_offset: int) -> None:
        """Readers of this replica see the log up to here from now on. Log start <= stable <= high watermark <= end."""
        ...

    def truncate(self, offset: int) -> None:
        """Forgets everything from this offset on; `state` and `epochs` are those of the shorter log.

        In: where a batch begins, or the log's start, which may lie inside a batch: nothing is left then.

        Raises OSError, `LogError`; then nothing is known of the log, and the process has to end.
        """
        ...

    def restart_at(self, offset: int) -> None:
        """Forgets everything: the next batch has this offset. Raises as `truncate` does.

        In: it lies behind the end, or the log is empty.
        """
        ...

    def read(self, offset: int, limit: int, max_bytes: int) -> Sequence[EncodedBatch]:
        """Whole batches from the one that holds `offset` on, all below `limit`; at least one if there is one."""
        ...
