"""Every statement parses to its record, and every node knows its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from sqlglot import exp

from millstream.errors import SqlSyntaxError
from millstream.sql import ast
from millstream.sql.build_statements import StatementRules
from millstream.sql.parser import lark, parse, parse_expression, parse_one, parse_type
from millstream.sql.printing import print_expression
from millstream.sql.types import BIGINT, BYTES, DATE, INTEGER, STRING, Array, Decimal, Field, Map, NamedType, Struct

HEADERS = Array(Struct((Field("KEY", STRING), Field("VALUE", BYTES))))
A_QUERY = parse_one("SELECT a FROM s")
assert isinstance(A_QUERY, ast.Query)

STATEMENTS: dict[str, ast.Statement] = {
    "CREATE STREAM s (id INT KEY, `v` ARRAY<STRING>) WITH (kafka_topic='t', partitions=2,"
    " 'replicas'=1, x=-1.5, y=true, z=null)": (
        ast.CreateSource(
            kind="STREAM",
            name="S",
            columns=(
                ast.ColumnDefinition(name="ID", type=INTEGER, role="KEY"),
                ast.ColumnDefinition(name="v", type=Array(STRING)),
            ),
            properties={"KAFKA_TOPIC": "t", "PARTITIONS": 2, "REPLICAS": 1, "X": -1.5, "Y": True, "Z": None},
        )
    ),
    "CREATE OR REPLACE SOURCE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)": ast.CreateSource(
        kind="TABLE",
        name="T",
        columns=(ast.ColumnDefinition(name="ID", type=INTEGER, role="KEY", primary=True),),
        or_replace=True,
        if_not_exists=True,
        read_only=True,
    ),
    "CREATE STREAM s (h ARRAY<STRUCT<key STRING, value BYTES>> HEADERS, one BYTES HEADER('x''y'))": ast.CreateSource(
        kind="STREAM",
        name="S",
        columns=(
            ast.ColumnDefinition(name="H", type=HEADERS, role="HEADERS"),
            ast.ColumnDefinition(name="ONE", type=BYTES, role="HEADERS", header_key="x'y"),
        ),
    ),
    "CREATE STREAM s WITH (kafka_topic='t')": ast.CreateSource(
        kind="STREAM", name="S", properties={"KAFKA_TOPIC": "t"}
    ),
    "CREATE OR REPLACE TABLE t WITH (partitions=1) AS SELECT a FROM s": ast.CreateAsSelect(
        kind="TABLE", name="T", query=A_QUERY, properties={"PARTITIONS": 1}, or_replace=True
    ),
    "CREATE SINK CONNECTOR IF NOT EXISTS c WITH ('connector.class'='x')": ast.CreateConnector(
        kind="SINK", name="C", properties={"connector.class": "x"}, if_not_exists=True
    ),
    "CREATE TYPE IF NOT EXISTS address AS STRUCT<street VARCHAR, n INT>": ast.CreateType(
        name="ADDRESS", type=Struct((Field("STREET", STRING), Field("N", INTEGER))), if_not_exists=True
    ),
    "INSERT INTO t WITH (query_id='q') SELECT a FROM s": ast.InsertInto(
        target="T", query=A_QUERY, properties={"QUERY_ID": "q"}
    ),
    "INSERT INTO t (a, `b`) VALUES (1, 'x')": ast.InsertValues(
        target="T", columns=("A", "b"), rows=((parse_expression("1"), parse_expression("'x'")),)
    ),
    "INSERT INTO t VALUES ()": ast.InsertValues(target="T", rows=((),)),
    "INSERT INTO t VALUES (1), (2)": ast.InsertValues(
        target="T", rows=((parse_expression("1"),), (parse_expression("2"),))
    ),
    "DELETE FROM t WHERE a = 1": ast.DeleteRows(target="T", where=parse_expression("a = 1")),
    "DROP STREAM IF EXISTS s DELETE TOPIC": ast.DropSource(kind="STREAM", name="S", if_exists=True, delete_topic=True),
    "DROP TABLE if": ast.DropSource(kind="TABLE", name="IF"),
    "DROP TYPE t": ast.DropType(name="T"),
    "ALTER CONNECTOR c WITH ('tasks.max'=2)": ast.AlterConnector(name="C", properties={"tasks.max": 2}),
    "PAUSE CONNECTOR c": ast.ControlConnector(action="PAUSE", name="C"),
    "RESUME CONNECTOR `c`": ast.ControlConnector(action="RESUME", name="c"),
    "RESTART CONNECTOR c": ast.ControlConnector(action="RESTART", name="C"),
    "DROP CONNECTOR IF EXISTS c": ast.DropConnector(name="C", if_exists=True),
    "DROP CONNECTOR c WITH (leftovers='keep')": ast.DropConnector(name="C", properties={"LEFTOVERS": "keep"}),
    "ALTER STREAM s ADD COLUMN a INT, ADD b DECIMAL(4, 2)": ast.AlterSource(
        kind="STREAM",
        name="S",
        changes=(
            ast.ColumnDefinition(name="A", type=INTEGER),
            ast.ColumnDefinition(name="B", type=Decimal(4, 2)),
        ),
    ),
    "ALTER TABLE t DROP COLUMN a, DROP b, RENAME COLUMN c TO d, RENAME rename TO to": ast.AlterSource(
        kind="TABLE",
        name="T",
        changes=(
            ast.DropColumn(name="A"),
            ast.DropColumn(name="B"),
            ast.RenameColumn(name="C", to="D"),
            ast.RenameColumn(name="RENAME", to="TO"),
        ),
    ),
    "ALTER STREAM s RENAME TO u": ast.AlterSource(kind="STREAM", name="S", changes=(ast.RenameSource(to="U"),)),
    "DROP STREAM cascade CASCADE": ast.DropSource(kind="STREAM", name="CASCADE", cascade=True),
    **{
        f"DROP TABLE t {options}": ast.DropSource(kind="TABLE", name="T", delete_topic=True, cascade=True)
        for options in ("DELETE TOPIC CASCADE", "CASCADE DELETE TOPIC")
    },
    "SHOW STREAMS": ast.Show(what="STREAMS"),
    "list tables extended": ast.Show(what="TABLES", extended=True),
    "SHOW ALL TOPICS EXTENDED": ast.Show(what="TOPICS", extended=True, all_topics=True),
    "SHOW QUERIES EXTENDED": ast.Show(what="QUERIES", extended=True),
    "LIST FUNCTIONS": ast.Show(what="FUNCTIONS"),
    "SHOW TYPES": ast.Show(what="TYPES"),
    "SHOW PROPERTIES": ast.Show(what="PROPERTIES"),
    "SHOW VARIABLES": ast.Show(what="VARIABLES"),
    "SHOW CONNECTORS": ast.Show(what="CONNECTORS"),
    "SHOW SOURCE CONNECTORS": ast.Show(what="CONNECTORS", connector_kind="SOURCE"),
    "SHOW SINK CONNECTORS": ast.Show(what="CONNECTORS", connector_kind="SINK"),
    "CREATE OR REPLACE TABLE t FROM CONNECTOR pg TABLE 'a.b' WITH (Partitions=2)": ast.CreateFromConnector(
        kind="TABLE", name="T", connector="PG", table="a.b", properties={"PARTITIONS": 2}, or_replace=True
    ),
    "CREATE STREAM IF NOT EXISTS s FROM CONNECTOR pg TABLE 'b'": ast.CreateFromConnector(
        kind="STREAM", name="S", connector="PG", table="b", if_not_exists=True
    ),
    "CREATE MIRROR m FROM 'a:9092,b:9092' TOPICS 'orders*'": ast.CreateMirror(
        name="M", brokers="a:9092,b:9092", topics=("orders*",)
    ),
    "CREATE MIRROR IF NOT EXISTS m FROM 'a:9092' TOPICS 'o', 'p' WITH (MODE='exact', 'groups'='g')": ast.CreateMirror(
        name="M",
        brokers="a:9092",
        topics=("o", "p"),
        properties={"MODE": "exact", "groups": "g"},
        if_not_exists=True,
    ),
    "DROP MIRROR IF EXISTS m": ast.ControlMirror(action="DROP", name="M", if_exists=True),
    "PAUSE MIRROR m": ast.ControlMirror(action="PAUSE", name="M"),
    "RESUME MIRROR m": ast.ControlMirror(action="RESUME", name="M"),
    "PROMOTE MIRROR `m`": ast.ControlMirror(action="PROMOTE", name="m"),
    "SHOW MIRRORS": ast.Show(what="MIRRORS"),
    "DESCRIBE MIRROR m": ast.Describe(what="MIRROR", name="M"),
    "EXPLAIN STALL MIRROR m": ast.Explain(mirror="M", stall=True),
    "PAUSE mirror": ast.ControlQuery(action="PAUSE", query_id="mirror"),
    "DESCRIBE mirror": ast.Describe(what="SOURCE", name="MIRROR"),
    "RESNAPSHOT CONNECTOR pg": ast.Resnapshot(name="PG"),
    "RESNAPSHOT CONNECTOR pg TABLE 'a.b'": ast.Resnapshot(name="PG", table="a.b"),
    "SHOW SECRETS": ast.Show(what="SECRETS"),
    "DROP SECRET IF EXISTS s": ast.DropSecret(name="S", if_exists=True),
    "CREATE OR REPLACE SECRET s WITH ('Key'='v', user='u')": ast.CreateSecret(
        name="S", values={"Key": "v", "USER": "u"}, or_replace=True
    ),
    "CREATE SECRET IF NOT EXISTS secret ('a'='b')": ast.CreateSecret(
        name="SECRET", values={"a": "b"}, if_not_exists=True
    ),
    "SHOW CONNECTOR PLUGINS": ast.Show(what="CONNECTOR PLUGINS"),
    "DESCRIBE s EXTENDED": ast.Describe(what="SOURCE", name="S", extended=True),
    "DESCRIBE STREAMS": ast.Describe(what="STREAMS"),
    "DESCRIBE TABLES EXTENDED": ast.Describe(what="TABLES", extended=True),
    "DESCRIBE `TABLES`": ast.Describe(what="SOURCE", name="TABLES"),
    "DESCRIBE FUNCTION lpad": ast.Describe(what="FUNCTION", name="LPAD"),
    "DESCRIBE function": ast.Describe(what="SOURCE", name="FUNCTION"),
    "DESCRIBE CONNECTOR c": ast.Describe(what="CONNECTOR", name="C"),
    "EXPLAIN SELECT a FROM s": ast.Explain(statement=A_QUERY),
    "EXPLAIN CSAS_s_1": ast.Explain(query_id="CSAS_s_1"),
    "EXPLAIN stall": ast.Explain(query_id="stall"),
    "EXPLAIN STALL CSAS_s_1": ast.Explain(query_id="CSAS_s_1", stall=True),
    "EXPLAIN STALL stall": ast.Explain(query_id="stall", stall=True),
    "EXPLAIN STALL CONNECTOR pg": ast.Explain(connector="PG", stall=True),
    "EXPLAIN STALL connector": ast.Explain(query_id="connector", stall=True),
    "SHOW LINEAGE OF s": ast.ShowLineage(source="S"),
    "LIST LINEAGE OF s.`a b`": ast.ShowLineage(source="S", column="a b"),
    "SHOW GRAPH": ast.ShowGraph(),
    "SHOW GRAPH OF 'my-topic' AS svg": ast.ShowGraph(of="my-topic", format="SVG"),
    "SHOW GRAPH OF graph": ast.ShowGraph(of="graph"),
    "PRINT 'my-topic' FROM BEGINNING INTERVAL 2 LIMIT 3": ast.PrintTopic(
        topic="my-topic", from_beginning=True, interval=2, limit=3
    ),
    "PRINT Topic SAMPLE 2": ast.PrintTopic(topic="Topic", interval=2),
    "TERMINATE CSAS_s_1": ast.ControlQuery(action="TERMINATE", query_id="CSAS_s_1"),
    "PAUSE ALL": ast.ControlQuery(action="PAUSE"),
    "RESUME q": ast.ControlQuery(action="RESUME", query_id="q"),
    "ALTER QUERY CSAS_s_1 SET EXECUTOR = 'spark'": ast.AlterQuery(query_id="CSAS_s_1", executor="spark"),
    "alter query `query` set executor='DuckDB'": ast.AlterQuery(query_id="query", executor="DuckDB"),
    "SET 'auto.offset.reset'='earliest'": ast.SetProperty(name="auto.offset.reset", value="earliest"),
    "UNSET 'auto.offset.reset'": ast.UnsetProperty(name="auto.offset.reset"),
    "ALTER SYSTEM 'a'='b'": ast.AlterSystem(name="a", value="b"),
    "DEFINE Name = '''quoted'''": ast.DefineVariable(name="Name", value="'quoted'"),
    "UNDEFINE Name": ast.UndefineVariable(name="Name"),
    "RUN SCRIPT '/a/b.sql'": ast.RunScript(path="/a/b.sql"),
    "ASSERT TOPIC t WITH (partitions=1) TIMEOUT 10 SECONDS": ast.AssertTopic(
        topic="t", properties={"PARTITIONS": 1}, timeout_ms=10_000
    ),
    "ASSERT NOT EXISTS TOPIC 'a-b'": ast.AssertTopic(topic="a-b", exists=False),
    "ASSERT SCHEMA SUBJECT 'a-value' ID 3 TIMEOUT 1 MINUTE": ast.AssertSchema(
        subject="a-value", schema_id=3, timeout_ms=60_000
    ),
    "ASSERT NOT EXISTS SCHEMA ID 3": ast.AssertSchema(schema_id=3, exists=False),
    "ASSERT VALUES s (a) VALUES (1)": ast.AssertValues(source="S", columns=("A",), values=(parse_expression("1"),)),
    "ASSERT NULL VALUES s (a) KEY (1)": ast.AssertValues(
        source="S", columns=("A",), values=(parse_expression("1"),), tombstone=True
    ),
    "ASSERT TABLE t (a INT PRIMARY KEY) WITH (kafka_topic='t')": ast.AssertSource(
        kind="TABLE",
        name="T",
        columns=(ast.ColumnDefinition(name="A", type=INTEGER, role="KEY", primary=True),),
        properties={"KAFKA_TOPIC": "t"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", STATEMENTS)
def test_each_statement_has_its_record(text: str) -> None:
    statement = parse_one(f"{text};")
    assert statement == STATEMENTS[text]
    assert statement.text == text


def test_every_clause_of_a_query_has_its_place() -> None:
    query = parse_one(
        "SELECT a AS x, b y, *, s.*, c->d->* FROM s"
        " WINDOW HOPPING (SIZE 1 MINUTE, ADVANCE BY 10 SECONDS, RETENTION 1 DAY, GRACE PERIOD 2 HOURS)"
        " WHERE a > 1 GROUP BY (a, b) PARTITION BY a HAVING COUNT(*) > 1 EMIT FINAL LIMIT 5"
    )
    assert isinstance(query, ast.Query)
    assert query.items == (
        ast.SelectColumn(expression=parse_expression("a"), alias="X"),
        ast.SelectColumn(expression=parse_expression("b"), alias="Y"),
        ast.SelectStar(),
        ast.SelectStar(source="S"),
        ast.SelectStructStar(expression=parse_expression("c->d")),
    )
    assert query.source == ast.SourceName(name="S", alias="S")
    assert query.window == ast.WindowExpression(
        kind="HOPPING", size_ms=60_000, advance_ms=10_000, retention_ms=86_400_000, grace_ms=7_200_000
    )
    assert query.where == parse_expression("a > 1")
    assert query.group_by == (parse_expression("a"), parse_expression("b"))
    assert query.partition_by == (parse_expression("a"),)
    assert query.having == parse_expression("COUNT(*) > 1")
    assert (query.emit, query.limit) == ("FINAL", 5)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("JOIN", "INNER"), ("INNER JOIN", "INNER"), ("LEFT JOIN", "LEFT"), ("LEFT OUTER JOIN", "LEFT"),
        ("RIGHT JOIN", "RIGHT"), ("RIGHT OUTER JOIN", "RIGHT"), ("FULL JOIN", "FULL"), ("FULL OUTER JOIN", "FULL"),
        ("OUTER JOIN", "FULL"),
    ],
)  # fmt: skip
def test_each_way_to_write_a_join_has_its_kind(written: str, kind: str) -> None:
    query = parse_one(f"SELECT * FROM a {written} b ON (a.x = b.y)")
    assert isinstance(query, ast.Query)
    assert isinstance(query.source, ast.Join)
    assert query.source.kind == kind


def test_joins_chain_to_the_left() -> None:
    query = parse_one(
        "SELECT * FROM a AS l JOIN b r WITHIN 1 HOUR GRACE PERIOD 1 DAY ON l.x = r.x"
        " LEFT JOIN c WITHIN (1 SECOND, 2 SECONDS) ON l.x = c.x EMIT CHANGES"
    )
    first = ast.Join(
        left=ast.SourceName(name="A", alias="L"),
        right=ast.SourceName(name="B", alias="R"),
        kind="INNER",
        on=parse_expression("l.x = r.x"),
        within=ast.Within(before_ms=3_600_000, after_ms=3_600_000, grace_ms=86_400_000),
    )
    assert isinstance(query, ast.Query)
    assert query.source == ast.Join(
        left=first,
        right=ast.SourceName(name="C", alias="C"),
        kind="LEFT",
        on=parse_expression("l.x = c.x"),
        within=ast.Within(before_ms=1_000, after_ms=2_000),
    )


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("SESSION (30 SECONDS, GRACE PERIOD 0 DAYS)", ast.WindowExpression(kind="SESSION", size_ms=30_000, grace_ms=0)),
        ("TUMBLING (SIZE 5 MILLISECONDS)", ast.WindowExpression(kind="TUMBLING", size_ms=5)),
        ("w TUMBLING (SIZE 1 DAY)", ast.WindowExpression(kind="TUMBLING", size_ms=86_400_000)),
    ],
)
def test_windows_are_in_milliseconds(text: str, window: ast.WindowExpression) -> None:
    query = parse_one(f"SELECT a FROM s WINDOW {text} GROUP BY a")
    assert isinstance(query, ast.Query)
    assert query.window == window


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM s WINDOW TUMBLING (SIZE 1 DAY, GRACE PERIOD {} DAYS) GROUP BY a",
        "SELECT a FROM s WINDOW SESSION ({} DAYS) GROUP BY a",
        "SELECT l.a FROM l JOIN r WITHIN {} DAYS ON l.a = r.a",
        "SELECT a FROM TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '{}' DAY)",
    ],
)
def test_a_duration_leaves_room_for_its_sum_with_a_rowtime(text: str) -> None:
    assert parse_one(text.format(1_000_000_000))
    with pytest.raises(SqlSyntaxError) as refused:
        parse_one(text.format(1_000_000_001))
    assert refused.value.message == "the duration is too long"
    assert refused.value.hint == "It can be 1000000000 DAYS at most."


@pytest.mark.parametrize(
    "text",
    [
        "SELECT key, emit, changes, map, array, struct, size, days, topic, query, `from` FROM source partition",
        "SELECT day key FROM session EMIT CHANGES",
        "SELECT time, timestamp, date, zone, if, string, escape FROM s escape",
        "SELECT IF(a, b, c), MAP(1 := 2), map['k'], ARRAY[1], array[1], STRUCT(f := 1), struct->f FROM s",
        "CREATE STREAM stream_1 (key STRING KEY, headers BYTES HEADER('h'), type INT, column INT)",
        "SELECT id, schema FROM s window WINDOW session SESSION (1 DAY) GROUP BY id".replace("s window", "s"),
        "SELECT lpar, comma, dot, string_literal, name FROM plus",
    ],
)
def test_words_are_keywords_only_where_the_grammar_takes_them(text: str) -> None:
    parse_one(text)


def test_unquoted_names_are_upper_case_and_quoted_ones_as_written() -> None:
    query = parse_one('SELECT s."lower", `tick``ed`, plain, 1R FROM "s"')
    assert isinstance(query, ast.Query)
    names = [item.expression.name for item in query.items if isinstance(item, ast.SelectColumn)]
    assert names == ["lower", "tick`ed", "PLAIN", "1R"]
    assert query.source == ast.SourceName(name="s", alias="s")


@pytest.mark.parametrize(
    ("text", "sql_type"),
    [
        ("varchar", STRING), ("VARCHAR(20)", STRING), ("VARCHAR(STRING)", STRING), ("int", INTEGER), ("bigint", BIGINT),
        ("ARRAY<ARRAY<INT>>", Array(Array(INTEGER))), ("INT ARRAY", Array(INTEGER)),
        ("MAP<STRING, STRUCT<a INT, `b` DATE>>", Map(STRING, Struct((Field("A", INTEGER), Field("b", DATE))))),
        ("STRUCT<>", Struct(())), ("DECIMAL(38,10)", Decimal(38, 10)), ("address", NamedType("ADDRESS")),
    ],
)  # fmt: skip
def test_types_have_their_records(text: str, sql_type: Any) -> None:
    assert parse_type(text) == sql_type
    assert parse_type(str(sql_type)) == sql_type


def test_custom_types_are_looked_up_where_they_are_given() -> None:
    assert parse_type("ARRAY<address>", {"ADDRESS": INTEGER}) == Array(INTEGER)


def test_the_last_statement_may_go_without_semicolon() -> None:
    assert [statement.text for statement in parse("; SHOW STREAMS ;; -- comment\n SHOW TABLES")] == [
        "SHOW STREAMS",
        "SHOW TABLES",
    ]
    assert parse(" -- nothing\n ;") == []


@pytest.mark.parametrize("text", ["", "SHOW STREAMS; SHOW TABLES"])
def test_one_statement_is_one_statement(text: str) -> None:
    with pytest.raises(SqlSyntaxError):
        parse_one(text)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a OR b AND NOT c = d", "(A OR (B AND (NOT (C = D))))"),
        ("NOT a AND b", "((NOT A) AND B)"),
        ("a || b + c * -d", "(A || (B + (C * -D)))"),
        ("a - b - c", "((A - B) - C)"),
        ("a * b % c / d", "(((A * B) % C) / D)"),
        ("a + b = c || d", "((A + B) = (C || D))"),
        ("a BETWEEN b AND c AND d", None),
        ("-a AT TIME ZONE 'UTC'", None),
    ],
)
def test_operators_bind_as_in_ksqldb(text: str, printed: str | None) -> None:
    node = parse_expression(text)
    if printed is not None:
        assert print_expression(node) == printed
    elif "BETWEEN" in text:
        assert isinstance(node, exp.And)
        assert isinstance(node.this, exp.Between)
    else:
        assert isinstance(node, exp.Neg)
        assert isinstance(node.this, exp.AtTimeZone)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a NOT LIKE 'x!%' ESCAPE '!'", [exp.Not, exp.Escape, exp.Like]),
        ("a NOT IN (1, 2)", [exp.Not, exp.In]),
        ("a NOT BETWEEN 1 AND 2", [exp.Not, exp.Between]),
        ("a IS NOT NULL", [exp.Not, exp.Is]),
        ("a IS DISTINCT FROM b", [exp.NullSafeNEQ]),
        ("a IS NOT DISTINCT FROM b", [exp.NullSafeEQ]),
        ("a != b", [exp.NEQ]),
        ("a->b->c", [exp.Dot, exp.Dot, exp.Column]),
        ("a[1]['k']", [exp.Bracket, exp.Bracket, exp.Column]),
        ("CAST(a AS INT)", [exp.Cast, exp.Column]),
        ("DATE '2024-01-31'", [exp.Cast, exp.Literal]),
        ("(a)", [exp.Paren, exp.Column]),
        (".5", [exp.Literal]),
        ("1e3", [exp.Literal]),
    ],
)
def test_expressions_are_the_nodes_that_the_table_says(text: str, kinds: list[type[exp.Expression]]) -> None:
    node = parse_expression(text)
    for kind in kinds:
        assert type(node) is kind
        node = node.this


def test_structured_values_calls_and_cases_are_the_nodes_that_the_table_says() -> None:
    assert repr(parse_expression("f(x => x + 1, (k, v) => k)")) == repr(
        exp.Anonymous(
            this="F",
            expressions=[
                exp.Lambda(this=parse_expression("x + 1"), expressions=[_identifier("X")]),
                exp.Lambda(this=parse_expression("k"), expressions=[_identifier("K"), _identifier("V")]),
            ],
        )
    )
    assert parse_expression("Count(*)") == exp.Anonymous(this="COUNT", expressions=[exp.Star()])
    map_node = parse_expression("MAP('k' := 1)")
    assert map_node == exp.Map(
        keys=exp.Array(expressions=[exp.Literal.string("k")]), values=exp.Array(expressions=[exp.Literal.number("1")])
    )
    assert parse_expression("STRUCT(f := 1)") == exp.Struct(
        expressions=[exp.PropertyEQ(this=_identifier("F"), expression=exp.Literal.number("1"))]
    )
    case = parse_expression("CASE a WHEN 1 THEN 'x' ELSE 'y' END")
    assert case == exp.Case(
        this=parse_expression("a"),
        ifs=[exp.If(this=exp.Literal.number("1"), true=exp.Literal.string("x"))],
        default=exp.Literal.string("y"),
    )
    assert parse_expression("CAST(a AS DECIMAL(4, 2))").meta["to"] == Decimal(4, 2)
    call = parse_expression("TIMESTAMPADD(SECONDS, 5, ts)")
    assert call.expressions[0] == exp.Column(this=_identifier("SECONDS"))


def _identifier(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)


def test_long_chains_of_conditions_are_trees_of_little_depth() -> None:
    node = parse_expression(" AND ".join(f"a = {i}" for i in range(1_000)))
    depth = max(_depth(leaf) for leaf in node.find_all(exp.Literal))
    assert depth < 20
    assert [leaf.name for leaf in node.find_all(exp.Literal, bfs=False)] == [str(i) for i in range(1_000)]


def _depth(node: exp.Expr) -> int:
    return 0 if node.parent is None else 1 + _depth(node.parent)


SPANNED = """
CREATE TABLE t AS SELECT a, s.b AS c, COUNT(*), MAP('k' := 1), STRUCT(f := ARRAY[1, 2][1]), a->b->*, s.*,
  CASE WHEN NOT a IS NULL THEN -1 ELSE CAST(x AS INT) END, CASE a WHEN 1 THEN 2 END, f((x, y) => x || y, z => z)
