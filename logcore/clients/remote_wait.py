"""Waiting for records of partitions that several nodes lead: a long poll at each of them, and the first one ends it."""

from __future__ import annotations

import select
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from ..client import TopicPartition
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
    wait_s: float,
) -> list[FetchedPartition]:  # fmt: skip
    """Asks each node for its partitions from these offsets on. Gives what came as soon as one answer has come, those of
    all nodes where nothing is new. Raises `LogUnavailable`."""
    wait_s = min(wait_s, _WAIT_S_MAX)
    begun: dict[int, Look] = {}
    with ExitStack() as under_way:
        for address, partitions in leaders.items():
            look = router.door(address).begin_look({where: offsets[where] for where in partitions}, wait_s)
            under_way.callback(look.leave)
            begun[look.fileno()] = look
        poll = select.poll()
        for number in begun:
            poll.register(number, select.POLLIN)
        until_s = wait_s + max((look.grace_s for look in begun.values()), default=0.0)
        return [fetched for number, _ in poll.poll(until_s * 1000) for fetched in begun[number].finish()]
