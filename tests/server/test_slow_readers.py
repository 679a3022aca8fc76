"""Clients that ask for much and read nothing: what each of them makes the server hold is bounded, and small."""

from __future__ import annotations

import json
import socket
import time
import tracemalloc
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
from footprint import Footprint, needs_proc
from running_server import ServerProcess

from millstream.planner.schema import Column, Schema
from millstream.server.client import connect
from millstream.server.engine.queries import QueryBatch, QueryResult
from millstream.server.http.row_formats import DelimitedRows, encoded
from millstream.sql.types import INTEGER

ROWS = 150_000
READERS = 6
HELD_MB_MAX = 25  # for each: 4 of them are its DuckDB; with whole batches as Python values it was 35 to 47


@needs_proc
def test_readers_that_take_nothing_hold_little(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, ExitStack() as readers:
        client = connect(server.url)
        client.execute(
            "CREATE STREAM big (id INT KEY, v INT, w STRING) WITH (kafka_topic='b', value_format='JSON', partitions=1);"
        )
        client.insert("BIG", pa.table({"ID": range(ROWS), "V": range(ROWS), "W": [f"text {n}" for n in range(ROWS)]}))
        readers.enter_context(_asked(server.url, "the first one, for what is made once for all"))
        before = _settled(server)
        for n in range(READERS):
            readers.enter_context(_asked(server.url, str(n)))
        after = _settled(server)
        assert (after - before) / READERS < HELD_MB_MAX
        assert httpx.get(f"{server.url}/info", timeout=60).status_code == 200


def test_a_batch_becomes_python_values_piece_by_piece() -> None:
    numbers = pa.chunked_array([pa.array(range(ROWS))])
    schema = Schema((Column("A", INTEGER), Column("B", INTEGER)))
    batch = QueryBatch([numbers, numbers])
    result = QueryResult("PUSH", "q", schema, [batch], lambda: None, lambda count: str(count))
    chunks = encoded(result, DelimitedRows())
    tracemalloc.start()
    try:
        next(chunks)
        first = next(chunks)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024  # all rows at once took 25 MB
    finally:
        tracemalloc.stop()
    rest = b"".join(chunks)
    assert len(first) < 256 * 1024
    assert (first + rest).splitlines() == [b"[%d,%d]" % (n, n) for n in range(ROWS)]


def test_large_rows_come_in_pieces_of_few() -> None:
    texts = pa.chunked_array([pa.array(["x" * 50_000] * 9)])
    gone = pa.chunked_array([pa.array([n == 8 for n in range(9)])])
    pieces = list(QueryBatch([texts], gone).pieces())
    assert [len(piece) for piece in pieces] == [1] * 9
    assert [piece.gone.to_pylist() for piece in pieces if piece.gone is not None] == [[False]] * 8 + [[True]]


def _asked(url: str, text: str) -> socket.socket:
    """A client that has read the beginning of its rows, and reads no more. Each has another query."""
    at = urlsplit(url)
    query, earliest = f"SELECT id, v, w, '{text}' AS x FROM big EMIT CHANGES;", {"auto.offset.reset": "earliest"}
    body = json.dumps({"ksql": query, "streamsProperties": earliest}).encode()
    connection = socket.create_connection((at.hostname or "", at.port or 0), timeout=60)
    head = f"POST /query HTTP/1.1\r\nhost: {at.netloc}\r\ncontent-type: application/json\r\n"
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    assert b" 200 " in connection.recv(64)
    return connection


def _settled(server: ServerProcess) -> float:
    """The memory when it no longer changes."""
    seen = [0.0]
    for _ in range(30):
        time.sleep(0.3)
        seen.append(Footprint.of(server.process.pid).memory_mb)
        if len(seen) > 3 and max(seen[-3:]) - min(seen[-3:]) < 4:
            break
    return seen[-1]
