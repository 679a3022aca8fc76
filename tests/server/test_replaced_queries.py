"""CREATE OR REPLACE with further columns of a table's rows: new stores are filled from the table's topic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from spark_in_process import SparkInProcess
from waiting import eventually

from millstream.errors import InvalidStatement
from millstream.executor.queries import store_filling
from millstream.executor.queries.query_log import changelog_topic, filling_group
from millstream.executor.queries.store_filling import StoreFilling
from millstream.executor.state.changelog import replay
from millstream.logcore.client import FetchedRows, TopicPartition
from millstream.logcore.failpoints import arm, hits
from millstream.planner.serde import plan_from_json, plan_to_json
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.testing import Sandbox

SETTINGS = {
    "auto.offset.reset": "earliest",
    "millstream.executor": "duckdb",
    "ksql.streams.cache.max.bytes.buffering": "0",
}
DECLARED = """
CREATE TABLE t (id INT PRIMARY KEY, a STRING, b STRING, n INT)
  WITH (kafka_topic='t', value_format='JSON', partitions={0});
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions={0});
CREATE STREAM joined AS SELECT s.id AS id, v, a FROM s {1} JOIN t ON s.id = t.id;
"""
JOINED = "CSAS_JOINED_2"
REPLACED = "CREATE OR REPLACE STREAM joined AS SELECT s.id AS id, v, a, b, n + v AS m FROM s {0} JOIN t ON s.id = t.id;"
BACKFILL = "WITH (BACKFILL='spark') "

Row = Mapping[str, object] | None


def _records(engine: EmbeddedEngine, topic: str) -> list[tuple[bytes, Row]]:
    """The keys and values of all records, partition by partition."""
    found: list[tuple[bytes, Row]] = []
    for partition in range(engine.log.partition_count(topic)):
        for run in engine.log.fetch(topic, partition, 0).runs:
            assert isinstance(run, FetchedRows)
            values = [None if value is None else json.loads(value) for value in run.table["value"].to_pylist()]
            found += zip(run.table["key"].to_pylist(), values, strict=True)
    return found


def _await(engine: EmbeddedEngine, topic: str, count: int) -> list[tuple[bytes, Row]]:
    eventually(lambda: len(_records(engine, topic)) >= count)
    return _records(engine, topic)


def _fill_table(engine: EmbeddedEngine, random: Random) -> dict[int, tuple[str, str | None, int]]:
    """Inserts, updates and deletes rows. Out: the rows that are left."""
    rows: dict[int, tuple[str, str | None, int]] = {}
    statements: list[str] = []
    for number in range(60):
        id = random.randrange(20)
        if id in rows and random.random() < 0.3:
            del rows[id]
            statements.append(f"DELETE FROM t WHERE id = {id};")
            continue
        rows[id] = (f"a{number}", None if number % 7 == 0 else f"b{number}", number)
        values = ", ".join("NULL" if each is None else repr(each) for each in rows[id])
        statements.append(f"INSERT INTO t VALUES ({id}, {values});")
    engine.execute(" ".join(statements), Session())
    return rows


@pytest.mark.parametrize(
    ("partitions", "kind", "restarted"),
    [
        (1, "LEFT", True),
        (2, "INNER", False),
        (6, "LEFT", True),
        pytest.param(1, "INNER", False, marks=pytest.mark.soak),
        pytest.param(2, "LEFT", True, marks=pytest.mark.soak),
        pytest.param(6, "INNER", False, marks=pytest.mark.soak),
    ],
)
def test_a_join_reads_further_columns_of_all_rows_of_its_table(
    tmp_path: Path, partitions: int, kind: str, restarted: bool
) -> None:
    with ExitStack() as engines:
        engine = engines.enter_context(open_engine(tmp_path, SETTINGS, sync="never"))
        engine.execute(DECLARED.format(partitions, kind), Session())
        rows = _fill_table(engine, Random(partitions))
        engine.execute("INSERT INTO s VALUES (100, 0);", Session())
        _read_all(engine, JOINED)
        before = len(_records(engine, "JOINED"))
        engine.execute(REPLACED.format(kind), Session())
        if restarted:
            engines.close()
            engine = engines.enter_context(open_engine(tmp_path, SETTINGS, sync="never"))
        engine.execute(_into_s((id, id) for id in range(20)), Session())
        wanted: list[Row] = [{"V": id, "A": a, "B": b, "M": n + id} for id, (a, b, n) in rows.items()]
        if kind == "LEFT":
            wanted += [{"V": id, "A": None, "B": None, "M": None} for id in range(20) if id not in rows]
        found = _await(engine, "JOINED", before + len(wanted))
        after = [row for _, row in found if row is not None and "M" in row]
        assert sorted(after, key=str) == sorted(wanted, key=str)


def _assert_all_columns_are_joined(engine: EmbeddedEngine, rows: dict[int, tuple[str, str | None, int]]) -> None:
    engine.execute(_into_s((id, 0) for id in rows), Session())
    found = _await(engine, "JOINED", len(rows))
    assert {(row["A"], row["B"], row["M"]) for _, row in found if row is not None} == {*rows.values()}


def test_a_crash_while_stores_are_filled_begins_filling_again(tmp_path: Path) -> None:
    with open_engine(tmp_path, SETTINGS, sync="never") as engine:
        engine.execute(DECLARED.format(2, "INNER"), Session())
        rows = _fill_table(engine, Random(1))
        _read_all(engine, JOINED)
        arm("query.filling:1:raise")
        try:
            engine.execute(REPLACED.format("INNER"), Session())
            eventually(lambda: hits("query.filling") > 0)
        finally:
            arm("")
        _assert_all_columns_are_joined(engine, rows)
        assert StoreFilling.of(engine.log, engine.catalog.queries[JOINED].plan) is None
        assert engine.log.committed_offsets(filling_group(JOINED))
        engine.execute("DROP STREAM joined;", Session())
        eventually(lambda: not engine.log.committed_offsets(filling_group(JOINED)))


@pytest.mark.parametrize("read_bytes", [200, 1 << 24], ids=["between two batches", "after the last one"])
def test_pause_ends_filling_and_resume_begins_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    monkeypatch.setattr(store_filling, "_READ_BYTES", read_bytes)
    with open_engine(tmp_path, SETTINGS, sync="never") as engine:
        engine.execute(DECLARED.format(2, "INNER"), Session())
        rows = _fill_table(engine, Random(1))
        _read_all(engine, JOINED)
        arm("query.filling:1:sleep(500)")
        try:
            engine.execute(REPLACED.format("INNER"), Session())
            eventually(lambda: hits("query.filling") > 0)
            engine.execute(f"PAUSE {JOINED};", Session())
            assert hits("query.filling") == 1
        finally:
            arm("")
        plan = engine.catalog.queries[JOINED].plan
        assert StoreFilling.of(engine.log, plan) is not None
        engine.execute(f"RESUME {JOINED};", Session())
        _assert_all_columns_are_joined(engine, rows)
        assert StoreFilling.of(engine.log, plan) is None


def test_each_replacement_that_keeps_other_columns_has_a_store_of_its_own(tmp_path: Path) -> None:
    with open_engine(tmp_path, SETTINGS, sync="never") as engine:
        engine.execute(DECLARED.format(1, "INNER") + "INSERT INTO t VALUES (1, 'a', 'b', 3);", Session())
        _read_all(engine, JOINED)
        assert "renewal" not in plan_to_json(engine.catalog.queries[JOINED].plan)  # the last release cannot read it
        for expressions, row, number in [
            ("v, LCASE(b) AS a", {"V": 1, "A": "b"}, 1),
            ("v, a", {"V": 1, "A": "a"}, 2),
            ("v, a, v AS w", {"V": 1, "A": "a", "W": 1}, 2),
            ("v, a, v AS w, n", {"V": 1, "A": "a", "W": 1, "N": 3}, 3),
        ]:
            engine.execute(
                f"CREATE OR REPLACE STREAM joined AS SELECT s.id AS id, {expressions} FROM s JOIN t ON s.id = t.id;",
                Session(),
            )
            count = len(_records(engine, "JOINED"))
            engine.execute("INSERT INTO s VALUES (1, 1);", Session())
            assert _await(engine, "JOINED", count + 1)[count:] == [(b"\0\0\0\1", row)]
            assert max(step.store_number for step in engine.catalog.queries[JOINED].plan.steps()) == number
        plan = engine.catalog.queries[JOINED].plan
        assert plan_from_json(plan_to_json(plan)) == plan
        stored: dict[str, bool] = {}  # whether the last row of the key is there
        for change, _ in replay(engine.log, changelog_topic(JOINED), 0, 0):
            stored[change.store] = not change.rows["_deleted"][-1].as_py()
        assert stored == {"join-1": False, "join-1.1": False, "join-1.2": False, "join-1.3": True}


@pytest.mark.parametrize(
    ("partitions", "backfill"),
    [
        (1, BACKFILL),
        (2, BACKFILL),
        (6, ""),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in ((1, ""), (2, ""), (6, BACKFILL))),
    ],
)
def test_a_query_on_spark_fills_its_stores_on_duckdb_and_moves_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, backfill: str
) -> None:
    spark = SparkInProcess(monkeypatch)
    with open_engine(tmp_path / "data", {**SETTINGS, "millstream.executor": "spark"}, sync="never") as engine:
        engine.execute(DECLARED.format(partitions, "INNER"), Session())
        rows = _fill_table(engine, Random(partitions))
        _read_all(engine, JOINED)
        assert spark.driver is not None
        replaced = REPLACED.format("INNER").replace("joined AS", f"joined {backfill}AS")
        engine.execute(replaced + _into_s((id, 0) for id in rows), Session())
        found = _await(engine, "JOINED", len(rows))
        assert {(row["A"], row["B"], row["M"]) for _, row in found if row is not None} == {*rows.values()}
        eventually(lambda: engine.executor.status(JOINED).executor == "spark")
        batches = len(spark.driver.record_counts)
        engine.execute(_into_s((id, 1) for id in rows), Session())
        found = _await(engine, "JOINED", 2 * len(rows))
        assert len(found) == 2 * len(rows)
        assert {(row["A"], row["M"]) for _, row in found if row is not None and row["V"] == 1} == {
            (a, n + 1) for a, _, n in rows.values()
        }
        assert len(spark.driver.record_counts) > batches


def test_a_store_that_is_no_longer_needed_is_not_filled(tmp_path: Path) -> None:
    with open_engine(tmp_path, SETTINGS, sync="never") as engine:
        table = DECLARED.format(1, "").split(";")[0]
        engine.execute(f"{table}; CREATE TABLE few AS SELECT id, a FROM t; PAUSE CTAS_FEW_1;", Session())
        for condition in ("WHERE a <> 'no'", ""):
            engine.execute(f"CREATE OR REPLACE TABLE few AS SELECT id, a FROM t {condition};", Session())
        plan = engine.catalog.queries["CTAS_FEW_1"].plan
        assert max(step.store_number for step in plan.steps()) == 1
        assert StoreFilling.of(engine.log, plan) is None


@pytest.mark.parametrize("restarted", [False, True])
def test_a_filter_of_a_table_reads_further_columns_of_its_rows(tmp_path: Path, restarted: bool) -> None:
    with ExitStack() as engines:
        engine = engines.enter_context(open_engine(tmp_path, SETTINGS, sync="never"))
        table = DECLARED.format(2, "").split(";")[0]
        engine.execute(
            f"{table}; CREATE TABLE few AS SELECT id, a FROM t WHERE a <> 'no';"
            "CREATE TABLE per AS SELECT a, COUNT(*) AS c FROM t WHERE a <> 'no' GROUP BY a;"
            "INSERT INTO t VALUES (1, 'x', 'y', 1); INSERT INTO t VALUES (2, 'x', 'z', 2);",
            Session(),
        )
        _await(engine, "FEW", 2)
        _await(engine, "PER", 2)
        per = "CREATE OR REPLACE TABLE per AS SELECT a, COUNT(*) AS c FROM t WHERE b IN ('y', 'z') GROUP BY a;"
        engine.execute(f"CREATE OR REPLACE TABLE few AS SELECT id, a FROM t WHERE b = 'y'; {per}", Session())
        if restarted:
            engines.close()
            engine = engines.enter_context(open_engine(tmp_path, SETTINGS, sync="never"))
        engine.execute("INSERT INTO t VALUES (1, 'x', 'no', 1); INSERT INTO t VALUES (2, 'w', 'y', 2);", Session())
        assert dict(_await(engine, "FEW", 4)) == {b"\0\0\0\1": None, b"\0\0\0\2": {"A": "w"}}
        assert dict(_await(engine, "PER", 5)) == {b"x": {"C": 0}, b"w": {"C": 1}}


TABLES = """
CREATE TABLE a (id INT PRIMARY KEY, x INT, y INT) WITH (kafka_topic='a', value_format='JSON', partitions={0});
CREATE TABLE b (id INT PRIMARY KEY, n STRING, m INT) WITH (kafka_topic='b', value_format='JSON', partitions={0});
"""
BY_KEY, BY_FOREIGN_KEY = "FROM a {} JOIN b ON a.id = b.id", "FROM a {} JOIN b ON a.x = b.id"


@pytest.mark.parametrize(
    ("join", "kind", "restarted", "partitions"),
    [
        (BY_KEY, "FULL", True, 6),
        (BY_KEY, "FULL", True, 1),
        (BY_FOREIGN_KEY, "LEFT", False, 2),
        (BY_FOREIGN_KEY, "LEFT", False, 6),
        (BY_FOREIGN_KEY, "", True, 1),
        (BY_FOREIGN_KEY, "", True, 2),
        pytest.param(BY_KEY, "FULL", True, 2, marks=pytest.mark.soak),
        pytest.param(BY_FOREIGN_KEY, "LEFT", False, 1, marks=pytest.mark.soak),
        pytest.param(BY_FOREIGN_KEY, "", True, 6, marks=pytest.mark.soak),
    ],
)
def test_a_join_of_tables_reads_further_columns_of_both(
    tmp_path: Path, partitions: int, join: str, kind: str, restarted: bool
) -> None:
    """Then each row of one side is written again, so that it meets what is stored of the other side."""
    key = "ROWKEY AS id" if kind == "FULL" else "a.id AS id"
    select, random = join.format(kind), Random(partitions)
    left = {id: (random.choice([0, 1, 2, 3, None]), id + 100) for id in range(12)}
    right = {id: (f"n{id}", id + 200) for id in range(2, 9)}
    with ExitStack() as engines:
        engine = engines.enter_context(open_engine(tmp_path, SETTINGS, sync="never"))
        engine.execute(
            TABLES.format(partitions) + f"CREATE TABLE j AS SELECT {key}, x, n {select};" + _rows("b", right), Session()
        )
        gone = "DELETE FROM a WHERE id = 50; DELETE FROM b WHERE id = 8;"
        engine.execute(_rows("a", {**left, 50: (2, 0)}) + gone, Session())
        del right[8]
        _read_all(engine, "CTAS_J_2")
        columns, condition = f"{key}, x, n, y, m", "IFNULL(y, 0) < 110"
        engine.execute(f"CREATE OR REPLACE TABLE j AS SELECT {columns} {select} WHERE {condition};", Session())
        if restarted:
            engines.close()
            engine = engines.enter_context(open_engine(tmp_path, SETTINGS, sync="never"))
        right = {id: (f"again{id}", m) for id, (_, m) in right.items()}
        left[0], left[11] = (3, 1), (2, 2)
        engine.execute(_rows("b", right) + _rows("a", {0: left[0], 11: left[11]}), Session())
        _read_all(engine, "CTAS_J_2")
        wanted: dict[int, Mapping[str, object]] = {}
        for id in {*left, *right} if kind == "FULL" else left:
            x, y = left.get(id, (None, None))
            partner = id if join == BY_KEY else x
            if (partner in right or kind) and (y or 0) < 110:
                n, m = right.get(partner, (None, None)) if partner is not None else (None, None)
                wanted[id] = {"X": x, "N": n, "Y": y, "M": m}
        changed = {int.from_bytes(key): row for key, row in _records(engine, "J") if row is None or "M" in row}
        touched = {id for id in wanted if id in (0, 11) or wanted[id]["N"] is not None}
        assert {id: changed.get(id) for id in touched} == {id: wanted[id] for id in touched}


def _rows(table: str, rows: Mapping[int, tuple[object, object]]) -> str:
    def literal(value: object) -> str:
        return "NULL" if value is None else repr(value)

    values = (f"({id}, {', '.join(map(literal, row))})" for id, row in rows.items())
    return f"INSERT INTO {table} VALUES {', '.join(values)};"


def _into_s(rows: Iterable[tuple[int, int]]) -> str:
    return f"INSERT INTO s VALUES {', '.join(map(str, rows))};"


def _read_all(engine: EmbeddedEngine, query_id: str) -> None:
    """Waits until the query has read its topics, and has written what comes of it."""
    topics = {source.topic for source in engine.catalog.queries[query_id].plan.sources()}
    lanes = [TopicPartition(topic, n) for topic in topics for n in range(engine.log.partition_count(topic))]

    def lag() -> int:
        committed = engine.log.committed_offsets(query_id)
        return sum(engine.log.offsets(*at).last_stable_offset - max(0, committed.get(at, 0)) for at in lanes)

    eventually(lambda: lag() == 0)


EXPIRING = TABLES.replace("partitions={0});", "partitions={0}, ttl='10 SECONDS');", 1)
BY_EXPRESSION = "SELECT x + {0} AS g, COUNT(*) AS c FROM a GROUP BY x + {0}"
ON_EXPRESSION = "SELECT a.id AS id, x, n FROM a JOIN b ON a.x + {} = b.id"
OF_EXPRESSION = "WITH p AS (SELECT id, y + {} AS v FROM a) SELECT p.id AS id, v, n FROM p JOIN b ON p.id = b.id"
ON_COLUMN = "SELECT a.id AS id, x, y, n FROM a JOIN b ON a.{} = b.id"


@pytest.mark.parametrize(
    ("query", "other"),
    [
        ("SELECT y AS g, COUNT(*) AS c FROM a GROUP BY y", "SELECT x AS g, COUNT(*) AS c FROM a GROUP BY x"),
        (BY_EXPRESSION.format(1), BY_EXPRESSION.format(2)),
        ("SELECT y, SUM(x) AS c FROM a GROUP BY y", "SELECT y, SUM(x * 2) AS c FROM a GROUP BY y"),
        ("SELECT y, SUM(x + 1) AS c FROM a GROUP BY y", "SELECT y, SUM(x + 2) AS c FROM a GROUP BY y"),
        (ON_COLUMN.format("x"), ON_COLUMN.format("y")),
        (ON_EXPRESSION.format(1), ON_EXPRESSION.format(2)),
        (OF_EXPRESSION.format(1), OF_EXPRESSION.format(2)),
        (ON_COLUMN.format("x"), ON_COLUMN.format("y").replace(", n", ", n, m")),
    ],
)
def test_a_replacement_that_would_mix_states_is_refused(query: str, other: str) -> None:
    """The state was stored by other keys, or is the sum of something else."""
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(TABLES.format(2) + f"CREATE TABLE j AS {query};")
        with pytest.raises(InvalidStatement, match="its grouping, aggregates, windows or joins would change"):
            sandbox.execute(f"CREATE OR REPLACE TABLE j AS {other};")
        head, _, tail = query.rpartition(" FROM ")
        sandbox.execute(f"CREATE OR REPLACE TABLE j AS {head}, 1 AS one FROM {tail};")


def test_conditions_on_results_come_and_go() -> None:
    grouped = "TABLE g AS SELECT y, SUM(x) AS c FROM a GROUP BY y{};"
    joined = "TABLE j AS SELECT a.id AS id, x, n FROM a JOIN b ON a.x = b.id{};"
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(TABLES.format(2) + f"CREATE {grouped.format('')} CREATE {joined.format('')}")
        sandbox.execute(_rows("b", {1: ("one", 1), 2: ("two", 2)}) + _rows("a", {1: (1, 7), 2: (2, 7), 3: (1, 8)}))
        sandbox.drain()
        sandbox.execute(f"CREATE OR REPLACE {grouped.format(' HAVING SUM(x) > 2')}")
        sandbox.execute(f"CREATE OR REPLACE {joined.format(' WHERE x > 1')}")
        sandbox.execute(_rows("a", {3: (4, 8), 2: (0, 7), 1: (2, 9)}))
        sandbox.drain()
        last = {topic: {each["key"]: each["value"] for each in sandbox.consume(topic)} for topic in ("G", "J")}
        assert last["G"] == {7: None, 8: {"C": 4}}
        assert last["J"] == {1: {"X": 2, "N": "two"}, 2: None, 3: None}


@pytest.mark.parametrize(
    ("declared", "query", "other", "problem"),
    [
        (
            EXPIRING,
            "SELECT id, x FROM a WHERE x > 0",
            "SELECT id, x FROM a WHERE y > 0",
            "it would filter by Y, which it does not know",
        ),
        (
            EXPIRING,
            "SELECT b.id AS id, n, x FROM b JOIN a ON b.id = a.id",
            "SELECT b.id AS id, n, x, y FROM b JOIN a ON b.id = a.id",
            "its join would need A_Y, which it does not know",
        ),
        (
            TABLES,
            "WITH g AS (SELECT x, COUNT(*) AS c FROM a GROUP BY x) SELECT b.id AS id, c FROM b JOIN g ON b.id = g.x",
            "WITH g AS (SELECT x, COUNT(*) AS c FROM a GROUP BY x) SELECT b.id AS id, c, m FROM b JOIN g ON b.id = g.x",
            "its join would need B_M, which it does not know",
        ),
    ],
)
def test_rows_that_depend_on_what_came_before_them_are_not_read_again(
    declared: str, query: str, other: str, problem: str
) -> None:
    """Which rows have expired, and what an aggregate has counted, depends on all that was read, and in which order."""
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(declared.format(2) + f"CREATE TABLE j AS {query};")
        with pytest.raises(InvalidStatement, match=problem):
            sandbox.execute(f"CREATE OR REPLACE TABLE j AS {other};")


def test_columns_that_the_topic_no_longer_has_of_all_rows_are_refused(tmp_path: Path) -> None:
    with open_engine(tmp_path, SETTINGS, sync="never") as engine:
        engine.execute(DECLARED.format(1, "INNER"), Session())
        engine.execute("INSERT INTO t VALUES (1, 'a', 'b', 3); INSERT INTO t VALUES (2, 'a', 'b', 3);", Session())
        _read_all(engine, JOINED)
        engine.log.delete_records("t", 0, 1)
        with pytest.raises(InvalidStatement, match="topic t no longer has all records to read them from") as refused:
            engine.execute(REPLACED.format("INNER"), Session())
        assert "Drop the query's stream and create it again" in str(refused.value.hint)
        engine.execute(
            "CREATE OR REPLACE STREAM joined AS SELECT s.id AS id, v, a, v AS w FROM s JOIN t ON s.id = t.id;",
            Session(),
        )


@pytest.mark.parametrize("partitions", [1, 2, 6])
def test_a_sandbox_fills_new_stores(partitions: int) -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(DECLARED.format(partitions, "INNER"))
        sandbox.execute("INSERT INTO t VALUES (1, 'a', 'b', 3); INSERT INTO t VALUES (2, 'c', 'd', 4);")
        sandbox.execute("INSERT INTO t (id, a) VALUES (2, 'e');")
        sandbox.drain()
        sandbox.execute(REPLACED.format("INNER"))
        sandbox.execute("INSERT INTO s VALUES (1, 1); INSERT INTO s VALUES (2, 1); INSERT INTO s VALUES (3, 1);")
        sandbox.drain()
        assert [record["value"] for record in sandbox.consume("JOINED")] == [
            {"V": 1, "A": "a", "B": "b", "M": 4},
            {"V": 1, "A": "e", "B": None, "M": None},
        ]
