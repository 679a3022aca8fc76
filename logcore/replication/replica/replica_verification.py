"""Batches that would open a transaction here: they wait until its coordinator confirms that it is open (R19).

Otherwise a late record would open a transaction that is over everywhere else, and that nobody would end (T-L18). Later
batches of the producer wait behind such a batch, so that sequence numbers stay in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..machine import RequestId, Send
from ..shards.transaction_messages import PartitionId, ToCoordinator, TransactionVerified, VerifyTransaction
from .replica_core import NEVER_MS, ReplicaCore
from .replica_messages import COORDINATOR, Problem, Produce, Refused

_PER_PRODUCER: Final = 20  # a producer has five batches under way, and may retry each
_NOBODY: Final = PartitionId("", -1)


class Parked(NamedTuple):
    request: RequestId
    asked: Produce


@dataclass(slots=True)
class _Verifying:
    """One producer's batches. `correlation`: of the last question; answers to earlier ones are ignored."""

    transactional_id: str
    epoch: int
    includes: bool
    here: bool
    until_ms: int
    correlation: int = 0
    asked_ms: int = 0
    parked: deque[Parked] = field(default_factory=deque[Parked])


class Verification:
    """State of one leader epoch: by producer, waiting batches."""

    def __init__(self, core: ReplicaCore) -> None:
        self._core = core
        self._verifying: dict[int, _Verifying] = {}
        self._correlation = 0
        self._epochs: dict[PartitionId, int] = {}  # by shard: its newest epoch that has ended a transaction here

    def holds(self, producer_id: int) -> bool:
        """Whether batches of this producer wait. Then a new batch has to wait behind them."""
        return producer_id in self._verifying

    def park(self, request: RequestId, asked: Produce) -> Refused | None:
        """Lets the request wait. Refuses it if too many wait, or if waiting batches have another epoch."""
        header = asked.batches[0].header
        known = self._verifying.get(header.producer_id)
        if known is None:
            return self._begin(request, asked)
        if known.epoch != header.producer_epoch or len(known.parked) >= _PER_PRODUCER:
            return Refused(Problem.CONCURRENT_TRANSACTIONS, "earlier batches of this producer wait to be verified")
        known.parked.append(Parked(request, asked))
        return None

    def _begin(self, request: RequestId, asked: Produce) -> Refused | None:
        header, settings = asked.batches[0].header, self._core.settings
        if asked.transactional_id is None:
            return Refused(Problem.INVALID_TXN_STATE, "a transactional batch without a transactional id")
        if len(self._verifying) >= settings.waiting_max:
            return Refused(Problem.NOT_ENOUGH_REPLICAS, "too many transactions wait for their coordinators")
        until_ms = self._core.now_ms + settings.verify_ms
        known = _Verifying(asked.transactional_id, header.producer_epoch, asked.announces, asked.here, until_ms)
        known.parked.append(Parked(request, asked))
        self._verifying[header.producer_id] = known
        self._ask(header.producer_id, known)
        return None

    def _ask(self, producer_id: int, known: _Verifying) -> None:
        core = self._core
        self._correlation += 1
        known.correlation, known.asked_ms = self._correlation, core.now_ms
        question = VerifyTransaction(
            _NOBODY,
            core.partition,
            core.leader_epoch,
            known.correlation,
            known.transactional_id,
            producer_id,
            known.epoch,
            known.includes,
            known.here,
        )
        core.emit(Send(COORDINATOR, ToCoordinator(known.transactional_id, question)))

    def take(self, answer: TransactionVerified) -> tuple[deque[Parked], Refused | None]:
        """The requests that waited for this answer, in order, and the reason if they are refused."""
        known = self._verifying.get(answer.producer_id)
        if known is None or (answer.leader_epoch, answer.correlation) != (self._core.leader_epoch, known.correlation):
            return deque(), None
        if answer.sender_epoch < self._epochs.get(answer.sender, answer.sender_epoch):
            return deque(), None  # the sender was replaced: `tick` asks its successor
        del self._verifying[answer.producer_id]
        refused = Refused(answer.problem, answer.message) if answer.problem is not None else None
        return known.parked, refused

    def heard(self, shard: PartitionId, epoch: int) -> None:
        """The shard has ended a transaction here, in this leader epoch of the shard's partition."""
        self._epochs[shard] = max(epoch, self._epochs.get(shard, epoch))

    def ended(self, producer_id: int) -> None:
        """A transaction of the producer has ended here. Earlier answers do not apply to its next one, so ask again."""
        known = self._verifying.get(producer_id)
        if known is not None:
            self._ask(producer_id, known)

    def tick(self) -> list[Parked]:
        """Asks again; returns the requests that have waited too long."""
        if not self._verifying:
            return []
        core, late = self._core, list[Parked]()
        for producer_id, known in list(self._verifying.items()):
            if core.now_ms >= known.until_ms:
                late += self._verifying.pop(producer_id).parked
            elif core.now_ms - known.asked_ms >= core.settings.verify_again_ms:
                self._ask(producer_id, known)
        return late

    @property
    def waits(self) -> bool:
        """Whether any batch waits."""
        return bool(self._verifying)

    @property
    def due_ms(self) -> int:
        """When `tick` has something to do next."""
        again_ms = self._core.settings.verify_again_ms
        waiting = (min(known.until_ms, known.asked_ms + again_ms) for known in self._verifying.values())
        return min(waiting, default=NEVER_MS)

    def resign(self) -> list[Parked]:
        """Removes and returns all waiting requests: no answer will come for them here."""
        waiting = [parked for known in self._verifying.values() for parked in known.parked]
        self._verifying.clear()
        return waiting
