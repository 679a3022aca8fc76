"""A Sandbox on Spark stops where one on DuckDB does: at a row that the sink's format cannot hold. Jobs run in this
process."""

from __future__ import annotations

import pytest
from staged_sandbox import StagedSandbox

from millstream.executor.errors import QueryFailed


@pytest.mark.parametrize("executor", ["duckdb", "spark"])
@pytest.mark.parametrize("stops", [False, True])
def test_a_row_that_the_given_schema_does_not_take_ends_the_query(executor: str, stops: bool) -> None:
    fields = [{"name": "A", "type": "int"}, {"name": "B", "type": "double"}]
    with StagedSandbox(executor=executor) as sandbox:
        sandbox.create_topic("o")
        sandbox.register_schema("o", "value", "AVRO", {"type": "record", "name": "r", "fields": fields}, schema_id=9)
        sandbox.execute(
            f"SET 'ksql.fail.on.deserialization.error' = '{stops}';"
            "CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='AVRO', partitions=1);"
            "CREATE STREAM o WITH (kafka_topic='o', value_schema_id=9) AS SELECT * FROM s;"
        )
        sandbox.produce("t", None, {"a": 1})
        with pytest.raises(QueryFailed, match="Exception caught in process: Unable to serialize record: "):
            sandbox.drain()
