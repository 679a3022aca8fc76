"""What a replica asks of the storage of its log. Files: `logcore/partition.py`; in the simulator: a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..partition_state import PartitionState
from ..records.batch import EncodedBatch
from .epoch_cache import EpochCache


class ReplicaLog(Protocol):
    """The log as it is read by this process; what of it is durable is known from `Persisted` alone.

    After a restart it begins with what recovery found, and all of that is durable.
    """

    @property
    def log_start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def epochs(self) -> EpochCache: ...

    @property
    def state(self) -> PartitionState:
        """What the batches below the end mean: producers and transactions, a fold of the log (R18)."""
        ...

    def append(self, batches: Sequence[EncodedBatch]) -> None:
        """Takes batches whose headers say their offsets and epochs, all or none. Raises `LogError` where it cannot."""
        ...

    def truncate(self, offset: int) -> None:
        """Forgets everything from this offset on; `state` and `epochs` are those of the shorter log.

        Raises OSError, `LogError`; then nothing is known of the log, and the process has to end.
        """
        ...

    def restart_at(self, offset: int) -> None:
        """Forgets everything: the next batch has this offset. Raises as `truncate` does."""
        ...

    def read(self, offset: int, limit: int, max_bytes: int) -> Sequence[EncodedBatch]:
        """Whole batches from the one that holds `offset` on, all below `limit`; at least one if there is one."""
        ...
