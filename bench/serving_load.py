"""The clients of `serving`, in a process of their own: `python -m bench.serving_load push|pull|… URL` prints JSON.

Sockets are read without an HTTP library, so that the clients take less of the machine than the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

KEYS: Final = 1_000
_TICK_S: Final = 0.005
_WARM_S: Final = 1.0
_LATE_S: Final = 60.0
_LATEST: Final = {"auto.offset.reset": "latest"}
_ROW: Final = re.compile(rb"\[\d+,(\d+)\]\n")
_PG_READY: Final = b"Z\0\0\0\5I"
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class PushClient(asyncio.Protocol):
    """A push query; knows when each row came."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.started = asyncio.get_running_loop().create_future()
        self.seen = 0  # rows, which are numbered in their order
        self.in_order = True
        self.arrivals: list[tuple[int, int, float]] = []  # first row, end, when
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if not self.started.done():
            if b"columnNames" in data:
                self.started.set_result(None)
            return
        whole, newline, self._rest = (self._rest + data).rpartition(b"]\n")
        whole += newline
        count = whole.count(b"]\n")
        if not count:
            return
        first = _ROW.search(whole)
        last = _ROW.search(whole, whole.rfind(b"[", 0, len(whole)))
        assert first and last, whole
        begin, end = int(first[1]), int(last[1]) + 1
        self.in_order = self.in_order and begin == self.seen and end - begin == count
        self.seen = end
        self.arrivals.append((begin, end, now))

    def connection_lost(self, exc: Exception | None) -> None:
        self.in_order = False


async def push(url: str, clients: int, rate: int, seconds: float) -> dict[str, Any]:
    """`clients` push queries on the table FEED, into which `rate` rows per second are written."""
    host, port = _address(url)
    loop = asyncio.get_running_loop()
    query = _post("/query-stream", {"sql": "SELECT id, n FROM feed EMIT CHANGES;", "properties": _LATEST})
    opened: list[PushClient] = []
    transports: list[asyncio.BaseTransport] = []
    for _ in range(clients):
        transport, client = await loop.create_connection(lambda: PushClient(query), host, port)
        transports.append(transport)
        opened.append(client)
        await asyncio.wait_for(client.started, _LATE_S)
    sent = await _write(host, port, "FEED", rate, seconds + _WARM_S)
    deadline = loop.time() + _LATE_S
    while any(client.seen < len(sent) for client in opened) and loop.time() < deadline:
        await asyncio.sleep(0.02)
    complete = sum(client.in_order and client.seen == len(sent) for client in opened)
    for transport in transports:
        transport.close()
    waits = np.concatenate([_waits(client, sent, int(rate * _WARM_S)) for client in opened])
    return {"complete": complete, "rows": len(sent), **_figures(waits)}


def _waits(client: PushClient, sent: npt.NDArray[np.float64], warm: int) -> npt.NDArray[np.float64]:
    """The seconds from before a row was sent until it was here."""
    came = np.empty(len(sent))
    for begin, end, now in client.arrivals:
        came[begin:end] = now
    return (came - sent)[warm : client.seen]


async def write(url: str, target: str, rate: int, seconds: float) -> dict[str, Any]:
    host, port = _address(url)
    begin = time.perf_counter()
    sent = await _write(host, port, target, rate, seconds)
    return {"rows": len(sent), "rate": len(sent) / (time.perf_counter() - begin)}


async def _write(host: str, port: int, target: str, rate: int, seconds: float) -> npt.NDArray[np.float64]:
    """Rows numbered from 0, at an even rate over /inserts-stream; when each was sent."""
    reader, writer = await asyncio.open_connection(host, port)
    head = f"POST /inserts-stream HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
    _chunk(writer, json.dumps({"target": target}).encode() + b"\n")
    drained = asyncio.create_task(_drained(reader))
    sent: list[float] = []
    begin = time.perf_counter()
    while len(sent) < int(rate * seconds):
        now = time.perf_counter()
        due = min(int((now - begin) * rate) + 1, int(rate * seconds))
        if due > len(sent):
            numbers = range(len(sent), due)
            _chunk(writer, b"".join(b'{"ID":%d,"N":%d}\n' % (number % KEYS, number) for number in numbers))
            sent += [now] * len(numbers)
            await writer.drain()
        await asyncio.sleep(_TICK_S)
    writer.write(b"0\r\n\r\n")
    await asyncio.wait_for(drained, _LATE_S)
    writer.close()
    return np.array(sent)


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def _drained(reader: asyncio.StreamReader) -> None:
    """Reads acknowledgements to their end."""
    tail = b""
    while not tail.endswith(b"0\r\n\r\n"):
        data = await reader.read(1 << 16)
        assert data, tail
        assert b'"error"' not in data, data
        tail = (tail + data)[-8:]


