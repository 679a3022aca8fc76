"""Very many connections at once, and those that end without a word."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import struct
from pathlib import Path

import pytest
from running_server import service_in
from waiting import eventually

from millstream.server.engine.session import Session
from millstream.server.pg.pg_connection import _ReadAhead
from millstream.server.service import Service

MANY = 1_000
_STARTUP = struct.pack("!I", 196608) + b"user\0ana\0database\0millstream\0\0"
_READY = b"Z\0\0\0\5I"
_STATEMENTS = """CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;
INSERT INTO s VALUES (1, 1);"""
_QUERY = (
    b"SELECT n FROM t WHERE k = 1\0"  # a look-up, which takes no worker: at most 256 other queries may wait for those
)


@pytest.mark.soak
def test_a_thousand_connections_are_answered_at_once(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * MANY:
        pytest.skip(f"{hard} open files are too few")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * MANY), hard))
    try:
        with service_in(
            tmp_path, pg="127.0.0.1:0", pg_connections_max=MANY, pg_connections_per_address_max=MANY
        ) as service:
            service.engine.execute(_STATEMENTS, Session())
            eventually(lambda: _has_row(service))
            asyncio.run(_asked_by_many(service))
            eventually(lambda: _sockets() < MANY // 10, otherwise="connections stay open")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _has_row(service: Service) -> bool:
    return any(map(len, service.engine.query("SELECT n FROM t WHERE k = 1;", Session()).batches()))


async def _asked_by_many(service: Service) -> None:
    """All are open and logged in before the first one asks; then all ask, three times."""
    assert service.pg_address is not None
    host, port = service.pg_address.host, service.pg_address.port
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def opened() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(struct.pack("!I", len(_STARTUP) + 4) + _STARTUP)
        await reader.readuntil(_READY)
        return reader, writer

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"Q" + struct.pack("!i", len(_QUERY) + 4) + _QUERY)
        answer = await reader.readuntil(_READY)
        assert b"SELECT 1\0" in answer, answer

    connections = await asyncio.gather(*(opened() for _ in range(MANY)))
    connected = loop.time()
    for _ in range(3):
        await asyncio.gather(*(answered(*each) for each in connections))
    print(f"{MANY} connections in {connected - began:.1f} s, {3 * MANY} answers in {loop.time() - connected:.1f} s")
    for _, writer in connections:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in connections))


def _sockets() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed just now
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


@pytest.mark.parametrize("code", [errno.ETIMEDOUT, errno.EHOSTUNREACH])
def test_a_client_whose_machine_is_gone_leaves(code: int) -> None:
    """That is what keep-alive reports, and neither is a ConnectionError."""
    left: list[bool] = []

    async def read() -> bytes:
        reader = asyncio.StreamReader()
        ahead = _ReadAhead(reader, lambda: left.append(True))
        ahead.start()
        reader.set_exception(OSError(code, os.strerror(code)))
        async with asyncio.timeout(10):
            return await ahead.read(1)

    assert asyncio.run(read()) == b""
    assert left == [True]
