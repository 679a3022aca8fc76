"""Replicas that catch up may be slowed down; those in sync never are, and nobody is left behind for ever."""

from __future__ import annotations

import pytest

from millstream.logcore.log_settings import ALL_BROKERS
from millstream.logcore.replication.controller.metadata_image import MetadataImage, fold
from millstream.logcore.replication.controller.metadata_records import ConfigChanged
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.replica.replica_messages import PartitionId, Produced
from millstream.logcore.replication.replica.throttle import Allowance, throttled_rates
from tests.logcore.replication.trio import Trio

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
RECORD = b"x" * 100_000
RATE = 500_000


def behind(*, leading: bool = False, following: bool = False) -> Trio:
    """Node 3 lacks 3 MB and is not in sync."""
    trio = Trio()
    trio.cut(3)
    trio.change(leader=ONE, isr=(ONE, TWO))
    trio.settle()
    for _ in range(30):
        trio.produce(1, RECORD)
        trio.settle()
    for node in trio.replicas.values():
        node.core.throttle.leading.set_rate(RATE if leading else None)
        node.core.throttle.following.set_rate(RATE if following else None)
    trio.heal()
    trio.pass_time(2_000)  # for what was lost to be asked for again
    return trio


@pytest.mark.parametrize("side", ["leading", "following"])
def test_who_catches_up_is_copied_no_faster_than_the_rate(side: str) -> None:
    trio = behind(**{side: True})
    start_ms, before = trio.now_ms, len(trio.values(3)) * len(RECORD)
    while len(trio.values(3)) < 30:
        trio.pass_time(100)
        seconds = (trio.now_ms - start_ms) / 1000
        beyond = trio.replicas[THREE].core.settings.fetch_bytes  # a fetch is sent whole, and waited for afterwards
        assert len(trio.values(3)) * len(RECORD) <= before + RATE * (seconds + 1) + beyond
        assert seconds < 30
    assert trio.now_ms - start_ms >= 1_000


@pytest.mark.parametrize("side", ["leading", "following"])
def test_who_has_caught_up_joins_and_is_not_slowed_down_any_more(side: str) -> None:
    trio = behind(**{side: True})
    trio.pass_time(20_000)
    assert [member.node for member in trio.proposals[-1].in_sync] == [1, 2, 3]
    trio.change(isr=(ONE, TWO, THREE))
    trio.settle()
    for node in trio.replicas.values():
        node.core.throttle.leading.take(10 * RATE, trio.now_ms)
        node.core.throttle.following.take(10 * RATE, trio.now_ms)
    request = trio.produce(1, RECORD)
    trio.settle()
    assert isinstance(trio.replies[request], Produced)
    assert len(trio.values(3)) == 31


def test_records_are_acknowledged_as_fast_as_ever_while_another_replica_catches_up() -> None:
    trio = behind(leading=True, following=True)
    trio.pass_time(500)
    assert 0 < len(trio.values(3)) < 30
    request = trio.produce(1, b"now")
    trio.settle()
    assert isinstance(trio.replies[request], Produced)


def test_a_proposed_member_is_not_slowed_down_though_it_is_no_member_yet() -> None:
    """The high watermark waits for it already (R11)."""
    trio = behind(leading=True, following=True)
    trio.pass_time(20_000)
    assert [member.node for member in trio.proposals[-1].in_sync] == [1, 2, 3]  # and the controller says nothing
    for node in trio.replicas.values():
        node.core.throttle.leading.take(100 * RATE, trio.now_ms)
        node.core.throttle.following.take(100 * RATE, trio.now_ms)
    request = trio.produce(1, b"now")
    trio.settle()
    assert isinstance(trio.replies[request], Produced)


def test_partitions_take_turns() -> None:
    allowance, red, blue = Allowance(), PartitionId("red", 0), PartitionId("blue", 0)
    allowance.set_rate(1_000)
    copied = {red: 0, blue: 0}
    for now_ms in range(0, 10_000, 10):
        for partition in (red, blue):  # red asks first each time
            if allowance.allows(partition, now_ms):
                allowance.take(500, now_ms)
                copied[partition] += 500
    assert abs(copied[red] - copied[blue]) <= 500
    assert 9_000 <= sum(copied.values()) <= 11_000


def test_who_does_not_ask_any_more_keeps_nobody_waiting() -> None:
    allowance, gone, here = Allowance(), PartitionId("gone", 0), PartitionId("here", 0)
    allowance.set_rate(1_000)
    assert not allowance.allows(gone, 0)
    assert any(allowance.allows(here, now_ms) for now_ms in range(0, 3_000, 50))


def test_without_a_rate_everything_is_allowed() -> None:
    allowance, here = Allowance(), PartitionId("here", 0)
    allowance.set_rate(10)
    assert not allowance.allows(here, 0)
    allowance.set_rate(None)
    assert allowance.allows(here, 0)


def test_what_is_taken_after_a_pause_is_waited_for_all_the_same() -> None:
    allowance, here = Allowance(), PartitionId("here", 0)
    allowance.set_rate(1_000)
    allowance.take(5_000, 60_000)
    assert not allowance.allows(here, 60_000)
    assert not allowance.allows(here, 63_900)
    assert allowance.allows(here, 64_100)


def test_the_rates_of_kafkas_tools_are_those_of_a_node_and_a_direction() -> None:
    image = MetadataImage()

    def change(resource: str, key: str, value: str | None) -> None:
        nonlocal image
        image = fold(image, image.index + 1, ConfigChanged(resource, key, value))

    def rates(node: int) -> tuple[int | None, int | None]:
        return throttled_rates(image, NodeId(node))

    assert rates(1) == (None, None)
    change("broker:1", "leader.replication.throttled.rate", "1000")
    assert (rates(1), rates(2)) == ((1000, None), (None, None))
    change(ALL_BROKERS, "leader.replication.throttled.rate", "500")
    assert (rates(1), rates(2)) == ((1000, None), (500, None))
    change(ALL_BROKERS, "replication.throttled.rate", "700")
    assert (rates(1), rates(2)) == ((700, 700), (500, 700))
    for resource in ("broker:1", ALL_BROKERS):
        change(resource, "leader.replication.throttled.rate", None)
    assert rates(1) == (700, 700)
