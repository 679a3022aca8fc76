"""Committed offsets: how long a group remembers which transactions it has settled."""

from __future__ import annotations

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.group_messages import CommittedOffset
from millstream.logcore.replication.shards.group_commits import CommittedOffsets

T0 = TopicPartition("t", 0)


class EveryTopic:
    def id_of(self, name: str) -> bytes | None:
        return name.encode().ljust(16)


def settled(at_ms: int) -> CommittedOffsets:
    """Transaction 3 of producer 7 has committed an offset of the group `g`."""
    offsets = CommittedOffsets(EveryTopic())
    offsets.apply(offsets.settle("g", 7, 3, {T0: CommittedOffset(5)}, at_ms))
    return offsets


def test_a_settled_transaction_of_a_group_that_is_gone_is_remembered_until_its_end_is_complete() -> None:
    offsets = settled(at_ms=1_000)
    offsets.apply(offsets.forget("g", [T0]))
    assert offsets.forget_settled_of_none(before_ms=1_000) == []
    assert offsets.settle("g", 7, 3, {T0: CommittedOffset(5)}, 2_000) == []
    offsets.apply(offsets.forget_settled_of_none(before_ms=1_001))
    assert not offsets.is_settled("g", 7, 3)


def test_settled_transactions_of_a_group_with_offsets_are_remembered() -> None:
    offsets = settled(at_ms=1_000)
    assert offsets.forget_settled_of_none(before_ms=9_000) == []
    offsets.apply(offsets.forget("g", [T0]))
    offsets.apply(offsets.hold("g", 8, 1, [T0]))
    assert offsets.forget_settled_of_none(before_ms=9_000) == []
