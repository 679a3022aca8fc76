"""Planted bugs of transactions: their coordinator, the verification of what opens them, markers, offsets."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, Final

from millstream.logcore.cores.transaction_records import LastEnded
from millstream.logcore.cores.transactions import Coordinator
from millstream.logcore.replication.broker.producer_ids import ProducerIdPool
from millstream.logcore.replication.replica.replica_leader import Leader
from millstream.logcore.replication.replica.replica_verification import Verification
from millstream.logcore.replication.shards.led_log import LedLog
from millstream.logcore.replication.shards.transaction_ends import TransactionEnds
from millstream.logcore.replication.shards.transaction_offsets import TransactionOffsets
from millstream.logcore.replication.shards.transaction_shard import TransactionShard
from millstream.logcore.replication.time_of_day import TimeOfDay
from millstream.logcore.storage.producer_state import ProducerStates

from .base import cluster_mutant


def _never(*_: Any) -> bool:
    return False


def _nothing(*_: Any) -> None:
    return None


def _none(self: Coordinator) -> list[Any]:
    return []


def _ends_at_once(self: TransactionShard, key: str, ready: Any) -> None:
    """Markers go out while the decision is only in this node's log."""
    if ready.outcome is not None:
        self._ends.begin(ready.outcome)
    _CARRY_OUT(self, key, ready)


def _asks_once(self: TransactionEnds, ending: Any) -> None:
    """Takes what was asked for done."""
    _ASK(self, ending)
    ending.partitions.clear()
    ending.groups.clear()


def _keeps_the_epoch(self: Coordinator, record: Any, *, committed: bool) -> Any:
    return replace(record, ended=LastEnded(record.producer_id, record.epoch, committed))


def _believes_producers(self: Leader, request: Any, asked: Any) -> Any:
    return _PRODUCE(self, request, asked._replace(verified=True))


def _of_any_epoch(self: Leader, first: Any) -> bool:
    return self._core.log.state.transactions.open_of(first.producer_id) is not None


def _of_any_producer(self: Coordinator, identity: Any) -> Any:
    return self._known[identity.transactional_id]


def _of_anybody(self: TransactionShard, identity: Any) -> Any:
    return self._core.standing(identity.transactional_id)


def _takes_copies(self: ProducerIdPool, block: Any) -> Any:
    self._last_number = -1
    return _GOT(self, block)


def _in_any_order(self: Verification, answer: Any) -> Any:
    parked, refused = _TAKE(self, answer)
    return deque(reversed(parked)), refused


def _asks_at_once_to_hold(self: TransactionOffsets, key: str, asked: Any, number: int, answer: Any) -> None:
    _SEND(self, key, asked, number, answer)
    self._ask((key, asked.group))


_SEND: Final = TransactionOffsets.send
_CARRY_OUT: Final = TransactionShard._carry_out
_ASK: Final = TransactionEnds._ask
_PRODUCE: Final = Leader._produce
_GOT: Final = ProducerIdPool.got
_TAKE: Final = Verification.take


MUTANTS: Final = [
    cluster_mutant(
        "deposed_coordinator_knows_an_end",
        "T-L4, T-L20",
        "says that a transaction has ended though another node may coordinate",
        "a_coordinator_that_may_have_been_replaced_does_not_say_that_a_transaction_has_ended",
        (TransactionShard, "_prove", _nothing),
    ),
    cluster_mutant(
        "verifies_out_of_touch",
        "T-L4, T-L18",
        "says that a transaction is open though another node may have ended it",
        "a_coordinator_that_may_have_been_replaced_does_not_say_that_a_transaction_is_open",
        (LedLog, "leads_for_certain", property(lambda log: True)),
    ),
    cluster_mutant(
        "believes_a_clock_that_was_set",
        "T-L24",
        "forgets transactional ids when somebody sets the clock",
        "test_an_id_is_not_forgotten_because_somebody_set_the_clock",
        (TimeOfDay, "was_set", _never),
    ),
    cluster_mutant(
        "marks_before_it_is_decided",
        "R19, T-L20",
        "sends markers before the decision is committed",
        "nothing_is_marked_before_the_decision_is_committed",
        (TransactionShard, "_carry_out", _ends_at_once),
    ),
    cluster_mutant(
        "held_before_it_is_committed",
        "R19, T-L20",
        "has a group hold offsets before it is committed that the group takes part",
        "a_group_holds_nothing_before_it_is_committed_that_it_takes_part",
        (TransactionOffsets, "send", _asks_at_once_to_hold),
    ),
    cluster_mutant(
        "complete_before_markers",
        "T-L20",
        "takes a transaction for ended when it has asked for the markers",
        "a_new_coordinator_ends_what_was_decided_before",
        (TransactionEnds, "_ask", _asks_once),
    ),
    cluster_mutant(
        "decided_and_forgotten",
        "T-L20",
        "does not go on with what the coordinator before has decided",
        "a_new_coordinator_ends_what_was_decided_before",
        (Coordinator, "unfinished", _none),
    ),
    cluster_mutant(
        "aborted_and_forgotten",
        "T-L20, T-L18",
        "does not go on with what the coordinator before has given up",
        "a_new_coordinator_ends_what_was_aborted_before",
        (Coordinator, "given_up", _none),
    ),
    cluster_mutant(
        "producer_epoch_stays",
        "R19, T-L17",
        "ends a transaction and lets the producer keep its epoch",
        0,
        (Coordinator, "_raised", _keeps_the_epoch),
    ),
    cluster_mutant(
        "no_verification",
        "R19, T-L18",
        "takes a transaction's records without asking its coordinator",
        0,
        (Leader, "_produce", _believes_producers),
    ),
    cluster_mutant(
        "joins_what_is_open",
        "R19, T-L17",
        "takes the next transaction's records into the last one",
        "test_the_next_transactions_first_batch_does_not_join_the_last_one_that_is_still_open_here",
        (Leader, "_is_open_here", _of_any_epoch),
    ),
    cluster_mutant(
        "verified_for_ever",
        "R19, T-L18",
        "takes an answer of before a marker for true after it",
        "test_an_answer_of_before_a_marker_opens_nothing_after_it",
        (Verification, "ended", _nothing),
    ),
    cluster_mutant(
        "overtakes_what_is_parked",
        "T-L16",
        "turns round what waited for a coordinator",
        "test_what_comes_behind_a_parked_batch_waits_with_it_and_stays_in_order",
        (Verification, "take", _in_any_order),
    ),
    cluster_mutant(
        "any_marker_ends",
        "R19, T-L17",
        "writes a marker for each copy of the request",
        "test_a_late_copy_of_a_marker_ends_no_later_transaction_of_the_same_epoch",
        (ProducerStates, "has_ended", _never),
    ),
    cluster_mutant(
        "zombies_are_heard",
        "R19, T-L17",
        "listens to any instance of a transactional id",
        "a_new_instance_fences_the_old_one_and_aborts_what_that_has_open",
        (Coordinator, "_of", _of_any_producer),
        (TransactionShard, "_current", _of_anybody),
    ),
    cluster_mutant(
        "open_for_ever",
        "T-L18",
        "never ends a transaction whose producer is gone",
        3,
        (TransactionShard, "_end_overdue", _nothing),
    ),
    cluster_mutant(
        "copied_producer_ids",
        "R19",
        "takes a copy of a block of producer ids for another one",
        "a_copy_of_a_block_of_producer_ids_is_not_taken_again",
        (ProducerIdPool, "got", _takes_copies),
    ),
]
