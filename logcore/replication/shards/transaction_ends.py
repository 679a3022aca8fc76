"""Ends decided transactions: sends markers to the leaders of their partitions, and offsets to their groups, until all
have answered.

Leaders move, and answers get lost, so each participant is asked again until it answers. The number of the transaction
makes sure that it acts only once. A deleted topic needs no marker. An unknown topic was deleted: the coordinator that
included the partition knew the topic, and metadata never go back. If the topic of groups is not known yet, no group
holds offsets of the transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ...cores.transaction_records import TransactionRecord
from ...cores.transaction_steps import Outcome
from ...failpoints import fp
from ...topic_rules import GROUPS_TOPIC
from ..machine import NodeId
from ..replica.replica_messages import EndMarker, PartitionId, Problem, Refused
from .coordination_messages import place_of
from .led_log import LedLog
from .transaction_messages import ApplyOffsets, EndRefused, MarkerWritten, OffsetRow, OffsetsApplied, WriteMarker


class _Key(NamedTuple):
    """Identifies a transaction, unique in the cluster."""

    producer_id: int
    number: int


@dataclass(slots=True)
class _Ending:
    """`unseen`: the partitions and groups where it may still look open."""

    outcome: Outcome
    partitions: set[PartitionId]  # those that have not answered
    groups: set[str]  # likewise
    unseen: set[PartitionId | str]
    asked_ms: int
    refused: str | None = None  # an error about a full disk, since all were last asked


class TransactionEnds:
    """State: the transactions that are decided for good, but have not ended everywhere.

    `ended` is called when all have answered. `seen` is called earlier, when all readers can see the outcome; on a node
    that is alone, a crash may still lose some markers then (`MarkerWritten`).
    """

    def __init__(
        self,
        log: LedLog,
        ended: Callable[[Outcome], None],
        again_ms: int,
        seen: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self._log = log
        self._ended, self._seen = ended, seen
        self._again_ms = again_ms
        self._ending: dict[_Key, _Ending] = {}
        self._refused: set[_Key] = set()  # those whose `refused` is set

    def begin(self, outcome: Outcome) -> None:
        """Begins to end a transaction. In: the record of the decision is committed; only then may readers see it."""
        fp("txn.after_prepare")
        key = _Key(outcome.record.producer_id, outcome.record.number)
        if key in self._ending:
            return
        record = outcome.record
        partitions = {PartitionId(*participant.partition) for participant in record.participants}
        groups = set(record.offsets)
        self._ending[key] = _Ending(outcome, partitions, groups, {*partitions, *groups}, self._log.now_ms)
        self._ask(self._ending[key])
        self._done(key)

    def is_seen(self, record: TransactionRecord) -> bool:
        """Whether all readers can see the outcome of this transaction, which has not ended everywhere."""
        ending = self._ending.get(_Key(record.producer_id, record.number))
        return ending is not None and not ending.unseen

    def marked(self, message: MarkerWritten) -> None:
        key = _Key(message.producer_id, message.number)
        ending = self._ending.get(key)
        if ending is not None:
            fp("txn.marker")
            if message.durable:
                ending.partitions.discard(message.of)
            self._note_seen(key, ending, message.of)

    def applied(self, message: OffsetsApplied) -> None:
        key = _Key(message.producer_id, message.number)
        ending = self._ending.get(key)
        if ending is not None:
            if message.durable:
                ending.groups.discard(message.group)
            self._note_seen(key, ending, message.group)

    def _note_seen(self, key: _Key, ending: _Ending, where: PartitionId | str) -> None:
        was_unseen = bool(ending.unseen)
        ending.unseen.discard(where)
        if was_unseen and not ending.unseen and (ending.partitions or ending.groups):
            self._seen(ending.outcome)
        self._done(key)

    def refused(self, message: EndRefused) -> None:
        ending = self._ending.get(_Key(message.producer_id, message.number))
        if ending is not None:
            ending.refused = message.message
            self._refused.add(_Key(message.producer_id, message.number))

    def why_refused(self, ended: TransactionRecord) -> str | None:
        """Why this end cannot be written everywhere, if that is known."""
        if not self._refused:
            return None
        ending = self._ending.get(_Key(ended.producer_id, ended.number))
        return ending.refused if ending is not None else None

    def why_unapplied(self, group: str) -> Refused | None:
        """The error for clients if the group lacks offsets of committed transactions; they may ask again. Or None."""
        for ending in self._ending.values():
            if group in ending.unseen and ending.outcome.committed:
                if ending.refused is not None:
                    return Refused(Problem.STORAGE_ERROR, ending.refused)
                text = "the offsets of a committed transaction are not in its group yet; ask again"
                return Refused(Problem.COORDINATOR_LOADING, text)
        return None

    def try_again(self, ended: TransactionRecord) -> None:
        """Asks again if a participant had no space: there may be some by now."""
        key = _Key(ended.producer_id, ended.number)
        if key in self._refused:
            self._ask(self._ending[key])
            self._done(key)

    @property
    def lack_room(self) -> bool:
        """Whether any end could not be written for lack of space."""
        return bool(self._refused)

    def tick(self) -> None:
        for key, ending in list(self._ending.items()):
            if self._log.now_ms - ending.asked_ms >= self._again_ms:
                self._ask(ending)
                self._done(key)

    def _done(self, key: _Key) -> None:
        ending = self._ending.get(key)
        if ending is not None and not ending.partitions and not ending.groups:
            del self._ending[key]
            self._refused.discard(key)
            self._ended(ending.outcome)

    def _ask(self, ending: _Ending) -> None:
        """Asks all participants that have not answered."""
        record = ending.outcome.record
        self._refused.discard(_Key(record.producer_id, record.number))
        ending.asked_ms, ending.refused = self._log.now_ms, None
        for partition in sorted(ending.partitions):
            self._ask_partition(ending, partition)
        for group in sorted(ending.groups):
            self._ask_group(ending, group)

    def _ask_partition(self, ending: _Ending, partition: PartitionId) -> None:
        log, record = self._log, ending.outcome.record
        state = log.image.partition(partition)
        if state is None:
            ending.partitions.discard(partition)
            ending.unseen.discard(partition)
        elif state.leader is not None:
            marker = EndMarker(record.producer_id, record.epoch, ending.outcome.committed, log.wall_ms, record.number)
            log.send(state.leader, WriteMarker(partition, log.partition, log.epoch, record.transactional_id, marker))

    def _ask_group(self, ending: _Ending, group: str) -> None:
        if place_of(self._log.image, GROUPS_TOPIC, group) is None:
            ending.unseen.discard(group)
            ending.groups.discard(group)  # there was never a coordinator of groups that could hold its offsets
            return
        found = coordinator_of_group(self._log, group)
        if found is None:
            return
        leader, place = found
        record = ending.outcome.record
        offsets = record.offsets[group] if ending.outcome.committed else {}
        rows = tuple(
            OffsetRow(where.topic, where.partition, committed.offset, committed.metadata, committed.leader_epoch)
            for where, committed in offsets.items()
        )
        asked = ApplyOffsets(
            place, self._log.partition, group, record.transactional_id, record.producer_id, record.number, rows
        )
        self._log.send(leader, asked)


def coordinator_of_group(log: LedLog, group: str) -> tuple[NodeId, PartitionId] | None:
    """The node that coordinates the group now, and the partition; None if there is none."""
    place = place_of(log.image, GROUPS_TOPIC, group)
    state = log.image.partition(place) if place is not None else None
    return (state.leader, place) if place is not None and state is not None and state.leader is not None else None
