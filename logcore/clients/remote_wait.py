"""Waits for records of partitions with several leaders: sends a long poll to each node, until the first answer."""

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

_WAIT_S_MAX: Final = 1.0  # per request: an abandoned request blocks its connection for at most this long


def by_leader(router: Router, partitions: Sequence[TopicPartition]) -> dict[Address, list[TopicPartition]]:
    """The partitions by the node that leads them. Raises `UnknownTopic`, `LogUnavailable`."""
    found: dict[Address, list[TopicPartition]] = {}
    for where in partitions:
        found.setdefault(router.leader(where), []).append(where)
    return found


def first_answers(
    router: Router, leaders: Mapping[Address, Sequence[TopicPartition]], offsets: Mapping[TopicPartition, int],
    wait_s: float, bytes_max: int = 0,
) -> list[FetchedPartition]:  # fmt: skip
    """Asks each node for its partitions from these offsets on. Returns as soon as a node has answered; if there are no
    new records, all nodes answer at the end of the wait. Raises `LogUnavailable`."""
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
    """Like `first_answers`, but nodes that cannot be reached do not disturb the others. It also returns the partitions
    that do not exist or cannot be read; they end the wait."""
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
    """The partitions by leader, without those that have no leader now; and the partitions that do not exist."""
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
