"""Connections between nodes: who is let in, and what happens while a peer is away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from certificates import make_certificates
from structlog.testing import capture_logs

from bench.apache_kafka import free_ports
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.node import node_codec
from millstream.logcore.replication.node.node_codec import Frame, encode_frame
from millstream.logcore.replication.node.node_links import NodeLinks, PeerAddress, Peers
from millstream.logcore.replication.node.node_messages import MachineAnswered
from millstream.logcore.replication.replica.replica_messages import FetchRequest, Problem, Refused
from millstream.server.security.tls import ClusterTlsSettings
from tests.logcore.replication.trio import PARTITION

ONE, TWO = NodeId(1), NodeId(2)
MESSAGE = Frame("broker", FetchRequest(PARTITION, 3, 7, 1, 10, -1, 1000))


def addresses() -> dict[NodeId, PeerAddress]:
    return {NodeId(i): PeerAddress("127.0.0.1", port) for i, port in enumerate(free_ports(2), 1)}


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def until_arrived(arrived: list[tuple[NodeId, Frame]], links: NodeLinks, to: NodeId) -> None:
    while not arrived:
        links.send(to, MESSAGE)
        await asyncio.sleep(0.02)


class Pair(NamedTuple):
    """ONE, with the nodes whose connections it has lost, and TWO, with what has come to it."""

    one: NodeLinks
    two: NodeLinks
    arrived: list[tuple[NodeId, Frame]]
    lost: list[NodeId]
    known: dict[NodeId, PeerAddress]


@asynccontextmanager
async def two_nodes() -> AsyncGenerator[Pair]:
    known, arrived, lost = addresses(), list[tuple[NodeId, Frame]](), list[NodeId]()
    one = NodeLinks(Peers("c", ONE, b"secret", known), lambda sender, frame: None, lost.append)
    two = NodeLinks(Peers("c", TWO, b"secret", known), lambda sender, frame: arrived.append((sender, frame)))
    await one.start()
    await two.start()
    yield Pair(one, two, arrived, lost, known)
    await one.stop()
    await two.stop()


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


def test_whoever_knocks_again_and_again_is_complained_of_once() -> None:
    async def knock(known: dict[NodeId, PeerAddress]) -> None:
        node = NodeLinks(Peers("c", TWO, b"secret", known), lambda sender, frame: None)
        await node.start()
        for _ in range(20):
            reader, writer = await asyncio.open_connection(*known[TWO])
            writer.write(b"GET / HTTP/1.1\n")
            assert await reader.read() == b""
            writer.close()
        await node.stop()

    known = addresses()
    with capture_logs() as said:
        run(knock(known))
    warnings = [entry for entry in said if entry["log_level"] == "warning"]
    assert [(entry["address"], entry["left_out"]) for entry in warnings] == [("127.0.0.1", 0)]


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


def test_a_stranger_cannot_have_one_node_answer_the_challenge_of_another() -> None:
    """It connects to both, and hands on what each says: to TWO it says that it is ONE, to ONE that it is TWO."""

    async def relay() -> None:
        known, arrived = addresses(), list[tuple[NodeId, Frame]]()
        one = NodeLinks(Peers("c", ONE, b"secret", {**known, TWO: addresses()[TWO]}), lambda sender, frame: None)
        two = NodeLinks(
            Peers("c", TWO, b"secret", {**known, ONE: addresses()[ONE]}),
            lambda sender, frame: arrived.append((sender, frame)),
        )
        await one.start()
        await two.start()
        to_two, to_one = [await asyncio.open_connection(*known[node]) for node in (TWO, ONE)]
        say(to_two[1], {"cluster": "c", "from": 1, "to": 2, "challenge": "00" * 32})
        asked = json.loads(await to_two[0].readline())
        say(to_one[1], {"cluster": "c", "from": 2, "to": 1, "challenge": asked["challenge"]})
        answered = json.loads(await to_one[0].readline())
        say(to_two[1], {"proof": answered["proof"]})
        to_two[1].writelines(encode_frame(MESSAGE))
        assert await to_two[0].read() == b""
        assert arrived == []
        for _, writer in (to_one, to_two):
            writer.close()
        await one.stop()
        await two.stop()

    run(relay())


def test_strangers_who_say_nothing_do_not_keep_a_node_out() -> None:
    async def crowd() -> None:
        known, arrived = addresses(), list[tuple[NodeId, Frame]]()
        two = NodeLinks(Peers("c", TWO, b"secret", known), lambda sender, frame: arrived.append((sender, frame)))
        await two.start()
        strangers = [await asyncio.open_connection(*known[TWO]) for _ in range(70)]
        one = NodeLinks(Peers("c", ONE, b"secret", known), lambda sender, frame: None)
        await one.start()
        await until_arrived(arrived, one, TWO)
        assert await strangers[0][0].read() == b""  # the oldest went, long before its time was over
        assert not strangers[-1][0].at_eof()
        for _, writer in strangers:
            writer.close()
        await one.stop()
        await two.stop()

    run(crowd())


def say(writer: asyncio.StreamWriter, fields: dict[str, Any]) -> None:
    writer.write(json.dumps(fields).encode() + b"\n")


def test_garbage_ends_its_connection_and_nothing_else() -> None:
    async def talk() -> None:
        async with two_nodes() as nodes:
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5_000, b"[]\n", b'{"from": 1}\n', b"{" * 2_000 + b"\n"):
                reader, writer = await asyncio.open_connection(*nodes.known[TWO])
                writer.write(garbage)
                assert await reader.read() == b""
                writer.close()
            await until_arrived(nodes.arrived, nodes.one, TWO)

    run(talk())


def test_a_peer_that_is_added_moves_and_is_removed_while_the_links_run() -> None:
    async def talk() -> None:
        known, arrived = addresses(), list[tuple[NodeId, Frame]]()
        one = NodeLinks(Peers("c", ONE, b"secret", {ONE: known[ONE]}), lambda sender, frame: None)
        await one.start()
        two = NodeLinks(Peers("c", TWO, b"secret", known), lambda sender, frame: arrived.append((sender, frame)))
        await two.start()
        one.send(TWO, MESSAGE)  # to nobody
        one.set_peer(TWO, known[TWO])
        await until_arrived(arrived, one, TWO)
        assert one.traffic[TWO].connected
        assert one.traffic[TWO].sent_bytes > 0
        assert two.traffic[ONE].received_bytes > 0

        await two.stop()
        moved = {**known, TWO: addresses()[TWO]}
        two = NodeLinks(Peers("c", TWO, b"secret", moved), lambda sender, frame: arrived.append((sender, frame)))
        await two.start()
        arrived.clear()
        one.set_peer(TWO, moved[TWO])
        await until_arrived(arrived, one, TWO)

        one.set_peer(TWO, None)
        await asyncio.sleep(0.05)
        arrived.clear()
        for _ in range(5):
            one.send(TWO, MESSAGE)
            await asyncio.sleep(0.02)
        assert arrived == []
        assert one.traffic == {}
        await one.stop()
        await two.stop()

    run(talk())


def test_who_was_removed_is_not_listened_to_any_more() -> None:
    async def talk() -> None:
        known, arrived = addresses(), list[tuple[NodeId, Frame]]()
        one = NodeLinks(Peers("c", ONE, b"secret", known), lambda sender, frame: arrived.append((sender, frame)))
        two = NodeLinks(Peers("c", TWO, b"secret", known), lambda sender, frame: None)
        await one.start()
        await two.start()
        await until_arrived(arrived, two, ONE)
        one.set_peer(TWO, None)
        await asyncio.sleep(0.05)
        arrived.clear()
        for _ in range(20):
            two.send(ONE, MESSAGE)
            await asyncio.sleep(0.02)
        assert arrived == []
        await one.stop()
        await two.stop()

    run(talk())


def test_nodes_with_certificates_of_one_authority_talk_and_strangers_do_not(tmp_path: Path) -> None:
    make_certificates(tmp_path, "node")
    ours = ClusterTlsSettings(certificate=tmp_path / "node.pem", key=tmp_path / "node.key", ca=tmp_path / "ca.pem")
    stranger = ClusterTlsSettings(
        certificate=tmp_path / "stranger.pem", key=tmp_path / "stranger.key", ca=tmp_path / "ca.pem"
    )

    async def arrives(settings: ClusterTlsSettings | None) -> bool:
        known, arrived = addresses(), list[tuple[NodeId, Frame]]()
        serving, connecting = (None, None) if settings is None else (settings.serving(), settings.connecting())
        one = NodeLinks(Peers("c", ONE, b"secret", known, serving, connecting), lambda sender, frame: None)
        two = NodeLinks(
            Peers("c", TWO, b"secret", known, ours.serving(), ours.connecting()),
            lambda sender, frame: arrived.append((sender, frame)),
        )
        await one.start()
        await two.start()
        for _ in range(25):
            one.send(TWO, MESSAGE)
            await asyncio.sleep(0.02)
        await one.stop()
        await two.stop()
        return bool(arrived)

    async def talk() -> None:
        assert await arrives(ours)
        assert not await arrives(stranger)
        assert not await arrives(None)

    run(talk())


def test_who_sends_hears_of_a_connection_that_broke() -> None:
    async def talk() -> None:
        async with two_nodes() as nodes:
            await until_arrived(nodes.arrived, nodes.one, TWO)
            assert nodes.lost == []
            await nodes.two.stop()
            while not nodes.lost:
                nodes.one.send(TWO, MESSAGE)
                await asyncio.sleep(0.02)
            assert set(nodes.lost) == {TWO}

    run(talk())


def test_a_message_that_no_node_would_take_costs_nothing_but_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent all the same, it would cost the connection, again and again: other nodes would take this one for lost."""
    monkeypatch.setattr(node_codec, "FRAME_BYTES_MAX", 1_000)

    async def talk() -> None:
        async with two_nodes() as nodes:
            await until_arrived(nodes.arrived, nodes.one, TWO)
            nodes.arrived.clear()
            nodes.lost.clear()
            nodes.one.send(TWO, Frame("broker", MachineAnswered(1, 1, Refused(Problem.STORAGE_ERROR, "x" * 1_000))))
            await until_arrived(nodes.arrived, nodes.one, TWO)
            assert {frame for _, frame in nodes.arrived} == {MESSAGE}
            assert nodes.lost == []

    with capture_logs() as said:
        run(talk())
    [error] = [entry for entry in said if entry["log_level"] == "error"]
    assert error["error"].startswith("a MachineAnswered of 1")
