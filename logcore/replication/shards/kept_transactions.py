"""Open transactions without a record: those of producers in the process of a node that is alone.

Such a producer ends with its coordinator, so nobody continues its open transaction, and a crash aborts it. While it is
open, its holder and its partitions are kept in memory only; the record of the decision contains all of it. That saves a
durable change for each partition before its first record is accepted.

    producer                    coordinator                        on the disk
    first record in a partition the partition is kept              -
    AwaitCommitted              -                                  the records, all partitions at once
    EndTransaction              PREPARE with all partitions        PREPARE: from here on it is committed
    its answer                  markers in the logs, offsets told  with the next sync

A crash before PREPARE leaves records that no coordinator knows: they are orphans, and are aborted when the partition's
log is opened (`replica_settling.py`, `transaction_outcomes.py`). After a crash later than that, the PREPARE record
causes the markers to be written again. Kept transactions outlive the shard (`LedLog.kept`): a shard that could not
write is read again from its log, while its producers continue.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...cores.transaction_records import Identity
from ..replica.replica_messages import PartitionId


@dataclass(slots=True)
class KeptTransaction:
    """`opened_ms`: monotonic time."""

    who: Identity
    opened_ms: int
    partitions: set[PartitionId] = field(default_factory=set[PartitionId])

    def has(self, partition: PartitionId, producer_id: int, epoch: int) -> bool:
        return partition in self.partitions and self.who[1:] == (producer_id, epoch)


class KeptTransactions:
    """State: the open transactions by transactional id. An entry belongs to the holder of the id at its creation."""

    def __init__(self, kept: dict[str, KeptTransaction]) -> None:
        self._kept = kept

    def add(self, who: Identity, partition: PartitionId, now_ms: int) -> bool:
        """The producer writes to this partition. True if that begins its transaction."""
        known = self._kept.get(who.transactional_id)
        begins = known is None or known.who != who
        if known is None or begins:
            known = self._kept[who.transactional_id] = KeptTransaction(who, now_ms)
        known.partitions.add(partition)
        return begins

    def of(self, transactional_id: str) -> KeptTransaction | None:
        return self._kept.get(transactional_id)

    def forget(self, transactional_id: str) -> None:
        """Call it after the record of its end is written, not before: if that write fails, the end has not happened."""
        self._kept.pop(transactional_id, None)

    def ids(self) -> list[str]:
        return list(self._kept)
