"""CREATE FUNCTION: what it needs, what it refuses, and that queries keep the text they were started with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from millstream.errors import MillstreamError, SqlSyntaxError, StatementError
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.testing import Sandbox

ORDERS = """
CREATE STREAM orders (id STRING KEY, amount BIGINT, tags ARRAY<STRING>)
  WITH (kafka_topic='orders', value_format='JSON', partitions=1);
"""
ALLOWED = "millstream.functions.python.enabled"


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        made.execute(ORDERS)
        yield made


def insert(sandbox: Sandbox, *rows: str) -> None:
    sandbox.execute("".join(f"INSERT INTO orders (id, amount, tags) VALUES ({row});" for row in rows))
    sandbox.drain()


def values(sandbox: Sandbox, topic: str) -> list[Any]:
    return [record["value"] for record in sandbox.consume(topic)]


def refused(sandbox: Sandbox, statement: str) -> str:
    with pytest.raises(StatementError) as caught:
        sandbox.execute(statement)
    return caught.value.render()


def test_functions_of_all_kinds_compute_in_queries(sandbox: Sandbox) -> None:
    sandbox.execute("""
        CREATE FUNCTION plus(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE PYTHON AS $$ return a + b $$;
        CREATE FUNCTION answer() RETURNS INT LANGUAGE PYTHON AS $$ 42 $$;
        CREATE TABLE FUNCTION words(line STRING) RETURNS STRING LANGUAGE PYTHON AS $$ line.split() $$;
        CREATE AGGREGATE FUNCTION longest(tags ARRAY<STRING>) RETURNS INT LANGUAGE PYTHON AS $$
            class Longest:
                def init(self): return 0
                def add(self, state, tags): return max(state, len(tags))
                def merge(self, a, b): return max(a, b)
                def result(self, state): return state
        $$;
        CREATE STREAM sums AS SELECT id, plus(amount, answer()) AS n FROM orders;
        CREATE STREAM split AS SELECT id, words('a b') AS w FROM orders;
        CREATE TABLE most AS SELECT id, longest(tags) AS n FROM orders WINDOW SESSION (1 HOUR) GROUP BY id;
    """)
    insert(sandbox, "'x', 1, ARRAY['p']", "'x', NULL, ARRAY['p', 'q']")
    assert values(sandbox, "SUMS") == [{"N": 43}, {"N": None}]
    assert values(sandbox, "SPLIT") == [{"W": "a"}, {"W": "b"}] * 2
    assert values(sandbox, "MOST")[-1] == {"N": 2}
    rows = [row["row"]["columns"] for row in sandbox.query("SELECT plus(amount, 1) FROM orders;") if "row" in row]
    assert rows == [[2], [None]]


def test_functions_are_constants_of_insert_and_conditions_of_where(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE FUNCTION half(a BIGINT) RETURNS BIGINT AS 'a // 2';")
    sandbox.execute("CREATE STREAM even AS SELECT * FROM orders WHERE half(amount) * 2 = amount;")
    insert(sandbox, "'x', half(9), NULL", "'x', 5, NULL")
    assert [value["AMOUNT"] for value in values(sandbox, "EVEN")] == [4]


def test_functions_stand_in_every_clause(sandbox: Sandbox) -> None:
    sandbox.execute("""
        CREATE FUNCTION odd(a BIGINT) RETURNS BOOLEAN AS $$ a % 2 == 1 $$;
        CREATE FUNCTION plus(a BIGINT, b BIGINT) RETURNS BIGINT AS $$ a + b $$;
        CREATE TABLE counts AS SELECT id, SUM(plus(amount, 1)) FILTER (WHERE odd(amount)) AS n FROM orders
          GROUP BY id HAVING odd(COUNT(*));
        CREATE STREAM inner_ones AS SELECT id, plus(n, 1) AS m
          FROM (SELECT id, plus(amount, 10) AS n FROM orders) q WHERE odd(n);
    """)
    insert(sandbox, "'x', 1, NULL", "'x', 2, NULL", "'x', 3, NULL")
    assert values(sandbox, "COUNTS") == [{"N": 2}, None, {"N": 6}]
    assert values(sandbox, "INNER_ONES") == [{"M": 12}, {"M": 14}]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id, (SELECT MAX(twice(amount)) FROM orders) AS n FROM orders WHERE amount = 2", [["b", 4]]),
        ("SELECT id FROM orders WHERE amount IN (SELECT twice(amount) FROM orders)", [["b"]]),
        ("SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM orders o WHERE twice(o.amount) = orders.amount)", [["b"]]),
        ("SELECT id FROM orders o WHERE amount = (SELECT MAX(x) FROM (SELECT twice(amount) AS x FROM orders) q) - 2",
         [["b"]]),
    ],
)  # fmt: skip
def test_functions_stand_in_queries_within_expressions(sandbox: Sandbox, query: str, expected: list[list[Any]]) -> None:
    sandbox.execute("CREATE FUNCTION twice(a BIGINT) RETURNS BIGINT LANGUAGE PYTHON AS $$ a * 2 $$;")
    sandbox.execute("SET 'millstream.pull.full.sql'='true';")
    insert(sandbox, "'a', 1, ARRAY['x']", "'b', 2, ARRAY['y']")
    assert [line["row"]["columns"] for line in sandbox.query(query + ";") if "row" in line] == expected


def test_messages_call_functions_by_their_names(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE FUNCTION f(a BIGINT) RETURNS BIGINT AS $$ a $$;")
    for statement in (
        "CREATE TABLE t AS SELECT id, f(amount), COUNT(*) FROM orders GROUP BY id;",
        "CREATE STREAM t AS SELECT id, f(f(tags)) AS n FROM orders;",
        "CREATE STREAM t AS SELECT id FROM orders WHERE f(amount);",
    ):
        message = refused(sandbox, statement)
        assert "F" in message
        assert "USER_F" not in message


def test_a_row_that_fails_is_null_and_stands_in_the_processing_log(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE FUNCTION inverse(a BIGINT) RETURNS DOUBLE AS $$ 1 / a $$;")
    sandbox.execute("CREATE STREAM inverses AS SELECT id, inverse(amount) AS n FROM orders;")
    insert(sandbox, "'x', 2, NULL", "'x', 0, NULL", "'x', 4, NULL")
    assert values(sandbox, "INVERSES") == [{"N": 0.5}, {"N": None}, {"N": 0.25}]
    (entry,) = values(sandbox, "default_ksql_processing_log")
    error = json.loads(entry)["message"]["recordProcessingError"]
    assert error["errorMessage"].startswith("function INVERSE failed: ZeroDivisionError")
    assert error["record"] == "(0)"


def test_a_constant_that_fails_is_refused(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE FUNCTION inverse(a BIGINT) RETURNS BIGINT AS $$ 1 // a $$;")
    assert "function INVERSE failed" in refused(sandbox, "INSERT INTO orders (amount) VALUES (inverse(0));")


def test_a_query_keeps_the_version_it_was_started_with(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE FUNCTION f(a BIGINT) RETURNS BIGINT AS $$ a + 1 $$;")
    sandbox.execute("CREATE STREAM old AS SELECT id, f(amount) AS n FROM orders;")
    (answer,) = sandbox.execute("CREATE OR REPLACE FUNCTION f(a BIGINT) RETURNS BIGINT AS $$ a + 100 $$;")
    assert "CSAS_OLD_2 keep the version they were started with" in answer["commandStatus"]["message"]
    sandbox.execute("CREATE STREAM new AS SELECT id, f(amount) AS n FROM orders;")
    insert(sandbox, "'x', 1, NULL")
    assert values(sandbox, "OLD") == [{"N": 2}]
    assert values(sandbox, "NEW") == [{"N": 101}]


def test_a_function_is_dropped_once_no_query_calls_it(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE FUNCTION f(a BIGINT) RETURNS BIGINT AS $$ a + 1 $$;")
    sandbox.execute("CREATE STREAM s AS SELECT id, f(amount) AS n FROM orders;")
    assert "the following queries call it: [CSAS_S_2]" in refused(sandbox, "DROP FUNCTION f;")
    sandbox.execute("TERMINATE CSAS_S_2; DROP FUNCTION f; DROP FUNCTION IF EXISTS f;")
    assert "Can't find any functions" in refused(sandbox, "CREATE STREAM t AS SELECT id, f(amount) AS n FROM orders;")
    assert "does not exist" in refused(sandbox, "DROP FUNCTION f;")
    assert "is built in" in refused(sandbox, "DROP FUNCTION abs;")


def test_functions_are_listed_and_described(sandbox: Sandbox) -> None:
    sandbox.execute('CREATE FUNCTION f(a BIGINT) RETURNS STRING AS $$\ndef f(a):\n  "Says it."\n  return str(a)\n$$;')
    (listed,) = sandbox.execute("SHOW FUNCTIONS;")
    assert {"name": "F", "type": "SCALAR", "category": "USER"} in listed["functions"]
    (page,) = sandbox.execute("DESCRIBE FUNCTION f;")
    assert page["description"] == "Says it."
    assert page["functions"][0]["returnType"] == "STRING"
    assert 'Did you mean "F"?' in refused(sandbox, "DESCRIBE FUNCTION ff;")


def test_a_mistake_in_the_text_is_shown_within_the_statement(sandbox: Sandbox) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        sandbox.execute("CREATE FUNCTION f(a INT) RETURNS INT AS $$\n  b = 1\n  return a + c\n$$;")
    assert caught.value.render().splitlines() == [
        'error: the name "c" is not defined',
        "  3 |   return a + c",
        "    |              ^",
        "hint: If it is a module, add: import c",
    ]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE FUNCTION abs(a INT) RETURNS INT AS $$ a $$;", "built-in function"),
        ("CREATE FUNCTION `a b`(a INT) RETURNS INT AS $$ a $$;", "cannot be the name"),
        ("CREATE FUNCTION f(a INT, a INT) RETURNS INT AS $$ a $$;", "named twice"),
        ("CREATE FUNCTION f(`class` INT) RETURNS INT AS $$ 1 $$;", "cannot be the name of an argument"),
        ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE java AS $$ a $$;", "not written in JAVA"),
        ("CREATE FUNCTION f(a INT) RETURNS NOTHING AS $$ a $$;", "unknown type: NOTHING"),
        ("CREATE FUNCTION f(a INT) RETURNS INT;", "expected"),
        ("CREATE FUNCTION f(a INT) RETURNS INT STATE INT AS $$ a $$;", "only an aggregate has a STATE"),
        ("CREATE FUNCTION f(a INT) RETURNS INT WITH (speed = 1) AS $$ a $$;", "no property SPEED"),
        ("CREATE FUNCTION f() RETURNS INT WITH (vectorized = true) AS $$ 1 $$;", "at least one argument"),
        ("CREATE FUNCTION f(a INT) RETURNS INT AS $$ return a", "has no end"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(sandbox: Sandbox, statement: str, message: str) -> None:
    assert message in refused(sandbox, statement)
    assert not any(line["category"] == "USER" for line in sandbox.execute("SHOW FUNCTIONS;")[0]["functions"])


def test_creating_it_again_needs_or_replace(sandbox: Sandbox) -> None:
    create = "FUNCTION {}f(a INT) RETURNS INT AS $$ a $$;"
    sandbox.execute("CREATE " + create.format(""))
    assert "already exists" in refused(sandbox, "CREATE " + create.format(""))
    (warned,) = sandbox.execute("CREATE " + create.format("IF NOT EXISTS "))
    assert warned["@type"] == "warning_entity"


def test_an_aggregate_works_where_its_methods_let_it(sandbox: Sandbox) -> None:
    sandbox.execute("""CREATE AGGREGATE FUNCTION total(x BIGINT) RETURNS BIGINT AS $$
        class Total:
            def init(self): return 0
            def add(self, state, x): return state + x
            def result(self, state): return state
        $$;
        CREATE TABLE t AS SELECT id, total(amount) AS n FROM orders GROUP BY id;""")
    insert(sandbox, "'x', 1, NULL", "'x', 5, NULL")
    assert values(sandbox, "T")[-1] == {"N": 6}
    session = "CREATE TABLE u AS SELECT id, total(amount) AS n FROM orders WINDOW SESSION (1 HOUR) GROUP BY id;"
    assert "merge(self, a, b)" in refused(sandbox, session)
    assert "TOTAL cannot be applied to a table" in refused(
        sandbox, "CREATE TABLE v AS SELECT n, total(n) AS m FROM t GROUP BY n;"
    )


# ------------------------------------------------------------------ servers


def engine_in(folder: Path, **properties: str) -> EmbeddedEngine:
    return open_engine(folder, {"millstream.executor": "duckdb", **properties}, sync="never")


def pulled(engine: EmbeddedEngine, sql: str) -> list[tuple[Any, ...]]:
    return [row.values for row in engine.query(sql, Session())]


def test_functions_and_the_queries_that_call_them_survive_a_restart(tmp_path: Path) -> None:
    session = Session({"auto.offset.reset": "earliest"})
    with engine_in(tmp_path) as engine:
        engine.execute(ORDERS, session)
        engine.execute("CREATE FUNCTION f(a BIGINT) RETURNS BIGINT AS $$ a + 1 $$;", session)
        engine.execute("CREATE TABLE t AS SELECT id, MAX(f(amount)) AS n FROM orders GROUP BY id;", session)
        engine.execute("CREATE OR REPLACE FUNCTION f(a BIGINT) RETURNS BIGINT AS $$ a + 100 $$;", session)
    with engine_in(tmp_path) as engine:
        engine.execute("INSERT INTO orders (id, amount) VALUES ('x', f(0));", session)
        eventually(lambda: pulled(engine, "SELECT n, f(n) FROM t;") == [(101, 201)])


def test_a_server_that_does_not_allow_code_runs_none(tmp_path: Path) -> None:
    session = Session({"auto.offset.reset": "earliest"})
    with engine_in(tmp_path) as engine:
        engine.execute(ORDERS, session)
        engine.execute("CREATE FUNCTION f(a BIGINT) RETURNS BIGINT AS $$ a + 1 $$;", session)
        engine.execute("CREATE STREAM s AS SELECT id, f(amount) AS n FROM orders;", session)
    with engine_in(tmp_path, **{ALLOWED: "false"}) as engine:
        assert "written in Python" in (engine.executor.status("CSAS_S_2").error or "")
        for statement in (
            "CREATE FUNCTION g(a INT) RETURNS INT AS $$ a $$;",
            "CREATE STREAM t AS SELECT id, f(amount) AS n FROM orders;",
            "INSERT INTO orders (id, amount) VALUES ('x', f(1));",
            f"SET '{ALLOWED}'='true';",
        ):
            with pytest.raises(MillstreamError):
                engine.execute(statement, session)
        with pytest.raises(StatementError) as caught:
            pulled(engine, "SELECT f(amount) FROM orders;")
        assert ALLOWED in str(caught.value.hint)
        engine.execute("SHOW FUNCTIONS; DESCRIBE FUNCTION f;", session)
    with engine_in(tmp_path) as engine:
        engine.execute("INSERT INTO orders (id, amount) VALUES ('x', 1);", session)
        eventually(lambda: pulled(engine, "SELECT n FROM s;") == [(2,)])
