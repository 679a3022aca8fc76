"""Transactions that a leader finds open when it begins, where a marker may have been lost for good.

Damage takes markers along, and so does an unclean election: their transactions stay open here, though their coordinator
has ended them everywhere and asks nobody again; readers of committed records would wait for ever (T-L18). So the leader
of a partition that no other replica can complete asks about each. The coordinator sends the marker that was lost, or
says that the transaction goes on; where it cannot know, nothing is decided, and the transaction stays open.

A node that is alone has transactions of its own process open of which nothing is written down. What a crash has left of
them is aborted (`orphans_end`).

Until then nothing more of that producer is taken in: it would become a part of the old transaction (R19). Where this
node is alone, readers may have seen a marker that a crash took (`ReplicaCore.visible_offset`). While the disk has no
room to write it again, nothing else is appended: a record at its offset would be missed by those readers.
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
    """State of one leader epoch: by producer, what is not known to go on."""

    def __init__(self, core: ReplicaCore, view: PartitionState) -> None:
        self._core = core
        self._again_ms = core.settings.verify_again_ms
        self._asked_ms = core.now_ms
        may_lack_markers = view.replicas == (core.node,) or view.unclean
        found = core.log.state.transactions.open if may_lack_markers else []
        self._open: dict[int, OpenTransaction] = {transaction.producer_id: transaction for transaction in found}
        self._owed: dict[int, str] = {}  # by producer, why a marker that readers may have seen is not here
        self._ask()

    def holds(self, producer_id: int) -> bool:
        return producer_id in self._open

    def settled(self, producer_id: int) -> None:
        """It has ended here, or goes on."""
        self._open.pop(producer_id, None)
        if self._owed:
            self._owed.pop(producer_id, None)

    def refused(self, producer_id: int, why: str) -> None:
        """There is no room for the end of the producer's transaction, which is decided."""
        core = self._core
        began_here = core.log.state.transactions.open_of(producer_id) is not None and not self.holds(producer_id)
        if core.alone and not began_here:  # else no reader has seen it
            self._owed[producer_id] = why

    @property
    def owes(self) -> str | None:
        """Why nothing may be appended but an end that readers may have seen before a crash; None where none is owed."""
        return next(iter(self._owed.values()), None)

    def tick(self) -> None:
        """Asks again, and less and less often: what cannot be known is not known later either."""
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
