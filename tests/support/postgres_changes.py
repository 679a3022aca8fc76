"""A writer that changes a table of PostgreSQL while a connector reads it, and what its topic has to be like."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Generator
from typing import Any

from connectors import Read
from postgres_server import PostgresServer

CREATE_TABLE = """
CREATE TABLE t (id INT PRIMARY KEY, v INT, pad TEXT);
INSERT INTO t SELECT i, 0, repeat('x', 50) FROM generate_series(1, 3000) i;
"""


@contextlib.contextmanager
def writing(server: PostgresServer, database: str) -> Generator[None]:
    """Transactions of a few changes each, until the end of the block."""
    stop, failed = threading.Event(), list[Exception]()

    def write() -> None:
        chance = random.Random(1)
        try:
            with server.connect(database) as own:
                while not stop.wait(0.005):
                    with own.transaction():
                        for _ in range(chance.randrange(1, 20)):
                            change(own, chance)
        except Exception as error:
            failed.append(error)

    def change(own: Any, chance: random.Random) -> None:
        one = chance.randrange(1, 4000)
        match chance.randrange(4):
            case 0:
                own.execute("DELETE FROM t WHERE id = %s", [one])
            case 1:
                own.execute("DELETE FROM t WHERE id = %s", [4000 + one])
                own.execute("UPDATE t SET id = 4000 + id WHERE id = %s", [one])
            case _:
                upsert = "INSERT INTO t VALUES (%s, 1, 'y') ON CONFLICT (id) DO UPDATE SET v = t.v + 1"
                own.execute(upsert, [one])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
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


def check_topic(records: list[Read], sql: Any) -> None:
    """The latest values of the topic are the rows of the table, and each change is there once."""
    rows = {row["after"]["id"]: row["after"] for row in table_of(records).values()}
    expected = sql.execute("SELECT id, v, pad FROM t").fetchall()
    assert {key: (row["v"], row["pad"]) for key, row in rows.items()} == {row[0]: row[1:] for row in expected}
    places = Counter(place_of(record) for record in records if record.value is not None)
    assert [place for place, count in places.items() if count > 1] == []
