"""The answers of the Nexmark queries: what is in the topics in the end is what DuckDB's batch query says."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from drawn import sampled

from bench.nexmark.answers import batch_engine
from bench.nexmark.events import generate
from bench.nexmark.market import Market, market
from bench.nexmark.queries import NexmarkQuery, nexmark_queries, read_queries
from bench.nexmark.results import compare
from bench.nexmark.topics import ValueFormat

EVERY_CHANGE = {"ksql.streams.cache.max.bytes.buffering": "0"}
PATIENCE_S = 50
VARIATIONS = [query for path in sorted(Path(__file__).parent.glob("variations/*.sql")) for query in read_queries(path)]


@dataclass(frozen=True, slots=True)
class Setting:
    """`rate`: events per second of event time: the lower, the more windows there are."""

    events: int
    format: ValueFormat
    rate: float
    every_change: bool = False
    partitions: int = 1
    disorder_ms: int = 0


SETTINGS = {
    "in order": Setting(25_000, "JSON", rate=250),
    "disordered": Setting(20_000, "ARROW", rate=200, every_change=True, partitions=3, disorder_ms=3_000),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """Both sides of the comparison, over the same events."""

    market: Market
    batch: duckdb.DuckDBPyConnection


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=list(SETTINGS))
def stage(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    del shared  # skips where it is missing
    with _staged(request.param, tmp_path_factory.mktemp("nexmark")) as staged:
        yield staged


@pytest.fixture(scope="module")
def small_stage(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    del shared
    setting = Setting(5_000, "JSON", rate=50, partitions=2, disorder_ms=2_000)
    with _staged(setting, tmp_path_factory.mktemp("variations")) as staged:
        yield staged


@contextlib.contextmanager
def _staged(setting: Setting, folder: Path) -> Generator[Stage]:
    events = generate(
        folder / "events",
        setting.events,
        rate=setting.rate,
        disorder_ms=setting.disorder_ms,
        partitions=setting.partitions,
    )
    properties = EVERY_CHANGE if setting.every_change else {}
    with (
        batch_engine(events, "arrow") as batch,
        market(folder / "engine", events, setting.format, properties, sync=False) as opened,
    ):
        yield Stage(opened, batch)


@pytest.mark.parametrize("query", nexmark_queries(), ids=lambda query: query.name)
def test_a_query_gives_the_batch_querys_answer(stage: Stage, query: NexmarkQuery) -> None:
    assert _rows(stage, query) > 0


@pytest.mark.parametrize("query", sampled(VARIATIONS, 2), ids=lambda query: query.name)
def test_a_query_like_them_gives_the_batch_querys_answer(small_stage: Stage, query: NexmarkQuery) -> None:
    assert _rows(small_stage, query) > 0


def _rows(stage: Stage, query: NexmarkQuery) -> int:
    try:
        stage.market.start(query)
        assert stage.market.wait(PATIENCE_S), f"stopped after {stage.market.share_read():.0%} of the input"
        return compare(stage.market.rows(query, stage.batch), query.answer, stage.batch)
    finally:
        stage.market.clear()
