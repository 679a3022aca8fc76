"""Offsets that belong to transactions: asks their group whether it accepts them; from then on the group holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..replica.replica_messages import Problem, Refused
from .led_log import LedLog
from .transaction_answers import Answer
from .transaction_ends import coordinator_of_group
from .transaction_messages import GroupRefused, HoldOffsets, Included, OffsetsHeld, SendOffsets


class _Holding(NamedTuple):
    """`number`: the number that the transaction will end with. `asked_ms`: None until it is committed that the group
    takes part in the transaction: if the group held offsets before that, they might never be settled."""

    asked: SendOffsets
    number: int
    answer: Answer
    until_ms: int
    asked_ms: int | None = None


class TransactionOffsets:
    """State: by transactional id and group, the offsets about which the group is being asked.

    `note` is called when the group holds the offsets, or refuses them: it writes the record, and returns the answer
    (None: the group's refusal is the answer).
    """

    def __init__(
        self,
        log: LedLog,
        note: Callable[[str, SendOffsets, int, bool], Included | Refused | None],
        *,
        again_ms: int,
        wait_ms: int,
    ) -> None:
        self._log = log
        self._note = note
        self._again_ms = again_ms
        self._wait_ms = wait_ms
        self._holding: dict[tuple[str, str], _Holding] = {}

    def send(self, key: str, asked: SendOffsets, number: int, answer: Answer) -> None:
        """Asks the group once everything written so far is committed."""
        where = key, asked.group
        before = self._holding.get(where)
        if before is not None:
            before.answer(Refused(Problem.CONCURRENT_TRANSACTIONS, "other offsets were sent after these"))
        holding = self._holding[where] = _Holding(asked, number, answer, self._log.now_ms + self._wait_ms)
        self._log.once_committed(lambda: self._ask(where) if self._holding.get(where) is holding else None)

    def _ask(self, where: tuple[str, str]) -> None:
        holding = self._holding[where] = self._holding[where]._replace(asked_ms=self._log.now_ms)
        key, asked = where[0], holding.asked
        found = coordinator_of_group(self._log, asked.group)
        if found is None:
            return
        leader, place = found
        hold = HoldOffsets(
            place,
            self._log.partition,
            asked.group,
            key,
            asked.producer_id,
            holding.number,
            asked.generation,
            asked.member_id,
            asked.instance_id,
            tuple((row.topic, row.partition) for row in asked.offsets),
        )
        self._log.send(leader, hold)

    def held(self, message: OffsetsHeld) -> None:
        """Takes an answer of the group, perhaps to another question."""
        where = message.transactional_id, message.group
        holding = self._holding.get(where)
        if holding is None or (message.producer_id, message.number) != (holding.asked.producer_id, holding.number):
            return
        del self._holding[where]
        given = self._note(where[0], holding.asked, holding.number, not message.problem)
        holding.answer(given if given is not None else GroupRefused(message.problem))

    def tick(self) -> None:
        """Asks again; refuses requests that have waited too long."""
        now_ms = self._log.now_ms
        for where, holding in list(self._holding.items()):
            if now_ms >= holding.until_ms:
                del self._holding[where]
                text = "the coordinator of the group does not answer; ask again"
                holding.answer(Refused(Problem.COORDINATOR_NOT_AVAILABLE, text))
            elif holding.asked_ms is not None and now_ms - holding.asked_ms >= self._again_ms:
                self._ask(where)
