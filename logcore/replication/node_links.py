"""Connections between the nodes of a cluster: frames over TCP, one connection in each direction.

Whoever connects shows that it knows the cluster's secret, and has the other side show it, before anything is read:
each answers the other's random challenge with an HMAC of it. What is sent may be lost at any time (a peer that is away,
a queue that is full): the machines say again what matters.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import structlog

from .machine import NodeId
from .node_codec import FRAME_BYTES_MAX, Frame, InvalidFrame, decode_frame, encode_frame

_log: Final = structlog.get_logger(__name__)
_CHALLENGE_BYTES: Final = 32
_HELLO_BYTES_MAX: Final = 1024
_HELLO_S: Final = 5.0
_QUEUE_MAX: Final = 1_000  # frames that wait for a peer; the oldest goes first
_BACKOFF_S: Final = (0.05, 2.0)

Arrived = Callable[[NodeId, Frame], None]


class Address(NamedTuple):
    host: str
    port: int


class Peers(NamedTuple):
    """All that connections need to know. `certificates`: contexts for what comes and what goes; None: clear text."""

    cluster: str
    node: NodeId
    secret: bytes
    addresses: Mapping[NodeId, Address]
    serving: ssl.SSLContext | None = None
    connecting: ssl.SSLContext | None = None


class NodeLinks:
    """State: the listener, and per peer a queue and a connection that is made again whenever it breaks.

    `arrived(sender, frame)` is called in the event loop.
    """

    def __init__(self, peers: Peers, arrived: Arrived) -> None:
        self._peers = peers
        self._arrived = arrived
        self._server: asyncio.Server | None = None
        self._queues: dict[NodeId, asyncio.Queue[Frame]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._readers: set[asyncio.Task[None]] = set()

    async def start(self) -> Address:
        """Listens, and begins to connect. Gives the address with the real port. Raises OSError."""
        own = self._peers.addresses[self._peers.node]
        self._server = await asyncio.start_server(self._serve, own.host, own.port, ssl=self._peers.serving)
        host, port = self._server.sockets[0].getsockname()[:2]
        for node in self._peers.addresses:
            if node != self._peers.node:
                self._queues[node] = asyncio.Queue()
                self._tasks.append(asyncio.create_task(self._keep_connected(node), name=f"link to node {node}"))
        return Address(host, port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in (*self._tasks, *self._readers):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._readers, return_exceptions=True)

    def send(self, to: NodeId, frame: Frame) -> None:
        queue = self._queues.get(to)
        if queue is None:
            return
        if queue.qsize() >= _QUEUE_MAX:
            queue.get_nowait()
        queue.put_nowait(frame)

    # Out

    async def _keep_connected(self, node: NodeId) -> None:
        pause, longest = _BACKOFF_S
        while True:
            try:
                await self._send_to(node)
            except (OSError, asyncio.IncompleteReadError, TimeoutError, InvalidFrame, ValueError) as error:
                _log.debug("a node is not reached", node=node, error=str(error) or type(error).__name__)
            else:
                pause = _BACKOFF_S[0]
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    async def _send_to(self, node: NodeId) -> None:
        address, queue = self._peers.addresses[node], self._queues[node]
        reader, writer = await asyncio.open_connection(*address, ssl=self._peers.connecting)
        try:
            async with asyncio.timeout(_HELLO_S):
                await self._introduce(reader, writer, node)
            while True:
                frame = await queue.get()
                writer.writelines(encode_frame(frame))
                await writer.drain()
        finally:
            writer.close()

    async def _introduce(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: NodeId) -> None:
        peers, challenge = self._peers, os.urandom(_CHALLENGE_BYTES)
        _write_hello(writer, {"cluster": peers.cluster, "from": peers.node, "to": node, "challenge": challenge.hex()})
        answer = await _read_hello(reader)
        self._check(answer.get("proof"), challenge, node)
        _write_hello(writer, {"proof": self._proof(bytes.fromhex(str(answer.get("challenge"))), peers.node)})
        await writer.drain()

    # In

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._readers.add(task)
        try:
            async with asyncio.timeout(_HELLO_S):
                sender = await self._welcome(reader, writer)
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if size > FRAME_BYTES_MAX:
                    raise InvalidFrame(f"a frame of {size} bytes")
                self._arrived(sender, decode_frame(memoryview(await reader.readexactly(size))))
        except (OSError, asyncio.IncompleteReadError, TimeoutError, asyncio.CancelledError):
            pass  # it went away and will be back, or this node stops
        except (InvalidFrame, ValueError) as error:
            _log.warning("a connection between nodes was closed", reason=str(error))
        finally:
            self._readers.discard(task)
            writer.close()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> NodeId:
        peers, challenge = self._peers, os.urandom(_CHALLENGE_BYTES)
        hello = await _read_hello(reader)
        sender = NodeId(int(str(hello.get("from"))))
        if (hello.get("cluster"), hello.get("to")) != (peers.cluster, peers.node) or sender not in peers.addresses:
            raise InvalidFrame(
                f"node {hello.get('from')} of cluster {hello.get('cluster')!r} is none of this cluster's"
            )
        proof = self._proof(bytes.fromhex(str(hello.get("challenge"))), peers.node)
        _write_hello(writer, {"proof": proof, "challenge": challenge.hex()})
        self._check((await _read_hello(reader)).get("proof"), challenge, sender)
        return sender

    # The secret

    def _proof(self, challenge: bytes, node: NodeId) -> str:
        """Only who knows the secret can say it, and only as this node, for this challenge."""
        return hmac.new(self._peers.secret, b"%d:" % node + challenge, "sha256").hexdigest()

    def _check(self, proof: Any, challenge: bytes, node: NodeId) -> None:
        if not hmac.compare_digest(str(proof).encode(), self._proof(challenge, node).encode()):
            raise InvalidFrame(f"node {node} does not know the secret of this cluster")


def _write_hello(writer: asyncio.StreamWriter, fields: Mapping[str, Any]) -> None:
    writer.write(json.dumps(fields).encode() + b"\n")


async def _read_hello(reader: asyncio.StreamReader) -> dict[str, Any]:
    line = await reader.readline()
    if not line.endswith(b"\n") or len(line) > _HELLO_BYTES_MAX:
        raise InvalidFrame("a connection that does not begin as one between nodes")
    content = json.loads(line)
    if not isinstance(content, dict):
        raise InvalidFrame("a connection that does not begin as one between nodes")
    return content
