"""STRUCT() has no fields, and every format holds it; DuckDB knows no such type."""

from __future__ import annotations

import pytest

from millstream.testing import Sandbox

STATEMENTS = """
CREATE STREAM s (k STRING KEY, v INT, given STRUCT<>) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM o WITH (value_format='{format}') AS
  SELECT k, v, given, STRUCT() AS made, STRUCT(a := STRUCT(), b := v) AS nested, CAST(STRUCT(a := 1) AS STRUCT<>) AS c
  FROM s;
CREATE STREAM p AS SELECT * FROM o;
"""


@pytest.mark.parametrize("format", ["JSON", "AVRO", "JSON_SR", "PROTOBUF"])
@pytest.mark.parametrize("count", [1, 300])
def test_a_struct_without_fields_goes_through(format: str, count: int) -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(STATEMENTS.format(format=format))
        for number in range(count):
            sandbox.produce("s", "x", {"V": number, "GIVEN": {} if number % 2 else None})
        sandbox.drain()
        rows = [record["value"] for record in sandbox.consume("P")]
        assert rows == [
            {"V": n, "GIVEN": {} if n % 2 else None, "MADE": {}, "NESTED": {"A": {}, "B": n}, "C": {}}
            for n in range(count)
        ]
        answer = list(sandbox.query("SELECT made, nested FROM p EMIT CHANGES LIMIT 1;"))
        assert answer[1] == {"row": {"columns": [{}, {"A": {}, "B": 0}]}}
