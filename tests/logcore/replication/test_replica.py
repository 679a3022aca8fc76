"""Replicas, step by step: what they acknowledge, when they part with records, and what they let nobody see."""

from __future__ import annotations

from typing import Any, cast

import pytest

from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.replication.machine import NodeId, Persisted, Received
from millstream.logcore.replication.replica.replica_messages import (
    AlterRefused,
    AskOffsets,
    Diverging,
    EndMarker,
    FetchedBatches,
    FetchRequest,
    PartitionOffsets,
    Problem,
    Produce,
    Produced,
    Refused,
)
from tests.logcore.replication.trio import PARTITION, Trio, batch


def led_by_1(**options: int) -> Trio:
    trio = Trio(**options)
    trio.change(leader=NodeId(1))
    trio.settle()
    return trio


def test_a_record_is_acknowledged_when_all_in_sync_replicas_have_it_on_disk() -> None:
    trio = led_by_1()
    trio.no_syncs = {3}

    request = trio.produce(1, b"a")
    trio.settle()
    assert request not in trio.replies
    assert trio.values(3) == [b"a"]  # it has it, but not on disk

    trio.no_syncs = set()
    trio.settle()
    assert trio.replies[request] == Produced(0, 1)
    assert trio.read(1) == [b"a"]


def test_a_leader_that_has_not_synced_does_not_count_itself() -> None:
    trio = led_by_1()
    trio.no_syncs = {1}
    request = trio.produce(1, b"a")
    trio.settle()
    assert trio.values(2) == trio.values(3) == [b"a"]
    assert request not in trio.replies


def test_acks_1_waits_for_the_leaders_disk_only_and_acks_0_is_never_answered() -> None:
    trio = led_by_1()
    trio.cut(2, 3)
    one, none = trio.produce(1, b"a", acks=1), trio.produce(1, b"b", acks=0)
    trio.settle()
    assert trio.replies[one] == Produced(0, 1)
    assert none not in trio.replies


def test_too_few_in_sync_replicas_refuse_acks_all_and_leave_nothing_behind() -> None:
    trio = led_by_1()
    trio.change(isr=(NodeId(1),))
    request = trio.produce(1, b"a")
    assert isinstance(trio.replies[request], Refused)
    assert trio.replies[request].problem is Problem.NOT_ENOUGH_REPLICAS
    assert trio.values(1) == []


def test_the_high_watermark_stands_still_with_too_few_in_sync() -> None:
    trio = led_by_1()
    trio.cut(2, 3)
    waiting = trio.produce(1, b"a")
    trio.change(1, isr=(NodeId(1),))
    trio.settle()
    assert waiting not in trio.replies
    assert trio.replicas[NodeId(1)].core.high_watermark == 0


def test_a_follower_that_stands_still_is_put_out_of_the_in_sync_replicas_after_its_time() -> None:
    trio = led_by_1()
    trio.produce(1, b"a")
    trio.settle()
    trio.cut(3)
    trio.produce(1, b"b")
    trio.pass_time(9_000)
    assert trio.proposals == []
    trio.pass_time(3_000)
    assert [member.node for member in trio.proposals[0].in_sync] == [1, 2]


def test_the_high_watermark_waits_for_a_proposed_member_until_the_controller_has_spoken() -> None:
    """R11, T-L5: the controller may have committed what the leader has only asked for."""
    trio = led_by_1()
    trio.change(isr=(NodeId(1), NodeId(2)))
    trio.settle()
    trio.pass_time(600)
    assert [member.node for member in trio.proposals[-1].in_sync] == [1, 2, 3]

    trio.cut(3)
    request = trio.produce(1, b"a")
    trio.settle()
    assert request not in trio.replies  # 2 has it, 3 may be a member by now


def test_a_refused_proposal_still_counts_until_the_partition_epoch_moves() -> None:
    """R12: an earlier copy of the refused request may still be under way."""
    trio = led_by_1()
    trio.change(isr=(NodeId(1), NodeId(2)))
    trio.settle()
    trio.pass_time(600)
    proposal = trio.proposals[-1]
    trio.step(1, Received(NodeId(1), AlterRefused(PARTITION, proposal.leader_epoch, proposal.partition_epoch)))
    trio.cut(3)
    request = trio.produce(1, b"a")
    trio.settle()
    assert request not in trio.replies

    trio.pass_time(200)  # the leader asks for the set as it is, only to have a new partition epoch
    assert [member.node for member in trio.proposals[-1].in_sync] == [1, 2]
    trio.change(isr=(NodeId(1), NodeId(2)))
    trio.settle()
    assert trio.replies[request] == Produced(0, 1)


