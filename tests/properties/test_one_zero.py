"""Law: 0.0 and -0.0 are one key, as in DuckDB, also inside of ARRAY and STRUCT; and so are all NaN."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.testing import Sandbox

COLUMNS = "k INT KEY, a ARRAY<DOUBLE>, t STRUCT<x STRUCT<y DOUBLE>, z INT>, l ARRAY<STRUCT<y DOUBLE>>, i INT"
GROUPS = [f"SELECT {column}, COUNT(*) AS n FROM s GROUP BY {column}" for column in ("a", "t", "l")]
DISTINCT = [f"SELECT i, COUNT(DISTINCT {column}) AS n FROM s GROUP BY i" for column in ("a", "t", "l")]


@pytest.mark.parametrize(
    ("partitions", "keys"), [(1, ""), (6, ""), (1, "a ARRAY<DOUBLE> KEY, i INT")], ids=["made", "made, 6", "read"]
)
def test_nested_zeros_are_one_key(partitions: int, keys: str) -> None:
    asked = [*GROUPS, *DISTINCT] if not keys else GROUPS[:1]
    with Sandbox(properties={"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}) as sandbox:
        sandbox.execute(
            f"CREATE STREAM s ({keys or COLUMNS}) WITH (kafka_topic='s', format='JSON', partitions={partitions});"
        )
        for number, query in enumerate(asked):
            sandbox.execute(f"CREATE TABLE q{number} WITH (format='JSON') AS {query};")
        for number, zero in enumerate((0.0, -0.0, "NaN", "NaN", -0.0, None)):
            value = {"A": [zero], "T": {"X": {"Y": zero}, "Z": 1}, "L": [{"Y": zero}, None], "I": 7}
            sandbox.produce("s", [zero] if keys else number, {"I": 7} if keys else value)
            sandbox.drain()
        for number, query in enumerate(asked):
            persistent, pulled = counts(sandbox, f"SELECT * FROM q{number};"), counts(sandbox, f"{query};")
            assert persistent == pulled == ([1, 2, 3] if "DISTINCT" not in query else [3])


def counts(sandbox: Sandbox, query: str) -> list[Any]:
    return sorted(row["row"]["columns"][-1] for row in sandbox.query(query) if "row" in row)
