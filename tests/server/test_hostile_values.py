"""No value and no pattern holds the process: what costs too much is an error of its row, or of the pull query."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from millstream.executor.answers.pull_limits import PullLimitExceeded
from millstream.testing import Sandbox

HOSTILE = "a" * 45 + "!"
BACKTRACKS = "^(a|aa|b?)+(?!c)$"  # RE2 has no lookahead
LINEAR = "(a+)+$"


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"millstream.functions.max.seconds": "0.2"}) as opened:
        opened.execute("SET 'auto.offset.reset'='earliest';")
        opened.execute(
            "CREATE STREAM s (id INT KEY, v STRING, p STRING) "
            "WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        )
        yield opened


def insert(sandbox: Sandbox, *rows: tuple[int, str, str]) -> None:
    for id, value, pattern in rows:
        sandbox.execute(f"INSERT INTO s VALUES ({id}, '{value}', '{pattern}');")


def ask(sandbox: Sandbox, query: str) -> list[list[object]]:
    return [row["row"]["columns"] for row in sandbox.query(query) if "row" in row]


def logged(sandbox: Sandbox) -> list[str]:
    """The messages of the processing log."""
    entries = [json.loads(record["value"]) for record in sandbox.consume("default_ksql_processing_log")]
    return [entry["message"]["recordProcessingError"]["errorMessage"] for entry in entries]


@pytest.mark.parametrize("function", ["REGEXP_REPLACE(v, p, 'x')", "REGEXP_EXTRACT(p, v)"])
def test_a_pattern_that_backtracks_for_ever_fails_for_its_record_only(sandbox: Sandbox, function: str) -> None:
    insert(sandbox, (1, "abc", "b"), (2, HOSTILE, BACKTRACKS), (3, HOSTILE, LINEAR), (4, "abc", "c"))
    sandbox.execute(f"CREATE STREAM o AS SELECT id, {function} AS x FROM s;")
    sandbox.drain()
    rows = {row[0]: row[1] for row in ask(sandbox, "SELECT * FROM o;")}
    assert set(rows) == {1, 2, 3, 4}
    assert rows[2] is None and rows[4] is not None
    (message,) = logged(sandbox)
    assert "took longer" in message and "millstream.functions.max.seconds = 0.2" in message


GROWING = {
    "padding": "LPAD(v, 2000000000, 'x')",
    "a longer replacement": "REPLACE(v, 'a', LPAD('', 1000000, 'b'))",
    "a pattern's replacement": "REGEXP_REPLACE(v, 'a', LPAD('', 1000000, 'b'))",
    "doubling": "REDUCE(GENERATE_SERIES(1, 60), v, (s, i) => s || s)",
    "a series": "GENERATE_SERIES(CAST(1 AS BIGINT), CAST(9000000 AS BIGINT))",
    "bytes": "RPAD(TO_BYTES(v, 'utf8'), 2000000000, TO_BYTES('x', 'utf8'))",
}


@pytest.mark.parametrize("growing", GROWING.values(), ids=GROWING)
def test_a_value_that_grows_too_large_is_an_error_that_names_the_setting(sandbox: Sandbox, growing: str) -> None:
    insert(sandbox, (1, HOSTILE, ""))
    sandbox.execute("SET 'millstream.functions.max.seconds'='30';")
    with pytest.raises(PullLimitExceeded, match=r"millstream\.value\.max\.bytes = 16,777,216"):
        ask(sandbox, f"SELECT {growing} AS x FROM s;")
    sandbox.execute(f"CREATE STREAM o AS SELECT id, {growing} AS x FROM s;")
    sandbox.drain()
    assert ask(sandbox, "SELECT * FROM o;") == [[1, None]]
    (message,) = logged(sandbox)
    assert "millstream.value.max.bytes = 16,777,216" in message


def test_like_ends_whatever_its_pattern_is(sandbox: Sandbox) -> None:
    insert(sandbox, (1, "a" * 400, "%a_" * 30 + "b"), (2, "x%y", "x!%_"))
    assert ask(sandbox, "SELECT id FROM s WHERE v LIKE p;") == []
    assert ask(sandbox, f"SELECT id FROM s WHERE v LIKE '{'%a_' * 30}b';") == []
    assert ask(sandbox, "SELECT id FROM s WHERE v LIKE p ESCAPE '!';") == [[2]]


def test_a_pull_query_ends_with_the_setting_that_a_match_exceeds(sandbox: Sandbox) -> None:
    insert(sandbox, (1, HOSTILE, BACKTRACKS))
    with pytest.raises(PullLimitExceeded, match=r"millstream\.functions\.max\.seconds"):
        ask(sandbox, "SELECT REGEXP_EXTRACT(p, v) AS x FROM s;")
    assert ask(sandbox, "SELECT REGEXP_EXTRACT('a', v) AS x FROM s;") == [["a"]]


ENDLESS = {
    "a loop": "while True: pass",
    "a loop that catches": """
while True:
    try:
        pass
    except Exception:
        pass
""",
    "a sleep": "import time\ntime.sleep(1000)",
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS)
def test_a_function_of_a_users_that_does_not_end_fails_for_its_row(sandbox: Sandbox, body: str) -> None:
    indented = "\n".join(f"        {line}" for line in body.strip().splitlines())
    sandbox.execute(
        f"CREATE FUNCTION slow(a INT) RETURNS INT LANGUAGE PYTHON AS $$\ndef slow(a):\n    if a == 2:\n{indented}\n"
        "    return a\n$$;"
    )
    insert(sandbox, (1, "", ""), (2, "", ""), (3, "", ""))
    sandbox.execute("CREATE STREAM o AS SELECT id, SLOW(id) AS x FROM s;")
    sandbox.drain()
    assert sorted(ask(sandbox, "SELECT * FROM o;")) == [[1, 1], [2, None], [3, 3]]
    (message,) = logged(sandbox)
    assert message.startswith("function SLOW failed") and "millstream.functions.max.seconds = 0.2" in message


def test_an_aggregate_of_a_users_that_does_not_end_keeps_its_state(sandbox: Sandbox) -> None:
    sandbox.execute(
        """CREATE AGGREGATE FUNCTION slow_sum(a INT) RETURNS INT LANGUAGE PYTHON AS $$
class slow_sum:
    def init(self):
        return 0
    def add(self, state, a):
        while a == 2:
            pass
        return state + a
    def result(self, state):
        return state
$$;"""
    )
    insert(sandbox, (1, "", ""), (2, "", ""), (3, "", ""))
    sandbox.execute("CREATE TABLE o AS SELECT v, SLOW_SUM(id) AS x FROM s GROUP BY v;")
    sandbox.drain()
    assert ask(sandbox, "SELECT x FROM o;") == [[4]]
    (message,) = logged(sandbox)
    assert "took longer" in message