FROM a s LEFT JOIN b WITHIN 1 HOUR ON a = b AND c LIKE 'x' ESCAPE 'y' OR d IN (1, 2) WINDOW TUMBLING (SIZE 1 DAY)
WHERE a BETWEEN 1 AND 2 AND DATE '2020-01-01' AT TIME ZONE 'UTC' IS DISTINCT FROM TRUE GROUP BY a, (b) EMIT CHANGES;
CREATE STREAM s (a INT KEY, b STRING);
"""


def test_every_node_knows_its_place_in_the_whole_text() -> None:
    for statement in parse(SPANNED):
        for node in _nodes(statement):
            span = ast.span_of(node) if isinstance(node, exp.Expression) else node.span
            assert span is not None, node
            assert 0 <= span.start < span.end <= len(SPANNED)
            if isinstance(node, exp.Column):
                assert SPANNED[span.start : span.end].upper().endswith(node.name)


def test_spans_cover_exactly_their_text() -> None:
    text = "SHOW TABLES; SELECT a + b * 2 AS c FROM s WHERE NOT (x)"
    query = parse(text)[1]
    assert isinstance(query, ast.Query)
    item = query.items[0]
    assert isinstance(item, ast.SelectColumn)
    assert query.where is not None
    places = [
        query.span,
        item.span,
        *(ast.span_of(node) for node in (item.expression, item.expression.expression, query.where)),
    ]
    assert [text[place.start : place.end] for place in places if place] == [
        "SELECT a + b * 2 AS c FROM s WHERE NOT (x)", "a + b * 2 AS c", "a + b * 2", "b * 2", "NOT (x)",
    ]  # fmt: skip


def _nodes(value: Any) -> Iterator[Any]:
    if isinstance(value, exp.Expression):
        yield from value.walk()
    elif isinstance(value, ast.Node):
        yield value
        for field in fields(value):
            yield from _nodes(getattr(value, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from _nodes(each)


def test_every_rule_of_the_grammar_builds_something() -> None:
    single_child = {
        "statement",
        "negation",
        "predicate",
        "sum",
        "product",
        "unary",
        "zoned",
        "primary",
        "operand",
        "argument",
        "function_argument",
        "type",
    }
    assert {name for name in _callback_names() if not hasattr(StatementRules, name)} <= single_child


def _callback_names() -> set[str]:
    return {rule.alias or rule.origin.name for rule in lark().rules if not rule.origin.name.startswith("_")}
