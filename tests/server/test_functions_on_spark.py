"""Functions that users have written run in the processes of Spark, too."""

from __future__ import annotations

import pytest

from millstream.testing import Sandbox

pytestmark = pytest.mark.spark


def test_functions_run_in_the_processes_of_spark() -> None:
    with Sandbox("spark") as sandbox:
        sandbox.execute("""
            CREATE STREAM orders (id STRING KEY, amount BIGINT)
              WITH (kafka_topic='orders', value_format='JSON', partitions=1);
            CREATE FUNCTION f(a BIGINT) RETURNS DOUBLE AS $$ 10 / a $$;
            CREATE AGGREGATE FUNCTION total(x DOUBLE) RETURNS DOUBLE AS $$
                class Total:
                    def init(self): return 0.0
                    def add(self, state, x): return state + x
                    def result(self, state): return state
            $$;
            CREATE TABLE t AS SELECT id, total(f(amount)) AS n FROM orders GROUP BY id;
        """)
        sandbox.execute("".join(f"INSERT INTO orders (id, amount) VALUES ('x', {amount});" for amount in (2, 0, 1)))
        sandbox.drain()
        assert sandbox.consume("T")[-1]["value"] == {"N": 15.0}
        assert sandbox.engine.log.offsets("default_ksql_processing_log", 0).last_stable_offset > 0
