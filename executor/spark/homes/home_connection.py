"""Connections between the workers of one Spark application, each side of which proves that it knows a secret.

A proof contains both sides' random numbers and the address that the client meant. So a program that got hold of the
port of a worker that has ended cannot use a client's proof to reach another worker.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
from collections.abc import Generator
from typing import Final

import pyarrow as pa

from ....logcore.broken_connections import give_up_early

CONNECT_S: Final = 5.0  # for connecting, and for each step of the proof
_NONCE_BYTES: Final = 32
_PROOF_BYTES: Final = 32
_LENGTH: Final = struct.Struct("<q")
_UNACKNOWLEDGED_MS: Final = 15_000


class HomeLost(ConnectionError):
    """The other side has gone, does not answer, or does not know the secret."""


class HomeUnreachable(HomeLost):
    """There is no way to the other host, as with a firewall between them."""


class HomeConnection:
    """Sends and receives messages of bytes. Not thread-safe. Raises `HomeLost`: within a quarter of a minute if the
    other host has gone without a word."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        give_up_early(connected, _UNACKNOWLEDGED_MS)

    @classmethod
    def to(cls, address: str, secret: bytes) -> HomeConnection:
        """Connects to a home. In: `address`: HOST:PORT. Raises `HomeUnreachable` as well."""
        with _as_lost(), _closed_on_error(_connected(address)) as connected:
            theirs, ours = bytes(_received(connected, _NONCE_BYTES)), secrets.token_bytes(_NONCE_BYTES)
            connected.sendall(ours + _proof(secret, b"client", theirs, ours, address))
            _check(connected, _proof(secret, b"home", theirs, ours, address))
            connected.settimeout(None)
            return cls(connected)

    @classmethod
    def accepted(cls, connected: socket.socket, address: str, secret: bytes) -> HomeConnection:
        """A connection that a home has accepted. In: `address`: the home's own, as its clients know it."""
        with _as_lost(), _closed_on_error(connected):
            connected.settimeout(CONNECT_S)
            ours = secrets.token_bytes(_NONCE_BYTES)
            connected.sendall(ours)
            theirs = bytes(_received(connected, _NONCE_BYTES))
            _check(connected, _proof(secret, b"client", ours, theirs, address))
            connected.sendall(_proof(secret, b"home", ours, theirs, address))
            connected.settimeout(None)
            return cls(connected)

    def send(self, message: bytes | pa.Buffer) -> None:
        view = memoryview(message)
        with _as_lost():
            self._socket.sendall(_LENGTH.pack(view.nbytes))
            self._socket.sendall(view)

    def receive(self) -> pa.Buffer:
        with _as_lost():
            (length,) = _LENGTH.unpack(_received(self._socket, _LENGTH.size))
            return pa.py_buffer(_received(self._socket, length))

    def close(self) -> None:
        self._socket.close()


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        return socket.create_connection((host, int(port)), CONNECT_S)
    except ConnectionError:  # the host answers: nothing listens there any more
        raise
    except OSError as error:
        raise HomeUnreachable(f"there is no way to {address}: {error}") from error


@contextlib.contextmanager
def _as_lost() -> Generator[None]:
    try:
        yield
    except HomeLost:
        raise
    except OSError as error:
        raise HomeLost(str(error) or type(error).__name__) from error


@contextlib.contextmanager
def _closed_on_error(connected: socket.socket) -> Generator[socket.socket]:
    try:
        yield connected
    except BaseException:
        connected.close()
        raise


def _received(connected: socket.socket, length: int) -> bytearray:
    """Exactly this many bytes."""
    data = bytearray(length)
    rest = memoryview(data)
    while rest:
        count = connected.recv_into(rest)
        if not count:
            raise HomeLost("the other side has closed the connection")
        rest = rest[count:]
    return data


def _proof(secret: bytes, side: bytes, of_home: bytes, of_client: bytes, address: str) -> bytes:
    return hmac.new(secret, side + of_home + of_client + address.encode(), "sha256").digest()


def _check(connected: socket.socket, proof: bytes) -> None:
    if not hmac.compare_digest(_received(connected, _PROOF_BYTES), proof):
        raise HomeLost("the other side does not know the secret of this application")
