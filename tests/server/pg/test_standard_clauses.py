"""What PostgreSQL's clients write and ksqlDB's dialect lacks: comparisons of rows, ILIKE, FETCH FIRST, texts between
dollars, the current time with a precision."""

from __future__ import annotations

import asyncio
import datetime
from itertools import product
from typing import Any

import pytest

from millstream.server.engine.session import Session
from millstream.server.service import Service

psycopg = pytest.importorskip("psycopg")

_PLACES = [(1, 1, "Rome"), (1, 2, "oslo"), (2, 1, "OSLO"), (2, None, "Bonn"), (None, 3, "o%slo"), (3, 0, None)]


@pytest.fixture(scope="module", autouse=True)
def table(service: Service) -> None:
    rows = ", ".join(
        f"({number}, {'NULL' if a is None else a}, {'NULL' if b is None else b}, {'NULL' if c is None else repr(c)})"
        for number, (a, b, c) in enumerate(_PLACES)
    )
    service.engine.execute(
        "CREATE TABLE places (id INT PRIMARY KEY, a INT, b INT, city STRING)"
        " WITH (kafka_topic='places', value_format='JSON', partitions=1);"
        f"INSERT INTO places VALUES {rows};",
        Session(),
    )


def ids(dsn: str, rest: str, parameters: tuple[Any, ...] = ()) -> list[int]:
    with psycopg.connect(dsn) as connection:
        return [id for (id,) in connection.execute(f"SELECT id FROM places {rest}", parameters or None).fetchall()]


# ------------------------------------------------------------------ rows


def _is_true(sign: str, left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """SQL's rule: the first pair that is not equal decides. One with NULL makes the comparison NULL, unless another
    pair decides whether the rows are equal."""
    pairs = list(zip(left, right, strict=True))
    if sign in ("=", "<>"):
        different = any(a is not None and b is not None and a != b for a, b in pairs)
        known = all(a is not None and b is not None for a, b in pairs)
        return different if sign == "<>" else known and not different
    for a, b in pairs:
        if a is None or b is None:
            return False
        if a != b:
            return a < b if sign in ("<", "<=") else a > b
    return sign in ("<=", ">=")


@pytest.mark.parametrize("sign", ["=", "<>", "<", "<=", ">", ">="])
def test_rows_are_compared_by_their_first_difference(dsn: str, sign: str) -> None:
    for a, b in product((0, 1, 2, 3), (0, 1, 2, 3)):
        expected = [id for id, row in enumerate(_PLACES) if _is_true(sign, row[:2], (a, b))]
        assert ids(dsn, f"WHERE (a, b) {sign} ({a}, {b}) ORDER BY id") == expected, (a, b)
        assert ids(dsn, f"WHERE (a, b) {sign} (%s, %s::int) ORDER BY id", (a, b)) == expected, (a, b)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("(a, b) IN ((1, 2), (2, 1))", [1, 2]),
        ("(a, b) NOT IN ((1, 2), (2, 1))", [0, 4, 5]),
        ("(a, b, id) > (1, 1, 0)", [1, 2, 3, 5]),
        ("(a, b, id) >= (1, 1, 0)", [0, 1, 2, 3, 5]),
        ("(a + 1, lower(city)) = (3, 'oslo')", [2]),
        ("NOT (a, b) = (1, 1) AND id > 0", [1, 2, 3, 4, 5]),
        ('("a", places.b) < (2, 1)', [0, 1]),
        ("id IN (1, 2)", [1, 2]),
        ("coalesce(a, b) IN (3, 4)", [4, 5]),
        ("(a, b) IN ((1, 2), (2, 1)) OR (id) = (5)", [1, 2, 5]),
    ],
)
def test_other_comparisons_of_rows(dsn: str, condition: str, expected: list[int]) -> None:
    assert ids(dsn, f"WHERE {condition} ORDER BY id") == expected


def test_pages_of_a_result_are_read_by_its_last_row(dsn: str) -> None:
    found: list[int] = []
    page = ids(dsn, "WHERE a IS NOT NULL ORDER BY a, id LIMIT 2")
    while page:
        found += page
        last = _PLACES[page[-1]][0]
        page = ids(dsn, "WHERE (a, id) > (%s, %s) ORDER BY a, id LIMIT 2", (last, page[-1]))
    assert found == [0, 1, 2, 3, 5]


