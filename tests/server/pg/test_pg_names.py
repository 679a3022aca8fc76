"""What PostgreSQL's clients write besides statements of our dialect: names of result columns, INTERVAL, read-only
transactions, what is not supported and says so."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg")

NAMES: dict[str, list[str]] = {
    "count(*)": ["count"],
    "count(*), sum(n), max(ts)": ["count", "sum", "max"],
    "COUNT(DISTINCT n) FILTER (WHERE n > 1)": ["count"],
    'user_id "ID", n AS "Total", i AS plain, f plain2': ["ID", "Total", "plain", "plain2"],
    "totals.n, public.totals.i": ["n", "i"],
    "n::numeric(10, 2), n::double precision, CAST(i AS bigint), upper(user_id)::text": ["n", "n", "i", "upper"],
    "n + 1, -n, 'x', n > 2 AND ok": ["?column?"] * 4,
    "CASE WHEN ok THEN 1 ELSE 2 END, coalesce(i, 1)": ["case", "coalesce"],
    "ts - interval '1 day'": ["?column?"],
    "*": ["user_id", "userName", "n", "i", "f", "ok", "amount", "b", "d", "t", "ts", "tags", "nums", "m", "s"],
    "(n), ARRAY[1], extract(year from ts)": ["n", "array", "extract"],
    "n IS NULL, n BETWEEN 1 AND i": ["?column?"] * 2,
    "DISTINCT n, i AS j": ["n", "j"],
}


@pytest.mark.parametrize("binary", [False, True], ids=["described first", "not described"])
@pytest.mark.parametrize("items", NAMES)
def test_result_columns_have_the_names_that_postgresql_gives(dsn: str, items: str, binary: bool) -> None:
    with psycopg.connect(dsn) as connection:
        cursor = connection.execute(f"SELECT {items} FROM totals", prepare=binary)
        assert [column.name for column in cursor.description] == NAMES[items]


def test_a_push_query_keeps_its_last_column(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("SET auto.offset.reset = 'earliest'")
        cursor = connection.execute('SELECT n AS "N", n + 1 FROM totals EMIT CHANGES LIMIT 1')
        assert [column.name for column in cursor.description] == ["N", "?column?", "@tombstone"]


MOMENT = datetime.datetime(2020, 1, 2, 3, 4, 5, 678000)
INTERVALS: dict[str, Any] = {
    "ts - interval '1 day'": MOMENT - datetime.timedelta(days=1),
    "ts + INTERVAL '2 hours 30 minutes'": MOMENT + datetime.timedelta(hours=2, minutes=30),
    "ts - '90 min'::interval": MOMENT - datetime.timedelta(minutes=90),
    "ts + CAST('1 week' AS interval)": MOMENT + datetime.timedelta(days=7),
    "ts + interval '1 day 02:03:04.5'": MOMENT + datetime.timedelta(days=1, hours=2, minutes=3, seconds=4.5),
    "ts + interval '100 ms'": MOMENT + datetime.timedelta(milliseconds=100),
    "ts - interval '-1 day'": MOMENT + datetime.timedelta(days=1),
    "ts - interval '1' day": MOMENT - datetime.timedelta(days=1),
    "ts + interval '0' - interval '1'": MOMENT - datetime.timedelta(seconds=1),
    "ts + interval '1.5 hours'": MOMENT + datetime.timedelta(minutes=90),
}


@pytest.mark.parametrize("expression", INTERVALS)
def test_an_interval_is_a_length_of_time(dsn: str, expression: str) -> None:
    with psycopg.connect(dsn) as connection:
        asked = f"SELECT {expression} AS moved FROM totals WHERE user_id = 'ada'"
        assert connection.execute(asked).fetchall() == [(INTERVALS[expression],)]


@pytest.mark.parametrize("text", ["1 month", "2 years", "nonsense", "1 day x"])
def test_an_interval_without_a_fixed_length_is_refused(dsn: str, text: str) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.Error, match="interval") as refused:
        connection.execute(f"SELECT ts - interval '{text}' FROM totals")
    assert "DAY" in str(refused.value.diag.message_hint)


@pytest.mark.parametrize(
    "condition",
    [
        "ts < current_timestamp", "ts < localtimestamp AND d < current_date", "date_part('year', ts) = 2020",
        "ts > to_timestamp(1577934245)", "to_timestamp(1577934245.678) = ts",
    ],
)  # fmt: skip
def test_functions_of_postgresql_are_found(dsn: str, condition: str) -> None:
    with psycopg.connect(dsn) as connection:
        assert connection.execute(f"SELECT user_id FROM totals WHERE {condition}").fetchall() == [("ada",)]


READ_ONLY = [
    "BEGIN READ ONLY",
    "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
    "BEGIN; SET TRANSACTION READ ONLY",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY; BEGIN",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "SET default_transaction_read_only = on",
]
CHANGES = [
    "INSERT INTO secret VALUES (900, 1)",
    "DELETE FROM totals WHERE user_id = 'none'",
    "CREATE STREAM never (k INT KEY) WITH (kafka_topic='never', value_format='JSON', partitions=1)",
    "DROP STREAM secret",
    "COPY secret FROM STDIN",
]


@pytest.mark.parametrize("begun", READ_ONLY)
@pytest.mark.parametrize("change", CHANGES)
def test_a_read_only_transaction_changes_nothing(dsn: str, begun: str, change: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(begun)
        assert connection.execute("SELECT n FROM totals WHERE user_id = 'ada'").fetchall() == [(3,)]
        assert connection.execute("SHOW transaction_read_only").fetchone() == ("on",)
        assert connection.execute("SHOW STREAMS").fetchone() is not None
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match=f"cannot execute {change.split()[0]}"):
            connection.execute(change)


def test_a_transaction_is_read_only_until_it_ends(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for ended in ("COMMIT", "ROLLBACK"):
            connection.execute(f"BEGIN READ ONLY; {ended}")
            connection.execute("INSERT INTO secret VALUES (901, 1)")
        connection.execute("SET default_transaction_read_only = on; BEGIN READ WRITE")
        connection.execute("INSERT INTO secret VALUES (902, 1)")


def test_isolation_levels_are_kept_for_those_who_ask(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        assert connection.execute("SHOW TRANSACTION ISOLATION LEVEL").fetchone() == ("serializable",)
        assert connection.execute("SHOW default_transaction_isolation").fetchone() == ("serializable",)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)
        connection.execute("COMMIT")
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("serializable",)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("INSERT INTO secret VALUES (910, 1) RETURNING id", "RETURNING is not supported"),
        ("INSERT INTO secret VALUES (910, 1) ON CONFLICT DO NOTHING", "ON CONFLICT is not supported"),
        ("DELETE FROM totals WHERE user_id = 'none' RETURNING *", "RETURNING is not supported"),
    ],
)
def test_a_clause_that_there_is_not_says_so(dsn: str, statement: str, said: str) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.FeatureNotSupported, match=said) as error:
        connection.execute(statement)
    assert error.value.diag.message_hint
    assert int(error.value.diag.statement_position) == statement.index(said.split()[0]) + 1
