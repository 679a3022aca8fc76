"""The memory of DuckDB is divided among its instances."""

from __future__ import annotations

import gc

import duckdb
import pytest

from millstream.executor.state.connection import MEMORY, EngineSettings, open_connection
from millstream.executor.state.memory_shares import SHARE_MIN, MemoryShares, room_of_a_store, shares_of


def test_the_limits_add_up_to_less_than_there_is() -> None:
    shares = MemoryShares(100 * SHARE_MIN)
    given = [shares.take() for _ in range(10)]
    assert given[0] == 25 * SHARE_MIN
    assert sum(given) <= shares.total
    assert given == sorted(given, reverse=True)


def test_nobody_gets_less_than_a_query_needs() -> None:
    shares = MemoryShares(SHARE_MIN)
    assert [shares.take() for _ in range(3)] == [SHARE_MIN] * 3


@pytest.mark.parametrize(
    ("limit", "total"), [("4GB", 4 * 10**9), ("512 MiB", 512 * 2**20), ("1.5gb", 1_500_000_000), ("100B", 100)]
)
def test_a_limit_is_read_as_duckdb_writes_it(limit: str, total: int) -> None:
    shares = shares_of(limit)
    assert shares is not None
    assert shares.total == total


def test_what_cannot_be_read_is_left_to_duckdb() -> None:
    assert shares_of("plenty") is None


def test_a_closed_connection_gives_its_share_back() -> None:
    shares = MemoryShares(16 * SHARE_MIN)
    settings = EngineSettings(shares=shares)
    first = open_connection(MEMORY, settings)
    assert first.execute("SELECT current_setting('memory_limit')").fetchall() == [("512.0 MiB",)]
    first.close()
    del first
    gc.collect()
    assert shares.take() == 4 * SHARE_MIN


@pytest.mark.parametrize(("limit", "room"), [("1GiB", 2**28), ("40MiB", 10 * 2**20)])
def test_rows_of_a_store_take_a_part_of_what_its_duckdb_may_use(limit: str, room: int) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{limit}'")
        assert room_of_a_store(connection) == room