def test_rows_within_rows_are_refused_and_soon(dsn: str) -> None:
    """Written out, each level would double the text."""
    nested = "(a, b) > (1, 2)"
    for _ in range(40):
        nested = f"(({nested}), a) > (true, 1)"
    with pytest.raises(psycopg.errors.SyntaxError):
        ids(dsn, f"WHERE {nested}")


# ------------------------------------------------------------------ ILIKE


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("city ILIKE 'OSLO'", [1, 2]),
        ("city ilike 'o%'", [1, 2, 4]),
        ("city NOT ILIKE 'o%' AND city IS NOT NULL", [0, 3]),
        ("city || '!' ILIKE '%O!'", [1, 2, 4]),
        ("city ILIKE '%' || 'SL' || '%'", [1, 2, 4]),
        ("city ILIKE 'o!%S%' ESCAPE '!'", [4]),
        ("a = 2 AND city ILIKE 'os%' OR id = 0", [0, 2]),
        ("upper(city) ILIKE 'rome'::text", [0]),
        ("(city ILIKE $$ROME$$)", [0]),
        ("city::varchar ILIKE 'Bonn'", [3]),
    ],
)
def test_ilike_leaves_case_aside(dsn: str, condition: str, expected: list[int]) -> None:
    assert ids(dsn, f"WHERE {condition} ORDER BY id") == expected


def test_the_pattern_may_be_a_parameter(dsn: str) -> None:
    assert ids(dsn, "WHERE city ILIKE %s ORDER BY id", ("OS%",)) == [1, 2]
    assert ids(dsn, "WHERE city ILIKE '%%' || %s || '%%' ORDER BY id", ("SL",)) == [1, 2, 4]


def test_drivers_that_ask_for_the_types_of_parameters_get_them(dsn: str) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def ask() -> list[Any]:
        fields = dict(part.split("=") for part in dsn.split())
        connection = await asyncpg.connect(
            host=fields["host"], port=int(fields["port"]), user="ana", database="millstream"
        )
        try:
            found = [
                await connection.fetch("SELECT id FROM places WHERE (a, b) >= ($1, $2) ORDER BY id", 2, 1),
                await connection.fetch("SELECT id FROM places WHERE city ILIKE $1 ORDER BY id", "OSLO"),
                await connection.fetch(
                    "SELECT id FROM places ORDER BY id OFFSET $1 ROWS FETCH NEXT $2 ROWS ONLY", 1, 2
                ),
            ]
        finally:
            await connection.close()
        return [[row["id"] for row in rows] for rows in found]

    assert asyncio.run(ask()) == [[2, 5], [1, 2], [1, 2]]


# ------------------------------------------------------------------ a part of the rows


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("FETCH FIRST 2 ROWS ONLY", [0, 1]),
        ("FETCH FIRST ROW ONLY", [0]),
        ("fetch next 1 row only", [0]),
        ("OFFSET 1 ROW FETCH NEXT 2 ROWS ONLY", [1, 2]),
        ("OFFSET 4 ROWS", [4, 5]),
        ("OFFSET 4", [4, 5]),
        ("OFFSET 1 LIMIT 2", [1, 2]),
        ("LIMIT 2 OFFSET 1", [1, 2]),
        ("FETCH FIRST 2 ROWS ONLY OFFSET 3", [3, 4]),
        ("LIMIT ALL", [0, 1, 2, 3, 4, 5]),
        ("LIMIT ALL OFFSET 4", [4, 5]),
    ],
)
def test_a_part_of_the_rows_is_taken(dsn: str, clause: str, expected: list[int]) -> None:
    assert ids(dsn, f"ORDER BY id {clause}") == expected


# ------------------------------------------------------------------ texts and times


def test_texts_may_stand_between_dollars(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT $$it's$$, $tag$a $$ b$tag$, id FROM places WHERE id = 0").fetchone() == (
            "it's", "a $$ b", 0,
        )  # fmt: skip


@pytest.mark.parametrize("digits", [0, 1, 2, 3, 6])
def test_the_current_time_has_as_many_digits_as_asked_for(dsn: str, digits: int) -> None:
    with psycopg.connect(dsn) as connection:
        query = f"SELECT CURRENT_TIMESTAMP({digits}), LOCALTIME({digits}), CURRENT_TIMESTAMP FROM places WHERE id = 0"
        moment, time, now = connection.execute(query).fetchone()
    unit = 10 ** (6 - min(digits, 3))
    assert moment.microsecond % unit == time.microsecond % unit == 0
    assert abs(moment - now) < datetime.timedelta(seconds=2)
