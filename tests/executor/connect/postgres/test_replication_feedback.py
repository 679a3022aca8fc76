"""Signs of life that PostgreSQL gets while it sends: without them it hangs up after `wal_sender_timeout`."""

from __future__ import annotations

import itertools
import struct
from types import SimpleNamespace

import pytest

from millstream.executor.connect.postgres import pg_connections
from millstream.executor.connect.postgres.pg_connections import ReplicationStream

_TIMEOUT_S = 3.0  # people set it so low where they want to notice dead standbys soon
_CHANGE = b"w" + struct.pack(">QQQ", 5, 6, 0) + b"a change"


def test_messages_that_are_there_are_taken_before_more_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else libpq takes in everything that waits, and moves all of it for each message."""
    reads, there = list[int](), [0]
    answered = SimpleNamespace(status=pg_connections.pq.ExecStatus.COPY_BOTH)

    def read() -> None:
        reads.append(there[0])
        there[0] += 10

    def take(is_async: int) -> tuple[int, bytes]:
        if not there[0]:
            return 0, b""
        there[0] -= 1
        return len(_CHANGE), _CHANGE

    connected = SimpleNamespace(
        exec_=lambda command: answered, consume_input=read, get_copy_data=take, put_copy_data=len, flush=lambda: 0
    )
    monkeypatch.setattr(pg_connections.psycopg, "connect", lambda *_, **__: SimpleNamespace(pgconn=connected))
    stream = ReplicationStream({})
    stream.start("slot", "publication", 1)
    assert all(stream.read(0) for _ in range(100))
    assert reads == [0] * 10


def test_the_server_hears_of_a_reader_that_is_busy_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now, heard = [100.0], list[float]()
    answered = SimpleNamespace(status=pg_connections.pq.ExecStatus.COPY_BOTH)
    connected = SimpleNamespace(
        exec_=lambda command: answered,
        consume_input=lambda: None,
        get_copy_data=lambda is_async: (len(_CHANGE), _CHANGE),
        put_copy_data=lambda data: heard.append(now[0]),
        flush=lambda: 0,
    )
    monkeypatch.setattr(pg_connections.psycopg, "connect", lambda *_, **__: SimpleNamespace(pgconn=connected))
    monkeypatch.setattr(pg_connections.time, "monotonic", lambda: now[0])
    stream = ReplicationStream({})
    stream.start("slot", "publication", 1)
    for _ in range(100):
        stream.read(0)
        now[0] += 0.2
    silences = [after - before for before, after in itertools.pairwise(heard)]
    assert heard[0] == 100.0
    assert max(silences) < _TIMEOUT_S / 2
