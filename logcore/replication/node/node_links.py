"""Connections between the nodes of a cluster: frames over TCP, one connection in each direction.

Before any frame is read, both sides prove that they know the cluster's secret. Each answers the other's random
challenge with an HMAC of both challenges, of which node connects to which, and of its own side, so an answer is useless
anywhere else. Both name the versions of the cluster that they speak, and use the newest common one; without one there
is no connection. Messages may be lost at any time (a peer is away, a queue is full): machines repeat what matters.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import structlog

from ...accepting import AT_A_TIME, let_wait
from ...broken_connections import give_up_early
from ..cluster_version import UNSAID, VERSIONS, ClusterVersions
from ..complaints import Complaints
from ..machine import NodeId
from .node_codec import FRAME_BYTES_MAX, Frame, FrameTooLarge, InvalidFrame, decode_frame, encode_frame
from .spoken_versions import Unspoken

_log: Final = structlog.get_logger("millstream.logcore")
_CHALLENGE_BYTES: Final = 32
_HELLO_BYTES_MAX: Final = 1024
_HELLO_S: Final = 5.0
_STRANGERS_MAX: Final = 64  # connections that have not proved the secret yet; the oldest is closed first
_CONNECT_S: Final = 1.5  # short, so that a repaired network is noticed soon
_UNACKNOWLEDGED_MS: Final = 3_000
_QUEUE_MAX: Final = 1_000  # frames that wait for a peer; the oldest is dropped first
_BACKOFF_S: Final = (0.05, 1.0)

Arrived = Callable[[NodeId, Frame], None]


class PeerAddress(NamedTuple):
    host: str
    port: int


class Peers(NamedTuple):
    """What connections need. `serving` and `connecting`: TLS contexts of incoming and outgoing connections; None: no
    encryption."""

    cluster: str
    node: NodeId
    secret: bytes
    addresses: Mapping[NodeId, PeerAddress]
    serving: ssl.SSLContext | None = None
    connecting: ssl.SSLContext | None = None


@dataclass(slots=True)
class LinkTraffic:
    """Traffic with one peer since the start."""

    sent_bytes: int = 0
    received_bytes: int = 0
    connected: bool = False  # the outgoing connection


class TooOld(InvalidFrame):
    """One of two nodes runs a release that does not know the version of the cluster."""


class NodeLinks:
    """State: the listener, and for each peer a queue and a connection that is made again whenever it breaks.

    `arrived(sender, frame)` is called in the event loop. `set_peer` adds, moves and removes peers while it runs. Any
    thread may read `traffic`.
    """

    def __init__(self, peers: Peers, arrived: Arrived, lost: Callable[[NodeId], None] = lambda node: None) -> None:
        """In: `lost`: called when a connection to a node has broken; the last messages may not have arrived."""
        self._peers = peers
        self._arrived = arrived
        self._lost = lost
        self._server: asyncio.Server | None = None
        self.traffic: dict[NodeId, LinkTraffic] = {}
        self._addresses = dict(peers.addresses)
        self._queues: dict[NodeId, asyncio.Queue[Frame]] = {}
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}
        self._shown: dict[NodeId, asyncio.Event] = {}  # set when the peer connects: then try to connect immediately
        self._complaints = Complaints()
        self.versions = VERSIONS  # the versions that this node speaks: none older than the cluster's
        self._readers: dict[asyncio.Task[None], NodeId | None] = {}  # the sender, once it is known

    async def start(self) -> PeerAddress:
        """Listens, and begins to connect. Returns the address with the real port. Raises OSError."""
        own = self._addresses[self._peers.node]
        tls = self._peers.serving
        handshake_s = None if tls is None else _HELLO_S
        self._server = await asyncio.start_server(
            self._serve, own.host, own.port, ssl=tls, ssl_handshake_timeout=handshake_s, backlog=AT_A_TIME
        )
        let_wait(self._server, "cluster")
        host, port = self._server.sockets[0].getsockname()[:2]
        for node, address in list(self._addresses.items()):
            self._connect(node, address)
        return PeerAddress(host, port)

    def set_peer(self, node: NodeId, address: PeerAddress | None) -> None:
        """Sets the peer's address; None: it is no longer a peer, and its connections are closed."""
        if node == self._peers.node or self._addresses.get(node) == address:
            return
        if (task := self._tasks.pop(node, None)) is not None:
            task.cancel()
        if address is not None:
            self._connect(node, address)
            return
        self._addresses.pop(node, None)
        self._queues.pop(node, None)
        self.traffic.pop(node, None)
        for reader in [task for task, sender in self._readers.items() if sender == node]:
            reader.cancel()

    def _connect(self, node: NodeId, address: PeerAddress) -> None:
        if node == self._peers.node:
            return
        self._addresses[node] = address
        self._queues.setdefault(node, asyncio.Queue())
        traffic = self.traffic.setdefault(node, LinkTraffic())
        connecting = self._keep_connected(node, address, traffic)
        self._tasks[node] = asyncio.create_task(connecting, name=f"link to node {node}")

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = (*self._tasks.values(), *self._readers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def send(self, to: NodeId, frame: Frame) -> None:
        queue = self._queues.get(to)
        if queue is None:
            return
        if queue.qsize() >= _QUEUE_MAX:
            queue.get_nowait()
        queue.put_nowait(frame)

    # Out

    async def _keep_connected(self, node: NodeId, address: PeerAddress, traffic: LinkTraffic) -> None:
        pause, longest = _BACKOFF_S
        while True:
            try:
                await self._send_to(node, address, traffic)
            except TooOld as error:
                self._warn(f"node {node}", error)
            except (OSError, asyncio.IncompleteReadError, InvalidFrame, ValueError) as error:
                _log.debug("a node is not reached", node=node, error=str(error) or type(error).__name__)
            else:
                pause = _BACKOFF_S[0]
            shown = self._shown[node] = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(shown.wait(), pause)
            pause = min(2 * pause, longest)

    async def _send_to(self, node: NodeId, address: PeerAddress, traffic: LinkTraffic) -> None:
        queue = self._queues[node]
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(*address, ssl=self._peers.connecting)
        give_up_early(writer.get_extra_info("socket"), _UNACKNOWLEDGED_MS)
        try:
            async with asyncio.timeout(_HELLO_S):
                version = await self._introduce(reader, writer, node)
            traffic.connected = True
            while True:
                frame = await queue.get()
                try:
                    buffers = encode_frame(frame, version)
                except Unspoken as error:  # to a node of an earlier release
                    _log.debug("a message is not sent", node=node, machine=frame.machine, reason=str(error))
                    continue
                except (TypeError, FrameTooLarge) as error:  # our own bug; it must not end the connection
                    _log.error("a message cannot be sent", node=node, machine=frame.machine, error=str(error))
                    continue
                writer.writelines(buffers)
                traffic.sent_bytes += sum(map(len, buffers))
                await writer.drain()
        finally:
            traffic.connected = False
            writer.close()
            self._lost(node)

    async def _introduce(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: NodeId) -> int:
        """Proves the secret to the peer. Returns the version of the connection."""
        peers, challenge = self._peers, os.urandom(_CHALLENGE_BYTES).hex()
        hello = {"cluster": peers.cluster, "from": peers.node, "to": node, "challenge": challenge}
        _write_hello(writer, {**hello, "versions": self.versions})
        answer = await _read_hello(reader)
        meeting = _Meeting(peers.cluster, peers.node, node, challenge, str(answer.get("challenge")))
        meeting.check(answer.get("proof"), peers.secret, _SERVES)
        version = self._spoken_with(node, answer)
        _write_hello(writer, {"proof": meeting.proof(peers.secret, _CONNECTS)})
        await writer.drain()
        return version

    def _spoken_with(self, node: NodeId, hello: Mapping[str, object]) -> int:
        """Raises `InvalidFrame`."""
        said = hello.get("versions", UNSAID)
        if not isinstance(said, (list, tuple)) or [type(each) for each in said] != [int, int]:
            raise InvalidFrame(f"node {node} says that it speaks the versions {said!r}")
        theirs = ClusterVersions(*said)
        version = self.versions.shared_with(theirs)
        if version is None:
            older = f"node {node}" if theirs < self.versions else "this node"
            spoken = f"this node speaks {self.versions}, node {node} {theirs}"
            raise TooOld(f"{older} runs a release that is too old for this cluster: install a newer one; {spoken}")
        return version

    # In

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._readers[task] = None
        self._make_room()
        try:
            async with asyncio.timeout(_HELLO_S):
                sender = self._readers[task] = await self._welcome(reader, writer)
            give_up_early(writer.get_extra_info("socket"), _UNACKNOWLEDGED_MS)
            if sender in self._shown:
                self._shown[sender].set()
            traffic = self.traffic[sender]
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if size > FRAME_BYTES_MAX:
                    raise InvalidFrame(f"a frame of {size} bytes")
                traffic.received_bytes += 4 + size
                self._arrived(sender, decode_frame(memoryview(await reader.readexactly(size))))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the peer is away and will return, or this node stops
        except (InvalidFrame, ValueError) as error:
            self._complain(writer, error)
        finally:
            self._readers.pop(task, None)
            writer.close()

    def _complain(self, writer: asyncio.StreamWriter, error: Exception) -> None:
        """Anybody can connect to this port, as often as they like, so it logs one line a minute for each address."""
        self._warn(str((writer.get_extra_info("peername") or ("?",))[0]), error)

    def _warn(self, address: str, error: Exception) -> None:
        left_out = self._complaints.note(address, asyncio.get_running_loop().time())
        if left_out is not None:
            _log.warning("a connection between nodes was closed", reason=str(error), address=address, left_out=left_out)

    def _make_room(self) -> None:
        """Closes the oldest unproved connections: they must not keep out peers, or use up the open files."""
        strangers = [task for task, sender in self._readers.items() if sender is None]
        for task in strangers[: max(0, len(strangers) - _STRANGERS_MAX)]:
            task.cancel()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> NodeId:
        peers, challenge = self._peers, os.urandom(_CHALLENGE_BYTES).hex()
        hello = await _read_hello(reader)
        sender = NodeId(int(str(hello.get("from"))))
        known = sender != peers.node and sender in self._addresses
        if (hello.get("cluster"), hello.get("to")) != (peers.cluster, peers.node) or not known:
            raise InvalidFrame(
                f"node {hello.get('from')} of cluster {hello.get('cluster')!r} is none of this cluster's"
            )
        meeting = _Meeting(peers.cluster, sender, peers.node, str(hello.get("challenge")), challenge)
        proof = meeting.proof(peers.secret, _SERVES)
        _write_hello(writer, {"proof": proof, "challenge": challenge, "versions": self.versions})
        meeting.check((await _read_hello(reader)).get("proof"), peers.secret, _CONNECTS)
        self._spoken_with(sender, hello)
        return sender


# The secret

_CONNECTS: Final = "connects"
_SERVES: Final = "serves"


class _Meeting(NamedTuple):
    """What both sides know about their connection. Challenges are texts."""

    cluster: str
    connects: NodeId
    serves: NodeId
    of_who_connects: str
    of_who_serves: str

    def proof(self, secret: bytes, side: str) -> str:
        """Only a node that knows the secret can compute it, and only for this side of this connection. A proof from
        another connection, made for another peer, proves nothing here."""
        return hmac.new(secret, json.dumps([side, *self]).encode(), "sha256").hexdigest()

    def check(self, proof: Any, secret: bytes, side: str) -> None:
        if not hmac.compare_digest(str(proof).encode(), self.proof(secret, side).encode()):
            node = self.connects if side == _CONNECTS else self.serves
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
