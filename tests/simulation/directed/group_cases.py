"""Directed scenarios of the coordinators of groups: three brokers whose controller is the test."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final

from tests.logcore.replication import test_group_shard as tests
from tests.logcore.replication.brokers import Brokers


def _on_a_cluster(case: Callable[[Brokers], None]) -> Callable[[], None]:
    @wraps(case)
    def run() -> None:
        case(Brokers())

    return run


CASES: Final = tuple(
    map(
        _on_a_cluster,
        (
            tests.test_a_commit_is_answered_when_another_replica_has_it,
            tests.test_a_coordinator_whose_disk_is_full_reads_its_log_again,
            tests.test_a_coordinator_that_was_replaced_without_noticing_reads_out_nothing_old,
            tests.test_a_member_of_an_old_generation_commits_nothing,
            tests.test_a_new_coordinator_begins_when_what_it_found_is_committed,
            tests.test_a_partition_that_is_given_up_goes_on_after_a_fail_over_only_when_it_is_free,
            tests.test_held_offsets_are_not_settled_until_the_transaction_is_also_after_a_fail_over,
            tests.test_members_do_not_notice_that_their_coordinator_died,
            tests.test_offsets_of_a_topic_that_was_deleted_are_not_those_of_a_new_one,
            tests.test_offsets_of_a_transaction_are_applied_once,
            tests.test_who_waits_is_refused_when_another_node_leads,
        ),
    )
)
