"""Nexmark's queries, and queries like them, on Spark's stages in this process, in several batches: what topics hold
in the end is what DuckDB's batch query says. On Spark itself: `test_nexmark_on_spark.py`."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from spark_in_process import SparkInProcess

from bench.nexmark.answers import batch_engine
from bench.nexmark.events import generate
from bench.nexmark.market import market
from bench.nexmark.queries import NexmarkQuery, nexmark_queries
from bench.nexmark.results import compare

from .test_nexmark import VARIATIONS, Stage

EVENTS, RECORDS_MAX = 3_000, 1_000
PATIENCE_S = 120
QUICK = ("q3", "q5", "q8", "q20")
BY_BATCHES = ("latest_by_bidder",)
"""Aggregates of a table: a group that has lost its rows stays, with a COUNT of 0, as in ksqlDB, and whether one came to
be depends on where batches end."""


@pytest.fixture(scope="module")
def stage(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    del shared  # skips where it is missing
    folder = tmp_path_factory.mktemp("stages")
    events = generate(folder / "events", EVENTS, rate=50, partitions=2, disorder_ms=2_000)
    properties = {"millstream.executor": "spark", "millstream.spark.batch.records.max": str(RECORDS_MAX)}
    with pytest.MonkeyPatch.context() as patch:
        SparkInProcess(patch)
        with (
            batch_engine(events, "arrow") as batch,
            market(folder / "engine", events, "JSON", properties, sync=False) as opened,
        ):
            yield Stage(opened, batch)


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(query, id=query.name, marks=() if query.name in QUICK else pytest.mark.soak)
        for query in [*nexmark_queries(), *VARIATIONS]
        if query.name not in BY_BATCHES
    ],
)
def test_a_query_gives_the_batch_querys_answer(stage: Stage, query: NexmarkQuery) -> None:
    try:
        stage.market.start(query)
        assert stage.market.wait(PATIENCE_S), f"stopped after {stage.market.share_read():.0%} of the input"
        assert compare(stage.market.rows(query, stage.batch), query.answer, stage.batch) > 0
    finally:
        stage.market.clear()
