"""TCP connections that notice within seconds that the other host has gone without a word."""

from __future__ import annotations

import socket
from typing import Final

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))  # option, seconds or count


def give_up_early(connected: socket.socket, unacknowledged_ms: int) -> None:
    """Makes a broken connection end: one that is silent after 11 seconds, one with unacknowledged data after
    `unacknowledged_ms`. TCP alone retries at growing intervals, so a repaired network would stay silent for minutes."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unacknowledged_ms)
