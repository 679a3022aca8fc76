"""What pull queries may take, and how long what they look into is kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import MillstreamError
from millstream.executor.answers.pull_limits import PullLimitExceeded
from millstream.executor.partitioning import partitions_of
from millstream.executor.state.databases import BROKEN
from millstream.planner.catalog import Catalog
from millstream.server.engine.materializations import Materializations
from millstream.testing import Sandbox

SOURCES = """
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH (kafka_topic='t', value_format='JSON', partitions=2);
"""
ROWS = ", ".join(f"({number}, {number % 7})" for number in range(100))


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"millstream.pull.full.sql": "true"}) as opened:
        opened.execute(SOURCES)
        opened.execute(f"INSERT INTO s VALUES {ROWS}; INSERT INTO t VALUES {ROWS};")
        yield opened


def ask(sandbox: Sandbox, query: str) -> list[list[object]]:
    return [row["row"]["columns"] for row in sandbox.query(query) if "row" in row]


@pytest.mark.parametrize(
    "query", ["SELECT * FROM t;", "SELECT * FROM s;", "SELECT v, id, COUNT(*) FROM s GROUP BY v, id;"]
)
def test_an_answer_with_too_many_rows_is_refused(sandbox: Sandbox, query: str) -> None:
    sandbox.execute("SET 'millstream.query.pull.max.rows'='99';")
    with pytest.raises(PullLimitExceeded, match="more than 99 rows") as refused:
        ask(sandbox, query)
    assert "millstream.query.pull.max.rows" in (refused.value.hint or "")
    assert len(ask(sandbox, query.replace(";", " LIMIT 99;"))) == 99


@pytest.mark.parametrize("query", ["SELECT * FROM t;", "SELECT * FROM s;", "SELECT id, COUNT(*) FROM s GROUP BY id;"])
def test_an_answer_with_too_many_bytes_is_refused(sandbox: Sandbox, query: str) -> None:
    sandbox.execute("SET 'millstream.query.pull.max.bytes'='200';")
    with pytest.raises(PullLimitExceeded, match="more than 200 bytes") as refused:
        ask(sandbox, query)
    assert "millstream.query.pull.max.bytes" in (refused.value.hint or "")
    assert len(ask(sandbox, query.replace(";", " LIMIT 3;"))) == 3


def test_a_query_that_takes_too_long_is_ended(sandbox: Sandbox) -> None:
    sandbox.execute("SET 'millstream.query.pull.max.seconds'='0';")
    with pytest.raises(PullLimitExceeded, match="longer than 0 seconds"):
        ask(sandbox, "SELECT COUNT(*) FROM s;")


def test_a_query_that_needs_too_much_memory_is_ended(sandbox: Sandbox) -> None:
    sandbox.execute("SET 'millstream.query.pull.max.memory'='1MB';")
    with pytest.raises(PullLimitExceeded, match="more memory than it may take"):
        ask(sandbox, "SELECT id, COLLECT_LIST(v) AS l FROM s GROUP BY id;")


def joined(times: int) -> str:
    """The pairs of 100 rows, of which no two have the same key but all the same text, so many times over."""
    pairs = (f"JOIN s s{number} WITHIN 1 DAY ON s.v - s.v = s{number}.v - s{number}.v" for number in range(times))
    return f"SELECT COUNT(*) FROM s {' '.join(pairs)};"


def test_a_query_under_way_is_ended_and_the_next_one_is_not(sandbox: Sandbox) -> None:
    sandbox.execute("SET 'millstream.query.pull.max.seconds'='0.02';")
    with pytest.raises(PullLimitExceeded, match=r"longer than 0.02 seconds"):
        ask(sandbox, joined(2))
    sandbox.execute("SET 'millstream.query.pull.max.seconds'='60';")
    assert ask(sandbox, joined(1)) == [[10_000]]


def test_a_query_whose_rows_meet_too_often_is_ended(sandbox: Sandbox) -> None:
    """Ten thousand million pairs: they are counted before they are made."""
    sandbox.execute("SET 'millstream.query.pull.max.memory'='256MB';")
    with pytest.raises(PullLimitExceeded, match="more memory than it may take"):
        ask(sandbox, joined(5))
    assert ask(sandbox, "SELECT COUNT(*) FROM s;") == [[100]]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM s WHERE v > 3 ORDER BY id;",
        "SELECT id, v * 2 AS x FROM s ORDER BY x DESC, id LIMIT 5 OFFSET 1;",
        "SELECT id FROM s WHERE v = 100;",
    ],
)
def test_a_stream_too_long_to_be_kept_is_read_from_the_log(sandbox: Sandbox, query: str) -> None:
    kept = ask(sandbox, query)
    sandbox.execute("SET 'millstream.query.pull.max.stream.rows'='99';")
    assert ask(sandbox, query) == kept
    assert len(sandbox.engine._materializations) == 0


def test_a_stream_is_read_no_further_than_its_limit_needs(sandbox: Sandbox) -> None:
    sandbox.execute("SET 'millstream.query.pull.max.stream.rows'='0';")
    assert len(ask(sandbox, "SELECT * FROM s LIMIT 3 OFFSET 2;")) == 3


def test_without_an_order_the_first_rows_are_the_smallest_keys_of_the_first_partition(sandbox: Sandbox) -> None:
    keys = pa.array([number.to_bytes(4, "big") for number in range(100)])
    first = np.flatnonzero(partitions_of(keys, 2) == 0).tolist()
    assert [row[0] for row in ask(sandbox, f"SELECT * FROM t LIMIT {len(first)};")] == first


def test_what_nobody_asks_for_is_let_go(sandbox: Sandbox) -> None:
    now = [0.0]
    kept = Materializations(sandbox.log, clock=lambda: now[0])  # pyrefly: ignore[bad-argument-type]
    catalog = sandbox.engine.catalog
    table = catalog.source("T")
    settings = {"millstream.query.pull.idle.seconds": "300"}
    with kept.using(table, catalog, settings):
        now[0] = 1_000.0
        kept.forget_idle()
        assert len(kept) == 1  # it is in use
    now[0] = 1_299.0
    kept.forget_idle()
    assert len(kept) == 1
    now[0] = 1_300.0
    kept.forget_idle()
    assert len(kept) == 0
    with kept.using(table, catalog, settings) as again:
        assert again.query("SELECT count(*) AS n FROM source").column("n").to_pylist() == [100]
    kept.close()


def test_a_source_that_is_dropped_can_be_read_to_the_end(sandbox: Sandbox) -> None:
    kept = Materializations(sandbox.log)  # pyrefly: ignore[bad-argument-type]
    catalog = sandbox.engine.catalog
    with kept.using(catalog.source("T"), catalog, {}) as table:
        with kept.using(catalog.source("S"), catalog.without_source("T"), {}):
            assert len(kept) == 1  # T is forgotten, and still open for who reads it
        assert table.query("SELECT count(*) AS n FROM source").column("n").to_pylist() == [100]
    with pytest.raises(Exception, match=r"[Cc]losed|connection"):
        table.query("SELECT 1")
    kept.close()


@pytest.mark.parametrize("broken", BROKEN)
def test_a_copy_whose_duckdb_broke_is_made_again(sandbox: Sandbox, broken: type[Exception]) -> None:
    kept = Materializations(sandbox.log)  # pyrefly: ignore[bad-argument-type]
    catalog = sandbox.engine.catalog
    table = catalog.source("T")

    def fail(error: type[Exception]) -> None:
        with kept.using(table, catalog, {}):
            raise error("database has been invalidated because of a previous fatal error")

    with kept.using(table, catalog, {}) as first, pytest.raises(broken):
        fail(broken)
    assert len(kept) == 0
    with kept.using(table, catalog, {}) as again:
        assert again is not first
        assert again.query("SELECT count(*) AS n FROM source").column("n").to_pylist() == [100]
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError)
    assert len(kept) == 1  # other errors are the query's own
    kept.close()


def test_queries_and_drops_at_once_do_not_disturb_each_other(sandbox: Sandbox) -> None:
    kept = Materializations(sandbox.log)  # pyrefly: ignore[bad-argument-type]
    catalog = sandbox.engine.catalog
    failures: list[BaseException] = []

    def look(seen: Catalog) -> None:
        try:
            for _ in range(20):
                with kept.using(catalog.source("T"), seen, {}) as table:
                    assert table.query("SELECT count(*) AS n FROM source").column("n").to_pylist() == [100]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=look, args=(seen,)) for seen in (catalog, catalog, catalog.without_source("T"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept.close()
    assert not failures


def test_values_of_limits_are_checked(sandbox: Sandbox) -> None:
    for name, value in (("max.rows", "0"), ("max.seconds", "soon"), ("idle.seconds", "-1"), ("max.memory", "lots")):
        with pytest.raises(MillstreamError, match="Invalid value"):
            sandbox.execute(f"SET 'millstream.query.pull.{name}'='{value}';")
