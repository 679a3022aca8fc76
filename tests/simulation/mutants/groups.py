"""Planted bugs of the coordinators of groups, and of what all coordinators have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from millstream.logcore.cores.all_groups import AllGroups
from millstream.logcore.cores.coordinated_group import CoordinatedGroup
from millstream.logcore.cores.group_messages import GroupFault
from millstream.logcore.cores.share_partition import ShareFault
from millstream.logcore.records.key_values import KeyValue, encode_key_values
from millstream.logcore.replication.shards import coordination
from millstream.logcore.replication.shards.coordination import Coordinators
from millstream.logcore.replication.shards.group_commits import CommittedOffsets
from millstream.logcore.replication.shards.led_log import LedLog
from millstream.logcore.replication.shards.share_messages import Verdicts
from millstream.logcore.replication.shards.share_shard import ShareShard

from .base import cluster_mutant


def _at_once(self: LedLog, action: Callable[[], None]) -> None:
    action()


def _yes(*_: Any) -> bool:
    return True


def _no(*_: Any) -> bool:
    return False


def _nothing(*_: Any) -> None:
    return None


def _no_changes(*_: Any) -> list[KeyValue]:
    return []


def _nobody(*_: Any) -> dict[Any, str]:
    return {}


def _may_commit(*_: Any) -> GroupFault:
    return GroupFault.NONE


_acknowledge = ShareShard._acknowledge


def _without_a_record(self: ShareShard, group: str, member_id: str, verdicts: Verdicts) -> ShareFault:
    fault = _acknowledge(self, group, member_id, verdicts)
    partition = self._states.of(group, verdicts.partition)
    if partition is not None:
        partition.take_change()
    return fault


def _written_or_not(self: LedLog, changes: Sequence[KeyValue]) -> None:
    if changes:
        self._replica.append_own([encode_key_values(changes, self.wall_ms)])
        self._coordinators.appended(self.partition, self._replica)


MUTANTS: Final = [
    cluster_mutant(
        "coordinator_answers_early",
        "R16, T-L21",
        "a coordinator answers before its record is committed",
        "test_a_commit_is_answered_when_another_replica_has_it",
        (LedLog, "once_committed", _at_once),
    ),
    cluster_mutant(
        "coordinator_begins_early",
        "R16",
        "a coordinator begins before what it found in its log is committed",
        "test_a_new_coordinator_begins_when_what_it_found_is_committed",
        (Coordinators, "_is_settled", _yes),
    ),
    cluster_mutant(
        "coordinator_outlives_its_epoch",
        "R6, T-L21",
        "a coordinator goes on when its leader epoch is over",
        "test_who_waits_is_refused_when_another_node_leads",
        (coordination, "_may_go_on", _yes),
    ),
    cluster_mutant(
        "coordinator_forgets_failed_writes",
        "R17, T-L23",
        "a coordinator goes on when its record did not fit onto the disk",
        "test_a_coordinator_whose_disk_is_full_reads_its_log_again",
        (LedLog, "write", _written_or_not),
    ),
    cluster_mutant(
        "deposed_coordinator_reads_out",
        "T-L4",
        "reads out offsets though another node may coordinate",
        "test_a_coordinator_that_was_replaced_without_noticing_reads_out_nothing_old",
        (LedLog, "prove", _nothing),
    ),
    cluster_mutant(
        "old_generation_commits",
        "T-L21",
        "takes offsets of members of an old generation",
        "test_a_member_of_an_old_generation_commits_nothing",
        (AllGroups, "check_commit", _may_commit),
    ),
    cluster_mutant(
        "sessions_end_with_the_coordinator",
        "T-L21",
        "takes all members for dead that a new coordinator has not heard yet",
        "test_members_do_not_notice_that_their_coordinator_died",
        (AllGroups, "begin", _nothing),
    ),
    cluster_mutant(
        "assigns_what_is_read",
        "T-L21",
        "gives a partition to a member while another one still reads it",
        "test_a_partition_that_is_given_up_goes_on_after_a_fail_over_only_when_it_is_free",
        (CoordinatedGroup, "holders", _nobody),
    ),
    cluster_mutant(
        "offsets_of_deleted_topics",
        "R20",
        "takes the offsets of a deleted topic for those of a new one of its name",
        "test_offsets_of_a_topic_that_was_deleted_are_not_those_of_a_new_one",
        (CommittedOffsets, "_is_of_now", _yes),
    ),
    cluster_mutant(
        "acceptances_are_forgotten",
        "T-L21",
        "does not write down that records of a share group are accepted",
        15,
        (ShareShard, "_acknowledge", _without_a_record),
    ),
    cluster_mutant(
        "offsets_applied_twice",
        "R19, T-L20",
        "sets offsets back when a transaction's end is heard again",
        "test_offsets_of_a_transaction_are_applied_once",
        (CommittedOffsets, "is_settled", _no),
    ),
    cluster_mutant(
        "undecided_offsets_are_settled",
        "R19, T-L21",
        "shows offsets that an open transaction is about to change",
        "test_held_offsets_are_not_settled_until_the_transaction_is_also_after_a_fail_over",
        (CommittedOffsets, "hold", _no_changes),
    ),
]