async def loop(
    url: str, requests: Sequence[bytes], expected: bytes, connections: int, seconds: float
) -> dict[str, Any]:
    """Each connection sends the next request when it has the answer to the one before."""
    host, port = _address(url)
    turn = iter(range(sys.maxsize))
    waits: list[float] = []
    begin = time.perf_counter()

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        while (now := time.perf_counter()) < begin + _WARM_S + seconds:
            writer.write(requests[next(turn) % len(requests)])
            answer = await _answer(reader)
            assert expected in answer, answer
            if now >= begin + _WARM_S:
                waits.append(time.perf_counter() - now)
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return {"rate": len(waits) / seconds, **_figures(np.array(waits))}


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    found = _LENGTH.search(head)
    if found:
        return await reader.readexactly(int(found[1]))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


async def both_doors(url: str, pg: str, seconds: float) -> dict[str, Any]:
    """One look-up over HTTP, the next over PostgreSQL's protocol, on one connection each. Out: the figures of `http`
    and of `pg`."""
    http = await asyncio.open_connection(*_address(url))
    postgres = await asyncio.open_connection(*_address(f"//{pg}"))
    startup = struct.pack("!I", 196608) + b"user\0bench\0\0"
    postgres[1].write(struct.pack("!I", len(startup) + 4) + startup)
    await postgres[0].readuntil(_PG_READY)
    waits: dict[str, list[float]] = {"http": [], "pg": []}
    begin = time.perf_counter()
    for turn in range(sys.maxsize):
        started = time.perf_counter()
        if started > begin + _WARM_S + seconds:
            break
        http[1].write(_PULLS[turn % KEYS])
        assert b"]\n" in await _answer(http[0])
        between = time.perf_counter()
        text = b"SELECT n FROM counts WHERE id = %d\0" % (turn % KEYS)
        postgres[1].write(b"Q" + struct.pack("!i", len(text) + 4) + text)
        assert b"SELECT 1\0" in await postgres[0].readuntil(_PG_READY)
        if started >= begin + _WARM_S:
            waits["http"].append(between - started)
            waits["pg"].append(time.perf_counter() - between)
    for _, writer in (http, postgres):
        writer.close()
    return {name: _figures(np.array(found)) for name, found in waits.items()}


def _figures(waits: npt.NDArray[np.float64]) -> dict[str, float]:
    cuts = np.percentile(waits * 1000, [50, 99]) if len(waits) else [float("nan")] * 2
    return {"p50_ms": round(float(cuts[0]), 3), "p99_ms": round(float(cuts[1]), 3)}


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    return parts.hostname, parts.port


def _post(path: str, body: dict[str, Any]) -> bytes:
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(text)}"
    return head.encode() + b"\r\n\r\n" + text


HEALTH: Final = b"GET /healthcheck HTTP/1.1\r\nhost: localhost\r\n\r\n"


def pulls() -> list[bytes]:
    """A look at each key."""
    return [_post("/query-stream", {"sql": f"SELECT n FROM counts WHERE id = {key};"}) for key in range(KEYS)]


_PULLS: Final = pulls()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("push", "health", "pull", "doors", "write"))
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--pg", default="", help="HOST:PORT, of `doors`")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    work: dict[str, Callable[[], Any]] = {
        "push": lambda: push(given.url, given.clients, given.rate, given.seconds),
        "health": lambda: loop(given.url, [HEALTH], b"isHealthy", given.clients, given.seconds),
        "pull": lambda: loop(given.url, pulls(), b"]\n", given.clients, given.seconds),
        "doors": lambda: both_doors(given.url, given.pg, given.seconds),
        "write": lambda: write(given.url, "EVENTS", given.rate, given.seconds),
    }
    sys.stdout.write(json.dumps(asyncio.run(work[given.kind]())) + "\n")


if __name__ == "__main__":
    main()
