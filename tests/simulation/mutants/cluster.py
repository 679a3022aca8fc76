"""Planted bugs of replicas and brokers."""

from __future__ import annotations

from typing import Any, Final

from millstream.logcore.replication.broker.broker import ReplicaBroker
from millstream.logcore.replication.broker.leader_lease import LeaderLease
from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.machine import NodeId, Operation
from millstream.logcore.replication.replica import replica_leader
from millstream.logcore.replication.replica.in_sync import InSyncReplicas
from millstream.logcore.replication.replica.replica import Replica
from millstream.logcore.replication.replica.replica_core import ReplicaCore
from millstream.logcore.replication.replica.replica_follower import Follower
from millstream.logcore.replication.replica.replica_leader import Leader
from millstream.logcore.storage.producer_state import ProducerStates

from .base import cluster_mutant


def _yes(*_: Any) -> bool:
    return True


def _nothing(*_: Any) -> None:
    return None


def _any_correlation(self: Follower, response: Any) -> bool:
    return response.leader_epoch == self._core.leader_epoch


def _any_epoch(known: int, asked: int) -> None:
    return None


def _truncates_to_the_high_watermark(self: Replica, view: PartitionState, as_of: int) -> None:
    if not self._is_stale(view, as_of) and view.leader != self.core.node:
        if self.core.high_watermark < self.core.log.end_offset:
            self.core.truncate(self.core.high_watermark)
    _CHANGE(self, view, as_of)


def _proposes_without_waiting(self: InSyncReplicas, members: Any, now_ms: int) -> None:
    self.pending = frozenset(members)
    self.asked_ms = now_ms


def _forgets_what_was_refused(self: InSyncReplicas) -> None:
    self.pending, self.maximal = None, self.committed


def _joins_at_the_high_watermark(self: Leader, offset: int) -> bool:
    return offset >= self._core.high_watermark


def _rests(self: ReplicaBroker, state: PartitionState) -> bool:
    return not self.coordinators.is_of_coordinators(state.topic_id)


def _what_a_record_says(_: ReplicaBroker, state: PartitionState) -> PartitionState:
    return state


def _joins_at_once(self: Leader, offset: int) -> bool:
    return True


def _counts_what_is_not_durable(self: Leader) -> int:
    others = (self.in_sync.acknowledged(node) for node in self.in_sync.maximal if node != self._core.node)
    return min((self._core.log.end_offset, *others))


def _counts_itself_only(self: Leader) -> int:
    return self._core.durable_offset


def _acknowledges_before_the_disk(self: ReplicaCore) -> None:
    """What is appended counts as durable at once; it is written to the disk all the same."""
    _SYNC(self)
    self.durable_offset = self.log.end_offset


def _tries_the_sync_again(self: ReplicaCore, operation: Operation, failed: str | None) -> bool:
    return _PERSISTED(self, operation, None)


def _stable_is_committed(self: ReplicaCore) -> int:
    return self.high_watermark


def _no_uncommitted_ends(self: ReplicaCore) -> int:
    return self.high_watermark


def _knows_no_producer(self: ProducerStates, header: Any) -> None:
    return None


def _takes_any_first_sequence(self: ProducerStates, header: Any) -> Any:
    self.complete = False
    return _CHECK(self, header)


def _marked_where_nothing_is_open(self: Leader, asked: Any) -> bool:
    return self._core.log.state.transactions.open_of(asked.producer_id) is None


def _answers_at_once(self: Leader, request: Any, end_offset: int, answer: Any, acks: int) -> Any:
    return answer if acks else None


def _believes_any_life(self: InSyncReplicas, node: NodeId, offset: int, epoch: int, end: int, now_ms: int) -> bool:
    known = self.followers.get(node)
    if known is not None and epoch < known.broker_epoch:
        epoch = known.broker_epoch
    return _NOTE_FETCH(self, node, offset, epoch, end, now_ms)


def _name_of_the_topic(_: Any, name: str) -> str:
    return name


def _active_when_registered(self: ReplicaBroker) -> bool:
    return self.epoch is not None


_CHANGE: Final = Replica._change
_SYNC: Final = ReplicaCore.sync
_PERSISTED: Final = ReplicaCore.persisted
_CHECK: Final = ProducerStates.check
_NOTE_FETCH: Final = InSyncReplicas.note_fetch


