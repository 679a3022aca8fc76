"""Rows that a join has to bring together meet, whatever the number of partitions and the bytes of keys."""

from __future__ import annotations

from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from planning import Planner

from millstream.executor.batch import ChangeBatch
from millstream.executor.formats.registry import encoder
from millstream.executor.operators.columns import batch_schema
from millstream.executor.partitioning import RekeyPartitioner
from millstream.executor.pipeline import Pipeline
from millstream.logcore.murmur2 import partitions_of
from millstream.planner.physical import PhysicalPlan
from millstream.planner.steps.source import Source

ROWS = 40
KEYS = list(range(-ROWS // 2, ROWS // 2))


def planned(query: str, left_keys: str, right_keys: str, right_partitions: int = 4) -> PhysicalPlan:
    planner = Planner()
    declared = (
        "(id INT {0}, other INT) WITH (kafka_topic='{1}', value_format='JSON', key_format='{2}', partitions={3});"
    )
    for kind, key, prefix in (("STREAM", "KEY", "s"), ("TABLE", "PRIMARY KEY", "t")):
        sides = (("1", left_keys, 4), ("2", right_keys, right_partitions))
        for number, key_format, partitions in sides:
            name = f"{prefix}{number}"
            list(planner.plans(f"CREATE {kind} {name} {declared.format(key, name, key_format, partitions)}"))
    (plan,) = planner.plans(query)
    return plan


def records(source: Source, first: int, others: list[int]) -> ChangeBatch:
    """Key and `other` of each row; the partition is the one that a producer of the topic would choose."""
    keys = encoder(source.key_format, source.schema.key).encode([pa.array(KEYS, pa.int32())])
    n = len(KEYS)
    columns: dict[str, Any] = {
        "_seq": np.arange(first, first + n),
        "_sub": np.zeros(n),
        "_part": partitions_of(keys, source.partition_count),
        "_ts": np.zeros(n),
        "_weight": np.ones(n),
        "_null": np.zeros(n, np.bool_),
        "k0": KEYS,
        "v0": others,
    }
    schema = batch_schema(source.schema)
    arrays = [pa.array(columns[f.name]).cast(f.type) for f in schema]
    return ChangeBatch(pa.table(arrays, schema=schema), {})


def joined_rows(plan: PhysicalPlan) -> int:
    """How many rows the join of two sources with the same keys gives; `other` is the key, mirrored."""
    pipeline = Pipeline(plan, duckdb.connect(), partitioner=RekeyPartitioner())
    first, second = sorted(plan.sources(), key=lambda source: source.topic)
    mirrored = [-key - 1 for key in KEYS]
    inputs = {second.id: records(second, 0, mirrored), first.id: records(first, ROWS, mirrored)}
    return len(pipeline.process(inputs).rows)


FORMATS = list(product(["KAFKA", "JSON", "DELIMITED"], repeat=2))


@pytest.mark.parametrize(("left", "right"), FORMATS)
@pytest.mark.parametrize(
    "query",
    [
        "CREATE STREAM j AS SELECT * FROM s1 JOIN s2 WITHIN 1 HOUR ON s1.id = s2.id;",
        "CREATE STREAM j AS SELECT * FROM s1 JOIN s2 WITHIN 1 HOUR ON s1.other = s2.id;",
        "CREATE STREAM j AS SELECT * FROM s1 JOIN s2 WITHIN 1 HOUR ON s1.id = s2.other;",
        "CREATE STREAM j AS SELECT * FROM s1 JOIN s2 WITHIN 1 HOUR ON s1.other = s2.other;",
        "CREATE STREAM j AS SELECT * FROM s1 JOIN t2 ON s1.id = t2.id;",
        "CREATE STREAM j AS SELECT * FROM s1 JOIN t2 ON s1.other = t2.id;",
        "CREATE TABLE j AS SELECT * FROM t1 JOIN t2 ON t1.id = t2.id;",
        "CREATE TABLE j AS SELECT * FROM t1 JOIN t2 ON t1.other = t2.id;",
    ],
)
def test_every_row_finds_its_partner(query: str, left: str, right: str) -> None:
    assert joined_rows(planned(query, left, right)) == ROWS


@pytest.mark.parametrize("query", [
    "CREATE STREAM j AS SELECT * FROM s1 JOIN s2 WITHIN 1 HOUR ON s1.other = s2.id;",
    "CREATE STREAM j AS SELECT * FROM s1 JOIN s2 WITHIN 1 HOUR ON s1.id = s2.other;",
    "CREATE STREAM j AS SELECT * FROM s1 JOIN s2 WITHIN 1 HOUR ON s1.other = s2.other;",
    "CREATE STREAM j AS SELECT * FROM s1 JOIN t2 ON s1.other = t2.id;",
    "CREATE TABLE j AS SELECT * FROM t1 JOIN t2 ON t1.other = t2.id;",
])  # fmt: skip
def test_sides_that_move_need_not_have_as_many_partitions(query: str) -> None:
    assert joined_rows(planned(query, "KAFKA", "JSON", right_partitions=3)) == ROWS
