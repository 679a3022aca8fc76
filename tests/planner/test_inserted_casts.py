"""INSERT … VALUES of a CAST of a text, as drivers write values: planned as the text alone, which is cheaper."""

from __future__ import annotations

import pytest
from planning import Planner

from millstream.errors import InvalidStatement
from millstream.planner.declarations.values import PlannedInsert, plan_insert_values
from millstream.planner.planning import PlanningContext
from millstream.sql.ast import InsertValues
from millstream.sql.parser import parse

CREATED = (
    "CREATE STREAM s (d DATE, t TIME, ts TIMESTAMP, i INT, v STRING)"
    " WITH (kafka_topic='s', value_format='JSON', partitions=1);"
)


def planned(text: str) -> PlannedInsert:
    planner = Planner()
    assert not list(planner.plans(CREATED))
    (statement,) = parse(text)
    assert isinstance(statement, InsertValues)
    return plan_insert_values(statement, PlanningContext(planner.catalog, {}, planner.topics, "Q"))


@pytest.mark.parametrize(
    ("column", "cast", "text"),
    [
        ("d", "CAST('2020-02-03' AS DATE)", "'2020-02-03'"),
        ("t", "CAST('10:11:12' AS TIME)", "'10:11:12'"),
        ("ts", "CAST('2020-02-03T10:11:12.500' AS TIMESTAMP)", "'2020-02-03T10:11:12.500'"),
        ("i", "CAST('7' AS INT)", "7"),
        ("i", "CAST('-7' AS INT)", "'-7'"),
        ("ts", "(CAST(('2020-02-03T10:11:12') AS TIMESTAMP))", "'2020-02-03T10:11:12'"),
    ],
)
def test_a_cast_of_a_text_is_planned_as_the_text(column: str, cast: str, text: str) -> None:
    assert planned(f"INSERT INTO s ({column}) VALUES ({cast});") == planned(
        f"INSERT INTO s ({column}) VALUES ({text});"
    )


def test_a_cast_that_fails_is_refused() -> None:
    for cast in (
        ("ts", "'2020-13-45' AS TIMESTAMP"),
        ("d", "'soon' AS DATE"),
        ("t", "'25:00' AS TIME"),
        ("i", "'x' AS INT"),
    ):
        with pytest.raises(InvalidStatement, match="Failed to evaluate"):
            planned(f"INSERT INTO s ({cast[0]}) VALUES (CAST({cast[1]}));")
