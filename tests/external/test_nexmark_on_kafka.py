"""The Nexmark queries with Apache Kafka as the log: the answers are those of DuckDB's batch queries, as on our log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from bench.nexmark.answers import batch_engine
from bench.nexmark.events import generate
from bench.nexmark.market import market
from bench.nexmark.queries import NexmarkQuery, nexmark_queries
from bench.nexmark.results import compare

from .conftest import GuardedKafka

_SAMPLE: Final = ("q4", "q7", "q11")  # an aggregate of an aggregate of a join, ranks in windows, sessions
_PATIENCE_S: Final = 120


@pytest.mark.timeout(240)
def test_a_sample_gives_the_batch_querys_answers(
    shared: Path, kafka: GuardedKafka, service_id: str, tmp_path: Path
) -> None:
    del shared  # skips where it is missing
    chosen = [query for query in nexmark_queries() if query.name in _SAMPLE]
    assert _run(kafka, service_id, tmp_path, chosen, 5_000, rate=50) == list(_SAMPLE)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("every_change", [False, True])
def test_all_give_the_batch_querys_answers(
    shared: Path, kafka: GuardedKafka, service_id: str, tmp_path: Path, every_change: bool
) -> None:
    del shared
    events, rate = (20_000, 200) if every_change else (100_000, 1_000)
    properties = {"ksql.streams.cache.max.bytes.buffering": "0"} if every_change else {}
    queries = nexmark_queries()
    right = _run(kafka, service_id, tmp_path, queries, events, rate=rate, properties=properties)
    assert right == [query.name for query in queries]


def _run(
    kafka: GuardedKafka,
    service_id: str,
    folder: Path,
    queries: Sequence[NexmarkQuery],
    count: int,
    *,
    rate: float,
    properties: dict[str, str] | None = None,
) -> list[str]:
    """The names of those that have given the right rows, and some."""
    events = generate(folder / "events", count, rate=rate, disorder_ms=2_000, partitions=2)
    settings = {"ksql.service.id": service_id, **(properties or {})}
    right: list[str] = []
    with (
        batch_engine(events, "arrow") as batch,
        market(folder / "engine", events, "JSON", settings, brokers=kafka.address) as opened,
    ):
        for query in queries:
            opened.start(query)
            assert opened.wait(_PATIENCE_S), f"{query.name} has read {opened.share_read():.0%} of its input"
            if compare(opened.rows(query, batch), query.answer, batch):
                right.append(query.name)
            opened.clear()
        opened.delete_topics()
    return right