def test_a_follower_joins_with_all_that_earlier_leaders_have_committed() -> None:
    """R13, T-L10: a new leader's high watermark is old, and says nothing of what was acknowledged before."""
    trio = led_by_1()
    trio.cut(3)
    trio.change(1, 2, isr=(NodeId(1), NodeId(2)))
    trio.produce(1, b"a")
    trio.settle()
    trio.power_off(2)
    trio.start(2)  # it has forgotten the high watermark
    trio.cut(1)
    trio.held = lambda sender, send: sender == 1 or send.to in (1, 3)
    trio.change(2, 3, leader=NodeId(2), isr=(NodeId(2), NodeId(1)))
    trio.pass_time(700)
    assert trio.replicas[NodeId(2)].core.high_watermark == 0
    assert trio.proposals == []  # 3 has fetched at offset 0, which is not below the high watermark

    trio.held = lambda sender, send: sender == 1 or send.to == 1
    trio.pass_time(3_000)
    assert trio.values(3) == [b"a"]
    assert [member.node for member in trio.proposals[0].in_sync] == [1, 2, 3]


def test_a_follower_joins_also_while_the_high_watermark_stands_still() -> None:
    """With too few in sync it stands still until somebody joins: waiting for it would be waiting for ever."""
    trio = led_by_1()
    trio.produce(1, b"a")
    trio.settle()
    for node in (1, 2):
        trio.power_off(node)
        trio.start(node)
    trio.change(leader=NodeId(2), isr=(NodeId(2),))
    trio.pass_time(1_000)
    assert trio.replicas[NodeId(2)].core.high_watermark == 0
    assert 2 in [member.node for member in trio.proposals[0].in_sync]
    assert len(trio.proposals[0].in_sync) == 2


def test_a_follower_truncates_only_where_the_leader_says_that_its_epoch_ended() -> None:
    """R10, T-L1: the high watermark a follower knows is old; what is above it may be acknowledged."""
    trio = led_by_1()
    request = trio.produce(1, b"a")
    trio.held = lambda sender, send: (
        sender == 1 and send.to == 2 and isinstance(send.message, FetchedBatches) and (not send.message.batches)
    )
    trio.settle()
    assert trio.replies[request] == Produced(0, 1)
    assert trio.replicas[NodeId(2)].core.high_watermark == 0  # it has the record and has not been told
    trio.power_off(2)
    trio.start(2)
    assert trio.values(2) == [b"a"]

    trio.cut(1)
    trio.change(2, 3, leader=NodeId(2), isr=(NodeId(2), NodeId(3)))
    trio.pass_time(700)
    assert trio.read(2) == [b"a"]


def test_what_an_old_leader_wrote_alone_is_cut_off_when_it_comes_back() -> None:
    """R10, T-L3, T-L4: two leaders in turn wrote at the same offset."""
    trio = led_by_1()
    trio.produce(1, b"a")
    trio.settle()
    trio.cut(1)
    alone = trio.produce(1, b"zombie")
    trio.settle()
    trio.change(2, 3, leader=NodeId(2), isr=(NodeId(2), NodeId(3)))
    trio.pass_time(700)
    trio.produce(2, b"b")
    trio.settle()

    trio.heal()
    trio.tell(1)
    trio.pass_time(3_000)
    assert trio.values(1) == trio.values(2) == [b"a", b"b"]
    assert isinstance(trio.replies[alone], Refused)
    assert trio.panics == {}


