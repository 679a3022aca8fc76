"""Assigns partitions to the members of a group. Pure functions: subscriptions go in, partitions per member come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ..client import TopicPartition
from ..cores.subscriptions import Subscription

Assignment = dict[str, list[TopicPartition]]
"""Partitions per member id."""

Assignor = Callable[[Mapping[str, Subscription], Mapping[str, int]], Assignment]
"""In: the members' subscriptions, and the partition count of each existing topic."""


def range_assignment(members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Assignment:
    """Splits each topic into contiguous ranges, for the members in the order of their ids. So a member gets the same
    partitions of topics with the same keys."""
    assignment: Assignment = {member: [] for member in members}
    for topic, count in sorted(partition_counts.items()):
        readers = _readers(members, topic)
        for index, member in enumerate(readers):
            share, rest = divmod(count, len(readers))
            start = index * share + min(index, rest)
            stretch = range(start, start + share + (index < rest))
            assignment[member] += [TopicPartition(topic, partition) for partition in stretch]
    return assignment


def sticky_assignment(members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Assignment:
    """Balances the partitions; members keep as many of theirs as possible. A partition that moves is taken away first
    and assigned in the next rebalance, so members go on reading the partitions that they keep."""
    balanced = balanced_assignment(members, partition_counts)
    owners = _owners(members)
    return {
        member: [partition for partition in partitions if owners.get(partition, member) == member]
        for member, partitions in balanced.items()
    }


def balanced_assignment(members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Assignment:
    """The final assignment, in which a partition may still have another reader now."""
    assignment: Assignment = {member: [] for member in sorted(members)}
    owners = _owners(members)
    free: list[TopicPartition] = []
    for topic, count in sorted(partition_counts.items()):
        readers = set(_readers(members, topic))
        for partition in (TopicPartition(topic, number) for number in range(count)):
            owner = owners.get(partition)
            if owner in readers:
                assignment[owner].append(partition)
            elif readers:
                free.append(partition)
    for partition in free:
        least = min(_readers(members, partition.topic), key=lambda member: len(assignment[member]))
        assignment[least].append(partition)
    while _move_one(assignment, members):
        pass
    return assignment


def _move_one(assignment: Assignment, members: Mapping[str, Subscription]) -> bool:
    """Moves one partition from a member with more partitions to one that subscribes to its topic and has at least two
    fewer. False if there is none to move."""
    by_load = sorted(assignment, key=lambda member: len(assignment[member]))
    for giver in reversed(by_load):
        for taker in by_load:
            if len(assignment[taker]) + 1 >= len(assignment[giver]):
                break
            wanted = set(members[taker].topics)
            for place in reversed(range(len(assignment[giver]))):
                if assignment[giver][place].topic in wanted:
                    assignment[taker].append(assignment[giver].pop(place))
                    return True
    return False


def _owners(members: Mapping[str, Subscription]) -> dict[TopicPartition, str]:
    """The current owner of each partition. A partition that two members claim has no owner: one of them missed a
    rebalance."""
    owners: dict[TopicPartition, str] = {}
    contested: set[TopicPartition] = set()
    for member, subscription in members.items():
        for partition in subscription.owned:
            if partition in owners:
                contested.add(partition)
            owners[partition] = member
    return {partition: member for partition, member in owners.items() if partition not in contested}


def _readers(members: Mapping[str, Subscription], topic: str) -> Sequence[str]:
    return sorted(member for member, subscription in members.items() if topic in subscription.topics)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"range": range_assignment, "cooperative-sticky": sticky_assignment}
"""By the names that all Kafka clients use."""

COOPERATIVE: Final = frozenset({"cooperative-sticky"})
"""With these, members keep reading during a rebalance the partitions that they keep."""
