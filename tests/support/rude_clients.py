"""Clients of the HTTP API that come, stall and vanish, each in its own way and for about a second."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

KEYS: Final = 500
DDL: Final = """
CREATE STREAM events (id INT KEY, n BIGINT)
  WITH (kafka_topic='events', value_format='JSON', partitions=2, retention_ms=60000);
CREATE TABLE counts AS SELECT id, COUNT(*) AS n FROM events GROUP BY id;
"""


class RudeClients:
    """Threads that go on until `stop`. `done` counts what they did, by name; `surprises` are answers nobody expects."""

    def __init__(self, url: str, seed: int, threads: int) -> None:
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        self._address = (parts.hostname, parts.port)
        self._stopped = threading.Event()
        self.done: Counter[str] = Counter()
        self.surprises: list[bytes] = []
        self._kinds: list[Callable[[random.Random], None]] = [
            self._reads_and_leaves, self._is_killed, self._stalls, self._looks_up, self._inserts,
            self._vanishes_while_inserting, self._opens_half, self._says_half, self._uses_a_web_socket,
        ]  # fmt: skip
        self._threads = [threading.Thread(target=self._run, args=(seed + at,), daemon=True) for at in range(threads)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._stopped.is_set():
            kind = chance.choice(self._kinds)
            try:
                kind(chance)
            except OSError:
                self.done["lost"] += 1
            self.done[kind.__name__.strip("_")] += 1

    def _connected(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=60)

    def _asked(self, sql: str, path: str = "/query-stream") -> socket.socket:
        connection = self._connected()
        connection.sendall(_post(path, {"sql": sql, "properties": {"auto.offset.reset": "latest"}}))
        self._expect(connection.recv(65536), b"HTTP/1.1 200", b"HTTP/1.1 429", b"HTTP/1.1 400")
        return connection

    def _expect(self, answer: bytes, *beginnings: bytes) -> None:
        if answer and not answer.startswith(beginnings):
            self.surprises.append(answer[:300])

    def _push(self, chance: random.Random) -> socket.socket:
        return self._asked(
            chance.choice(
                (
                    "SELECT id, n FROM events EMIT CHANGES;",
                    "SELECT * FROM counts EMIT CHANGES;",
                    "SELECT id, COUNT(*) AS c FROM events GROUP BY id EMIT CHANGES;",
                    f"SELECT id FROM events WHERE n > {chance.randrange(9)} EMIT CHANGES;",
                )
            )
        )

    def _reads_and_leaves(self, chance: random.Random) -> None:
        with self._push(chance) as connection:
            connection.settimeout(chance.uniform(0.05, 1.0))
            for _ in range(chance.randrange(20)):
                connection.recv(4096)

    def _is_killed(self, chance: random.Random) -> None:
        connection = self._push(chance)
        time.sleep(chance.uniform(0, 0.3))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()  # with a reset

    def _stalls(self, chance: random.Random) -> None:
        with self._push(chance):
            time.sleep(chance.uniform(0.5, 3.0))

    def _looks_up(self, chance: random.Random) -> None:
        for _ in range(10):
            with self._connected() as connection:
                sql = f"SELECT n FROM counts WHERE id = {chance.randrange(KEYS)};"
                connection.sendall(_post(chance.choice(("/query", "/query-stream")), {"sql": sql, "ksql": sql}))
                self._expect(connection.recv(65536), b"HTTP/1.1 200", b"HTTP/1.1 429")

    def _inserts(self, chance: random.Random) -> None:
        with self._connected() as connection:
            connection.sendall(_INSERTS + _chunk(b'{"target":"EVENTS"}\n'))
            for _ in range(chance.randrange(1, 20)):
                connection.sendall(_chunk(_rows(chance)))
                time.sleep(0.02)
            connection.sendall(b"0\r\n\r\n")
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                more = connection.recv(65536)
                if not more:
                    return
                answer += more
            self._expect(answer, b"HTTP/1.1 200", b"HTTP/1.1 429")

    def _vanishes_while_inserting(self, chance: random.Random) -> None:
        with self._connected() as connection:
            connection.sendall(_INSERTS + _chunk(b'{"target":"EVENTS"}\n') + _chunk(_rows(chance))[:-9])

    def _opens_half(self, chance: random.Random) -> None:
        with self._connected():
            time.sleep(chance.uniform(0, 1.0))

    def _says_half(self, chance: random.Random) -> None:
        request = _post("/ksql", {"ksql": "SHOW STREAMS;"})
        with self._connected() as connection:
            connection.sendall(request[: chance.randrange(len(request))])
            time.sleep(chance.uniform(0, 1.0))

    def _uses_a_web_socket(self, chance: random.Random) -> None:
        with self._connected() as connection:
            query = '{"ksql":"SELECT%20*%20FROM%20events%20EMIT%20CHANGES;"}'.replace('"', "%22")
            connection.sendall(
                f"GET /ws/query?request={query} HTTP/1.1\r\nhost: localhost\r\n"
                "upgrade: websocket\r\nconnection: upgrade\r\n"
                "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n".encode()
            )
            self._expect(connection.recv(65536), b"HTTP/1.1 101")
            connection.settimeout(chance.uniform(0.1, 1.0))
            connection.recv(65536)


_INSERTS: Final = b"POST /inserts-stream HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


def _post(path: str, body: dict[str, object]) -> bytes:
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(text)}\r\n\r\n".encode() + text


def _rows(chance: random.Random) -> bytes:
    rows = ({"ID": chance.randrange(KEYS), "N": chance.randrange(10)} for _ in range(10))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
