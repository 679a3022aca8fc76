"""Whether a socket is ready. `select` refuses descriptors above 1,023, which a process with many tests may have."""

from __future__ import annotations

import select
import socket


def is_readable(connection: socket.socket, timeout_s: float) -> bool:
    """Whether it is within this time."""
    return bool(_events(connection, select.POLLIN, timeout_s) & ~select.POLLOUT)


def readable_and_writable(connection: socket.socket, timeout_s: float) -> tuple[bool, bool]:
    """As soon as it is one of them; neither after this time. An end counts as readable."""
    events = _events(connection, select.POLLIN | select.POLLOUT, timeout_s)
    return bool(events & ~select.POLLOUT), bool(events & select.POLLOUT)


def _events(connection: socket.socket, wanted: int, timeout_s: float) -> int:
    poll = select.poll()
    poll.register(connection, wanted)
    return next((events for _, events in poll.poll(timeout_s * 1_000)), 0)