def test_three_leaders_in_turn_leave_one_log() -> None:
    """T-L3: a follower has records of an epoch of which the leader never heard."""
    trio = led_by_1(min_in_sync=1)
    trio.produce(1, b"a")
    trio.settle()
    trio.cut(1, 2, 3)
    trio.change(2, leader=NodeId(2), isr=(NodeId(2),))
    trio.produce(2, b"b")
    trio.settle()
    trio.change(1, leader=NodeId(1), isr=(NodeId(1),))  # an unclean election: 1 has not seen b
    trio.produce(1, b"c")
    trio.settle()
    trio.heal()
    trio.tell(2, 3)
    trio.pass_time(3_000)
    assert trio.values(1) == trio.values(2) == trio.values(3) == [b"a", b"c"]


def test_a_follower_that_still_knows_the_epoch_of_what_is_deleted_everywhere_begins_anew() -> None:
    """A leader with none of the epochs of an empty log says that they part at its start; nothing is left to cut."""
    trio = led_by_1()
    trio.produce(1, b"a")
    trio.settle()
    trio.pass_time(1_000)
    for node in (1, 2, 3):
        log = trio.log(node)
        log.move_start(log.end_offset)
    trio.log(1).restart_at(1)  # as after a crash that kept the log's start only
    assert (trio.log(1).epochs.last, trio.log(2).epochs.last) == (-1, 1)
    trio.change(leader=NodeId(1))
    trio.produce(1, b"b")
    trio.settle()
    trio.pass_time(1_000)
    assert trio.panics == {}
    assert trio.values(1)[-1:] == trio.values(2)[-1:] == trio.values(3)[-1:] == [b"b"]


def test_a_copy_of_an_old_response_changes_nothing() -> None:
    """R9, T-L11: a truncation that was meant for an earlier fetch arrives once more."""
    trio = led_by_1()
    trio.produce(1, b"a")
    trio.settle()
    follower = trio.replicas[NodeId(2)].follower
    assert follower is not None
    for correlation in range(follower.correlation):
        trio.step(2, Received(NodeId(1), Diverging(PARTITION, 1, correlation, -1, 0)))
    assert trio.values(2) == [b"a"]
    assert trio.panics == {}


def test_a_follower_never_gives_up_what_it_acknowledged_in_this_epoch() -> None:
    """I4: where the leader wants that, the process ends."""
    trio = led_by_1()
    trio.produce(1, b"a")
    trio.settle()
    follower = trio.replicas[NodeId(2)].follower
    assert follower is not None
    trio.step(2, Received(NodeId(1), Diverging(PARTITION, 1, follower.correlation, -1, 0)))
    assert "acknowledged" in trio.panics[NodeId(2)]
    assert trio.values(2) == [b"a"]


def test_metadata_of_before_the_registration_says_nothing() -> None:
    """R7, T-L11: the metadata that a restarted broker hears first may be that of its former life."""
    trio = led_by_1()
    trio.power_off(1)
    trio.start(1)
    core = trio.replicas[NodeId(1)].core
    core.registered_at = trio.view.partition_epoch + 1
    trio.tell(1)
    assert trio.replicas[NodeId(1)].leader is None


def test_older_metadata_is_passed_over() -> None:
    trio = led_by_1()
    old = trio.view
    trio.change(leader=NodeId(2))
    new, trio.view = trio.view, old
    trio.tell(1)
    assert trio.replicas[NodeId(1)].leader is None
    trio.view = new


def test_fetches_of_another_epoch_are_refused() -> None:
    """R6: a follower that has not heard of the new leader yet acknowledges nothing to it."""
    trio = led_by_1()
    trio.change(1, 3, leader=NodeId(1))  # 2 still follows epoch 1
    trio.produce(1, b"a")
    trio.pass_time(1_000)
    assert trio.values(2) == []
    assert trio.replicas[NodeId(1)].core.high_watermark == 0
    assert trio.replies[trio.ask(1, AskOffsets(leader_epoch=1))].problem is Problem.FENCED_LEADER_EPOCH
    assert trio.replies[trio.ask(1, AskOffsets(leader_epoch=3))].problem is Problem.UNKNOWN_LEADER_EPOCH
    trio.tell(2)
    trio.pass_time(1_000)
    assert trio.replicas[NodeId(1)].core.high_watermark == 1


