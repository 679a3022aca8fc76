"""Of several statements none runs if one of them would be refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import InvalidStatement, StatementError, UnknownSource
from millstream.server.catalog.command_topic import COMMAND_TOPIC
from millstream.server.engine.session import Session
from millstream.server.handlers.assertions import AssertionFailed
from millstream.server.security.access import RoleSettings, User
from millstream.server.security.rights import NotPermitted, Rights
from millstream.testing import Sandbox

S = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='AVRO', partitions=1);"
DOUBLED = "CREATE STREAM doubled AS SELECT k, v * 2 AS v FROM s;"
WRONG = "CREATE STREAM wrong AS SELECT nope FROM s;"


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as opened:
        yield opened


def _all_there_is(sandbox: Sandbox) -> Any:
    """What a statement can change."""
    engine = sandbox.engine
    topics = {
        name: tuple(engine.log.offsets(name, partition) for partition in range(topic.partition_count))
        for name, topic in engine.log.topics().items()
    }
    session = (dict(sandbox.session.properties), dict(sandbox.session.variables))
    return engine.catalog, topics, engine.schemas.registry, session


@pytest.mark.parametrize(
    "before",
    [
        "CREATE STREAM a (k INT KEY, v INT) WITH (kafka_topic='a', value_format='AVRO', partitions=2);",
        DOUBLED,
        "CREATE TABLE n AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;",
        "INSERT INTO copied SELECT * FROM s;",
        "INSERT INTO s VALUES (1, 2);",
        "DELETE FROM t WHERE k = 1;",
        "DROP STREAM copied;",
        "DROP STREAM copied DELETE TOPIC;",
        "DROP STREAM s CASCADE DELETE TOPIC; " + S,
        "CREATE OR REPLACE STREAM copied AS SELECT * FROM s WHERE v > 1;",
        "ALTER STREAM s ADD COLUMN w INT;",
        "CREATE TYPE place AS STRUCT<x INT>;",
        "DROP TYPE known;",
        "TERMINATE ALL;",
        "PAUSE ALL;",
        "RESET CSAS_COPIED_2;",
        "ALTER QUERY CSAS_COPIED_2 SET EXECUTOR = 'duckdb';",
        "SET 'auto.offset.reset' = 'latest';",
        "UNSET 'ksql.query.pull.table.scan.enabled';",
        "DEFINE x = '1';",
        "UNDEFINE known;",
        "SHOW STREAMS;",
    ],
)
def test_nothing_is_changed_by_what_stands_before_a_mistake(sandbox: Sandbox, before: str) -> None:
    sandbox.execute(
        S + "CREATE TABLE t (k INT PRIMARY KEY, v INT) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
        "CREATE STREAM copied AS SELECT * FROM s; CREATE TYPE known AS STRUCT<x INT>;"
        "SET 'ksql.query.pull.table.scan.enabled' = 'true'; DEFINE known = 'y';"
    )
    untouched = _all_there_is(sandbox)
    answers: list[Any] = []
    with pytest.raises(StatementError, match="NOPE"):
        sandbox.engine.execute(before + WRONG, sandbox.session, answers)
    assert _all_there_is(sandbox) == untouched
    assert answers == []


@pytest.mark.parametrize(
    "text",
    [
        S + DOUBLED,
        S + "CREATE STREAM same (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON');",  # its partitions
        """CREATE TYPE place AS STRUCT<x INT>;
        CREATE STREAM p (home PLACE) WITH (kafka_topic='p', value_format='JSON', partitions=1);
        INSERT INTO p VALUES (STRUCT(x := 1)); DROP TYPE place;""",
        S + "DROP STREAM s DELETE TOPIC;" + S.replace("partitions=1", "partitions=3") + DOUBLED,
        S + DOUBLED + "TERMINATE CSAS_DOUBLED_1; DROP STREAM doubled; DROP STREAM s;",
        S + DOUBLED + "CREATE OR REPLACE STREAM doubled AS SELECT k, v * 3 AS v FROM s;",
        S + "ALTER STREAM s ADD COLUMN w INT; INSERT INTO s VALUES (1, 2, 3); CREATE STREAM ws AS SELECT k, w FROM s;",
        "DEFINE name = 's';" + S.replace("STREAM s ", "STREAM ${name} ") + "DROP STREAM ${name};",
        S + """INSERT INTO s VALUES (1, 2); SET 'millstream.start.offsets' = '{"s": {"0": 1}}';""" + DOUBLED,
        S + "CREATE STREAM IF NOT EXISTS s (k INT KEY) WITH (kafka_topic='x', value_format='JSON');",
        S + "ASSERT STREAM s (k INT KEY, v INT) WITH (kafka_topic='s');",
    ],
)
def test_what_one_statement_makes_the_next_ones_find(sandbox: Sandbox, text: str) -> None:
    sandbox.execute(text)


def test_ids_of_queries_and_numbers_of_commands_are_those_of_statements_that_run(sandbox: Sandbox) -> None:
    answers = sandbox.execute(S + DOUBLED + "INSERT INTO doubled SELECT * FROM s;")
    assert [answer["commandSequenceNumber"] for answer in answers] == [0, 1, 2]
    assert [answer["commandStatus"]["queryId"] for answer in answers] == [None, "CSAS_DOUBLED_1", "INSERTQUERY_2"]
    assert sandbox.log.offsets(COMMAND_TOPIC, 0).log_end_offset == 3


def test_a_row_that_cannot_be_written_keeps_the_rows_before_it_out(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT) WITH (kafka_topic='t', format='JSON', partitions=1);")
    with pytest.raises(InvalidStatement, match="primary key"):
        sandbox.execute("INSERT INTO t VALUES (1, 1); INSERT INTO t VALUES (NULL, 2);")
    assert sandbox.consume("t") == []


def test_the_error_points_at_the_statement(sandbox: Sandbox) -> None:
    with pytest.raises(UnknownSource) as refused:
        sandbox.execute(f"{S}\n\nDROP STREAM nope;")
    assert str(refused.value) == "Line: 3, Col: 1: Stream NOPE does not exist."


def test_what_fails_only_when_it_is_done_leaves_what_was_done_before(sandbox: Sandbox) -> None:
    answers: list[Any] = []
    with pytest.raises(AssertionFailed):
        sandbox.engine.execute(f"{S} ASSERT TOPIC nowhere TIMEOUT 1 SECONDS; {DOUBLED}", sandbox.session, answers)
    assert [type(answer).__name__ for answer in answers] == ["CurrentStatus"]
    assert [source["name"] for source in sandbox.sources()] == ["S"]


def test_after_a_statement_about_another_system_nothing_is_rehearsed(sandbox: Sandbox) -> None:
    """It may make the stream that the next one reads."""
    with pytest.raises(UnknownSource):
        sandbox.execute(f"{S} ASSERT TOPIC s; DROP STREAM nope;")
    assert [source["name"] for source in sandbox.sources()] == ["S"]


def test_a_missing_right_is_found_before_anything_runs(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM hers (v INT) WITH (kafka_topic='hers', value_format='JSON', partitions=1);")
    rights = Rights(User("ana", (RoleSettings(read=("mine*",), insert=("mine*",), ddl=("mine*",)),)))
    mine = "CREATE STREAM mine (v INT) WITH (kafka_topic='mine', value_format='JSON', partitions=1);"
    copy = "CREATE STREAM mine_too WITH (kafka_topic='mine_too') AS SELECT * FROM mine;"
    with pytest.raises(NotPermitted):
        sandbox.engine.execute(mine + copy + "DROP STREAM hers;", Session(rights=rights))
    assert [source["name"] for source in sandbox.sources()] == ["HERS"]
    sandbox.engine.execute(mine + copy, Session(rights=rights))
    assert [source["name"] for source in sandbox.sources()] == ["HERS", "MINE", "MINE_TOO"]
