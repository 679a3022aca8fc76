"""Connections between nodes: who is let in, and what happens while a peer is away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.node_codec import Frame
from millstream.logcore.replication.node_links import Address, NodeLinks, Peers
from millstream.logcore.replication.replica_messages import FetchRequest
from tests.logcore.replication.trio import PARTITION

ONE, TWO = NodeId(1), NodeId(2)
MESSAGE = Frame("broker", FetchRequest(PARTITION, 3, 7, 1, 10, -1, 1000))


def addresses() -> dict[NodeId, Address]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    found = {NodeId(i): Address("127.0.0.1", each.getsockname()[1]) for i, each in enumerate(sockets, 1)}
    for each in sockets:
        each.close()
    return found


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def until_arrived(arrived: list[tuple[NodeId, Frame]], links: NodeLinks, to: NodeId) -> None:
    while not arrived:
        links.send(to, MESSAGE)
        await asyncio.sleep(0.02)


def test_nodes_with_the_secret_talk_and_find_each_other_again() -> None:
    async def talk() -> None:
        known, arrived = addresses(), list[tuple[NodeId, Frame]]()
        one = NodeLinks(Peers("c", ONE, b"secret", known), lambda sender, frame: None)
        two = NodeLinks(Peers("c", TWO, b"secret", known), lambda sender, frame: arrived.append((sender, frame)))
        await one.start()
        await two.start()
        await until_arrived(arrived, one, TWO)
        assert arrived[0] == (ONE, MESSAGE)

        await two.stop()
        arrived.clear()
        two = NodeLinks(Peers("c", TWO, b"secret", known), lambda sender, frame: arrived.append((sender, frame)))
        await two.start()
        await until_arrived(arrived, one, TWO)
        await one.stop()
        await two.stop()

    run(talk())


def test_who_does_not_know_the_secret_says_and_hears_nothing() -> None:
    async def listen(cluster: str, secret: bytes) -> None:
        known, arrived = addresses(), list[tuple[NodeId, Frame]]()
        stranger = NodeLinks(Peers(cluster, ONE, secret, known), lambda sender, frame: arrived.append((sender, frame)))
        node = NodeLinks(Peers("c", TWO, b"secret", known), lambda sender, frame: arrived.append((sender, frame)))
        await stranger.start()
        await node.start()
        for _ in range(20):
            stranger.send(TWO, MESSAGE)
            node.send(ONE, MESSAGE)
            await asyncio.sleep(0.02)
        assert arrived == []
        await stranger.stop()
        await node.stop()

    run(listen("c", b"guessed"))
    run(listen("another cluster", b"secret"))


def test_garbage_ends_its_connection_and_nothing_else() -> None:
    async def talk() -> None:
        known, arrived = addresses(), list[tuple[NodeId, Frame]]()
        one = NodeLinks(Peers("c", ONE, b"secret", known), lambda sender, frame: None)
        two = NodeLinks(Peers("c", TWO, b"secret", known), lambda sender, frame: arrived.append((sender, frame)))
        await one.start()
        await two.start()
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 5_000, b"[]\n", b'{"from": 1}\n', b"{" * 2_000 + b"\n"):
            reader, writer = await asyncio.open_connection(*known[TWO])
            writer.write(garbage)
            assert await reader.read() == b""
            writer.close()
        await until_arrived(arrived, one, TWO)
        await one.stop()
        await two.stop()

    run(talk())
