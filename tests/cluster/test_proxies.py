"""Wires that are cut are cut, in the direction that was asked for, and deliver when they are mended."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from .proxies import Proxies


@pytest.fixture
def proxies() -> Iterator[tuple[Proxies, socket.socket]]:
    """Between nodes 1 and 2; node 2 is this socket."""
    with socket.create_server(("127.0.0.1", 0)) as second, socket.create_server(("127.0.0.1", 0)) as first:
        made = Proxies({1: first.getsockname(), 2: second.getsockname()})
        yield made, second
        made.close()


def test_a_proxy_passes_on_what_it_is_given(proxies: tuple[Proxies, socket.socket]) -> None:
    near, far = connected(*proxies)
    near.sendall(b"ping")
    far.sendall(b"pong")
    assert (far.recv(9), near.recv(9)) == (b"ping", b"pong")


@pytest.mark.parametrize("direction", [(1, 2), (2, 1)])
def test_a_proxy_cuts_one_direction_and_delivers_when_it_is_mended(
    direction: tuple[int, int], proxies: tuple[Proxies, socket.socket]
) -> None:
    made, _ = proxies
    near, far = connected(*proxies)
    made.cut(*direction)
    near.sendall(b"ping")
    far.sendall(b"pong")
    hears, deaf = (near, far) if direction == (1, 2) else (far, near)
    assert hears.recv(9) in (b"ping", b"pong")
    deaf.settimeout(0.2)
    with pytest.raises(TimeoutError):
        deaf.recv(9)
    deaf.settimeout(10.0)
    made.mend(*direction)
    assert deaf.recv(9) in (b"ping", b"pong")


def test_nobody_connects_over_a_wire_that_is_cut(proxies: tuple[Proxies, socket.socket]) -> None:
    made, second = proxies
    made.cut(2, 1)
    near = socket.create_connection(("127.0.0.1", made.port(1, 2)), 10.0)
    second.settimeout(0.2)
    with pytest.raises(TimeoutError):
        second.accept()
    made.mend(2, 1)
    second.settimeout(10.0)
    second.accept()
    near.close()


def connected(made: Proxies, second: socket.socket) -> tuple[socket.socket, socket.socket]:
    near = socket.create_connection(("127.0.0.1", made.port(1, 2)), 10.0)
    far, _ = second.accept()
    far.settimeout(10.0)
    return near, far
