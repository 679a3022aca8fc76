"""GROUP BY as tools write it: without aggregates it is DISTINCT, unless ORDER BY has one; and types with one length."""

from __future__ import annotations

import decimal
from typing import Any

import pytest

from millstream.server.engine.session import Session
from millstream.server.service import Service

psycopg = pytest.importorskip("psycopg")


@pytest.fixture(scope="module", autouse=True)
def table(service: Service) -> None:
    service.engine.execute(
        "CREATE TABLE sales (id INT PRIMARY KEY, city STRING, amount DOUBLE, moment TIMESTAMP)"
        " WITH (kafka_topic='sales', value_format='JSON', partitions=1);",
        Session(),
    )
    for number, city in enumerate(["rome", "oslo", "oslo", "bonn", "bonn", "bonn"]):
        columns = f"{number}, '{city}', {number}.75, '2026-01-0{number + 1}T00:00:00'"
        service.engine.execute(f"INSERT INTO sales VALUES ({columns});", Session())


def rows(dsn: str, query: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    ("order", "cities"),
    [
        ("count(*) DESC", "bonn oslo rome"),
        ("count(*), city", "rome oslo bonn"),
        ("(- sum(amount)) NULLS LAST LIMIT 2", "bonn oslo"),
        ("stddev(id) DESC, 1", "bonn oslo rome"),
        ("max(moment) DESC LIMIT 1 OFFSET 1", "oslo"),
        ("city DESC", "rome oslo bonn"),
        ("1", "bonn oslo rome"),
    ],
)
@pytest.mark.parametrize("group", ["city", "1", "place"])
def test_groups_are_ordered_by_aggregates_that_are_not_selected(dsn: str, group: str, order: str, cities: str) -> None:
    query = f"SELECT city AS place FROM sales GROUP BY {group} ORDER BY {order}"
    assert rows(dsn, query) == [(city,) for city in cities.split()]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("amount::numeric(10)", decimal.Decimal(3)),
        ("CAST(amount AS decimal(5))", decimal.Decimal(3)),
        ("amount::numeric(10, 1)", decimal.Decimal("2.8")),
        ("amount::numeric(10,2)", decimal.Decimal("2.75")),
        ("amount::numeric", decimal.Decimal("2.75")),
    ],
)
def test_a_numeric_with_one_number_has_no_fraction(dsn: str, expression: str, value: decimal.Decimal) -> None:
    assert rows(dsn, f"SELECT {expression} FROM sales WHERE id = 2") == [(value,)]


def test_only_numerics_have_a_scale_and_whole_numbers_that_of_0(dsn: str) -> None:
    """A `double precision` has binary digits."""
    found = rows(
        dsn,
        "SELECT column_name, numeric_precision, numeric_precision_radix, numeric_scale"
        " FROM information_schema.columns WHERE table_name = 'sales' ORDER BY ordinal_position",
    )
    assert found[:3] == [("id", 32, 2, 0), ("city", None, None, None), ("amount", 53, 2, None)]
