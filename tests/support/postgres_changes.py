"""Writers that change a table of PostgreSQL while a connector reads it, and what its topic has to be like."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Generator, Iterable
from typing import Any

import psycopg
from connectors import Read
from postgres_server import PostgresServer
from psycopg.errors import DeadlockDetected

CREATE_TABLE = """
CREATE TABLE t (id INT PRIMARY KEY, v INT, pad TEXT);
INSERT INTO t SELECT i, 0, repeat('x', 50) FROM generate_series(1, 3000) i;
"""


@contextlib.contextmanager
def writing(
    server: PostgresServer, database: str, *, rows: int = 4000, clients: int = 1, pause_s: float = 0.005,
    survives: bool = False,
) -> Generator[None]:  # fmt: skip
    """Transactions of a few changes each, until the end of the block. In: `rows`: how many keys there are; `survives`:
    the server may die."""
    stop, failed = threading.Event(), list[Exception]()

    def write(number: int) -> None:
        chance = random.Random(number)
        while not stop.is_set():
            try:
                with server.connect(database) as own:
                    while not stop.wait(pause_s):
                        with own.transaction():
                            for _ in range(chance.randrange(1, 20)):
                                change(own, chance)
            except DeadlockDetected:
                continue
            except psycopg.Error as error:
                if not survives:
                    failed.append(error)
                    return
                time.sleep(0.05)

    def change(own: Any, chance: random.Random) -> None:
        one = chance.randrange(1, rows)
        match chance.randrange(4):
            case 0:
                own.execute("DELETE FROM t WHERE id = %s", [one])
            case 1:
                own.execute("DELETE FROM t WHERE id = %s", [rows + one])
                own.execute("UPDATE t SET id = %s + id WHERE id = %s", [rows, one])
            case _:
                upsert = "INSERT INTO t VALUES (%s, 1, 'y') ON CONFLICT (id) DO UPDATE SET v = t.v + 1"
                own.execute(upsert, [one])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, clients + 1)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failed == []


def table_of(records: list[Read]) -> dict[bytes, Any]:
    """The latest value of each key."""
    rows: dict[bytes, Any] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = record.json
    return rows


def place_of(record: Read) -> tuple[Any, ...]:
    """Where a change is: the snapshot has each key once, a transaction each number (of a new key twice: d and c)."""
    row = record.json
    order = record.key if row["op"] == "r" else row["transaction"]["total_order"]
    return row["source"]["lsn"], row["source"]["sequence"], order, row["op"]


def check_topic(records: Iterable[Read], sql: Any) -> int:
    """The latest values of the topic are the rows of the table, and each change is there once. Returns how many records
    there are."""
    rows: dict[bytes, tuple[Any, ...]] = {}
    places, count = set[tuple[Any, ...]](), 0
    for record in records:
        assert record.key is not None
        count += 1
        if record.value is None:
            rows.pop(record.key, None)
            continue
        place, row = place_of(record), record.json["after"]
        assert place not in places, place
        places.add(place)
        if row is not None:
            rows[record.key] = row["id"], row["v"], row["pad"]
    expected = {row[0]: row for row in sql.execute("SELECT id, v, pad FROM t")}
    assert {row[0]: row for row in rows.values()} == expected
    return count
