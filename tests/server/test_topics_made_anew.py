"""A topic that is deleted, or deleted and created again, under a query: the query stops and says what to do, whether it
runs meanwhile or comes back later; RESUME goes on with the new topic, RESET begins anew."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from waiting import eventually

from millstream.executor.queries.query_log import topics_group
from millstream.logcore.client import FetchedRows
from millstream.logcore.log import Log, open_log
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

PROPERTIES = {"ksql.streams.cache.max.bytes.buffering": "0", "millstream.executor": "duckdb"}
COPY, COUNT = "CSAS_O_1", "CTAS_T_2"


@contextmanager
def running(folder: Path, offset_reset: str = "earliest") -> Generator[EmbeddedEngine]:
    with open_engine(folder, {**PROPERTIES, "auto.offset.reset": offset_reset}, sync="never") as engine:
        yield engine


def begin(engine: EmbeddedEngine, partitions: int) -> None:
    """Four records of one key, and their results."""
    engine.execute(
        f"CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', format='JSON', partitions={partitions});"
        "CREATE STREAM o AS SELECT k, v FROM s; CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;",
        Session(),
    )
    insert(engine, 4)
    eventually(lambda: written(engine) == ([1, 2, 3, 4], [1, 2, 3, 4]))


def insert(engine: EmbeddedEngine, count: int) -> None:
    for v in range(count):
        engine.execute(f"INSERT INTO s (k, v) VALUES (7, {v + 1});", Session())


def written(engine: EmbeddedEngine) -> tuple[list[int], list[int]]:
    """What the two queries have written, in order."""
    return values(engine, "O", "V"), values(engine, "T", "N")


def values(engine: EmbeddedEngine, topic: str, name: str) -> list[int]:
    found: list[Any] = []
    if topic in engine.log.topics():
        for partition in range(engine.log.topics()[topic].partition_count):
            for run in engine.log.fetch(topic, partition, 0).runs:
                assert isinstance(run, FetchedRows)
                found += [json.loads(value)[name] for value in run.table["value"].to_pylist()]
    return found


def error(engine: EmbeddedEngine, query_id: str) -> str:
    """Of a query that has stopped."""
    eventually(lambda: engine.executor.status(query_id).state == "ERROR")
    return engine.executor.status(query_id).error or ""


def make_anew(log: Any, *topics: str, partitions: int) -> None:
    for topic in topics:
        log.delete_topic(topic)
        log.create_topic(topic, partitions)


def resume(engine: EmbeddedEngine, *query_ids: str) -> None:
    for query_id in query_ids:
        engine.execute(f"RESUME {query_id};", Session())
        assert engine.executor.status(query_id).error is None


@pytest.mark.parametrize("partitions", [1, 6])
def test_a_source_that_was_made_anew_stops_its_queries_and_resume_reads_it_from_its_beginning(
    tmp_path: Path, partitions: int
) -> None:
    with running(tmp_path, "latest") as engine:
        begin(engine, partitions)
        make_anew(engine.log, "s", partitions=partitions)
        insert(engine, 1)
        for query_id, state in ((COPY, ""), (COUNT, ", and keeps its state")):
            said = error(engine, query_id)  # the query may have looked before the new topic was there
            assert said.startswith(f'topic "s", which query {query_id} reads, was deleted')
            assert said.endswith(
                f"RESUME {query_id}; lets the query go on: it reads the new topic from its first record{state}. "
                f"RESET {query_id}; computes everything anew from what its sources hold."
            )
        assert written(engine) == ([1, 2, 3, 4], [1, 2, 3, 4])
        resume(engine, COPY, COUNT)
        insert(engine, 1)
        eventually(lambda: written(engine) == ([1, 2, 3, 4, 1, 1], [1, 2, 3, 4, 5, 6]))


@pytest.mark.parametrize("partitions", [1, 6])
def test_a_restart_does_not_take_another_topic_for_the_one_before(tmp_path: Path, partitions: int) -> None:
    with running(tmp_path, "latest") as engine:
        begin(engine, partitions)
    with open_log(tmp_path / "log", sync="never") as log:
        make_anew(log, "s", partitions=partitions)
    with running(tmp_path, "latest") as engine:
        insert(engine, 1)
        assert 'topic "s", which query CSAS_O_1 reads, was deleted and created again' in error(engine, COPY)
        assert "keeps its state" in error(engine, COUNT)
        resume(engine, COPY, COUNT)
        eventually(lambda: written(engine) == ([1, 2, 3, 4, 1], [1, 2, 3, 4, 5]))
    with running(tmp_path, "latest") as engine:  # what RESUME has accepted, the next start accepts
        insert(engine, 1)
        eventually(lambda: written(engine) == ([1, 2, 3, 4, 1, 1], [1, 2, 3, 4, 5, 6]))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_sink_that_was_made_anew_stops_its_query_before_it_writes_there(tmp_path: Path, restarts: bool) -> None:
    with running(tmp_path) as engine:
        begin(engine, 2)
        if not restarts:
            make_anew(engine.log, "O", "T", partitions=2)
            sinks_were_made_anew(engine)
    if restarts:
        with open_log(tmp_path / "log", sync="never") as log:
            make_anew(log, "O", "T", partitions=2)
        with running(tmp_path) as engine:
            sinks_were_made_anew(engine)


def sinks_were_made_anew(engine: EmbeddedEngine) -> None:
    insert(engine, 1)
    assert 'topic "O", which query CSAS_O_1 writes, was deleted and created again. RESUME CSAS_O_1;' in error(
        engine, COPY
    )
    assert "the new topic has only what it writes from then on, and keeps its state." in error(engine, COUNT)
    assert written(engine) == ([], [])
    resume(engine, COPY, COUNT)
    insert(engine, 1)
    eventually(lambda: written(engine) == ([1, 1], [5, 6]))


def test_the_notes_are_not_among_the_groups_that_are_listed(tmp_path: Path) -> None:
    with running(tmp_path) as engine:
        begin(engine, 1)
        assert {at.topic for at in engine.log.committed_offsets(topics_group(COPY))} == {"s", "O"}
        listed = cast(Log, engine.log).served.groups.names()
    assert COPY in listed
    assert topics_group(COPY) not in listed


def test_a_topic_that_is_gone_is_missed_until_it_is_there_again(tmp_path: Path) -> None:
    with running(tmp_path) as engine:
        begin(engine, 2)
        engine.log.delete_topic("T")
        insert(engine, 1)
        assert error(engine, COUNT).startswith(
            'topic "T", which query CTAS_T_2 writes, was deleted. Create it with 2 partitions again. Then RESUME'
        )
        eventually(lambda: values(engine, "O", "V") == [1, 2, 3, 4, 1])
        engine.log.delete_topic("s")
        assert 'topic "s", which query CSAS_O_1 reads, was deleted. Create it with' in error(engine, COPY)
        engine.execute(f"RESUME {COUNT};", Session())
        assert ". Create it with 2 partitions" in error(engine, COUNT)
        for topic in ("s", "T"):
            engine.log.create_topic(topic, 2)
        resume(engine, COPY, COUNT)
        insert(engine, 2)
        eventually(lambda: written(engine) == ([1, 2, 3, 4, 1, 1, 2], [5, 6]))


def test_reset_computes_a_new_sink_from_the_sources(tmp_path: Path) -> None:
    with running(tmp_path) as engine:
        begin(engine, 2)
        make_anew(engine.log, "T", partitions=2)
        insert(engine, 1)
        error(engine, COUNT)
        engine.execute(f"RESET {COUNT};", Session())
        eventually(lambda: values(engine, "T", "N") == [1, 2, 3, 4, 5])
        engine.log.delete_topic("T")
        engine.execute(f"RESET {COUNT};", Session())
        assert ". Create it with 2 partitions" in error(engine, COUNT)
        engine.log.create_topic("T", 2)
        engine.execute(f"RESUME {COUNT};", Session())
        eventually(lambda: values(engine, "T", "N") == [1, 2, 3, 4, 5])
