"""How far a push query is: its client is told while rows come, and while none come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from running_server import service_in
from waiting import eventually

from millstream.server.client import HttpClient, LocalClient, Progress, Rows, connect
from millstream.server.engine.row_stream import RowStream
from millstream.server.engine.session import Session

SETUP = """
    SET 'auto.offset.reset' = 'earliest';
    CREATE STREAM clicks (user STRING KEY, size INT) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);
    CREATE TABLE users (id INT PRIMARY KEY) WITH (kafka_topic='users', value_format='JSON', partitions=1);
    INSERT INTO clicks (ROWTIME, user, size) VALUES (5000, 'ada', 1);
    INSERT INTO clicks (ROWTIME, user, size) VALUES (4000, 'bob', 1);
"""


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpClient, LocalClient]]:
    with service_in(tmp_path_factory.mktemp("data")) as service:
        remote = connect(f"http://{service.http_address}")
        remote.execute(SETUP)
        local = LocalClient(service.engine, Session(), address="here", close=lambda: None)
        local.execute("SET 'auto.offset.reset' = 'earliest';")
        yield remote, local


def until_told(rows: Rows) -> None:
    iterator = iter(rows)
    assert [next(iterator).values[0] for _ in range(2)] == ["ada", "bob"]
    if rows.progress() is None:  # a line that comes later, between the rows
        threading.Thread(target=lambda: list(iterator), daemon=True).start()
    eventually(lambda: rows.progress() is not None)


def test_a_client_knows_the_lag_and_the_stream_time_of_its_push_query(
    clients: tuple[HttpClient, LocalClient],
) -> None:
    for client in clients:
        with client.query("SELECT user, size FROM clicks EMIT CHANGES;") as rows:
            until_told(rows)
            assert rows.progress() == Progress(lag=0, stream_time_ms=5000)


def test_rows_say_which_columns_tell_what_they_update(clients: tuple[HttpClient, LocalClient]) -> None:
    keys = {
        "SELECT size, user FROM clicks EMIT CHANGES;": None,
        "SELECT COUNT(*) AS n, user FROM clicks GROUP BY user EMIT CHANGES;": (1,),
        "SELECT COUNT(*) AS n FROM clicks GROUP BY user EMIT CHANGES;": None,
        "SELECT * FROM users EMIT CHANGES;": (0,),
        "SELECT * FROM clicks;": None,
    }
    for client in clients:
        for statement, key in keys.items():
            with client.query(statement) as rows:
                assert rows.key == key, statement


def test_what_is_interjected_stands_between_the_chunks_only() -> None:
    async def scenario() -> list[bytes]:
        stream = RowStream("test", iter([b"head\n", b"row\n"]), lambda: None)
        stream.interject(b"too early\n")
        stream.start()
        first = await stream.take()
        while b"row" not in first:
            first += await stream.take()
        last = await stream.take()
        stream.interject(b"too late\n")
        return [first, last]

    assert asyncio.run(scenario()) == [b"head\nrow\n", b""]
