"""A text beside a DATE, TIME or TIMESTAMP: one that is written must be such a time, one that a row has may be none."""

from __future__ import annotations

import pytest
from planning import Planner

from millstream.errors import StatementError
from millstream.testing import Sandbox

COLUMNS = "id INT KEY, t TIMESTAMP, d DATE, c TIME, v STRING"
CREATE = f"CREATE STREAM s ({COLUMNS}) WITH (kafka_topic='s', format='json', partitions=1);\n"
NO_TIMES = {
    "t": ("2020-13-45", "2020-02-30", "2020-02-30T10:00", "", "x", "2020-01-01 10:00", "2020-01-01T24:00:00"),
    "d": ("2020-13-45", "2020-02-30", "", "infinity", "2020-01-01T00:00:00"),
    "c": ("25:00", "23:59:60", "1:00", "10", "", "10:00:00+01:00"),
}
TIMES = {
    "t": ("2020-02-29", "2020", "2020-12", "2020-01-01T10", "2020-01-01T23:59:59.999", "2020-01-01T10:00:00+02:00"),
    "d": ("2020-02-29", "2020", "2020-12"),
    "c": ("23:59", "00:00:00", "10:00:00.1234"),
}
HINTS = {"t": "'2020-12-31T23:59:59.999'", "d": "'2020-12-31'", "c": "'23:59:59.999'"}
CONDITIONS = [
    *(f"{{column}} {sign} {{text}}" for sign in ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM")),
    "{text} < {column}",
    "({text}) < {column}",
    "{column} BETWEEN {text} AND {column}",
    "{column} NOT BETWEEN {column} AND {text}",
    "{text} BETWEEN {column} AND {column}",
    "{column} IN ({column}, {text})",
    "{text} IN ({column})",
    "CASE {column} WHEN {text} THEN TRUE ELSE FALSE END",
    "CASE WHEN id = 1 THEN {column} ELSE {text} END = {column}",
    "NOT (id = 1 AND {column} > {text})",
]
SPELLED = [(column, text) for column, texts in NO_TIMES.items() for text in texts]


def plan(condition: str) -> None:
    list(Planner().plans(f"{CREATE}CREATE STREAM o AS SELECT * FROM s WHERE {condition};"))


def refusal(condition: str) -> StatementError:
    with pytest.raises(StatementError, match="invalid input syntax for type") as refused:
        plan(condition)
    return refused.value


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_text_that_is_no_time_is_refused_wherever_it_is_compared(condition: str) -> None:
    for column, texts in TIMES.items():
        plan(condition.format(column=column, text=f"'{texts[0]}'"))
        refused = refusal(condition.format(column=column, text="'2020-13-45'"))
        assert HINTS[column] in (refused.hint or "")


@pytest.mark.parametrize(("column", "text"), SPELLED)
def test_the_error_says_where_the_text_stands(column: str, text: str) -> None:
    refused = refusal(f"{column} > '{text}'")
    assert refused.span is not None
    statement = f"{CREATE}CREATE STREAM o AS SELECT * FROM s WHERE {column} > '{text}';"
    assert statement[refused.span.start : refused.span.end] == f"'{text}'"


@pytest.mark.parametrize(("column", "text"), [(column, text) for column, texts in TIMES.items() for text in texts])
def test_what_is_a_time_is_compared(column: str, text: str) -> None:
    plan(f"{column} > '{text}'")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE STREAM o AS SELECT id, FORMAT_TIMESTAMP('x', 'yyyy') AS f FROM s;",
        "CREATE STREAM o AS SELECT id, GREATEST(t, 'x') AS f FROM s;",
        "CREATE STREAM o AS SELECT id, ARRAY[t, 'x'] AS f FROM s;",
        "INSERT INTO s SELECT id, 'x' AS t, d, c, v FROM s;",
    ],
)
def test_a_text_that_becomes_a_time_elsewhere_must_be_one_too(statement: str) -> None:
    with pytest.raises(StatementError, match="invalid input syntax for type TIMESTAMP"):
        list(Planner().plans(CREATE + statement))


def test_a_point_in_time_beside_rowtime_is_refused_with_its_place() -> None:
    with pytest.raises(StatementError, match="Failed to parse timestamp") as refused:
        plan("ROWTIME > '2020-13-45'")
    assert refused.value.span is not None


def test_a_value_that_is_no_time_is_as_null_in_a_comparison_and_a_cast() -> None:
    with Sandbox() as ms:
        ms.execute(
            "CREATE STREAM s (id INT KEY, t TIMESTAMP, v STRING) WITH (kafka_topic='s', format='json', partitions=1);"
        )
        ms.execute(
            "CREATE STREAM o AS SELECT id, t > v AS later, t IS DISTINCT FROM v AS other, CAST(v AS TIMESTAMP) AS c "
            "FROM s;"
        )
        ms.execute("INSERT INTO s VALUES (1, '2020-01-01T00:00:00', '2019-02-30');")
        ms.execute("INSERT INTO s VALUES (2, '2020-01-01T00:00:00', '2019-13-45');")
        ms.drain()
        day_ms = 86_400_000
        assert [record["value"] for record in ms.consume("O")] == [
            {"LATER": True, "OTHER": True, "C": (17_897 + 58) * day_ms},
            {"LATER": False, "OTHER": True, "C": None},
        ]
