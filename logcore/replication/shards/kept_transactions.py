"""Open transactions of which nothing is written down: those of producers in the process of a node that is alone.

Such a producer dies with its coordinator, so nobody goes on with what it has open, and a crash aborts it. What has to
be known of the transaction while it is open (who has it, where it has written) is kept in mind; the record that decides
says all of it. That saves a change to make durable for each partition, before the first record there is taken in.

    producer                    coordinator                        on the disk
    first record in a partition the partition is kept              -
    AwaitCommitted              -                                  the records, all partitions in one go
    EndTransaction              PREPARE with all partitions        PREPARE: from here on it is committed
    its answer                  markers in the logs, offsets told  with whatever is synced next

A crash before PREPARE leaves records that no coordinator knows of: they are orphans, and who opens the partition's log
has them aborted (`replica_settling.py`, `transaction_outcomes.py`). One after it leaves the record, which has the
markers written again. What is kept outlives the shard (`LedLog.kept`): one that could not write is read again from its
log, while its producers go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...cores.transaction_records import Identity
from ..replica.replica_messages import PartitionId


@dataclass(slots=True)
class KeptTransaction:
    """`opened_ms`: monotonic."""

    who: Identity
    opened_ms: int
    partitions: set[PartitionId] = field(default_factory=set[PartitionId])

    def has(self, partition: PartitionId, producer_id: int, epoch: int) -> bool:
        return partition in self.partitions and self.who[1:] == (producer_id, epoch)


class KeptTransactions:
    """State: by transactional id, what is open. Invariant: an entry is of whoever had the id when it was made."""

    def __init__(self, kept: dict[str, KeptTransaction]) -> None:
        self._kept = kept

    def add(self, who: Identity, partition: PartitionId, now_ms: int) -> bool:
        """It writes there. True where the transaction begins with that."""
        known = self._kept.get(who.transactional_id)
        begins = known is None or known.who != who
        if known is None or begins:
            known = self._kept[who.transactional_id] = KeptTransaction(who, now_ms)
        known.partitions.add(partition)
        return begins

    def of(self, transactional_id: str) -> KeptTransaction | None:
        return self._kept.get(transactional_id)

    def forget(self, transactional_id: str) -> None:
        """What becomes of it is written down now: not before, for what cannot be written has not happened."""
        self._kept.pop(transactional_id, None)

    def ids(self) -> list[str]:
        return list(self._kept)
