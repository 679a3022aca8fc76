"""Which committed offsets expire: Kafka's rule, as a pure function."""

from __future__ import annotations

from collections.abc import Mapping

from ..client import TopicPartition
from .group_messages import CommittedOffset, GroupDescription, GroupState
from .subscriptions import CONSUMER, topics_of


def expired(
    group: GroupDescription,
    committed: Mapping[TopicPartition, CommittedOffset],
    empty_since_ms: int | None,
    before_ms: int,
) -> list[TopicPartition]:
    """The partitions whose offsets were committed before `before_ms` and are unused. For a group that has been empty
    since then: all; for a group with members: those of topics that no member subscribes to; for a group whose members
    are no consumers: none."""
    if not group.members:
        latest_ms = -1 if empty_since_ms is None else empty_since_ms
        return _older(committed, before_ms, latest_ms)
    if group.protocol_type != CONSUMER or (group.kind == "classic" and group.state is not GroupState.STABLE):
        return []
    read = subscribed(group)
    return _older({where: found for where, found in committed.items() if where.topic not in read}, before_ms, -1)


def _older(committed: Mapping[TopicPartition, CommittedOffset], before_ms: int, latest_ms: int) -> list[TopicPartition]:
    return [where for where, found in committed.items() if max(found.at_ms, latest_ms) < before_ms]


def subscribed(group: GroupDescription) -> frozenset[str]:
    return frozenset(topic for member in group.members for topic in topics_of(member.metadata))
