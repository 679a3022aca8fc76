"""The rules for a partition's leader, in-sync and eligible replicas, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.controller.partition_rules import (
    changed,
    given_up,
    handed_over,
    leads_alone,
    reassigned,
    reassignment_called_off,
    reassignment_done,
    to_come,
    with_any_leader,
    with_isr,
    with_leader,
    with_life_of,
    with_preferred_leader,
    without,
    without_unclean,
)
from millstream.logcore.replication.machine import NodeId


def partition(isr: tuple[int, ...], **fields: Any) -> PartitionState:
    """Of the replicas 1, 2, 3 with min.insync.replicas = 2, led by the first in sync."""
    given: dict[str, Any] = {
        "replicas": (1, 2, 3),
        "elr": (),
        "min_isr": 2,
        "leader": isr[0] if isr else None,
        **fields,
    }
    return PartitionState(
        topic_id="id", partition=0, leader_epoch=4, partition_epoch=9, isr=tuple(map(NodeId, isr)), **given
    )


def up(*nodes: int) -> Any:
    return lambda node: node in nodes


def test_who_is_fenced_leaves_the_isr() -> None:
    after = without(partition((1, 2, 3)), NodeId(1))
    assert (after.leader, after.isr, after.elr) == (None, (2, 3), ())


def test_who_leaves_too_small_an_isr_stays_eligible() -> None:
    after = without(without(partition((1, 2, 3)), NodeId(3)), NodeId(2))
    assert (after.isr, after.elr) == ((1,), (2,)), "3 left while enough were left: it may lack what came after"
    assert without(after, NodeId(1)).elr == (1, 2)


def test_nobody_is_eligible_any_more_once_enough_are_in_sync() -> None:
    assert with_isr(partition((1,), elr=(2,)), [NodeId(1), NodeId(3)]).elr == ()


def test_who_lost_records_is_neither_in_sync_nor_eligible() -> None:
    after = without_unclean(partition((1,), elr=(2,)), NodeId(1))
    assert (after.leader, after.isr, after.elr) == (None, (), (2,))


def test_the_first_live_replica_in_sync_leads() -> None:
    assert with_leader(partition((2, 3), leader=None), up(1, 3)).leader == 3


def test_an_eligible_replica_leads_where_none_is_in_sync() -> None:
    after = with_leader(partition((), elr=(2, 3)), up(3))
    assert (after.leader, after.isr, after.elr) == (3, (3,), (2,))


def test_nobody_leads_who_is_neither() -> None:
    assert with_leader(partition((), elr=(2,)), up(1, 3)).leader is None


def test_an_unclean_leader_is_marked_as_one() -> None:
    after = with_any_leader(partition((), elr=(2,)), up(3))
    assert (after.leader, after.isr, after.elr, after.unclean) == (3, (3,), (), True)
    assert not with_any_leader(partition((), elr=(2,)), up(2, 3)).unclean, "an eligible one is up"


def test_the_preferred_replica_leads_only_in_sync_and_up() -> None:
    assert with_preferred_leader(partition((2, 1)), up(1, 2)).leader == 1
    assert with_preferred_leader(partition((2, 1)), up(2)).leader == 2
    assert with_preferred_leader(partition((2, 3)), up(1, 2, 3)).leader == 2


def test_a_leader_that_goes_gives_way_if_anybody_can_take_over() -> None:
    assert handed_over(partition((1, 3)), NodeId(1), up(1, 2, 3)).leader == 3
    assert handed_over(partition((1,)), NodeId(1), up(1, 2, 3)).leader == 1


def test_a_leader_that_takes_no_records_gives_way_if_enough_remain_to_acknowledge_them() -> None:
    after = given_up(partition((1, 2, 3)), NodeId(1), up(1, 3))
    assert (after.leader, after.isr, after.elr) == (3, (2, 3), ())
    for stays in (partition((1, 2)), partition((1,), min_isr=1)):
        assert given_up(stays, NodeId(1), up(1, 2, 3)) == stays
    assert given_up(partition((1, 2, 3)), NodeId(1), up(1)).leader == 1


def test_a_reassignment_keeps_the_old_replicas_until_all_new_ones_are_in_sync() -> None:
    moving = reassigned(partition((1, 2, 3)), (NodeId(4), NodeId(1)))
    assert (moving.replicas, moving.adding, moving.removing) == ((4, 1, 2, 3), (4,), (2, 3))
    assert reassignment_done(moving, up(1, 2, 3, 4), 2) == moving
    done = reassignment_done(with_isr(moving, [NodeId(node) for node in (1, 2, 3, 4)]), up(1, 2, 3, 4), 2)
    assert (done.replicas, done.isr, done.leader, done.removing) == ((4, 1), (4, 1), 1, ())


def test_a_partition_that_gets_more_replicas_again_needs_as_many_in_sync_as_the_setting_says() -> None:
    alone = partition((1,))._replace(replicas=(NodeId(1),), min_isr=1)
    moving = reassigned(alone, (NodeId(1), NodeId(2)))
    done = reassignment_done(with_isr(moving, [NodeId(1), NodeId(2)]), up(1, 2), 2)
    assert (done.replicas, done.min_isr) == ((1, 2), 2)
    assert without(done, NodeId(2)).elr == (2,)


def test_a_reassignment_is_called_off_at_once_where_the_new_ones_have_nothing() -> None:
    moving = reassigned(partition((1, 2, 3)), (NodeId(4),))
    back = reassignment_called_off(moving)
    assert (set(back.replicas), back.adding, back.removing) == ({1, 2, 3}, (), ())


@pytest.mark.parametrize("members", [{"isr": (4,), "leader": 4}, {"isr": (1,), "elr": (4,), "leader": 1}])
def test_a_new_replica_that_may_have_what_others_lack_goes_when_the_replicas_of_before_are_in_sync(
    members: dict[str, Any],
) -> None:
    """R14: what is safe on two disks stays on two, whatever is called off, or begun anew, meanwhile."""
    moving = reassigned(partition((1, 2, 3)), (NodeId(4),))._replace(**members)
    for back in (reassignment_called_off(moving), reassigned(moving, (NodeId(1), NodeId(2), NodeId(3)))):
        assert (back.replicas[-1], back.adding, back.removing) == (4, (4,), (4,))
        assert (back.isr, back.elr, back.leader) == (moving.isr, moving.elr, moving.leader)
        assert to_come(back) == ()
        assert reassignment_done(back, up(1, 2, 3, 4), 2) == back
        done = reassignment_done(with_isr(back, [NodeId(node) for node in (1, 2, 3, 4)]), up(1, 2, 3, 4), 2)
        assert (set(done.replicas), done.adding, done.removing) == ({1, 2, 3}, (), ())
        again = reassigned(back, (NodeId(1), NodeId(4)))
        assert (again.adding, set(again.removing)) == ((4,), {2, 3})


def test_epochs_rise_with_every_change_and_the_leaders_with_every_leader() -> None:
    before = partition((1, 2, 3))
    assert changed(before, before) is None
    settled = changed(before, before, settle=True)
    assert settled is not None and (settled.partition_epoch, settled.leader_epoch) == (10, 4)
    moved = changed(before, without(before, NodeId(1)))
    assert moved is not None and (moved.partition_epoch, moved.leader_epoch) == (10, 5)


def test_a_new_leader_epoch_begins_when_a_replica_goes_so_that_its_old_fetches_acknowledge_nothing() -> None:
    before = partition((1, 2, 3))
    fewer = changed(before, before._replace(replicas=(NodeId(1), NodeId(2)), isr=(NodeId(1), NodeId(2))))
    assert fewer is not None and (fewer.leader, fewer.leader_epoch) == (before.leader, before.leader_epoch + 1)
    more = changed(before, before._replace(replicas=(*before.replicas, NodeId(4)), adding=(NodeId(4),)))
    assert more is not None and more.leader_epoch == before.leader_epoch


def test_what_a_broker_has_alone_becomes_what_a_record_of_its_own_would_have_said() -> None:
    one, two = NodeId(1), NodeId(2)
    alone = partition((1,), replicas=(one,), min_isr=1)
    shared, moving = partition((1, 2)), alone._replace(adding=(two,), replicas=(one, two))
    for rule in (without, without_unclean):
        ended = with_life_of(one, alone, rule)
        assert ended == changed(alone, rule(alone, one))
        assert with_life_of(one, ended, rule) == ended
        assert with_life_of(two, alone, rule) == alone
        for others in (shared, moving):
            assert with_life_of(one, others, rule) == others  # there is something to decide
    left = with_life_of(one, alone, without)
    back = with_life_of(one, left, leads_alone)
    assert (left.leader, left.leader_epoch, back.leader, back.leader_epoch, back.partition_epoch) == (None, 5, 1, 6, 11)
    lost = with_life_of(one, alone, without_unclean)
    assert with_life_of(one, lost, leads_alone) == lost  # it may lack records
