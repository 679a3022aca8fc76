"""Settles transactions that a leader finds open when it begins, and whose markers may have been lost for good.

Damage and unclean elections can lose markers. Then a transaction stays open here, although its coordinator has ended it
everywhere and sends no marker again; `read_committed` readers would wait forever (T-L18). So the leader of a partition
that no other replica can complete asks about each open transaction. The coordinator sends the lost marker, or answers
that the transaction continues. If it cannot know, nothing is decided, and the transaction stays open.

On a node that is alone, transactions of its own process may be open without any record of them. After a crash they are
aborted (`orphans_end`).

Until a transaction is settled, the leader accepts nothing more from its producer: it would become part of the old
transaction (R19). If this node is alone, readers may have seen a marker that a crash then lost
(`ReplicaCore.visible_offset`). While the disk has no space to write it again, nothing else is appended: those readers
would miss a record at the marker's offset.
"""

from __future__ import annotations

from typing import Final

from ...storage.transaction_index import OpenTransaction
from ..controller.metadata_records import PartitionState
from ..machine import Send
from ..shards.transaction_messages import AskOutcome, PartitionId, ToEveryCoordinator
from .replica_core import NEVER_MS, ReplicaCore
from .replica_messages import COORDINATOR

_NOBODY: Final = PartitionId("", -1)
_AGAIN_MS_MAX: Final = 60_000


class Settling:
    """State of one leader epoch: by producer, open transactions that are not known to continue."""

    def __init__(self, core: ReplicaCore, view: PartitionState) -> None:
        self._core = core
        self._again_ms = core.settings.verify_again_ms
        self._asked_ms = core.now_ms
        may_lack_markers = view.replicas == (core.node,) or view.unclean
        found = core.log.state.transactions.open if may_lack_markers else []
        self._open: dict[int, OpenTransaction] = {transaction.producer_id: transaction for transaction in found}
        self._owed: dict[int, str] = {}  # by producer, why a marker that readers may have seen is missing
        self._ask()

    def holds(self, producer_id: int) -> bool:
        return producer_id in self._open

    def settled(self, producer_id: int) -> None:
        """The producer's transaction has ended here, or continues."""
        self._open.pop(producer_id, None)
        if self._owed:
            self._owed.pop(producer_id, None)

    def refused(self, producer_id: int, why: str) -> None:
        """There is no space for the marker that ends the producer's transaction, although the end is decided."""
        core = self._core
        began_here = core.log.state.transactions.open_of(producer_id) is not None and not self.holds(producer_id)
        if core.alone and not began_here:  # otherwise no reader has seen the marker
            self._owed[producer_id] = why

    @property
    def owes(self) -> str | None:
        """Why nothing may be appended except a marker that readers may have seen before a crash; None if none is
        missing."""
        return next(iter(self._owed.values()), None)

    def tick(self) -> None:
        """Asks again, at growing intervals: a coordinator that cannot know the outcome will not know it later."""
        if self._open and self._core.now_ms >= self.due_ms:
            self._again_ms = min(2 * self._again_ms, _AGAIN_MS_MAX)
            self._asked_ms = self._core.now_ms
            self._ask()

    @property
    def due_ms(self) -> int:
        return self._asked_ms + self._again_ms if self._open else NEVER_MS

    def _ask(self) -> None:
        core = self._core
        for producer_id, epoch, _ in self._open.values():
            ended = core.log.state.producers.last_end(producer_id)
            whole = core.alone and core.log.whole
            question = AskOutcome(_NOBODY, core.partition, core.leader_epoch, producer_id, epoch, ended, whole)
            core.emit(Send(COORDINATOR, ToEveryCoordinator(question)))
