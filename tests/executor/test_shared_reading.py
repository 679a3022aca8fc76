"""Queries that read one topic read and decode its records once, and each has its own position and errors."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_plans import rows, stream_source

from millstream.executor.sources import shared_reading, topic_feed
from millstream.executor.sources.shared_reading import SharedReading
from millstream.executor.sources.source_decoder import DecodedRecords, Records, SourceDecoder
from millstream.executor.sources.source_reader import SourceReader
from millstream.logcore.client import LogClient, RowRecords, TopicPartition
from millstream.logcore.log import open_log
from millstream.planner.steps.source import Source

INPUT = stream_source()
BOTH, ONLY_V, ONLY_W = (replace(INPUT, columns=columns) for columns in (("v0", "v1"), ("v0",), ("v1",)))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    client.create_topic("input", 2)
    yield client
    client.close()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each call decodes."""
    counts: list[int] = []
    decode = SourceDecoder.decode

    def counting(decoder: SourceDecoder, records: Records) -> DecodedRecords:
        counts.append(len(records))
        return decode(decoder, records)

    monkeypatch.setattr(SourceDecoder, "decode", counting)
    return counts


class Query:
    """Reads as a query does. `read`: what it has read, as rows of partition, offset and the columns of its source."""

    def __init__(self, client: LogClient, shared: SharedReading | None, source: Source = INPUT, begin: int = 0) -> None:
        positions = {TopicPartition("input", partition): begin for partition in range(2)}
        self._source = source
        self.reader = SourceReader(client, [source], positions, shared=shared)
        self.read: list[tuple[Any, ...]] = []
        self.errors: list[tuple[int, int]] = []

    def step(self, max_bytes: int = 1 << 20) -> int:
        batch = self.reader.read(max_bytes)
        if batch is None:
            return 0
        table = batch.inputs[self._source.id].rows
        names = ["_rowpartition", "_offset", "_ts", *(name for name in table.column_names if name[0] == "v")]
        self.read += list(zip(*(table[name].to_pylist() for name in names), strict=True))
        self.errors += [(error.partition, error.offset) for error in batch.errors]
        return batch.record_count

    def drain(self) -> None:
        while self.step():
            pass


def append(client: LogClient, count: int, first: int = 0) -> None:
    for partition in range(2):
        records = [(f"k{n}", {"V": n, "W": f"w{n}"}, 10 * n + partition) for n in range(first, first + count)]
        client.append("input", partition, rows(records))


def alone(client: LogClient, source: Source) -> Query:
    query = Query(client, None, source)
    query.drain()
    return query


def test_records_are_decoded_once_for_all_queries(client: LogClient, decoded: list[int]) -> None:
    shared = SharedReading(client)
    queries = [Query(client, shared, source) for source in (BOTH, ONLY_V, ONLY_W, ONLY_V)]
    for first in range(0, 50, 10):
        append(client, 10, first)
        for query in queries:
            query.drain()
    assert sum(decoded) == 100
    assert shared.kept_bytes == 0
    for query, source in zip(queries, (BOTH, ONLY_V, ONLY_W, ONLY_V), strict=True):
        assert query.read == alone(client, source).read


def test_what_was_decoded_in_parts_comes_to_others_in_one(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_feed, "UNIT_ROWS", 3)
    shared = SharedReading(client)
    at = TopicPartition("input", 0)
    fast, slow = (SourceReader(client, [INPUT], {at: 0}, shared=shared) for _ in range(2))
    append(client, 20)
    for reader, chunks in ((fast, 4), (slow, 1)):
        batch = reader.read(1 << 20)
        assert batch is not None and batch.record_count == 20
        column = batch.inputs[INPUT.id].rows["v1"]
        assert column.to_pylist() == [f"w{n}" for n in range(20)]
        assert column.num_chunks == chunks


def test_a_query_alone_keeps_nothing(client: LogClient) -> None:
    shared = SharedReading(client)
    append(client, 10)
    query = Query(client, shared)
    query.drain()
    assert len(query.read) == 20
    assert shared.kept_bytes == 0


def test_one_that_comes_behind_takes_all_that_others_have_read_at_once(client: LogClient, decoded: list[int]) -> None:
    shared = SharedReading(client)
    fast, slow = Query(client, shared), Query(client, shared)
    for first in range(0, 30, 10):
        append(client, 10, first)
        fast.drain()
    assert slow.step() == 60
    assert sum(decoded) == 60
    assert slow.read == alone(client, INPUT).read


def test_what_is_kept_stays_until_the_last_one_has_passed_it_one_that_joined_later_too(
    client: LogClient, decoded: list[int]
) -> None:
    shared = SharedReading(client)
    fast, slow = Query(client, shared), Query(client, shared)
    append(client, 10)
    fast.drain()
    late = Query(client, shared)
    slow.drain()
    assert shared.kept_bytes > 0
    late.drain()
    assert shared.kept_bytes == 0
    assert sum(decoded) == 20
    assert late.read == slow.read == fast.read


def test_one_that_takes_what_is_kept_and_reads_on_for_all_has_passed_both(
    client: LogClient, decoded: list[int]
) -> None:
    shared = SharedReading(client)
    first, second = Query(client, shared), Query(client, shared)
    append(client, 10)
    first.drain()
    append(client, 10, 10)
    second.drain()
    assert sum(decoded) == 40
    first.drain()
    assert sum(decoded) == 40
    assert shared.kept_bytes == 0
    assert first.read == second.read


