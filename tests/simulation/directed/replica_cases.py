"""Directed scenarios of replicas: tests in which every message and every sync is in somebody's hands."""

from __future__ import annotations

from typing import Final

from tests.logcore.replication.test_broker_logs import (
    test_a_node_that_learns_at_once_that_it_left_a_partition_and_returned_keeps_its_log,
)
from tests.logcore.replication.test_partition_rules import (
    test_a_new_replica_that_may_have_what_others_lack_goes_when_the_replicas_of_before_are_in_sync,
)
from tests.logcore.replication.test_replica import (
    test_a_copy_of_an_old_response_changes_nothing,
    test_a_fetch_of_an_earlier_life_acknowledges_nothing,
    test_a_follower_joins_with_all_that_earlier_leaders_have_committed,
    test_a_marker_fences_off_records_that_are_still_on_their_way,
    test_a_refused_proposal_still_counts_until_the_partition_epoch_moves,
    test_a_transaction_is_seen_when_its_marker_is_committed,
    test_after_a_failed_sync_the_replica_does_nothing_any_more,
    test_fetches_of_another_epoch_are_refused,
)


def a_reassignment_that_replaces_another_keeps_what_others_may_lack() -> None:
    test_a_new_replica_that_may_have_what_others_lack_goes_when_the_replicas_of_before_are_in_sync(
        {"isr": (1,), "elr": (4,), "leader": 1}
    )


CASES: Final = (
    a_reassignment_that_replaces_another_keeps_what_others_may_lack,
    test_a_copy_of_an_old_response_changes_nothing,
    test_a_fetch_of_an_earlier_life_acknowledges_nothing,
    test_a_follower_joins_with_all_that_earlier_leaders_have_committed,
    test_a_marker_fences_off_records_that_are_still_on_their_way,
    test_a_node_that_learns_at_once_that_it_left_a_partition_and_returned_keeps_its_log,
    test_a_refused_proposal_still_counts_until_the_partition_epoch_moves,
    test_a_transaction_is_seen_when_its_marker_is_committed,
    test_after_a_failed_sync_the_replica_does_nothing_any_more,
    test_fetches_of_another_epoch_are_refused,
)
