"""No value and no pattern holds the process: what costs too much is an error of its row, or of the pull query."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from millstream.executor.pull_limits import PullLimitExceeded
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


def test_a_pull_query_ends_with_the_setting_that_a_match_exceeds(sandbox: Sandbox) -> None:
    insert(sandbox, (1, HOSTILE, BACKTRACKS))
    with pytest.raises(PullLimitExceeded, match=r"millstream\.functions\.max\.seconds"):
        ask(sandbox, "SELECT REGEXP_EXTRACT(p, v) AS x FROM s;")
    assert ask(sandbox, "SELECT REGEXP_EXTRACT('a', v) AS x FROM s;") == [["a"]]
