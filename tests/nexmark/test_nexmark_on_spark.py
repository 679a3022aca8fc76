"""The Nexmark queries on Spark: a chain without state, a join of streams, aggregates of an aggregate; for long, all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.nexmark.answers import batch_engine
from bench.nexmark.events import generate
from bench.nexmark.market import market
from bench.nexmark.measure import NexmarkOptions, drain
from bench.nexmark.on_spark import on_spark_lines
from bench.nexmark.queries import nexmark_queries

PATIENCE_S = 120


@pytest.mark.spark
@pytest.mark.parametrize(
    ("names", "events"),
    [
        (("q2", "q3", "q4"), 3_000),
        pytest.param((), 200_000, marks=(pytest.mark.soak, pytest.mark.timeout(1800)), id="all"),
    ],
)
def test_queries_on_spark_give_the_batch_querys_answers(
    shared: Path, tmp_path: Path, names: tuple[str, ...], events: int
) -> None:
    del shared  # skips where it is missing
    options = NexmarkOptions(events, PATIENCE_S, partitions=2, seed=7, names=names, rate=100)  # auctions end, too
    lines = on_spark_lines(options, tmp_path)
    assert len(lines) == 2 * len(names or nexmark_queries())
    assert [line for line in lines[1::2] if not line.ratio.endswith("of DuckDB")] == []


def test_rows_that_are_not_the_batch_querys_are_no_result(shared: Path, tmp_path: Path) -> None:
    del shared
    events = generate(tmp_path / "events", 500, seed=7, partitions=1)
    query = next(query for query in nexmark_queries() if query.name == "q1")
    with batch_engine(events, "arrow") as batch, market(tmp_path / "engine", events, "JSON", sync=False) as opened:
        for wrong in (f"({query.answer}) LIMIT 3", f"({query.answer}) UNION ALL ({query.answer})"):
            said = drain(opened, replace(query, answer=f"SELECT * FROM ({wrong})"), 1, PATIENCE_S, batch=batch)
            assert isinstance(said, str)
            assert said.startswith("wrong: ")
        assert not isinstance(drain(opened, query, 1, PATIENCE_S, batch=batch), str)
