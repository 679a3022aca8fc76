"""Dates and times that Python has none of: before the year 1 and after 9999, in both formats of the protocol."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from millstream.server.engine.session import Session
from millstream.server.pg.pg_times import PgTimeOutOfRange, date_binary, timestamp_binary
from millstream.server.service import Service
from millstream.sql.functions.java.calendar_days import timestamp_text

psycopg = pytest.importorskip("psycopg")

DAYS = {
    "0001-01-01 BC": -719_528, "0044-03-15 BC": -735_160, "0001-01-01": -719_162, "9999-12-31": 2_932_896,
    "10000-01-01": 2_932_897, "111486-04-13": 40_000_000,
}  # fmt: skip
_DAY_MS = 86_400_000
_UNTIL_2000 = 10_957


@pytest.fixture(scope="module")
def far(service: Service) -> None:
    service.engine.execute(
        "CREATE TABLE far (k INT PRIMARY KEY, d DATE, ts TIMESTAMP, da ARRAY<DATE>, m MAP<STRING, TIMESTAMP>)"
        " WITH (kafka_topic='far', value_format='JSON', partitions=1);",
        Session(),
    )
    for day in DAYS.values():
        time = f"FROM_UNIXTIME({day * _DAY_MS + 1500})"
        date = f"FROM_DAYS({day})"
        service.engine.execute(
            f"INSERT INTO far VALUES ({day}, {date}, {time}, ARRAY[{date}, NULL], MAP('a' := {time}));", Session()
        )


def rows(dsn: str, asked: str, *, binary: bool) -> list[Any]:
    """The bytes, for Python has no such dates."""
    with psycopg.connect(dsn) as connection:
        if binary:
            result = connection.pgconn.exec_params(asked.encode(), [], result_format=1)
        else:
            result = connection.pgconn.exec_(asked.encode())
        assert not result.error_message
        return [
            tuple(result.get_value(row, column) for column in range(result.nfields)) for row in range(result.ntuples)
        ]


def stamp(date: str) -> str:
    date, _, era = date.partition(" ")
    return f"{date} 00:00:01.5{' ' * bool(era)}{era}"


@pytest.mark.parametrize("asked", ["", " WHERE k = {0}"], ids=["all rows", "by key"])
def test_their_text_is_that_of_postgresql(dsn: str, far: None, asked: str) -> None:
    for date, day in DAYS.items():
        found = rows(dsn, "SELECT k, d, ts, da FROM far" + asked.format(day), binary=False)
        quoted = f'"{date}"' if " " in date else date
        assert (str(day).encode(), date.encode(), stamp(date).encode(), f"{{{quoted},NULL}}".encode()) in found


def test_within_json_their_text_is_that_of_answers(dsn: str, far: None) -> None:
    found = dict(rows(dsn, "SELECT k, m FROM far", binary=False))
    for day in DAYS.values():
        assert found[str(day).encode()] == f'{{"a":"{timestamp_text(day * _DAY_MS + 1500)}"}}'.encode()


def test_their_bytes_count_from_2000(dsn: str, far: None) -> None:
    found = dict(rows(dsn, "SELECT d, ts FROM far", binary=True))
    for day in DAYS.values():
        since = day - _UNTIL_2000
        assert found[struct.pack("!i", since)] == struct.pack("!q", (since * _DAY_MS + 1500) * 1000)


def test_they_are_copied_and_come_in_push_queries(dsn: str, far: None) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        with connection.cursor().copy("COPY (SELECT d, ts FROM far) TO STDOUT") as copy:
            copied = b"".join(bytes(part) for part in copy).decode()
        connection.execute("SET auto.offset.reset = 'earliest'")
    assert sorted(copied.splitlines()) == sorted(f"{date}\t{stamp(date)}" for date in DAYS)
    asked = f"SET auto.offset.reset = 'earliest'; SELECT d FROM far EMIT CHANGES LIMIT {len(DAYS)}"
    assert sorted(row[0].decode() for row in rows(dsn, asked, binary=False)) == sorted(DAYS)


def test_what_postgresql_has_no_bytes_for_is_refused() -> None:
    last = (1 << 63) // 1000 // 1000
    assert timestamp_binary((last + 946_684_800) * 1000) == struct.pack("!q", last * 1_000_000)
    with pytest.raises(PgTimeOutOfRange):
        timestamp_binary((last + 946_684_801) * 1000)
    assert date_binary((1 << 31) - 1) == struct.pack("!i", (1 << 31) - 1 - _UNTIL_2000)
    assert date_binary(_UNTIL_2000 - (1 << 31)) == struct.pack("!i", -(1 << 31))
    with pytest.raises(PgTimeOutOfRange):
        date_binary(_UNTIL_2000 - (1 << 31) - 1)
