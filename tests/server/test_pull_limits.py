"""Pull queries under an operator's restrictions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.errors import InvalidStatement
from millstream.testing import Sandbox

TABLES = """
CREATE STREAM s (a STRING, b INT, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE one AS SELECT a, COUNT(*) AS c FROM s GROUP BY a;
CREATE TABLE two WITH (key_format='JSON') AS SELECT a, b, COUNT(*) AS c FROM s GROUP BY a, b;
CREATE TABLE windowed AS SELECT a, COUNT(*) AS c FROM s WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY a;
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"ksql.query.pull.table.scan.enabled": False}) as opened:
        opened.execute(TABLES)
        yield opened


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM one WHERE a = 'x';",
        "SELECT * FROM one WHERE a IN ('x', 'y') AND c > 1;",
        "SELECT * FROM one WHERE a = 'x' OR a = 'y' AND c > 1;",
        "SELECT * FROM one WHERE 'x' <= a;",
        "SELECT * FROM two WHERE a = 'x' AND b = 1 + 1;",
        "SELECT * FROM windowed WHERE a = 'x' AND WINDOWSTART > 5;",
        "SELECT * FROM s;",
    ],
)
def test_queries_by_key_are_answered_without_table_scans(sandbox: Sandbox, query: str) -> None:
    list(sandbox.query(query))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM one;", "Missing WHERE clause"),
        ("SELECT * FROM one WHERE c = 1;", r"missing key column for disjunct: \(\(?C = 1"),
        ("SELECT * FROM one WHERE a = 'x' OR c = 1;", "missing key column for disjunct"),
        ("SELECT * FROM one WHERE a > 'x' AND a < 'z';", "cannot be combined with other comparisons"),
        ("SELECT * FROM one WHERE a = CAST(c AS STRING);", "between a key column and a resolvable expression"),
        ("SELECT * FROM one WHERE 'x' LIKE 'x%';", "Like condition must be between strings"),
        ("SELECT * FROM one WHERE a = 'x' OR LEN(a) = 2;", "A comparison must directly reference a key column"),
        ("SELECT * FROM one WHERE a < 'b' OR a > 'x';", "Query requires table scan to be enabled"),
        ("SELECT * FROM two WHERE a = 'x';", "must specify every key"),
        ("SELECT * FROM two WHERE a = 'x' AND b > 1;", "requires table scan to be enabled"),
        ("SELECT * FROM windowed WHERE a > 'x';", "requires table scan to be enabled"),
    ],
)
def test_what_would_read_the_whole_table_is_refused(sandbox: Sandbox, query: str, message: str) -> None:
    with pytest.raises(InvalidStatement, match=message):
        sandbox.query(query)


def test_a_long_chain_of_keys_is_answered_and_a_longer_one_refused(sandbox: Sandbox) -> None:
    chain = " OR ".join(f"a = '{number}'" for number in range(1_000))
    list(sandbox.query(f"SELECT * FROM one WHERE {chain};"))
    with pytest.raises(InvalidStatement, match="too many alternatives"):
        sandbox.query(f"SELECT * FROM one WHERE {chain} OR a = 'x';")


def test_streams_and_limit_can_be_switched_off() -> None:
    with Sandbox(properties={"ksql.query.pull.stream.enabled": "false"}) as sandbox:
        sandbox.execute(TABLES)
        with pytest.raises(InvalidStatement, match="Pull queries on streams are currently disabled"):
            sandbox.query("SELECT * FROM s;")
        sandbox.execute("SET 'ksql.query.pull.limit.clause.enabled' = 'false';")
        with pytest.raises(InvalidStatement, match="LIMIT clause in pull queries is currently disabled"):
            sandbox.query("SELECT * FROM one LIMIT 1;")
