"""Column lineage of plans, and through the queries and topics of a catalog."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.planner.insight.catalog_lineage import CatalogLineage, LineageEdge
from millstream.testing import Sandbox

SOURCES = """
CREATE STREAM clicks (user STRING KEY, url STRING, size INT, tags ARRAY<STRING>, dt STRING, s STRUCT<a INT, b STRING>)
  WITH (kafka_topic='clicks', value_format='JSON');
CREATE TABLE users (id STRING PRIMARY KEY, name STRING, city STRING) WITH (kafka_topic='users', value_format='JSON');
"""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        opened.create_topic("clicks")
        opened.create_topic("users")
        opened.execute(SOURCES)
        yield opened


def edges(sandbox: Sandbox, statements: str, name: str, column: str | None = None) -> list[LineageEdge]:
    sandbox.execute(statements)
    catalog = sandbox.engine.catalog
    return CatalogLineage(catalog).edges(catalog.source(name), column)


def told(found: list[LineageEdge]) -> set[tuple[str, str, str]]:
    return {(str(edge.output), str(edge.input), edge.subtype) for edge in found}


def test_a_column_that_is_passed_on_is_the_same_column(sandbox: Sandbox) -> None:
    found = edges(sandbox, "CREATE STREAM o AS SELECT user, url FROM clicks;", "O", "URL")
    assert told(found) == {("O.URL", "CLICKS.URL", "IDENTITY")}
    assert found[0].topic == "clicks"


def test_an_expression_is_told_in_the_words_of_the_user(sandbox: Sandbox) -> None:
    found = edges(sandbox, "CREATE STREAM o AS SELECT user, size * 2 + 1 AS n FROM clicks;", "O", "N")
    assert [(str(edge.input), edge.subtype, edge.description) for edge in found] == [
        ("CLICKS.SIZE", "TRANSFORMATION", "(CLICKS.SIZE * 2) + 1")
    ]


def test_a_filter_decides_about_every_column_and_gets_into_none(sandbox: Sandbox) -> None:
    found = edges(sandbox, "CREATE STREAM o AS SELECT user, url FROM clicks WHERE size > 3;", "O", "URL")
    assert told(found) == {("O.URL", "CLICKS.URL", "IDENTITY"), ("O.URL", "CLICKS.SIZE", "FILTER")}
    assert {edge.kind for edge in found if edge.subtype == "FILTER"} == {"INDIRECT"}


def test_what_only_chooses_between_values_is_a_condition(sandbox: Sandbox) -> None:
    statement = "CREATE STREAM o AS SELECT user, CASE WHEN size > 3 THEN url ELSE dt END AS x FROM clicks;"
    assert told(edges(sandbox, statement, "O", "X")) == {
        ("O.X", "CLICKS.URL", "TRANSFORMATION"),
        ("O.X", "CLICKS.DT", "TRANSFORMATION"),
        ("O.X", "CLICKS.SIZE", "CONDITIONAL"),
    }


def test_an_aggregate_in_a_window_depends_on_its_group_and_the_time(sandbox: Sandbox) -> None:
    statement = """CREATE TABLE o AS SELECT url, SUM(size) AS total FROM clicks
                   WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY url;"""
    assert told(edges(sandbox, statement, "O", "TOTAL")) == {
        ("O.TOTAL", "CLICKS.SIZE", "AGGREGATION"),
        ("O.TOTAL", "CLICKS.URL", "GROUP_BY"),
        ("O.TOTAL", "CLICKS.ROWTIME", "WINDOW"),
    }


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_a_join_depends_on_the_keys_of_both_sides(sandbox: Sandbox, join: str) -> None:
    statement = f"CREATE STREAM o AS SELECT c.user, u.city AS c FROM clicks c {join} users u ON c.user = u.id;"
    assert told(edges(sandbox, statement, "O", "C")) == {
        ("O.C", "USERS.CITY", "IDENTITY"),
        ("O.C", "CLICKS.USER", "JOIN"),
        ("O.C", "USERS.ID", "JOIN"),
    }


def test_a_join_that_partitions_anew_still_finds_the_column(sandbox: Sandbox) -> None:
    statement = "CREATE STREAM o AS SELECT c.url, u.name AS n FROM clicks c JOIN users u ON c.url = u.id;"
    assert ("O.N", "USERS.NAME", "IDENTITY") in told(edges(sandbox, statement, "O", "N"))


def test_both_branches_of_a_union_are_sources(sandbox: Sandbox) -> None:
    statement = "CREATE STREAM o AS SELECT user, url AS x FROM clicks UNION ALL SELECT user, dt AS x FROM clicks;"
    assert told(edges(sandbox, statement, "O", "X")) == {
        ("O.X", "CLICKS.URL", "IDENTITY"),
        ("O.X", "CLICKS.DT", "IDENTITY"),
    }


def test_a_function_over_a_partition_depends_on_partition_and_order(sandbox: Sandbox) -> None:
    statement = """CREATE TABLE o AS SELECT user, SUM(size) OVER (PARTITION BY url ORDER BY dt) AS x FROM clicks;"""
    assert told(edges(sandbox, statement, "O", "X")) >= {
        ("O.X", "CLICKS.SIZE", "AGGREGATION"),
        ("O.X", "CLICKS.URL", "WINDOW"),
        ("O.X", "CLICKS.DT", "SORT"),
    }


def test_lineage_goes_through_queries_down_to_topics(sandbox: Sandbox) -> None:
    statements = """CREATE STREAM big AS SELECT user, size * 2 AS s2 FROM clicks WHERE url <> '';
                    CREATE TABLE o AS SELECT user, SUM(s2) AS total FROM big GROUP BY user;"""
    found = edges(sandbox, statements, "O", "TOTAL")
    assert {(edge.depth, str(edge.input)) for edge in found if edge.kind == "DIRECT"} >= {
        (1, "BIG.S2"),
        (2, "CLICKS.SIZE"),
    }
    catalog = sandbox.engine.catalog
    (fields,) = CatalogLineage(catalog).facet(catalog.source("O"), "TOTAL")["fields"].values()
    named = {(each["name"], each["field"]): each["transformations"] for each in fields["inputFields"]}
    assert named["clicks", "SIZE"][0]["subtype"] == "AGGREGATION"
    assert [way["type"] for way in named["clicks", "URL"]] == ["INDIRECT"]


def test_a_stream_declared_on_the_topic_of_a_query_comes_from_that_query(sandbox: Sandbox) -> None:
    statements = """CREATE STREAM big AS SELECT user, url FROM clicks;
                    CREATE STREAM again (user STRING KEY, url STRING) WITH (kafka_topic='BIG', value_format='JSON');"""
    found = edges(sandbox, statements, "AGAIN", "URL")
    assert [str(edge.input) for edge in found] == ["BIG.URL", "CLICKS.URL"]
    assert [edge.query_id for edge in found] == [None, "CSAS_BIG_2"]


def test_several_queries_that_insert_are_all_sources(sandbox: Sandbox) -> None:
    statements = """CREATE STREAM o (k STRING KEY, x STRING) WITH (kafka_topic='o', value_format='JSON', partitions=1);
                    INSERT INTO o SELECT user AS k, url AS x FROM clicks;
                    INSERT INTO o SELECT user AS k, dt AS x FROM clicks;"""
    found = edges(sandbox, statements, "O", "X")
    assert told(found) == {("O.X", "CLICKS.URL", "IDENTITY"), ("O.X", "CLICKS.DT", "IDENTITY")}


def test_queries_that_feed_each_other_end(sandbox: Sandbox) -> None:
    statements = """CREATE STREAM a (k STRING KEY, x STRING) WITH (kafka_topic='a', value_format='JSON', partitions=1);
                    CREATE STREAM b AS SELECT k, UCASE(x) AS x FROM a;
                    INSERT INTO a SELECT k, x FROM b;"""
    found = edges(sandbox, statements, "A", "X")
    assert told(found) == {("A.X", "B.X", "IDENTITY"), ("B.X", "A.X", "TRANSFORMATION")}


def test_of_a_whole_table_what_decides_about_rows_is_said_once(sandbox: Sandbox) -> None:
    found = edges(sandbox, "CREATE STREAM o AS SELECT user, url FROM clicks WHERE size > 3;", "O")
    assert told(found) == {
        ("O.USER", "CLICKS.USER", "IDENTITY"),
        ("O.URL", "CLICKS.URL", "IDENTITY"),
        ("O.*", "CLICKS.SIZE", "FILTER"),
    }


def test_the_rowtime_column_of_a_stream_is_where_its_windows_come_from(sandbox: Sandbox) -> None:
    statements = """
        CREATE STREAM timed (k STRING KEY, at_ms BIGINT, n INT)
          WITH (kafka_topic='clicks', value_format='JSON', timestamp='at_ms');
        CREATE TABLE o AS SELECT k, COUNT(*) AS n FROM timed WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY k;"""
    assert ("O.N", "TIMED.AT_MS", "WINDOW") in told(edges(sandbox, statements, "O", "N"))


def test_show_lineage_answers_with_rows_and_the_facet_and_knows_its_columns(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM o AS SELECT user, url FROM clicks;")
    (answer,) = sandbox.execute("SHOW LINEAGE OF o.url;")
    assert answer["@type"] == "lineage"
    assert [(line["output"], line["input"], line["type"]) for line in answer["lineage"]] == [
        ("O.URL", "CLICKS.URL", "DIRECT")
    ]
    assert answer["columnLineage"]["fields"]["URL"]["inputFields"][0]["name"] == "clicks"
    with pytest.raises(Exception, match='column "URI" does not exist in stream "O"') as refused:
        sandbox.execute("SHOW LINEAGE OF o.uri;")
    assert getattr(refused.value, "hint", None) == 'Did you mean "URL"?'


ALL_KINDS = {
    "foreign key": "CREATE TABLE o AS SELECT a.id, b.city AS x FROM users a JOIN users2 b ON a.name = b.id;",
    "any condition": "CREATE TABLE o AS SELECT a.id, b.id AS i2, b.city AS x FROM users a JOIN users2 b "
    "ON a.city = b.city AND a.name <> b.name;",
    "two streams": "CREATE STREAM o AS SELECT a.user, b.url AS x FROM clicks a LEFT JOIN clicks2 b WITHIN 1 MINUTE "
    "ON a.user = b.user;",
    "with": "CREATE TABLE o AS WITH q AS (SELECT user, UCASE(url) AS u FROM clicks) "
    "SELECT u, COUNT(*) AS x FROM q GROUP BY u;",
    "subquery": "CREATE TABLE o AS SELECT n, COUNT(*) AS x FROM "
    "(SELECT user, COUNT(*) AS n FROM clicks GROUP BY user) q GROUP BY n;",
    "rank": "CREATE TABLE o AS SELECT user, url, ROW_NUMBER() OVER (PARTITION BY user ORDER BY size DESC) AS x "
    "FROM clicks QUALIFY ROW_NUMBER() OVER (PARTITION BY user ORDER BY size DESC) <= 3;",
    "in": "CREATE TABLE o AS SELECT user, url AS x FROM clicks WHERE user IN (SELECT id FROM users);",
    "distinct": "CREATE TABLE o AS SELECT url, COUNT(DISTINCT user) FILTER (WHERE size > 3) AS x FROM clicks "
    "GROUP BY url;",
    "session": "CREATE TABLE o AS SELECT user, COLLECT_LIST(s->b) AS x FROM clicks WINDOW SESSION (1 MINUTE) "
    "GROUP BY user;",
    "lambda": "CREATE STREAM o AS SELECT user, REDUCE(tags, '', (a, t) => a || t || url) AS x FROM clicks;",
    "partition by": "CREATE STREAM o AS SELECT url, user AS x FROM clicks PARTITION BY url;",
}
FROM_WHERE = {
    "foreign key": "USERS2.CITY",
    "any condition": "USERS2.CITY",
    "two streams": "CLICKS2.URL",
    "with": "CLICKS.URL",
    "subquery": "CLICKS.USER",
    "rank": "CLICKS.SIZE",
    "in": "CLICKS.URL",
    "distinct": "CLICKS.USER",
    "session": "CLICKS.S",
    "lambda": "CLICKS.TAGS",
    "partition by": "CLICKS.USER",
}


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_whatever_a_query_does_its_columns_come_from_columns_that_there_are(sandbox: Sandbox, kind: str) -> None:
    sandbox.execute(
        "CREATE STREAM clicks2 (user STRING KEY, url STRING) WITH (kafka_topic='clicks', value_format='JSON');"
        "CREATE TABLE users2 (id STRING PRIMARY KEY, name STRING, city STRING) "
        "WITH (kafka_topic='users', value_format='JSON');"
    )
    found = edges(sandbox, ALL_KINDS[kind], "O", "X")
    sources = sandbox.engine.catalog.sources
    for edge in found:
        columns = {column.name for column in sources[edge.input.source].schema}
        assert edge.input.column in {*columns, "ROWTIME"}
        assert "TRY(" not in edge.description
    assert FROM_WHERE[kind] in {str(edge.input) for edge in found}
