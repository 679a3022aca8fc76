"""Which rights each statement needs: the whole table, tried with every right missing in turn; and what nobody sees who
may not read it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from millstream.errors import MillstreamError
from millstream.server.engine.embedded import open_engine
from millstream.server.engine.engine import Engine
from millstream.server.engine.session import Session
from millstream.server.handlers import HANDLERS
from millstream.server.security.access import RoleSettings, User
from millstream.server.security.rights import NotPermitted, Rights
from millstream.sql import ast

# Every name is called otherwise than its topic, so that a right on one of them is none on the other.
DDL = """
CREATE STREAM one (id INT KEY, v INT) WITH (kafka_topic='topic-one', value_format='JSON', partitions=1);
CREATE STREAM two (id INT KEY, v INT) WITH (kafka_topic='topic-two', value_format='JSON', partitions=1);
CREATE TABLE rows_ (id INT PRIMARY KEY, v INT) WITH (kafka_topic='topic-rows', value_format='JSON', partitions=1);
CREATE STREAM made WITH (kafka_topic='topic-made') AS SELECT id, v FROM one WHERE v = 4711;
"""
QUERY = "CSAS_MADE_3"
DUCKDB = {"millstream.executor": "duckdb"}


class Row(NamedTuple):
    """`needs`: verbs and names, `read ONE, read topic-one`."""

    statement: type[ast.Statement]
    sql: str
    needs: str = ""

    def __str__(self) -> str:
        return self.sql


ONE, TWO = "read ONE, read topic-one", "read TWO, read topic-two"
FULL = "(id INT KEY, v INT) WITH (value_format='JSON', "
ROWS = (
    Row(ast.Query, "SELECT * FROM one EMIT CHANGES;", ONE),
    Row(ast.Query, "SELECT * FROM (SELECT * FROM one) x EMIT CHANGES;", ONE),
    Row(ast.Query, "WITH one AS (SELECT * FROM two) SELECT * FROM one EMIT CHANGES;", f"{ONE}, {TWO}"),
    Row(ast.Query, "SELECT * FROM one a JOIN two b WITHIN 1 DAY ON a.id = b.id EMIT CHANGES;", f"{ONE}, {TWO}"),
    Row(ast.Query, "SELECT * FROM one WHERE id IN (SELECT id FROM two) EMIT CHANGES;", f"{ONE}, {TWO}"),
    Row(ast.Query, "SELECT (SELECT MAX(v) FROM two) FROM one EMIT CHANGES;", f"{ONE}, {TWO}"),
    Row(ast.PrintTopic, "PRINT 'topic-one';", "read topic-one"),
    Row(ast.CreateSource, f"CREATE STREAM new {FULL} kafka_topic='topic-one');", "ddl NEW, read topic-one"),
    Row(ast.CreateSource, f"CREATE OR REPLACE STREAM one {FULL} kafka_topic='topic-two');", "ddl ONE, read topic-two"),
    Row(ast.CreateSource, f"CREATE STREAM new {FULL} partitions=1);", "ddl NEW, read NEW"),
    Row(ast.CreateSource, f"CREATE STREAM new {FULL} kafka_topic='fresh', partitions=1);",
        "ddl NEW, read fresh, ddl fresh"),
    Row(ast.CreateAsSelect, "CREATE STREAM new AS SELECT * FROM one;", f"ddl NEW, insert NEW, {ONE}"),
    Row(ast.CreateAsSelect, "CREATE STREAM new WITH (kafka_topic='topic-two') AS SELECT * FROM one;",
        f"ddl NEW, insert topic-two, {ONE}"),
    Row(ast.CreateAsSelect, "CREATE STREAM new WITH (kafka_topic='fresh') AS SELECT * FROM one;",
        f"ddl NEW, insert fresh, ddl fresh, {ONE}"),
    Row(ast.CreateAsSelect, "SET 'ksql.output.topic.name.prefix'='pre-'; CREATE STREAM new AS SELECT * FROM one;",
        f"ddl NEW, insert pre-NEW, ddl pre-NEW, {ONE}"),
    Row(ast.CreateAsSelect, "DEFINE t = 'topic-two'; CREATE STREAM new WITH (kafka_topic='${t}') AS SELECT * FROM one;",
        f"ddl NEW, insert topic-two, {ONE}"),
    Row(ast.InsertInto, "INSERT INTO two SELECT * FROM one;", f"ddl TWO, insert TWO, insert topic-two, {ONE}"),
    Row(ast.InsertInto, "INSERT INTO two WITH (query_id='q') SELECT * FROM one;",
        f"ddl TWO, ddl q, insert TWO, insert topic-two, {ONE}"),
    Row(ast.InsertValues, "INSERT INTO one VALUES (1, 2);", "insert ONE, insert topic-one"),
    Row(ast.DeleteRows, "DELETE FROM rows_ WHERE id = 1;", "insert ROWS_, insert topic-rows"),
    Row(ast.DropSource, "DROP STREAM one;", "ddl ONE"),
    Row(ast.DropSource, "DROP STREAM IF EXISTS one DELETE TOPIC;", "ddl ONE, ddl topic-one"),
    Row(ast.DropSource, "DROP STREAM one CASCADE;", "ddl ONE, ddl MADE"),
    Row(ast.DropSource, "DROP STREAM one CASCADE DELETE TOPIC;", "ddl ONE, ddl topic-one, ddl MADE"),
    Row(ast.AlterSource, "ALTER STREAM one ADD COLUMN w INT;", "ddl ONE"),
    Row(ast.AlterSource, "ALTER STREAM one DROP COLUMN v;", "ddl ONE"),
    Row(ast.AlterSource, "ALTER STREAM one RENAME COLUMN v TO w;", "ddl ONE"),
    Row(ast.AlterSource, "ALTER STREAM one RENAME TO new;", "ddl ONE, ddl NEW, read topic-one"),
    Row(ast.CreateType, "CREATE TYPE new AS STRUCT<a INT>;", "ddl NEW"),
    Row(ast.DropType, "DROP TYPE new;", "ddl NEW"),
    Row(ast.ControlQuery, f"TERMINATE {QUERY};", "ddl MADE"),
    Row(ast.ControlQuery, f"PAUSE {QUERY};", "ddl MADE"),
    Row(ast.ControlQuery, f"RESUME {QUERY};", "ddl MADE"),
    Row(ast.ControlQuery, "TERMINATE ALL;", "admin"),
    Row(ast.ControlQuery, "TERMINATE nowhere;", "admin"),
    Row(ast.AlterQuery, f"ALTER QUERY {QUERY} SET EXECUTOR = 'duckdb';", "ddl MADE"),
    Row(ast.AlterQuery, "ALTER QUERY nowhere SET EXECUTOR = 'duckdb';", "admin"),
    Row(ast.Explain, f"EXPLAIN {QUERY};", f"{ONE}, read MADE, read topic-made"),
    Row(ast.Explain, f"EXPLAIN STALL {QUERY};", f"{ONE}, read MADE, read topic-made"),
    Row(ast.Explain, "EXPLAIN nowhere;", "admin"),
    Row(ast.Explain, "EXPLAIN STALL CONNECTOR c;", "admin"),
    Row(ast.Explain, "EXPLAIN SELECT * FROM one EMIT CHANGES;", ONE),
    Row(ast.Explain, "EXPLAIN CREATE STREAM new AS SELECT * FROM one;", f"ddl NEW, insert NEW, {ONE}"),
    Row(ast.Describe, "DESCRIBE one;", ONE),
    Row(ast.Describe, "DESCRIBE one EXTENDED;", ONE),
    Row(ast.Describe, "DESCRIBE STREAMS EXTENDED;"),
    Row(ast.Describe, "DESCRIBE TABLES;"),
    Row(ast.Describe, "DESCRIBE FUNCTION ucase;"),
    Row(ast.ShowLineage, "SHOW LINEAGE OF one;", ONE),
    Row(ast.ShowGraph, "SHOW GRAPH;"),
    Row(ast.ShowGraph, "SHOW GRAPH OF one AS DOT;"),
    Row(ast.AssertTopic, "ASSERT TOPIC 'topic-one';", "read topic-one"),
    Row(ast.AssertSchema, "ASSERT SCHEMA SUBJECT 'topic-one-value';", "read topic-one"),
    Row(ast.AssertSchema, "ASSERT SCHEMA ID 1;"),
    Row(ast.AssertValues, "ASSERT VALUES one (id) VALUES (1);", ONE),
    Row(ast.AssertSource, "ASSERT STREAM one (id INT KEY, v INT) WITH (kafka_topic='topic-one');", ONE),
    Row(ast.SetProperty, "SET 'auto.offset.reset'='earliest';"),
    Row(ast.UnsetProperty, "SET 'auto.offset.reset'='earliest'; UNSET 'auto.offset.reset';"),
    Row(ast.DefineVariable, "DEFINE a = 'b';"),
    Row(ast.UndefineVariable, "DEFINE a = 'b'; UNDEFINE a;"),
    Row(ast.CreateFunction, "CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS 'return x';", "admin"),
    Row(ast.DropFunction, "DROP FUNCTION f;", "admin"),
    Row(ast.CreateConnector, "CREATE SOURCE CONNECTOR c WITH ('connector.class'='x', 'topic'='topic-one');", "admin"),
    Row(ast.Resnapshot, "RESNAPSHOT CONNECTOR c;", "admin"),
    Row(ast.CreateMirror, "CREATE MIRROR m FROM 'h:9092' TOPICS '*';", "admin"),
    Row(ast.ControlMirror, "DROP MIRROR m;", "admin"),
    Row(ast.ControlMirror, "PROMOTE MIRROR m;", "admin"),
    Row(ast.Show, "SHOW MIRRORS;", "admin"),
    Row(ast.Describe, "DESCRIBE MIRROR m;", "admin"),
    Row(ast.Explain, "EXPLAIN STALL MIRROR m;", "admin"),
    Row(ast.CreateFromConnector, "CREATE TABLE t FROM CONNECTOR c TABLE 'x';", "admin"),
    Row(ast.CreateSecret, "CREATE SECRET s ('a'='b');", "admin"),
    Row(ast.DropSecret, "DROP SECRET s;", "admin"),
    Row(ast.Show, "SHOW SECRETS;", "admin"),
    Row(ast.DropConnector, "DROP CONNECTOR c;", "admin"),
    Row(ast.AlterConnector, "ALTER CONNECTOR c WITH ('topic'='topic-one');", "admin"),
    Row(ast.ControlConnector, "PAUSE CONNECTOR c;", "admin"),
    Row(ast.ControlConnector, "RESTART CONNECTOR c;", "admin"),
    Row(ast.Describe, "DESCRIBE CONNECTOR c;", "admin"),
    Row(ast.Show, "SHOW CONNECTORS;", "admin"),
    Row(ast.Show, "SHOW SINK CONNECTORS;", "admin"),
    Row(ast.Show, "SHOW CONNECTOR PLUGINS;"),
    Row(ast.AlterSystem, "ALTER SYSTEM 'auto.offset.reset'='earliest';", "admin"),
    Row(ast.RunScript, "RUN SCRIPT 'all.sql';", "admin"),
    *(Row(ast.Show, f"SHOW {what};") for what in (
        "STREAMS", "STREAMS EXTENDED", "TABLES", "TABLES EXTENDED", "TOPICS", "TOPICS EXTENDED", "ALL TOPICS",
        "ALL TOPICS EXTENDED", "QUERIES", "QUERIES EXTENDED", "TYPES", "FUNCTIONS", "PROPERTIES", "VARIABLES")),
)  # fmt: skip


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_engine(tmp_path_factory.mktemp("data"), DUCKDB, sync="never") as opened:
        opened.execute(DDL, Session())
        yield opened


def user(*rights: str, admin: bool = False) -> Rights:
    """In: `rights`: `read ONE`."""
    given: dict[str, list[str]] = {}
    for right in rights:
        verb, _, name = right.partition(" ")
        given.setdefault(verb, []).append(name)
    return Rights(User("ana", (RoleSettings(admin=admin, **{verb: tuple(names) for verb, names in given.items()}),)))


def is_allowed(engine: Engine, row: Row, rights: Rights) -> bool:
    """Whether the statement may run; what comes before it in the text runs."""
    session = Session(rights=rights)
    *before, _ = row.sql.strip().split(";")[:-1]
    try:
        for text in before:
            engine.execute(f"{text};", session)
        engine.parse(row.sql.split(";")[len(before)] + ";", session)
    except NotPermitted:
        return False
    return True


def test_every_statement_has_a_row() -> None:
    assert {row.statement for row in ROWS} == HANDLERS.keys()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_statement_needs_each_right_of_its_row_and_no_other(engine: Engine, row: Row) -> None:
    (*_, statement) = engine.parse(row.sql, Session(variables={"T": "x"}))
    assert isinstance(statement, row.statement)
    before = engine.catalog
    needs = [need for need in row.needs.split(", ") if need not in ("", "admin")]
    assert is_allowed(engine, row, user(admin=True))
    assert is_allowed(engine, row, Rights())
    assert is_allowed(engine, row, user(*needs)) == (row.needs != "admin")
    others = [f"{verb} {name}" for verb in ("read", "insert", "ddl") for name in ("other*", "topic-o")]
    for missing in needs:
        rest = [need for need in needs if need != missing]
        verb, _, name = missing.partition(" ")
        weaker = [f"{other} {name}" for other in ("read", "insert", "ddl") if other != verb]
        assert not is_allowed(engine, row, user(*rest, *weaker, *others)), f"without {missing}"
    assert is_allowed(engine, row, user(*others)) == (not row.needs)
    assert engine.catalog is before


@pytest.mark.parametrize(
    "sql",
    [
        "SET 'ksql.output.topic.name.prefix'='_millstream-'; CREATE STREAM own_q AS SELECT * FROM one;",
        "CREATE STREAM own_q WITH (kafka_topic='_millstream-x') AS SELECT * FROM one;",
        "CREATE STREAM own_q (v INT) WITH (kafka_topic='_millstream-command', value_format='JSON');",
        "PRINT '_millstream-command';",
    ],
)
def test_rights_on_all_names_do_not_reach_what_is_millstreams_own(engine: Engine, sql: str) -> None:
    everything = user(*(f"{verb} *" for verb in ("read", "insert", "ddl")))
    assert not is_allowed(engine, Row(ast.Statement, sql), everything)


# ------------------------------------------------------------------ what is seen


HIDDEN = ("SECRET", "hidden-topic", "CSAS_SECRET", "4712", "INSERTQUERY", "hush")
SECRETS = """
CREATE STREAM secret (id INT KEY, hush INT) WITH (kafka_topic='hidden-topic', value_format='JSON', partitions=1);
CREATE TABLE secret_t (id INT PRIMARY KEY, hush INT) WITH (kafka_topic='hidden-topic', value_format='JSON');
CREATE STREAM secret_q AS SELECT * FROM secret;
CREATE STREAM pub_in (id INT KEY, v INT) WITH (kafka_topic='pub_in', value_format='JSON', partitions=1);
CREATE STREAM pub_q AS SELECT id, hush AS v FROM secret WHERE hush = 4712;
CREATE STREAM pub_gone AS SELECT id, hush AS v FROM secret WHERE hush = 4712;
CREATE STREAM pub_over (id INT KEY, hush INT) WITH (kafka_topic='hidden-topic', value_format='JSON');
CREATE TABLE pub_t (id INT PRIMARY KEY, v INT) WITH (kafka_topic='pub_in', value_format='JSON');
INSERT INTO secret SELECT id, v AS hush FROM pub_in;
"""
LOOKS = [
    *(row.sql for row in ROWS if row.statement is ast.Show),
    *(f"DESCRIBE {what}{extended};" for what in ("STREAMS", "TABLES", "pub_q", "pub_gone", "pub_in", "pub_t")
      for extended in ("", " EXTENDED")),
    *(f"SHOW GRAPH{of} AS {form};" for of in ("", " OF pub_in", " OF pub_q") for form in ("TEXT", "DOT", "SVG")),
    *(f"SHOW LINEAGE OF {name};" for name in ("pub_in", "pub_q", "pub_gone", "pub_t")),
    "DROP STREAM pub_in;", "DROP STREAM pub_in DELETE TOPIC;", "DROP STREAM pub_se;", "SHOW GRAPH OF secre;",
    "SELECT * FROM pub_ovr EMIT CHANGES;", "DESCRIBE pub_ovr;", "EXPLAIN csas_secret;", "TERMINATE csas_secret;",
    "CREATE OR REPLACE STREAM pub_q (id INT KEY, v INT) WITH (kafka_topic='pub_q', value_format='JSON');",
    "CREATE STREAM pub_over (id INT KEY) WITH (kafka_topic='pub_in', value_format='JSON');",
    "PRINT 'pub_hidden-topic';",
]  # fmt: skip


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_engine(tmp_path_factory.mktemp("data"), DUCKDB, sync="never") as opened:
        opened.execute(SECRETS, Session())
        (gone,) = [id for id in opened.catalog.queries if "PUB_GONE" in id]
        opened.execute(f"TERMINATE {gone};", Session())
        yield opened


def told(engine: Engine, sql: str, rights: Rights) -> str:
    """The answer or the error, without the statement itself."""
    session = Session(rights=rights)
    try:
        if sql.startswith("PRINT"):
            (statement,) = engine.parse(sql, session)
            assert isinstance(statement, ast.PrintTopic)
            engine.print_topic(statement, session)
        if sql.startswith("SELECT"):
            engine.query(sql, session)
        answer = [entity.as_json() for entity in engine.execute(sql, session)]
    except MillstreamError as error:
        return error.render().replace(sql.rstrip(";"), "")
    for entity in answer:
        entity.pop("statementText", None)
    return json.dumps(answer)


def words_in(text: str) -> Iterable[str]:
    return [word for word in HIDDEN if word.lower() in text.lower()]


@pytest.mark.parametrize("sql", LOOKS)
def test_who_may_not_read_an_object_sees_it_nowhere(secrets: Engine, sql: str) -> None:
    pub = user("read pub*", "ddl pub*", "insert pub*")
    found = told(secrets, sql, pub)
    said = [word for word in HIDDEN if word.lower() in sql.lower()]
    assert [word for word in words_in(found) if word not in said] == [], found


def test_without_users_all_of_it_is_seen(secrets: Engine) -> None:
    """Else the test above could not fail."""
    seen = " ".join(told(secrets, sql, Rights()) for sql in LOOKS if sql.startswith(("SHOW", "DESCRIBE")))
    assert set(words_in(seen)) == set(HIDDEN)


def test_what_may_be_read_is_seen_as_before(secrets: Engine) -> None:
    reader = user("read *")
    for sql in LOOKS:
        if sql.startswith(("SHOW STREAMS", "SHOW QUERIES", "SHOW GRAPH", "SHOW LINEAGE", "DESCRIBE")):
            assert told(secrets, sql, reader) == told(secrets, sql, Rights()), sql


# ------------------------------------------------------------------ schemas


def test_a_schema_is_its_topics(tmp_path: Path) -> None:
    """Declaring columns registers a schema under the topic; naming an id reads somebody's."""
    with open_engine(tmp_path, DUCKDB, sync="never") as engine:
        made = (
            "CREATE STREAM theirs (id INT KEY, pin INT) WITH (kafka_topic='theirs', value_format='AVRO', partitions=1);"
        )
        engine.execute(made, Session())
        engine.log.create_topic("pub", 1)
        ana = Session(rights=user("read pub", "ddl own*", "read own*", "insert own*"))
        for sql in (
            "CREATE STREAM own (id INT KEY, v INT) WITH (kafka_topic='pub', value_format='AVRO');",
            "CREATE STREAM own WITH (kafka_topic='own', partitions=1, value_format='AVRO', value_schema_id=1);",
            "CREATE STREAM own WITH (kafka_topic='own', partitions=1, value_format='AVRO', value_schema_id='01');",
            "EXPLAIN CREATE STREAM own WITH (value_format='AVRO', value_schema_id=1) AS SELECT * FROM own_s;",
        ):
            with pytest.raises(NotPermitted):
                engine.execute(sql, ana)
        assert engine.schemas.registry.subjects() == ["theirs-value"]
        with pytest.raises(MillstreamError, match="does not exist"):
            engine.execute("ASSERT SCHEMA ID 1 TIMEOUT 1 MILLISECOND;", ana)
        engine.execute(
            "CREATE STREAM own (id INT KEY, v INT) WITH (kafka_topic='own', value_format='AVRO', partitions=1);", ana
        )
        engine.execute("ALTER STREAM own ADD COLUMN w INT;", ana)
        assert len(engine.schemas.registry.of_subject("own-value")) == 2
