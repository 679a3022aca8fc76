"""Three of the Nexmark queries on Spark: a chain without state, a join of streams, and aggregates of an aggregate."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.nexmark.answers import batch_engine
from bench.nexmark.events import generate
from bench.nexmark.market import market
from bench.nexmark.queries import nexmark_queries
from bench.nexmark.results import compare

pytestmark = pytest.mark.spark

PATIENCE_S = 120


def test_queries_on_spark_give_the_batch_querys_answers(shared: Path, tmp_path: Path) -> None:
    del shared  # skips where it is missing
    events = generate(tmp_path / "events", 3_000, rate=100, partitions=2)
    spark = {"millstream.executor": "spark"}
    with (
        batch_engine(events, "arrow") as batch,
        market(tmp_path / "engine", events, "JSON", spark, sync=False) as opened,
    ):
        for query in nexmark_queries()[2:5]:
            opened.start(query)
            assert opened.wait(PATIENCE_S), query.name
            assert compare(opened.rows(query, batch), query.answer, batch) > 0
            opened.clear()