def test_a_new_leader_says_no_offsets_before_it_knows_what_is_committed() -> None:
    """R16: the leader before may have said more."""
    trio = led_by_1()
    trio.produce(1, b"a")
    trio.settle()
    trio.power_off(2)
    trio.start(2)
    trio.cut(1, 2, 3)
    trio.change(2, leader=NodeId(2))
    answer = trio.replies[trio.ask(2, AskOffsets())]
    assert answer.problem is Problem.OFFSET_NOT_AVAILABLE
    trio.heal()
    trio.tell(1, 3)
    trio.pass_time(1_000)
    assert trio.replies[trio.ask(2, AskOffsets())] == PartitionOffsets(0, 1, 1)


def test_followers_are_read_up_to_the_high_watermark() -> None:
    trio = led_by_1()
    trio.no_syncs = {3}
    trio.produce(1, b"a")
    trio.settle()
    assert trio.values(2) == [b"a"]
    assert trio.read(2) == []
    trio.no_syncs = set()
    trio.settle()
    assert trio.read(2) == [b"a"]
    refused = trio.replies[trio.ask(2, Produce([batch()]))]
    assert refused.problem is Problem.NOT_LEADER


def test_a_batch_that_is_sent_again_is_stored_once_also_by_the_next_leader() -> None:
    """R18, T-L16: what producers sent is known from the log."""
    producer = BatchProducer(7, 0, 0)
    trio = led_by_1()
    trio.produce(1, b"a", producer=producer)
    trio.settle()
    trio.cut(1)
    trio.change(2, 3, leader=NodeId(2), isr=(NodeId(2), NodeId(3)))
    trio.pass_time(700)
    again = trio.produce(2, b"a", producer=producer)
    trio.settle()
    assert trio.replies[again] == Produced(0, 2)
    assert trio.values(2) == [b"a"]


def test_a_repeated_batch_is_not_acknowledged_before_it_is_committed() -> None:
    producer = BatchProducer(7, 0, 0)
    trio = led_by_1()
    trio.cut(2, 3)
    trio.produce(1, b"a", producer=producer)
    again = trio.produce(1, b"a", producer=producer)
    trio.settle()
    assert again not in trio.replies
    gap = trio.produce(1, b"c", producer=BatchProducer(7, 0, 5))
    assert trio.replies[gap].problem is Problem.OUT_OF_ORDER_SEQUENCE


def test_a_transaction_is_seen_when_its_marker_is_committed() -> None:
    producer = BatchProducer(7, 0, 0, transactional=True)
    trio = led_by_1()
    refused = trio.produce(1, b"a", producer=producer)
    assert trio.replies[refused].problem is Problem.INVALID_TXN_STATE  # R19
    trio.produce(1, b"a", producer=producer, verified=True)
    trio.settle()
    assert trio.read(1) == [b"a"]
    assert trio.read(1, committed_only=True) == []

    trio.no_syncs = {3}
    ended = trio.ask(1, EndMarker(7, 1, True, 0, 1))
    trio.settle()
    assert trio.read(1, committed_only=True) == []
    assert ended not in trio.replies
    assert trio.ask(1, EndMarker(7, 1, True, 0, 1)) not in trio.replies  # sent again: it has to wait as well
    trio.no_syncs = set()
    trio.settle()
    assert trio.read(1, committed_only=True) == [b"a"]
    assert trio.read(2, committed_only=True) == [b"a"]


@pytest.mark.parametrize("epochs_later", [0, 1])
def test_what_is_no_part_of_the_open_transaction_of_its_producer_is_refused(epochs_later: int) -> None:
    trio = led_by_1()
    trio.produce(1, b"a", producer=BatchProducer(7, 0, 0, transactional=True), verified=True)
    beside = trio.produce(1, b"b", producer=BatchProducer(7, epochs_later, 1 - epochs_later))
    assert trio.replies[beside].problem is Problem.INVALID_TXN_STATE
    trio.ask(1, EndMarker(7, 0, True, 0, 1))
    trio.settle()
    assert trio.read(1, committed_only=True) == [b"a"]


def test_after_a_failed_sync_the_replica_does_nothing_any_more() -> None:
    """R17, T-L9."""
    trio = led_by_1()
    trio.produce(1, b"a")
    node, persist = trio.syncs[-1]
    trio.step(node, Persisted(persist.operation, "input/output error"))
    assert "input/output error" in trio.panics[NodeId(1)]
    assert trio.replicas[NodeId(1)].step(Received(NodeId(2), cast("Any", object()))) == []


