"""Rules that ksqlDB documents, or that follow from what it documents, each as the smallest statement that needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import StatementError
from millstream.testing import Sandbox

SOURCES = """
CREATE STREAM s (id INT KEY, x STRING, y STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE sessions AS SELECT id, COUNT(*) AS n FROM s WINDOW SESSION (3 SECONDS) GROUP BY id;
CREATE TABLE hops AS SELECT id, COUNT(*) AS n FROM s
  WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS) GROUP BY id;
"""
TIMES_S = (0, 30, 2, 12, 21)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as made:
        made.create_topic("there")
        made.execute(SOURCES)
        for second in TIMES_S:
            made.produce("s", 1, {"X": "a", "Y": None}, timestamp=second * 1000)
        made.drain()
        yield made


def rows(sandbox: Sandbox, query: str) -> list[list[Any]]:
    return [line["row"]["columns"] for line in sandbox.query(query) if "row" in line]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("MAP('a' := 1, 'a' := 2)", {"a": 2}),
        ("MAP('a' := 1, x := 2, 'b' := 3)", {"a": 2, "b": 3}),
        ("MAP('a' := NULL, y := 2)", {"a": None, "null": 2}),
        ("MAP(x := ARRAY[1], 'a' := ARRAY[2, 3])", {"a": [2, 3]}),
        ("CBRT(-27)", -3.0),
        ("CBRT(2)", pytest.approx(2 ** (1 / 3))),
    ],
)
def test_an_expression_has_its_value(sandbox: Sandbox, expression: str, value: object) -> None:
    (found,) = rows(sandbox, f"SELECT {expression} AS r FROM s EMIT CHANGES LIMIT 1;")
    assert found == [value]


@pytest.mark.parametrize(
    ("declaration", "words"),
    [
        ("(x STRING) WITH (window_type='TUMBLING', window_size='1 HOUR', value_format='JSON', %s)",
         "Windowed sources require a key column."),
        ("(id INT KEY, x INT) WITH (key_delimiter='|', value_format='DELIMITED', %s)",
         "KAFKA does not support the following configs: [delimiter]"),
        ("(id INT KEY, x INT) WITH (partitions=0, value_format='JSON', %s)",
         "Invalid value 0 for configuration PARTITIONS: Value must be at least 1"),
        ("(id INT KEY, x INT) WITH (partitions='many', value_format='JSON', %s)",
         "Invalid value many for configuration PARTITIONS: Not a number of type INT."),
        ("(id INT KEY, x INT) WITH (replicas=0, partitions=1, value_format='JSON', %s)",
         "Invalid value 0 for configuration REPLICAS: Value must be at least 1"),
    ],
)  # fmt: skip
def test_a_declaration_is_refused(sandbox: Sandbox, declaration: str, words: str) -> None:
    with pytest.raises(StatementError) as refused:
        sandbox.execute(f"CREATE STREAM refused {declaration};" % "kafka_topic='there'")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE STREAM refused (id INT KEY, x INT) WITH (kafka_topic='', partitions=1, value_format='JSON');",
        "CREATE STREAM refused WITH (kafka_topic='') AS SELECT * FROM s;",
    ],
)
def test_a_topic_without_a_name_is_refused(sandbox: Sandbox, statement: str) -> None:
    with pytest.raises(StatementError, match="Invalid value '' for configuration KAFKA_TOPIC"):
        sandbox.execute(statement)


@pytest.mark.parametrize("table", ["sessions", "hops"])
def test_the_windows_of_a_key_are_answered_by_time(sandbox: Sandbox, table: str) -> None:
    found = [start for (start,) in rows(sandbox, f"SELECT WINDOWSTART FROM {table} WHERE id = 1;")]
    assert found == sorted(found)
    assert len(found) > 2
