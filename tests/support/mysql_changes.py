"""A writer that changes a table of MariaDB while a connector reads it, and what its topic has to be like."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Generator

import pymysql
from connectors import Read
from mariadb_server import MariaDbServer, Sql
from mysql_runners import twice
from postgres_changes import table_of

CREATE_TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, v INT, pad TEXT)",
    "INSERT INTO t SELECT seq, 0, REPEAT('x', 50) FROM seq_1_to_3000",
)


_DEADLOCK = 1213


@contextlib.contextmanager
def writing(server: MariaDbServer, database: str, *, survives: bool = False, seed: int = 1) -> Generator[None]:
    """Transactions of a few changes each, until the end of the block. In: `survives`: the server may die."""
    stop, failed = threading.Event(), list[Exception]()

    def write() -> None:
        chance = random.Random(seed)
        while not stop.is_set():
            try:
                with server.connect(database) as own:
                    while not stop.wait(0.005):
                        own.run("BEGIN")
                        for _ in range(chance.randrange(1, 20)):
                            change(own, chance)
                        own.run("ROLLBACK" if chance.random() < 0.05 else "COMMIT")
            except pymysql.err.MySQLError as error:
                if error.args[0] == _DEADLOCK:
                    continue
                if not survives:
                    failed.append(error)
                    return
                time.sleep(0.05)

    def change(own: Sql, chance: random.Random) -> None:
        one = chance.randrange(1, 4000)
        match chance.randrange(4):
            case 0:
                own.run(f"DELETE FROM t WHERE id = {one}")
            case 1:
                own.run(f"DELETE FROM t WHERE id = {4000 + one}", f"UPDATE t SET id = 4000 + id WHERE id = {one}")
            case _:
                own.run(f"INSERT INTO t VALUES ({one}, 1, 'y') ON DUPLICATE KEY UPDATE v = v + 1")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert failed == []


def check_topic(records: list[Read], sql: Sql) -> None:
    """The latest values of the topic are the rows of the table, and each change is there once."""
    rows = {row["after"]["id"]: row["after"] for row in table_of(records).values()}
    expected = {row[0]: row[1:] for row in sql.rows("SELECT id, v, pad FROM t")}
    assert {key: (row["v"], row["pad"]) for key, row in rows.items()} == expected
    assert twice(records) == []
