"""Units of time are written like columns, and are none, wherever a query looks for columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.testing import Sandbox

DAY = 86_400_000


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}) as opened:
        opened.execute(
            "CREATE STREAM s (k INT KEY, d DATE, t TIMESTAMP, days INT)"
            " WITH (kafka_topic='s', value_format='JSON', partitions=1);"
            "CREATE STREAM r (k INT KEY, d DATE) WITH (kafka_topic='r', value_format='JSON', partitions=1);"
        )
        for key, day in ((1, 0), (1, 1), (2, 365)):
            opened.produce("s", key, {"D": day, "T": day * DAY, "DAYS": 7}, timestamp=0)
        opened.produce("r", 1, {"D": 1}, timestamp=0)
        yield opened


def rows(sandbox: Sandbox, query: str) -> list[list[Any]]:
    return [line["row"]["columns"] for line in sandbox.query(query) if "row" in line]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT k, DATEADD(DAYS, 1, MAX(d)) AS x FROM s GROUP BY k", [[1, "1970-01-03"], [2, "1971-01-02"]]),
        ("SELECT k, EXTRACT(YEAR FROM MAX(t)) AS x FROM s GROUP BY k", [[1, 1970], [2, 1971]]),
        ("SELECT d, DATEADD(DAYS, 1, d) AS x, COUNT(*) AS n FROM s WHERE k = 2 GROUP BY d",
         [["1971-01-01", "1971-01-02", 1]]),
        ("SELECT days, MAX(DATEADD(DAYS, days, d)) AS x, DATEADD(DAYS, days, MIN(d)) AS y FROM s GROUP BY days",
         [[7, "1971-01-08", "1970-01-08"]]),
        ("SELECT k, COUNT(*) AS n FROM s GROUP BY k HAVING TIMESTAMPADD(HOURS, 1, MAX(t)) > '1970-02-01'", [[2, 1]]),
        ("SELECT k, TRANSFORM(COLLECT_LIST(days), x => DATEADD(DAYS, x, MAX(d))) AS x FROM s WHERE k = 2 GROUP BY k",
         [[2, ["1971-01-08"]]]),
        ("SELECT s.k, r.d FROM s JOIN r WITHIN 1 DAY ON s.k = r.k AND DATEADD(DAYS, 1, s.d) = r.d",
         [[1, "1970-01-02"]]),
        ("SELECT k FROM s WHERE d = (SELECT DATEADD(DAYS, 1, MIN(d)) FROM s)", [[1]]),
    ],
)  # fmt: skip
def test_a_unit_of_time_is_no_column(sandbox: Sandbox, query: str, expected: list[list[Any]]) -> None:
    assert sorted(rows(sandbox, query + ";")) == expected


def test_a_unit_in_order_by_is_not_the_selected_column_of_this_name(sandbox: Sandbox) -> None:
    query = "SELECT k, COUNT(*) AS days FROM s GROUP BY k ORDER BY DATEADD(DAYS, 1, MAX(d)) DESC;"
    assert rows(sandbox, query) == [[2, 1], [1, 2]]


def test_a_persistent_query_takes_units_beside_aggregates(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE TABLE o AS SELECT k, DATEADD(DAYS, 1, MAX(d)) AS x FROM s GROUP BY k;")
    sandbox.drain()
    assert sorted(rows(sandbox, "SELECT * FROM o;")) == [[1, "1970-01-03"], [2, "1971-01-02"]]
