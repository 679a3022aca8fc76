"""What DuckDB keeps of buffers that are gone stays little, however long a database is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hand_plans import INPUT, JSON, KAFKA, count_plan, rows

from millstream.executor.answers.materialization import Materialization
from millstream.executor.answers.push_query import PushQuery
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.state import laid_aside
from millstream.executor.state.connection import MEMORY, EngineSettings, lock, open_connection
from millstream.executor.state.databases import SharedDatabases
from millstream.executor.state.laid_aside import LaidAside
from millstream.executor.state.memory_shares import MemoryShares
from millstream.logcore.client import LogClient
from millstream.logcore.log import open_log
from millstream.planner.source_info import SourceInfo

STEPS = 60
NOTES_MAX = 360  # 78, and those of 8 steps more, of which one of a table leaves 34


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 78 notes were worth it, so that a test need not write as many as a day."""
    monkeypatch.setattr(laid_aside, "_BYTES_MIN", 16 * 1024)
    monkeypatch.setattr(laid_aside, "_LOOK_EVERY", 8)
    monkeypatch.setattr(laid_aside, "_PART_OF_MEMORY", 10**6)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    for topic in ("input", "counts"):
        client.create_topic(topic, 1)
    yield client
    client.close()


def notes(connection: duckdb.DuckDBPyConnection) -> int:
    ((count,),) = connection.execute("SELECT sum(dead_nodes) FROM duckdb_eviction_queues()").fetchall()
    return count


def fill(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE t AS SELECT range AS k, 'value ' || range AS v FROM range(500)")
    connection.register("keys", pa.table({"k": list(range(50))}))


def join(connection: duckdb.DuckDBPyConnection) -> None:
    assert len(connection.execute("SELECT v FROM t JOIN keys USING (k)").fetchall()) == 50


@pytest.mark.parametrize("path", ["memory", "file"])
def test_joins_leave_little_and_what_a_database_holds_stays(path: str, tmp_path: Path) -> None:
    with open_connection(MEMORY if path == "memory" else str(tmp_path / "state.duckdb")) as connection:
        aside = LaidAside(connection)
        lock(connection)
        fill(connection)
        for _ in range(STEPS):
            join(connection)
            aside.clear()
        assert notes(connection) < NOTES_MAX
        assert connection.execute("SELECT count(*), sum(k), count(DISTINCT v) FROM t").fetchall() == [
            (500, 124750, 500)
        ]


def test_the_memory_limit_stays_what_it_was(tmp_path: Path) -> None:
    with open_connection(str(tmp_path / "state.duckdb")) as connection:
        (limit,) = connection.execute("SELECT current_setting('memory_limit')").fetchall()
        aside = LaidAside(connection)
        lock(connection)
        aside._take_memory_back()  # nothing is in memory: now the limit of nothing is met
        fill(connection)
        aside._take_memory_back()
        (after,) = connection.execute("SELECT current_setting('memory_limit')").fetchall()
        assert float(after[0].split()[0]) == pytest.approx(float(limit[0].split()[0]), rel=0.05)
        join(connection)


def used_query(client: LogClient, folder: Path) -> Generator[duckdb.DuckDBPyConnection, None, None]:
    with closing(QueryRuntime(count_plan(), client, folder / "state")) as runtime:
        while True:
            assert runtime.step()
            runtime.rest()  # commits its state
            assert runtime._recovered is not None
            yield runtime._recovered.state.connection


def used_push(client: LogClient, _: Path) -> Generator[duckdb.DuckDBPyConnection, None, None]:
    plan = count_plan()
    push = PushQuery(replace(plan, root=plan.root.input), client)  # pyrefly: ignore[missing-attribute]
    while True:
        assert push.poll() is not None
        yield push._connection


def used_table(client: LogClient, _: Path) -> Generator[duckdb.DuckDBPyConnection, None, None]:
    table = Materialization(SourceInfo("INPUT", "TABLE", "input", INPUT, KAFKA, JSON), client)
    while True:
        table.catch_up()
        yield table._connection


@pytest.mark.parametrize(("used", "steps"), [(used_query, STEPS), (used_push, 480), (used_table, STEPS)])
def test_whoever_keeps_rows_for_long_clears_it_away(
    used: Callable[[LogClient, Path], Generator[duckdb.DuckDBPyConnection, None, None]],
    steps: int,
    client: LogClient,
    tmp_path: Path,
) -> None:
    def append(step: int) -> None:
        client.append("input", 0, rows([(f"k{key}", {"V": step, "W": "w"}, step) for key in range(50)]))

    append(0)
    uses = used(client, tmp_path)
    connection = next(uses)
    for step in range(1, steps):
        append(step)
        assert next(uses) is connection
    assert notes(connection) < NOTES_MAX
    uses.close()


def test_statements_of_other_databases_in_the_instance_go_on_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laid_aside, "_LOOK_EVERY", 1)
    monkeypatch.setattr(laid_aside, "_BYTES_MIN", 0)
    shared = SharedDatabases(None)
    settings = EngineSettings(threads=2, shares=MemoryShares(2**30))
    databases = [shared.open(MEMORY, settings) for _ in range(2)]
    for each in databases:
        fill(each.connection)
    done = threading.Event()

    def clear() -> int:
        cleared = 0
        while not done.is_set():
            databases[0].clear_laid_aside()
            cleared += 1
        return cleared

    with ThreadPoolExecutor(1) as pool:
        cleared = pool.submit(clear)
        try:
            for _ in range(100):
                join(databases[1].connection)
        finally:
            done.set()
        assert cleared.result() > 10
    assert notes(databases[1].connection) < NOTES_MAX
    for each in databases:
        each.close()
