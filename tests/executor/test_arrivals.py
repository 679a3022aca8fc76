"""Where a query stops so that it takes a script's rows in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from drawn import drawn
from hand_plans import rows, stream_source
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.executor.sources.arrivals import stops
from millstream.executor.sources.journal import RecordPlace
from millstream.executor.sources.source_reader import SourceReader
from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log, open_log

STREAM, TABLE = TopicPartition("stream", 0), TopicPartition("table", 0)
SOURCES = (stream_source("stream"), replace(stream_source("table", id="s1"), kind="TABLE"))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as log:
        yield log


def insert(log: Log, script: list[tuple[TopicPartition, int]]) -> tuple[dict[TopicPartition, int], list[RecordPlace]]:
    """Where the rows begin, and their places."""
    for lane in (STREAM, TABLE):
        if lane.topic not in log.topics():
            log.create_topic(lane.topic, 1)
    start = {lane: log.offsets(*lane).log_end_offset for lane in (STREAM, TABLE)}
    return start, [
        RecordPlace(lane, log.append(*lane, rows([("a", {"V": 1, "W": "w"}, time)]))) for lane, time in script
    ]


def count(log: Log, script: list[tuple[TopicPartition, int]]) -> int:
    return len(stops(log, SOURCES, *insert(log, script)))


def test_rows_in_the_order_of_their_times_need_one_stop(log: Log) -> None:
    assert count(log, []) == 0
    assert count(log, [(STREAM, 3), (STREAM, 1)]) == 1
    assert count(log, [(TABLE, 1), (STREAM, 1), (TABLE, 2), (STREAM, 5)]) == 1


def test_a_row_that_would_go_before_an_earlier_one_comes_after_a_stop(log: Log) -> None:
    assert count(log, [(STREAM, 2), (TABLE, 1)]) == 2
    assert count(log, [(STREAM, 1), (TABLE, 1)]) == 2  # of one time the table's would be first
    assert count(log, [(STREAM, 5), (TABLE, 6), (STREAM, 1), (TABLE, 7)]) == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=drawn(30))
@given(st.lists(st.tuples(st.sampled_from([STREAM, TABLE]), st.integers(0, 4)), max_size=8))
def test_a_reader_that_stops_there_gives_the_script(log: Log, script: list[tuple[TopicPartition, int]]) -> None:
    start, places = insert(log, script)
    reader = SourceReader(log, SOURCES, start)
    seen: list[RecordPlace] = []
    for stop in stops(log, SOURCES, start, places):
        batch = reader.read(1 << 20, stop)
        assert batch is not None
        numbered = [
            (row["_seq"], RecordPlace(TopicPartition(batch.topics[source], 0), row["_offset"]))
            for source, changes in batch.inputs.items()
            for row in changes.rows.to_pylist()
        ]
        seen += [place for _, place in sorted(numbered)]
    assert seen == places