def test_one_in_the_middle_of_a_read_takes_the_rest_of_it(client: LogClient) -> None:
    shared = SharedReading(client)
    append(client, 20)
    fast, late = Query(client, shared), Query(client, shared, begin=7)
    fast.drain()
    late.drain()
    assert late.read == [row for row in fast.read if row[1] >= 7]


def test_what_two_have_read_both_is_taken_once(client: LogClient) -> None:
    shared = SharedReading(client)
    fast, slow = (Query(client, shared, ONLY_V) for _ in range(2))
    append(client, 10)
    fast.drain()
    other = Query(client, shared, ONLY_W, begin=5)  # reads a column that the first read does not have
    append(client, 10, 10)
    other.drain()
    slow.drain()
    assert slow.read == alone(client, ONLY_V).read


def test_a_slow_one_reads_for_itself_what_is_kept_no_more(
    client: LogClient, monkeypatch: pytest.MonkeyPatch, decoded: list[int]
) -> None:
    monkeypatch.setattr(shared_reading, "KEPT_BYTES", 2_000)
    shared = SharedReading(client)
    fast, slow = Query(client, shared), Query(client, shared)
    for first in range(0, 100, 10):
        append(client, 10, first)
        fast.drain()
        assert shared.kept_bytes <= 2_000
    slow.drain()
    append(client, 10, 100)
    before = sum(decoded)
    for query in (fast, slow):
        query.drain()
    assert sum(decoded) - before == 20  # together again
    assert slow.read == fast.read


def test_nothing_is_kept_for_long_for_one_that_does_not_come(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reading, "KEPT_S", -1.0)
    shared = SharedReading(client)
    fast, paused = Query(client, shared), Query(client, shared)
    for first in range(0, 30, 10):
        append(client, 10, first)
        fast.drain()
    assert shared.kept_bytes == 0
    paused.drain()
    assert paused.read == fast.read


def test_nothing_is_kept_for_one_that_is_closed_or_for_nobody(client: LogClient) -> None:
    shared = SharedReading(client)
    fast, closed = Query(client, shared), Query(client, shared)
    append(client, 10)
    fast.drain()
    assert shared.kept_bytes > 0
    closed.reader.close()
    append(client, 10, 10)
    fast.drain()
    assert shared.kept_bytes == 0
    append(client, 10, 20)
    others = [Query(client, shared) for _ in range(2)]
    others[0].drain()
    for query in (fast, *others):
        query.reader.close()
    assert shared.kept_bytes == 0
    del fast, closed, others, query
    gc.collect()
    assert not shared._circles


def test_a_record_that_fails_fails_for_the_queries_that_read_its_column_only(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reading, "ALONE_READS", 3)
    shared = SharedReading(client)
    sources = (BOTH, ONLY_V, ONLY_W, BOTH)
    queries = [Query(client, shared, source) for source in sources]
    append(client, 5)
    client.append("input", 0, rows([("k", {"V": "no number", "W": "w"}, 100)]))
    client.append("input", 1, raw(b"{", 101))
    append(client, 5, 20)
    for _ in range(2):
        for query in queries:
            query.step()
    append(client, 5, 30)
    for query in queries:
        query.drain()
    for query, source in zip(queries, sources, strict=True):
        expected = alone(client, source)
        assert query.read == expected.read
        assert query.errors == expected.errors
    assert len(queries[1].errors) == 2
    assert len(queries[2].errors) == 1


def raw(value: bytes, time: int) -> RowRecords:
    table = rows([("k", {"V": 1, "W": "w"}, time)]).table
    return RowRecords(table.set_column(table.column_names.index("value"), "value", [[value]]))


def test_sources_that_differ_read_apart(client: LogClient, decoded: list[int]) -> None:
    shared = SharedReading(client)
    queries = [Query(client, shared, source) for source in (INPUT, replace(INPUT, kind="TABLE"))]
    append(client, 10)
    for query in queries:
        query.drain()
    assert sum(decoded) == 40


def test_a_topic_that_was_created_again_is_another_one(client: LogClient) -> None:
    shared = SharedReading(client)
    append(client, 10)
    first, behind = Query(client, shared), Query(client, shared)
    first.drain()
    client.delete_topic("input")
    client.create_topic("input", 2)
    append(client, 3, 500)
    anew = [Query(client, shared) for _ in range(2)]
    for query in anew:
        query.drain()
        assert query.read == alone(client, INPUT).read
    del behind


def test_queries_in_threads_read_what_each_reads_alone(client: LogClient, decoded: list[int]) -> None:
    shared = SharedReading(client)
    sources = (BOTH, ONLY_V, ONLY_W, BOTH, ONLY_V)
    queries = [Query(client, shared, source) for source in sources]
    done = threading.Event()

    def run(query: Query) -> None:
        while not done.is_set():
            query.step()
        query.drain()

    threads = [threading.Thread(target=run, args=(query,)) for query in queries]
    for thread in threads:
        thread.start()
    for first in range(0, 1000, 20):
        append(client, 20, first)
    done.set()
    for thread in threads:
        thread.join()
    total = sum(decoded)
    _same(client, queries, sources)
    assert total < 5 * 2000


def _same(client: LogClient, queries: Sequence[Query], sources: Sequence[Source]) -> None:
    for query, source in zip(queries, sources, strict=True):
        assert sorted(query.read, key=str) == sorted(alone(client, source).read, key=str)
