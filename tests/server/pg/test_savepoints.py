"""Savepoints: an error behind one is no end of its transaction, as drivers and psql's ON_ERROR_ROLLBACK count on."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg")


@pytest.fixture
def ask(dsn: str) -> Generator[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def fails(ask: Any, statement: str, sqlstate: str) -> None:
    with pytest.raises(psycopg.Error) as error:
        ask.execute(statement)
    assert error.value.sqlstate == sqlstate


def test_a_failed_transaction_goes_on_at_its_savepoint(ask: Any) -> None:
    ask.execute("BEGIN")
    ask.execute('SAVEPOINT "One"')
    ask.execute("SAVEPOINT two")
    fails(ask, "SELECT nope FROM clicks", "42703")
    fails(ask, "SAVEPOINT three", "25P02")
    fails(ask, "RELEASE SAVEPOINT two", "25P02")
    fails(ask, "ROLLBACK TO SAVEPOINT three", "3B001")
    fails(ask, "SELECT 1", "25P02")
    assert ask.execute("ROLLBACK WORK TO SAVEPOINT two").statusmessage == "ROLLBACK"
    assert ask.execute("SELECT 1").fetchone() == (1,)
    assert ask.execute('ROLLBACK TO "One"').statusmessage == "ROLLBACK"
    fails(ask, "ROLLBACK TO two", "3B001")  # it went with the one before it
    ask.execute('ROLLBACK TO "One"')
    assert ask.execute("COMMIT").statusmessage == "COMMIT"


def test_a_savepoint_ends_with_its_transaction_and_those_before_it(ask: Any) -> None:
    for end in ("COMMIT", "ROLLBACK"):
        ask.execute("BEGIN")
        ask.execute("SAVEPOINT a")
        ask.execute(end)
        ask.execute("BEGIN")
        fails(ask, "ROLLBACK TO a", "3B001")
        ask.execute("ROLLBACK")
    ask.execute("BEGIN")
    for name in "aba":
        ask.execute(f"SAVEPOINT {name}")
    ask.execute("RELEASE a")  # the later one
    ask.execute("RELEASE SAVEPOINT a")
    fails(ask, "RELEASE b", "3B001")
    ask.execute("ROLLBACK")


@pytest.mark.parametrize("statement", ["SAVEPOINT a", "RELEASE a", "ROLLBACK TO a"])
def test_outside_of_a_transaction_there_are_none(ask: Any, statement: str) -> None:
    fails(ask, statement, "25P01")
    assert ask.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("statement", ["SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO", "SAVEPOINT a b"])
def test_a_savepoint_has_one_name(ask: Any, statement: str) -> None:
    ask.execute("BEGIN")
    fails(ask, statement, "42601")
    ask.execute("ROLLBACK")


def test_cursors_declared_behind_a_savepoint_go_with_it(ask: Any) -> None:
    ask.execute("BEGIN")
    ask.execute("DECLARE before CURSOR FOR SELECT size FROM clicks")
    ask.execute("SAVEPOINT a")
    ask.execute("DECLARE behind CURSOR WITH HOLD FOR SELECT size FROM clicks")
    ask.execute("ROLLBACK TO a")
    assert ask.execute("FETCH 1 FROM before").fetchall() == [(1,)]
    fails(ask, "FETCH 1 FROM behind", "34000")
    ask.execute("ROLLBACK")


def test_transactions_of_drivers_may_be_nested(dsn: str) -> None:
    with psycopg.connect(dsn) as connection, connection.transaction():
        with pytest.raises(psycopg.errors.UndefinedColumn), connection.transaction():
            connection.execute("SELECT nope FROM clicks")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_psql_goes_on_behind_an_error(psql: Callable[..., str]) -> None:
    goes_on = r"\set ON_ERROR_ROLLBACK on"
    said = psql("-At", "-c", goes_on, "-c", "BEGIN", "-c", "SELECT nope FROM clicks", "-c", "SELECT 2", "-c", "COMMIT")
    assert "BEGIN\n2\nCOMMIT\n" in said