def test_a_follower_behind_the_start_of_the_leaders_log_begins_anew_there() -> None:
    trio = led_by_1(min_in_sync=1)
    trio.cut(3)
    trio.change(1, 2, isr=(NodeId(1), NodeId(2)))
    for value in (b"a", b"b", b"c"):
        trio.produce(1, value)
        trio.settle()
    log = trio.log(1)
    del log.stored[:2]
    log.epochs.start_at(2)
    log._start = 2
    trio.heal()
    trio.tell(3)
    trio.pass_time(3_000)
    assert trio.values(3) == [b"c"]
    assert trio.log(3).log_start_offset == 2


def test_what_comes_late_of_a_transaction_gets_into_no_other() -> None:
    """R19, T-L17, T-L18: neither a record nor a copy of the request that ended it."""
    trio = led_by_1()
    trio.produce(1, b"a", producer=BatchProducer(7, 0, 0, transactional=True), verified=True)
    trio.ask(1, EndMarker(7, 1, False, 0, 1))
    trio.settle()
    late = trio.produce(1, b"late", producer=BatchProducer(7, 0, 1, transactional=True), verified=True)
    assert trio.replies[late].problem is Problem.PRODUCER_FENCED

    trio.produce(1, b"b", producer=BatchProducer(7, 1, 0, transactional=True), verified=True)
    trio.ask(1, EndMarker(7, 1, False, 0, 1))  # the copy
    trio.settle()
    assert trio.read(1, committed_only=True) == [b"a"]  # aborted, for the reader to pass over: b is still open
    assert trio.log(1).state.transactions.open_of(7) is not None


def test_a_coordinator_that_counts_from_an_earlier_number_ends_what_is_open() -> None:
    """Its newest records were lost, so that its numbers began again; the epochs of the producer went on."""
    trio = led_by_1()
    for number, epoch in ((5, 0), (2, 1)):
        trio.produce(1, b"%d" % number, producer=BatchProducer(7, epoch, 0, transactional=True), verified=True)
        trio.ask(1, EndMarker(7, epoch + 1, True, 0, number))
        trio.settle()
    assert trio.log(1).state.transactions.open_of(7) is None
    trio.produce(1, b"3", producer=BatchProducer(7, 2, 0, transactional=True), verified=True)
    for copy in ((7, 1, True, 0, 5), (7, 2, True, 0, 2)):
        trio.ask(1, EndMarker(*copy))
        trio.settle()
    assert trio.log(1).state.transactions.open_of(7) is not None, "neither a copy of an older marker nor of this count"


def test_a_marker_fences_off_records_that_are_still_on_their_way() -> None:
    """T-L18: the transaction is given up before its first record arrives, which must not open it again for ever."""
    trio = led_by_1()
    trio.ask(1, EndMarker(7, 1, False, 0, 1))
    trio.settle()
    late = trio.produce(1, b"late", producer=BatchProducer(7, 0, 0, transactional=True), verified=True)
    assert trio.replies[late].problem is Problem.PRODUCER_FENCED
    trio.ask(1, EndMarker(7, 1, False, 0, 1))
    assert trio.log(1).end_offset == 1  # one marker is enough


def test_a_fetch_of_an_earlier_life_acknowledges_nothing() -> None:
    """R8, T-L6: the follower lost its disk in between, and the leader heard of its new life already."""
    trio = led_by_1()
    trio.produce(1, b"a")
    trio.no_syncs = {3}  # so that nothing is committed without 3
    trio.settle()
    trio.no_syncs = set()
    trio.settle()
    known = trio.replicas[NodeId(1)].leader
    assert known is not None
    old_life = known.in_sync.followers[NodeId(3)].broker_epoch
    trio.power_off(3)
    trio.disks[NodeId(3)].wipe()
    trio.start(3)
    trio.tell(3)
    trio.held = lambda sender, send: sender == 1 and send.to == 3
    trio.settle()
    waiting = trio.produce(1, b"b")
    late = FetchRequest(PARTITION, 1, old_life, 99, 2, 1, 1 << 20)
    trio.step(1, Received(NodeId(3), late))
    trio.settle()
    assert waiting not in trio.replies