MUTANTS: Final = [
    cluster_mutant(
        "adopts_what_was_replaced",
        "R7",
        "removes a log because of metadata that later ones have replaced",
        "test_a_node_that_learns_at_once_that_it_left_a_partition_and_returned_keeps_its_log",
        (ReplicaBroker, "_newest", _what_a_record_says),
    ),
    cluster_mutant(
        "rests_among_others",
        "R13",
        "lets a replica rest that others copy, or that copies others",
        1,
        (ReplicaBroker, "_rests", _rests),
    ),
    cluster_mutant(
        "named_not_numbered",
        "R20",
        "takes a topic that is made anew for the one that was deleted",
        0,
        ("millstream.logcore.replication.controller.controller_requests", "_new_topic_id", _name_of_the_topic),
    ),
    cluster_mutant(
        "no_min_isr", "R11", "raises the high watermark with too few in sync", 106, (Leader, "_enough_in_sync", _yes)
    ),
    cluster_mutant(
        "no_max_isr",
        "R11, T-L5",
        "waits for the committed ISR only",
        0,
        (InSyncReplicas, "propose", _proposes_without_waiting),
    ),
    cluster_mutant(
        "leader_alone",
        "R11",
        "acknowledges what is durable at the leader",
        0,
        (Leader, "_held_by_all", _counts_itself_only),
    ),
    cluster_mutant(
        "refused_is_undone",
        "R12",
        "forgets a refused proposal whose copy is under way",
        "test_a_refused_proposal_still_counts_until_the_partition_epoch_moves",
        (InSyncReplicas, "refused", _forgets_what_was_refused),
    ),
    cluster_mutant(
        "joins_at_hw",
        "R13, T-L10",
        "takes a follower in that lacks what earlier leaders have committed",
        "test_a_follower_joins_with_all_that_earlier_leaders_have_committed",
        (Leader, "_has_all_committed", _joins_at_the_high_watermark),
    ),
    cluster_mutant(
        "joins_at_once", "R13", "takes any follower in", 101, (Leader, "_has_all_committed", _joins_at_once)
    ),
    cluster_mutant(
        "no_leader_epoch",
        "R6, T-L4",
        "answers fetches of any leader epoch",
        "test_fetches_of_another_epoch_are_refused",
        (replica_leader, "epoch_problem", _any_epoch),
    ),
    cluster_mutant(
        "no_lease",
        "T-L4",
        "answers reads as a leader though the controller may have replaced it",
        "a_leader_that_is_cut_off_reads_out_nothing_old",
        (LeaderLease, "holds", _yes),
    ),
    cluster_mutant(
        "lease_of_old_metadata",
        "T-L4",
        "goes on leading when it is live again and has not heard that it was replaced",
        "test_an_answer_counts_when_the_metadata_it_knew_of_are_known_here",
        (LeaderLease, "_is_known", _yes),
    ),
    cluster_mutant(
        "no_correlation",
        "R9, T-L11",
        "takes responses to earlier fetches",
        "test_a_copy_of_an_old_response_changes_nothing",
        (Follower, "_is_current", _any_correlation),
    ),
    cluster_mutant(
        "hw_truncation",
        "R10, T-L1, T-L2",
        "truncates to its high watermark when a new leader begins",
        1,
        (Replica, "_change", _truncates_to_the_high_watermark),
    ),
    cluster_mutant(
        "no_divergence",
        "R10, T-L3",
        "sends what follows without asking where the logs part",
        4,
        (Leader, "_parted_at", _nothing),
    ),
    cluster_mutant(
        "begins_at_batches_only",
        "R10",
        "takes no first batch that begins before the log's start",
        28,
        (Follower, "_begin_with", _nothing),
    ),
    cluster_mutant(
        "leader_record_unsynced",
        "T-L8",
        "counts what is in the leader's memory",
        1,
        (Leader, "_held_by_all", _counts_what_is_not_durable),
    ),
    cluster_mutant(
        "follower_acks_unsynced",
        "T-L8",
        "acknowledges what is in the follower's memory",
        1,
        (ReplicaCore, "sync", _acknowledges_before_the_disk),
    ),
    cluster_mutant(
        "failed_sync_goes_on",
        "R17, T-L9",
        "goes on after a failed sync",
        "test_after_a_failed_sync_the_replica_does_nothing_any_more",
        (ReplicaCore, "persisted", _tries_the_sync_again),
    ),
    cluster_mutant(
        "no_sequences",
        "R18, T-L16",
        "stores what a producer sends again",
        0,
        (ProducerStates, "check", _knows_no_producer),
    ),
    cluster_mutant(
        "overtaking_sequence",
        "T-L16, T-L22",
        "takes a producer's second batch before its first",
        0,
        (ProducerStates, "check", _takes_any_first_sequence),
    ),
    cluster_mutant(
        "duplicate_acked_early",
        "R18",
        "answers before the record is committed",
        0,
        (Leader, "_answer_later", _answers_at_once),
    ),
    cluster_mutant(
        "no_lso",
        "T-L19",
        "shows open transactions",
        0,
        (ReplicaCore, "last_stable_offset", property(_stable_is_committed)),
    ),
    cluster_mutant(
        "lso_at_marker",
        "T-L19",
        "shows a transaction whose marker is not committed",
        "test_a_transaction_is_seen_when_its_marker_is_committed",
        (ReplicaCore, "_uncommitted_ends_from", _no_uncommitted_ends),
    ),
    cluster_mutant(
        "no_fence_without_data",
        "R19, T-L17, T-L18",
        "writes no marker where nothing is open",
        "test_a_marker_fences_off_records_that_are_still_on_their_way",
        (Leader, "_has_marker", _marked_where_nothing_is_open),
    ),
    cluster_mutant(
        "any_follower_life",
        "R8, T-L6",
        "believes fetches of a follower's earlier life",
        "test_a_fetch_of_an_earlier_life_acknowledges_nothing",
        (InSyncReplicas, "note_fetch", _believes_any_life),
    ),
    cluster_mutant(
        "active_too_early",
        "R7, T-L11",
        "acts on metadata of before its registration",
        129,
        (ReplicaBroker, "active", property(_active_when_registered)),
    ),
]
