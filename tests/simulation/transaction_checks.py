"""What transactions promise (I16, I17): all of it is seen or none, nothing before it is decided, offsets included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.logcore.cores.transaction_steps import Outcome
from millstream.logcore.replication.replica.replica_messages import PartitionId
from millstream.logcore.replication.shards.led_log import LedLog
from millstream.logcore.replication.shards.transaction_ends import TransactionEnds
from millstream.logcore.replication.shards.transaction_shard import TransactionShard

from .kernel import InvariantViolated

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld


@dataclass(eq=False)
class Transaction:
    """One, as its producer means it. `committed`: what the producer was told; None while it was told nothing."""

    transactional_id: str
    number: int
    writes: tuple[tuple[PartitionId, bytes], ...]
    commits: bool
    offset: int | None
    asked: bool = False  # the producer has asked for the commit
    committed: bool | None = None


class TransactionChecks:
    """All transactions of the run."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._transactions: list[Transaction] = []

    def begins(self, transaction: Transaction) -> None:
        self._transactions.append(transaction)
        self._world.promises.aborted.update(value for _, value in transaction.writes)

    def may_commit(self, transaction: Transaction) -> None:
        """From now on it may be seen."""
        transaction.asked = True
        self._world.promises.aborted.difference_update(value for _, value in transaction.writes)

    def ended(self, transaction: Transaction) -> None:
        transaction.committed = transaction.commits

    def finish(self, offsets: Mapping[str, int | None]) -> None:
        """In: what the group of each transactional id has committed in the end."""
        visible = {partition: self._world.checks.visible(partition) for partition in self._world.partitions()}
        expected: dict[str, int] = {}
        for transaction in self._transactions:
            if self._is_seen(transaction, visible) and transaction.offset is not None:
                expected[transaction.transactional_id] = transaction.offset
        for transactional_id, found in offsets.items():
            wanted = expected.get(transactional_id, -1)
            if found is not None and found != wanted:
                raise InvariantViolated(
                    "I16",
                    f"the offsets of {transactional_id} are those of transaction {found}, its records of {wanted}",
                )

    def _is_seen(self, transaction: Transaction, visible: Mapping[PartitionId, set[bytes]]) -> bool:
        """Raises where it is neither seen as a whole nor not at all, or not as its producer was told."""
        seen = {value for partition, value in transaction.writes if value in visible[partition]}
        if seen and not transaction.asked:
            raise InvariantViolated("I16", f"nobody has committed {sorted(seen)[:3]}")
        if seen and len(seen) < len(transaction.writes):
            raise InvariantViolated(
                "I16", f"of {[value for _, value in transaction.writes]} only {sorted(seen)} is seen"
            )
        if transaction.committed is not None and transaction.committed != bool(seen):
            raise InvariantViolated("I16", f"{transaction} is seen: {bool(seen)}")
        return bool(seen)


class CountedEnds(TransactionEnds):
    """Counts what has to happen sometimes."""

    counters: Counter[str]

    def tick(self) -> None:
        due = [each for each in self._ending.values() if self._log.now_ms - each.asked_ms >= self._again_ms]
        self.counters["markers asked for again"] += sum(len(each.partitions) for each in due)
        super().tick()


class CountedShard(TransactionShard):
    """The same."""

    def __init__(self, log: LedLog, counters: Counter[str]) -> None:
        super().__init__(log)
        self._counters = counters
        ends = CountedEnds(log, self._ended, self._settings.again_ms)
        ends.counters = counters
        self._ends = ends

    def begin(self) -> None:
        found: list[Outcome] = [*self._core.unfinished(), *self._core.given_up()]
        self._counters["prepared transactions taken over"] += len(found)
        super().begin()

    def _end_overdue(self) -> None:
        before = len(self._opened_ms)
        super()._end_overdue()
        self._counters["transactions timed out"] += before - len(self._opened_ms)
