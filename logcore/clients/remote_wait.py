"""Waiting for records of partitions that several nodes lead: a long poll at each of them, and the first one ends it."""

from __future__ import annotations

import select
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from millstream.errors import LogError

from ..client import TopicPartition
from ..errors import LogUnavailable
from ..protocol.channel import Address
from ..protocol.lines import Look
from ..protocol.routing import Router
from ..protocol.wire.fetch_messages import FetchedPartition

_WAIT_S_MAX: Final = 1.0  # at a time: so long a connection may owe an answer that nobody waits for any more


def by_leader(router: Router, partitions: Sequence[TopicPartition]) -> dict[Address, list[TopicPartition]]:
    """Which node leads which of them. Raises `UnknownTopic`, `LogUnavailable`."""
    found: dict[Address, list[TopicPartition]] = {}
    for where in partitions:
        found.setdefault(router.leader(where), []).append(where)
    return found


def first_answers(
    router: Router, leaders: Mapping[Address, Sequence[TopicPartition]], offsets: Mapping[TopicPartition, int],
    wait_s: float, bytes_max: int = 0,
) -> list[FetchedPartition]:  # fmt: skip
    """Asks each node for its partitions from these offsets on. Gives what came as soon as one answer has come, those of
    all nodes where nothing is new. Raises `LogUnavailable`."""
    wait_s = min(wait_s, _WAIT_S_MAX)
    begun: dict[int, Look] = {}
    with ExitStack() as under_way:
        for address, partitions in leaders.items():
            look = router.door(address).begin_look({where: offsets[where] for where in partitions}, wait_s, bytes_max)
            under_way.callback(look.leave)
            begun[look.fileno()] = look
        poll = select.poll()
        for number in begun:
            poll.register(number, select.POLLIN)
        until_s = wait_s + max((look.grace_s for look in begun.values()), default=0.0)
        return [fetched for number, _ in poll.poll(until_s * 1000) for fetched in begun[number].finish()]


def answers_of_each(
    router: Router, offsets: Mapping[TopicPartition, int], wait_s: float, bytes_max: int = 0
) -> tuple[list[FetchedPartition], list[TopicPartition]]:
    """As `first_answers`, of any partitions: a node that is away is in nobody's way. Also the partitions that do not
    exist, or cannot be asked for, and so end the wait."""
    wait_s = min(wait_s, _WAIT_S_MAX)
    leaders, unknown = _leaders_now(router, offsets)
    begun: dict[int, tuple[Look, list[TopicPartition]]] = {}
    found: list[FetchedPartition] = []
    with ExitStack() as under_way:
        for address, partitions in leaders.items():
            try:
                look = router.door(address).begin_look(
                    {where: offsets[where] for where in partitions}, wait_s, bytes_max
                )
            except LogUnavailable:
                _doubt(router, partitions)
                continue
            under_way.callback(look.leave)
            begun[look.fileno()] = look, partitions
        poll = select.poll()
        for number in begun:
            poll.register(number, select.POLLIN)
        until_s = 0.0 if unknown else wait_s + max((look.grace_s for look, _ in begun.values()), default=0.0)
        for number, _ in poll.poll(until_s * 1000):
            look, partitions = begun[number]
            try:
                found += look.finish()
            except LogUnavailable:
                _doubt(router, partitions)
    return found, unknown


def _leaders_now(
    router: Router, partitions: Iterable[TopicPartition]
) -> tuple[dict[Address, list[TopicPartition]], list[TopicPartition]]:
    """Without those that have no leader now; and those that do not exist."""
    found: dict[Address, list[TopicPartition]] = {}
    unknown: list[TopicPartition] = []
    for where in partitions:
        try:
            found.setdefault(router.leader(where), []).append(where)
        except LogUnavailable:
            router.doubt(where)
        except LogError:
            unknown.append(where)
    return found, unknown


def _doubt(router: Router, partitions: Iterable[TopicPartition]) -> None:
    for where in partitions:
        router.doubt(where)
