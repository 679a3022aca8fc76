"""A stream without key columns writes null keys, whatever its key format is."""

from __future__ import annotations

import pytest

from millstream.testing import Sandbox

QUERIES = {
    "union": "SELECT g, v FROM s WHERE v < 2 UNION ALL SELECT g, v FROM s WHERE v >= 2",
    "key not selected": "SELECT g, v FROM CHANGED(TABLE s PARTITION BY k, DESCRIPTOR(v))",
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("name", ["AVRO", "JSON_SR", "PROTOBUF", "MSGPACK", "DELIMITED", "JSON"])
def test_keys_are_null_in_every_format(query: str, name: str) -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(f"""
            CREATE STREAM s (k INT KEY, g STRING, v INT)
              WITH (kafka_topic='s', format='{name}', partitions=2);
            CREATE STREAM q WITH (format='{name}') AS {QUERIES[query]};
            CREATE STREAM keyed AS SELECT g, v FROM q PARTITION BY g;
            INSERT INTO s VALUES (1, 'a', 1), (2, 'b', 2);
        """)
        sandbox.drain()
        assert [record["key"] for record in sandbox.consume("Q")] == [None, None]
        sandbox.execute("INSERT INTO q (g, v) VALUES ('c', 3);")
        sandbox.drain()
        rows = sandbox.query("SELECT g, v FROM keyed;")
        assert sorted(row["row"]["columns"] for row in rows if "row" in row) == [["a", 1], ["b", 2], ["c", 3]]
