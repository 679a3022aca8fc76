"""Texts in quotes, and parameters without a type: they are of the type of what they stand beside, as in PostgreSQL. So
drivers that send every value as a text (pgjdbc's dates, pgx and pgjdbc with the simple protocol, pq) can be used."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from millstream.server.engine.session import Session
from millstream.server.service import Service

psycopg = pytest.importorskip("psycopg")

CREATED = """
CREATE TABLE IF NOT EXISTS untyped (id INT PRIMARY KEY, n BIGINT, f DOUBLE, ok BOOLEAN, amount DECIMAL(10, 2),
  name STRING, b BYTES, d DATE, t TIME, ts TIMESTAMP, tags ARRAY<STRING>, nums ARRAY<INT>, m MAP<STRING, INT>,
  s STRUCT<a INT, b STRING>, nested ARRAY<STRUCT<a INT>>)
  WITH (kafka_topic='untyped', value_format='JSON', partitions=1);
"""
DAY = datetime.date(2020, 3, 1)
TIME = datetime.time(10, 11, 12)
MOMENT = datetime.datetime(2020, 3, 1, 10, 11, 12)


@pytest.fixture(scope="module", autouse=True)
def table(service: Service) -> None:
    service.engine.execute(CREATED, Session())
    service.engine.execute(
        "INSERT INTO untyped (id, n, f, ok, amount, name, b, d, t, ts) VALUES (1, 5, 1.5, true, 12.5, '5',"
        " TO_BYTES('0102', 'hex'), '2020-03-01', '10:11:12', '2020-03-01T10:11:12');",
        Session(),
    )


CONDITIONS = [
    "ts = '2020-03-01 10:11:12'",
    "ts = '2020-03-01 10:11:12.000000'",
    "ts = '2020-03-01 10:11:12Z' AND ts = '2020-03-01 05:11:12-05' AND ts = '2020-03-01 15:41:12.0 +05:30'",
    "ts = '2020-03-01T10:11:12.000000+00:00'",
    "ts = timestamp '2020-03-01 10:11:12' AND ts = timestamptz '2020-03-01 11:11:12+01'",
    "ts = timestamp with time zone '2020-03-01 10:11:12+00' AND ts = timestamp without time zone '2020-03-01 10:11:12'",
    "ts = '2020-03-01 10:11:12'::timestamp AND ts = ('2020-03-01 12:11:12+02'::timestamptz)",
    "ts = CAST('2020-03-01 10:11:12.000000' AS timestamp)",
    "ts IN ('2020-03-01 10:11:12', '2020-03-02') AND ts BETWEEN '2020-03-01 10:11' AND '2020-03-01 10:12'",
    "d = '2020-03-01 00:00:00'::date AND d = '2020-03-01 -05' AND d = date '2020-03-01'",
    "t = '10:11:12.000000' AND t = '10:11:12-05'::time AND t = time '10:11:12' AND t > '10:11'",
    "n = '5' AND n IN ('4', '5') AND n BETWEEN '1' AND '9' AND '5' = n AND n > '-1'",
    "id = '1'",
    "f = '1.5' AND amount = '12.50' AND ok = 't' AND ok = 'true'",
    "b = '\\x0102' AND b = '\\x0102'::bytea",
    "id = ANY('{1,2}') AND n <> ALL('{1,2}')",
    "date_trunc('hour', ts) = '2020-03-01 10:00:00' AND extract(year from ts) = '2020' AND length(name) = '1'",
    "n + 1 = '6' AND n * 1.5 > '7.4' AND abs(n) = '5' AND greatest(n, n) = '5' AND CASE WHEN ok THEN n END = '5'",
    "ts - interval '1 day' < '2020-03-01 00:00:00+00' AND coalesce(ts, ts) = '2020-03-01 10:11:12'",
    "ts >= TO_TIMESTAMP('2020-03-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')",
    "d = TO_DATE('2020-03-01', 'YYYY-MM-DD') AND to_timestamp(1583057472) = ts",
    "name = '5' AND name LIKE '5%' AND name || '1' = '51' AND coalesce(name, '7') = '5'",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_text_is_of_the_type_of_what_it_stands_beside(dsn: str, condition: str) -> None:
    with psycopg.connect(dsn) as connection:
        assert connection.execute(f"SELECT id FROM untyped WHERE id < 5 AND {condition}").fetchall() == [(1,)]


@pytest.mark.parametrize(
    "condition", ["length(name) = %s", "extract(year from ts) - 2019 = %s", "n - 4 = %s", "date_part('day', d) = %s"]
)
def test_an_untyped_parameter_is_of_the_type_of_an_expression(dsn: str, condition: str) -> None:
    with psycopg.connect(dsn) as connection:
        asked = f"SELECT id FROM untyped WHERE id = 1 AND {condition}"
        assert connection.execute(asked, ["1"]).fetchall() == [(1,)]
        counted = "SELECT ok, count(*) FROM untyped WHERE id = 1 GROUP BY ok HAVING count(*) = %s AND sum(n) > %s"
        assert connection.execute(counted, ["1", "4"]).fetchall() == [(True, 1)]


def test_statements_around_a_query_are_read_as_it_is(dsn: str) -> None:
    query = "SELECT id, ts FROM untyped WHERE ts > '2020-03-01 00:00:00' AND n = '5' EMIT CHANGES"
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert connection.execute(f"EXPLAIN {query}").fetchall()
        created = f"CREATE TABLE later WITH (kafka_topic='later', partitions='1') AS {query}"
        assert connection.execute(created).statusmessage == "CREATE TABLE"


def test_the_names_that_a_query_inside_gives_have_types(dsn: str) -> None:
    inside = "SELECT id, ts AS moment, n + 1 AS more FROM untyped WHERE id < 5"
    with psycopg.connect(dsn) as connection:
        for query in (f"SELECT id FROM ({inside}) q", f"WITH q AS ({inside}) SELECT id FROM q"):
            asked = f"{query} WHERE moment = '2020-03-01 10:11:12' AND more = '6'"
            assert connection.execute(asked).fetchall() == [(1,)]


def test_an_error_is_placed_where_it_is_behind_such_texts(dsn: str) -> None:
    asked = "SELECT id FROM untyped WHERE ts = '2020-03-01 10:11:12' AND nope = 1"
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.UndefinedColumn) as error:
        connection.execute(asked)
    assert int(error.value.diag.statement_position) == asked.index("nope") + 1


@pytest.mark.parametrize("text", ["2020-13-45 10:11:12", "infinity", "10000-01-01 00:00:00", "x"])
def test_what_is_no_time_is_refused(dsn: str, text: str) -> None:
    with psycopg.connect(dsn) as connection:
        for asked in ("SELECT id FROM untyped WHERE ts = %s", f"SELECT id FROM untyped WHERE ts = '{text}'"):
            with pytest.raises(psycopg.Error, match=r"(?i)timestamp"):
                connection.execute(asked, [text] if "%s" in asked else None)
            connection.rollback()


WRITTEN: dict[str, tuple[str, Any]] = {
    "time with a zone": ("t", "10:11:12-05"),
    "date with a zone": ("d", "2020-03-01 -05"),
    "date of a timestamp": ("d", "2020-03-01T22:04:05.000-05:00"),
    "timestamp with a zone": ("ts", "2020-03-01 05:11:12-05"),
    "number": ("n", "7"),
    "decimal": ("amount", "12.50"),
    "bytes": ("b", "\\x00ff"),
    "boolean": ("ok", "t"),
    "texts": ("tags", '{a,"b, c",NULL}'),
    "numbers": ("nums", "{1,NULL}"),
    "no texts": ("tags", "{}"),
    "map": ("m", '{"x": 1, "y": null}'),
    "map of nothing": ("m", "{}"),
    "struct": ("s", '{"a": 1, "b": "it\'s"}'),
    "half a struct": ("s", '{"b": null}'),
    "nested": ("nested", '[{"a": 1}, null, {}]'),
    "not nested": ("nested", "[]"),
}  # fmt: skip
READ: dict[str, Any] = {
    "time with a zone": TIME, "date with a zone": DAY, "date of a timestamp": DAY, "timestamp with a zone": MOMENT,
    "number": 7, "decimal": decimal.Decimal("12.50"), "bytes": b"\x00\xff", "boolean": True,
    "texts": ["a", "b, c", None], "numbers": [1, None], "no texts": [], "map": {"x": 1, "y": None},
    "map of nothing": {}, "struct": {"A": 1, "B": "it's"}, "half a struct": {"A": None, "B": None},
    "nested": [{"A": 1}, None, {"A": None}], "not nested": [],
}  # fmt: skip


@pytest.mark.parametrize("how", ["parameter", "text", "cast"])
@pytest.mark.parametrize("name", WRITTEN)
def test_an_inserted_text_is_of_the_type_of_its_column(dsn: str, name: str, how: str) -> None:
    column, text = WRITTEN[name]
    number = 100 + 3 * list(WRITTEN).index(name) + ["parameter", "text", "cast"].index(how)
    cast = "::json" if how == "cast" and column in ("m", "s", "nested") else ""
    written = "'" + text.replace("'", "''") + "'"
    with psycopg.connect(dsn, autocommit=True) as connection:
        if how == "parameter":
            connection.execute(f"INSERT INTO untyped (id, {column}) VALUES (%s, %s)", [number, text])
        else:
            connection.execute(f"INSERT INTO untyped (id, {column}) VALUES ({number}, {written}{cast})")
        assert connection.execute(f"SELECT {column} FROM untyped WHERE id = {number}").fetchall() == [(READ[name],)]


def test_a_json_value_is_a_map_or_a_struct(dsn: str) -> None:
    Json, Jsonb = psycopg.types.json.Json, psycopg.types.json.Jsonb
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number, (wrapped, sent) in enumerate([(Json, "%t"), (Jsonb, "%b"), (Jsonb, "%s::json")], 200):
            connection.execute(
                f"INSERT INTO untyped (id, m, s) VALUES (%s, {sent}, {sent})",
                [number, wrapped({"x": 1}), wrapped({"a": 2, "b": "y"})],
            )
            found = connection.execute("SELECT m, s FROM untyped WHERE id = %s", [number]).fetchall()
            assert found == [({"x": 1}, {"A": 2, "B": "y"})]
        with pytest.raises(psycopg.Error, match="there is no field zz"):
            connection.execute("INSERT INTO untyped (id, s) VALUES (%s, %s)", [210, Json({"zz": 1})])


@pytest.mark.parametrize(
    "condition",
    ["(%s::text IS NULL OR name = %s)", "(%s::int IS NULL OR n = %s)", "(%s::timestamp IS NULL OR ts > %s)"],
)
def test_a_null_parameter_has_the_type_of_its_place(dsn: str, condition: str) -> None:
    with psycopg.connect(dsn) as connection:
        asked = f"SELECT id FROM untyped WHERE id = 1 AND {condition}"
        assert connection.execute(asked, [None, None]).fetchall() == [(1,)]
        assert connection.execute("SELECT id FROM untyped WHERE name = %s", [None]).fetchall() == []


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("id", "abc", 'a parameter is no integer: "abc" is no whole number'),
        ("n", "1.5", 'a parameter is no bigint: "1.5" is no whole number'),
        ("id", "3000000000", "a parameter is no integer: it is out of range"),
        ("amount", "x" * 200, f'a parameter is no numeric: "{"x" * 50}…" is no number'),
        ("f", "x", 'a parameter is no double precision: "x" is no number'),
        ("ok", "maybe", "a parameter is no boolean: it is neither true nor false"),
        ("ts", "infinity", 'a parameter is no timestamp without time zone: "infinity" is written in another form'),
        ("nums", "{1,b}", 'a parameter is no integer[]: "b" is no whole number'),
        ("s", "{", "a parameter is no STRUCT<`A` INTEGER, `B` STRING>"),
    ],
)
def test_what_is_wrong_with_a_parameter_is_said(dsn: str, column: str, value: str, message: str) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.InvalidTextRepresentation) as error:
        connection.execute(f"INSERT INTO untyped (id, {column}) VALUES (300, %s)".replace("id, id", "n, id"), [value])
    assert error.value.diag.message_primary.startswith(message)
