"""Waiting for records of partitions that several nodes lead: a long poll at each of them, and the first one ends it."""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from ..client import TopicPartition
from ..errors import LogUnavailable
from ..protocol.channel import Address, Channel, Channels, understanding
from ..protocol.routing import Router
from ..protocol.wire import fetch_messages
from ..protocol.wire.apis import Api
from ..protocol.wire.fetch_messages import FetchedPartition, FetchPosition, FetchRequest

_WAIT_S_MAX: Final = 1.0  # at a time: so long a connection may owe an answer that nobody waits for any more
_BYTES_MAX: Final = 0x7FFFFFFF


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
    begun: dict[int, tuple[Channels, Channel]] = {}
    with ExitStack() as owing:
        for address, partitions in leaders.items():
            channels = router.channels(address)
            channel = channels.take()
            channel.begin(Api.FETCH, _request({where: offsets[where] for where in partitions}, wait_s))
            begun[channel.fileno()] = (channels, channel)
            owing.callback(_leave, channels, channel, begun)
        poll = select.poll()
        for number in begun:
            poll.register(number, select.POLLIN)
        answers: list[FetchedPartition] = []
        for number, _ in poll.poll(wait_s * 1000 + 200):
            channels, channel = begun.pop(number)
            answers += _answer(channels, channel)
        return answers


def _request(
    offsets: Mapping[TopicPartition, int], wait_s: float
) -> Callable[[int], list[bytes | bytearray | memoryview]]:
    places = [FetchPosition(where, offset, 0) for where, offset in offsets.items()]
    request = FetchRequest(int(wait_s * 1000), 1, _BYTES_MAX, "read_committed", places)
    return lambda version: fetch_messages.write_request(request, version)


def _answer(channels: Channels, channel: Channel) -> list[FetchedPartition]:
    response = channel.finish()
    channels.give_back(channel)
    with understanding(channels.address):
        error_code, fetched = fetch_messages.read_response(response.message, response.position, response.version)
    if error_code:
        raise LogUnavailable(f"the node at {channels.address} answered a fetch with error {error_code}")
    return fetched


def _leave(channels: Channels, channel: Channel, begun: Mapping[int, object]) -> None:
    if channel.fileno() in begun:
        channels.give_back(channel, owing=True)
