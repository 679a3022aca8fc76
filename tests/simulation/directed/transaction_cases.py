"""Directed scenarios of transactions: three brokers, with everything that is said in the hands of the test."""

from __future__ import annotations

from typing import Final

from tests.logcore.replication import test_transaction_shard as of_shards
from tests.logcore.replication.test_verification import (
    test_a_late_copy_of_a_marker_ends_no_later_transaction_of_the_same_epoch,
    test_an_answer_of_before_a_marker_opens_nothing_after_it,
    test_the_next_transactions_first_batch_does_not_join_the_last_one_that_is_still_open_here,
    test_what_comes_behind_a_parked_batch_waits_with_it_and_stays_in_order,
)


def nothing_is_marked_before_the_decision_is_committed() -> None:
    of_shards.test_nothing_is_marked_before_the_decision_is_committed(of_shards.Cluster())


def a_new_coordinator_ends_what_was_decided_before() -> None:
    of_shards.test_a_new_coordinator_ends_what_was_decided_before(of_shards.Cluster())


def a_new_coordinator_ends_what_was_aborted_before() -> None:
    of_shards.test_a_new_coordinator_ends_what_was_aborted_before(of_shards.Cluster())


def a_new_instance_fences_the_old_one_and_aborts_what_that_has_open() -> None:
    of_shards.test_a_new_instance_fences_the_old_one_and_aborts_what_that_has_open(of_shards.Cluster())


def a_copy_of_a_block_of_producer_ids_is_not_taken_again() -> None:
    of_shards.test_a_copy_of_a_block_of_producer_ids_is_not_taken_again(of_shards.Cluster())


def a_coordinator_that_may_have_been_replaced_does_not_say_that_a_transaction_is_open() -> None:
    case = of_shards.test_a_coordinator_that_may_have_been_replaced_does_not_say_that_a_transaction_is_open
    case(of_shards.Cluster())


def a_coordinator_that_may_have_been_replaced_does_not_say_that_a_transaction_has_ended() -> None:
    case = of_shards.test_a_coordinator_that_may_have_been_replaced_does_not_say_that_a_transaction_has_ended
    for committed in (True, False):
        case(of_shards.Cluster(), committed)


def a_group_holds_nothing_before_it_is_committed_that_it_takes_part() -> None:
    case = of_shards.test_a_group_is_not_asked_to_hold_offsets_before_it_is_committed_that_it_takes_part
    case(of_shards.Cluster())


CASES: Final = (
    a_group_holds_nothing_before_it_is_committed_that_it_takes_part,
    nothing_is_marked_before_the_decision_is_committed,
    a_new_coordinator_ends_what_was_decided_before,
    a_new_coordinator_ends_what_was_aborted_before,
    a_new_instance_fences_the_old_one_and_aborts_what_that_has_open,
    a_copy_of_a_block_of_producer_ids_is_not_taken_again,
    a_coordinator_that_may_have_been_replaced_does_not_say_that_a_transaction_is_open,
    a_coordinator_that_may_have_been_replaced_does_not_say_that_a_transaction_has_ended,
    of_shards.test_an_id_is_not_forgotten_because_somebody_set_the_clock,
    test_a_late_copy_of_a_marker_ends_no_later_transaction_of_the_same_epoch,
    test_an_answer_of_before_a_marker_opens_nothing_after_it,
    test_the_next_transactions_first_batch_does_not_join_the_last_one_that_is_still_open_here,
    test_what_comes_behind_a_parked_batch_waits_with_it_and_stays_in_order,
)
