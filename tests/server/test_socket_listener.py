"""Listening on an address that cannot be."""

from __future__ import annotations

import pytest

from millstream.server.config.configuration import ListenAddress
from millstream.server.socket_listener import CannotListen, SocketListener


def test_a_host_that_cannot_be_is_named() -> None:
    with pytest.raises(CannotListen, match=r"cannot listen on a\.\.b:0"):
        SocketListener("http", ListenAddress("a..b", 0))
