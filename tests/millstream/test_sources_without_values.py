"""A stream or table that has a key and no other column."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.testing import Sandbox


@pytest.mark.parametrize(("format", "value"), [("JSON", {}), ("JSON", {"OTHER": 1}), ("PROTOBUF_NOSR", {})])
def test_its_records_are_rows_whatever_their_values_are(format: str, value: Any) -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(
            f"""
            CREATE STREAM s (k STRING KEY) WITH (kafka_topic='s', value_format='{format}', partitions=1);
            CREATE STREAM o WITH (value_format='JSON') AS SELECT k, UCASE(k) AS v FROM s;
            CREATE TABLE n WITH (value_format='JSON') AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;
            """
        )
        sandbox.produce("s", "a", value)
        sandbox.execute("INSERT INTO s (k) VALUES ('b');")
        sandbox.drain()
        assert [(record["key"], record["value"]) for record in sandbox.consume("O")] == [("a", {"V": "A"}), ("b", None)]
        assert [(record["key"], record["value"]) for record in sandbox.consume("N")] == [("a", {"N": 1})]
