"""The engine through the Sandbox: what statements change, what they answer, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import (
    InvalidProperty,
    InvalidStatement,
    SourceExists,
    SqlSyntaxError,
    StatementError,
    UnknownSource,
    Unsupported,
)
from millstream.server.catalog.command_topic import COMMAND_TOPIC
from millstream.testing import Sandbox

STREAM = "CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
COPY = "CREATE STREAM c AS SELECT * FROM s;"


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as opened:
        yield opened


def _commands(sandbox: Sandbox) -> int:
    return sandbox.log.offsets(COMMAND_TOPIC, 0).log_end_offset


def _values(sandbox: Sandbox, topic: str) -> list[Any]:
    sandbox.drain()
    return [record["value"] for record in sandbox.consume(topic)]


def test_create_stream_answers_as_ksqldb_does(sandbox: Sandbox) -> None:
    assert sandbox.execute(STREAM) == [
        {
            "@type": "currentStatus",
            "statementText": STREAM,
            "commandId": "stream/`S`/create",
            "commandStatus": {"status": "SUCCESS", "message": "Stream created", "queryId": None},
            "commandSequenceNumber": 0,
            "warnings": [],
        }
    ]
    assert [source["name"] for source in sandbox.sources()] == ["S"]
    assert [topic["name"] for topic in sandbox.topics()] == ["s"]


def test_a_query_is_named_after_its_sink_and_the_offset_of_its_command(sandbox: Sandbox) -> None:
    answer = sandbox.execute(STREAM + COPY)[1]
    assert answer["commandStatus"]["queryId"] == "CSAS_C_1"
    assert answer["commandStatus"]["message"] == "Created query with ID CSAS_C_1"
    second = sandbox.execute("CREATE STREAM d (id INT KEY, v INT) WITH (kafka_topic='C', value_format='JSON');")
    assert second[0]["commandSequenceNumber"] == 2
    insert = sandbox.execute("INSERT INTO d SELECT * FROM s;")
    assert insert[0]["commandStatus"]["queryId"] == "INSERTQUERY_3"


def test_rows_flow_from_insert_values_through_a_query(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM + COPY)
    assert sandbox.execute("INSERT INTO s (ROWTIME, id, v) VALUES (5, 1, 2 + 3);") == []
    assert _values(sandbox, "C") == [{"V": 5}]
    assert sandbox.consume("C")[0]["timestamp"] == 5


def test_a_statement_that_is_refused_writes_nothing(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM)
    before = _commands(sandbox)
    refused = [
        STREAM,
        "CREATE STREAM t AS SELECT nope FROM s;",
        "CREATE STREAM t (id INT) WITH (kafka_topic='missing', value_format='JSON');",
        "INSERT INTO nowhere SELECT * FROM s;",
        "DROP STREAM nowhere;",
        "TERMINATE nothing;",
        "CREATE TYPE a AS nonsense;",
    ]
    for statement in refused:
        with pytest.raises(StatementError):
            sandbox.execute(statement)
    assert _commands(sandbox) == before
    assert [source["name"] for source in sandbox.sources()] == ["S"]


def test_nothing_runs_of_a_text_that_does_not_parse(sandbox: Sandbox) -> None:
    with pytest.raises(SqlSyntaxError):
        sandbox.execute(STREAM + "SELEC 1;")
    assert sandbox.sources() == []


def test_an_error_knows_the_text_it_is_about(sandbox: Sandbox) -> None:
    text = STREAM + "\nCREATE STREAM t AS SELECT nope FROM s;"
    with pytest.raises(StatementError) as caught:
        sandbox.execute(text)
    assert caught.value.text == text
    assert "nope" in caught.value.render()


def test_an_existing_name_is_refused_unless_the_statement_says_if_not_exists(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM)
    with pytest.raises(SourceExists, match="Cannot add stream 'S': A stream with the same name already exists"):
        sandbox.execute(STREAM)
    warned = sandbox.execute(STREAM.replace("STREAM s", "STREAM IF NOT EXISTS s"))[0]
    assert warned["@type"] == "warning_entity"
    assert warned["message"] == "Cannot add stream `S`: A stream with the same name already exists."


def test_or_replace_may_append_a_column_and_nothing_else(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM)
    options = "WITH (kafka_topic='s', value_format='JSON');"
    sandbox.execute(f"CREATE OR REPLACE STREAM s (id INT KEY, v INT, w STRING) {options}")
    assert sandbox.sources()[0]["schema"] == "`ID` INTEGER KEY, `V` INTEGER, `W` STRING"
    with pytest.raises(InvalidStatement, match=r"changed, missing or reordered: \[`V` INTEGER"):
        sandbox.execute(f"CREATE OR REPLACE STREAM s (id INT KEY, w STRING) {options}")
    with pytest.raises(InvalidStatement, match=r"Key columns must be identical. .* \[`ID` INTEGER KEY\]"):
        sandbox.execute(f"CREATE OR REPLACE STREAM s (id BIGINT KEY, v INT, w STRING) {options}")


def test_a_replaced_query_goes_on_under_its_id_with_the_new_plan(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM + COPY + "INSERT INTO s VALUES (1, 10);")
    assert _values(sandbox, "C") == [{"V": 10}]
    answer = sandbox.execute("CREATE OR REPLACE STREAM c AS SELECT *, v + 1 AS w FROM s;")[0]
    assert answer["commandStatus"]["queryId"] == "CSAS_C_1"
    assert list(sandbox.engine.catalog.queries) == ["CSAS_C_1"]
    with pytest.raises(InvalidStatement, match=r"changed, missing or reordered: \[`V` INTEGER"):
        sandbox.execute("CREATE OR REPLACE STREAM c AS SELECT id, v + 1 AS w FROM s;")


def test_a_replacement_that_needs_another_state_is_refused(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM + "CREATE TABLE n AS SELECT id, COUNT(*) AS c FROM s GROUP BY id;")
    with pytest.raises(InvalidStatement, match="its grouping, aggregates, windows or joins would change"):
        sandbox.execute("CREATE OR REPLACE TABLE n AS SELECT id, COUNT(*) AS c, SUM(v) AS t FROM s GROUP BY id;")
    sandbox.execute("CREATE OR REPLACE TABLE n AS SELECT id, COUNT(*) AS c FROM s WHERE v > 0 GROUP BY id;")


def test_a_source_that_queries_use_cannot_be_dropped(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM + COPY + "INSERT INTO c SELECT * FROM s;")
    with pytest.raises(InvalidStatement) as caught:
        sandbox.execute("DROP STREAM s;")
    assert str(caught.value) == (
        "Cannot drop S.\n"
        "The following queries read from this source: [INSERTQUERY_2].\n"
        "The following queries write into this source: [].\n"
        "You need to terminate them before dropping S."
    )
    with pytest.raises(InvalidStatement, match=r"write into this source: \[INSERTQUERY_2\]"):
        sandbox.execute("DROP STREAM c;")
    sandbox.execute("TERMINATE insertquery_2;")
    with pytest.raises(InvalidStatement) as caught:
        sandbox.execute("DROP STREAM s;")
    assert str(caught.value) == (
        "Cannot drop S.\n"
        "The following streams and/or tables read from this source: [C].\n"
        "You need to drop them before dropping S."
    )
    answer = sandbox.execute("DROP STREAM c DELETE TOPIC;")[0]
    assert answer["commandStatus"]["message"] == "Source `C` (topic: C) was dropped."
    assert not sandbox.engine.catalog.queries
    assert [topic["name"] for topic in sandbox.topics()] == ["s"]
    sandbox.execute("DROP STREAM s;")
    assert sandbox.sources() == []


def test_drop_says_what_does_not_fit(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM)
    with pytest.raises(UnknownSource, match="Stream T does not exist"):
        sandbox.execute("DROP STREAM t;")
    with pytest.raises(InvalidStatement, match="is STREAM, but statement was DROP TABLE"):
        sandbox.execute("DROP TABLE s;")
    assert sandbox.execute("DROP STREAM IF EXISTS t;")[0]["commandStatus"]["message"] == "Source `T` does not exist."


def test_a_paused_query_reads_nothing_until_it_is_resumed(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM + COPY + "PAUSE CSAS_C_1; INSERT INTO s VALUES (1, 10);")
    assert _values(sandbox, "C") == []
    assert sandbox.execute("SHOW QUERIES;")[0]["queries"][0]["state"] == "PAUSED"
    sandbox.execute("RESUME ALL;")
    assert _values(sandbox, "C") == [{"V": 10}]
    sandbox.execute("TERMINATE ALL;")
    assert sandbox.execute("SHOW QUERIES;")[0]["queries"] == []


def test_columns_can_be_added_to_a_source_without_a_query(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM + COPY)
    sandbox.execute("ALTER STREAM s ADD COLUMN w STRING, ADD COLUMN x ARRAY<INT>;")
    assert sandbox.sources()[0]["schema"].endswith("`W` STRING, `X` ARRAY<INTEGER>")
    with pytest.raises(InvalidStatement, match="A column with the same name already exists"):
        sandbox.execute("ALTER STREAM s ADD COLUMN v INT;")
    with pytest.raises(InvalidStatement, match=r"not supported for CREATE \.\.\. AS"):
        sandbox.execute("ALTER STREAM c ADD COLUMN w INT;")


def test_custom_types_are_known_to_later_statements(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE TYPE address AS STRUCT<street STRING, number INT>;")
    sandbox.execute("CREATE TYPE person AS STRUCT<home address>;")
    types = sandbox.execute("SHOW TYPES;")[0]["types"]
    assert types["PERSON"]["fields"][0]["schema"]["fields"][0]["name"] == "STREET"
    sandbox.execute("CREATE STREAM p (who person) WITH (kafka_topic='p', value_format='JSON', partitions=1);")
    assert "STRUCT<`HOME` STRUCT<`STREET` STRING, `NUMBER` INTEGER>>" in sandbox.sources()[0]["schema"]
    with pytest.raises(InvalidStatement, match="already registered"):
        sandbox.execute("CREATE TYPE address AS INT;")
    sandbox.execute("DROP TYPE address; DROP TYPE IF EXISTS address;")
    assert list(sandbox.execute("SHOW TYPES;")[0]["types"]) == ["PERSON"]


def test_set_takes_known_properties_with_valid_values_only(sandbox: Sandbox) -> None:
    assert sandbox.execute("SET 'ksql.streams.auto.offset.reset' = 'latest';") == []
    assert sandbox.session.properties["auto.offset.reset"] == "latest"
    with pytest.raises(InvalidProperty) as caught:
        sandbox.execute("SET 'auto.offset.resett' = 'latest';")
    assert caught.value.hint == 'Did you mean "auto.offset.reset"?'
    with pytest.raises(InvalidProperty, match="expected earliest, latest, a time"):
        sandbox.execute("SET 'auto.offset.reset' = 'soon';")
    sandbox.execute("UNSET 'auto.offset.reset';")
    assert "auto.offset.reset" not in sandbox.session.properties


def test_a_misspelled_statement_stops_a_text_with_variables_before_it_begins(sandbox: Sandbox) -> None:
    text = "DEFINE name = 'S2';\n" + STREAM.replace("STREAM s", "STREAM ${name}") + "\nSELCT 1;"
    with pytest.raises(StatementError, match="SELCT") as caught:
        sandbox.execute(text)
    assert caught.value.span is not None
    assert caught.value.span.start == text.index("SELCT")
    assert sandbox.sources() == []
    assert sandbox.execute("SHOW VARIABLES;")[0]["variables"] == []


def test_what_was_not_set_can_be_unset_and_a_script_goes_on(sandbox: Sandbox) -> None:
    text = "DEFINE name = 'S2'; UNSET 'millstream.start.offsets'; UNDEFINE nam; SHOW VARIABLES;"
    unset, undefined, variables = sandbox.execute(text)
    assert (unset["@type"], undefined["@type"]) == ("warning_entity", "warning_entity")
    assert unset["message"] == "Property 'millstream.start.offsets' is not set in this session."
    assert undefined["message"] == ("Cannot undefine variable 'nam' which was never defined. Did you mean \"name\"?")
    assert variables["variables"] == [{"name": "name", "value": "S2"}]
    with pytest.raises(InvalidProperty):
        sandbox.execute("UNSET 'auto.offset.resett';")


def test_a_variable_defined_in_a_text_holds_for_the_rest_of_it(sandbox: Sandbox) -> None:
    sandbox.execute("DEFINE name = 'S2';" + STREAM.replace("STREAM s", "STREAM ${name}"))
    assert sandbox.sources()[0]["name"] == "S2"
    assert sandbox.execute("SHOW VARIABLES;")[0]["variables"] == [{"name": "name", "value": "S2"}]
    sandbox.execute("DEFINE Name = 'S3';")
    assert sandbox.execute("SHOW VARIABLES;")[0]["variables"] == [{"name": "Name", "value": "S3"}]
    sandbox.execute("UNDEFINE NAME;")
    with pytest.raises(StatementError):
        sandbox.execute("DROP STREAM ${name};")


@pytest.mark.parametrize(
    ("text", "line", "wrong"),
    [
        ("DEFINE x = 's';\nSHOW TYPES; DESCRIBE  ${x}_longer_than_that;", 2, "DESCRIBE  s_longer_than_that"),
        ("DEFINE x = 'its';\n\nINSERT INTO s (id, v) VALUES\n (1, '${x}' || 'a', nope);", 4, "(1, 'its' || 'a', nope)"),
        ("DEFINE x = 'longer than that';\nSHOW '${x}' nope;", 2, "'longer than that'"),
        ("SHOW TYPES;\n SHOW ${nope};", 2, "${nope}"),
    ],
)
def test_an_error_after_a_variable_points_at_what_was_run(sandbox: Sandbox, text: str, line: int, wrong: str) -> None:
    sandbox.execute(STREAM)
    with pytest.raises(StatementError) as refused:
        sandbox.execute(text)
    error = refused.value
    assert error.text is not None and error.span is not None and error.line_and_column is not None
    assert error.line_and_column[0] == line
    assert error.text[error.span.start : error.span.end] == wrong


def test_an_error_of_a_query_after_a_variable_points_at_what_was_run(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM + "DEFINE x = 'longer than that';")
    with pytest.raises(StatementError) as refused:
        list(sandbox.query("\n  SELECT '${x}', nope FROM s;"))
    assert "  2 |   SELECT 'longer than that', nope FROM s\n    |                              ^^^^\n" in (
        refused.value.render() + "\n"
    )


def test_a_query_that_reads_what_it_writes_says_so(sandbox: Sandbox) -> None:
    sandbox.execute(
        STREAM + COPY + "CREATE STREAM d (id INT KEY, v INT) WITH (kafka_topic='d', format='JSON', partitions=1);"
    )
    (harmless,) = sandbox.execute("INSERT INTO d SELECT * FROM c WHERE v > 5;")
    assert harmless["warnings"] == []
    (harmless,) = sandbox.execute("CREATE STREAM h WITH (kafka_topic='d') AS SELECT * FROM c WHERE v > 5;")
    assert harmless["warnings"] == []
    topic = sandbox.execute("DESCRIBE s;")[0]["sourceDescription"]["topic"]
    for text in (
        "INSERT INTO d SELECT * FROM d WHERE v > 5;",
        "INSERT INTO s SELECT * FROM c WHERE v > 5;",
        f"CREATE STREAM e WITH (kafka_topic='{topic}') AS SELECT * FROM s WHERE v > 5;",
        f"CREATE STREAM g WITH (kafka_topic='{topic}') AS SELECT * FROM c WHERE v > 5;",
    ):
        (answer,) = sandbox.execute(text)
        (warning,) = answer["warnings"]
        query = answer["commandStatus"]["queryId"]
        assert warning["message"].startswith("The query reads its own output")
        assert f"TERMINATE {query}" in warning["message"]


def test_a_row_that_is_inserted_into_a_table_that_a_query_writes_is_written_with_a_warning(sandbox: Sandbox) -> None:
    table = "CREATE TABLE n AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;"
    query = sandbox.execute(STREAM + table)[-1]["commandStatus"]["queryId"]
    assert sandbox.execute("INSERT INTO s VALUES (1, 2);") == []
    (answer,) = sandbox.execute("INSERT INTO n VALUES (9, 9);")
    assert answer["@type"] == "warning_entity"
    assert f"{query} writes N too" in answer["message"]
    assert {"N": 9} in _values(sandbox, "N")


def test_insert_values_refuses_what_cannot_be_written(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE SOURCE TABLE t (id INT PRIMARY KEY) WITH (kafka_topic='t', format='JSON', partitions=1);")
    with pytest.raises(InvalidStatement, match="Cannot insert values into read-only table: T"):
        sandbox.execute("INSERT INTO t VALUES (1);")
    with pytest.raises(UnknownSource, match="Cannot insert values into an unknown stream/table: `NOPE`"):
        sandbox.execute("INSERT INTO nope VALUES (1);")
    with pytest.raises(InvalidStatement, match="Cannot delete topic for read-only source: T"):
        sandbox.execute("DROP TABLE t DELETE TOPIC;")


def test_statements_that_are_not_built_say_so(sandbox: Sandbox) -> None:
    with pytest.raises(Unsupported, match="ALTER SYSTEM exists in Confluent Cloud only"):
        sandbox.execute("ALTER SYSTEM 'auto.offset.reset'='earliest';")


def test_show_lists_what_there_is(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM + COPY)
    streams, tables, topics, queries = sandbox.execute("SHOW STREAMS; SHOW TABLES; SHOW TOPICS; SHOW QUERIES;")
    assert [line["name"] for line in streams["streams"]] == ["C", "S"]
    assert tables["tables"] == []
    assert topics["topics"] == [{"name": "C", "replicaInfo": [1]}, {"name": "s", "replicaInfo": [1]}]
    assert queries["queries"][0]["sinks"] == ["C"]
    everything = "SHOW STREAMS EXTENDED; SHOW TOPICS EXTENDED; SHOW QUERIES EXTENDED; SHOW FUNCTIONS; SHOW PROPERTIES;"
    kinds = [answer["@type"] for answer in sandbox.execute(everything)]
    assert kinds == [
        "source_descriptions",
        "kafka_topics_extended",
        "query_descriptions",
        "function_names",
        "properties",
    ]


def test_describe_shows_columns_and_queries(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM + COPY)
    described = sandbox.execute("DESCRIBE s;")[0]["sourceDescription"]
    assert [(field["name"], field.get("type")) for field in described["fields"]] == [("ID", "KEY"), ("V", None)]
    assert [query["id"] for query in described["readQueries"]] == ["CSAS_C_1"]
    function = sandbox.execute("DESCRIBE FUNCTION lpad;")[0]
    assert function["@type"] == "describe_function"
    assert function["name"] == "LPAD"
    assert sandbox.execute("DESCRIBE FUNCTION sum;")[0]["type"] == "AGGREGATE"
    with pytest.raises(UnknownSource):
        sandbox.execute("DESCRIBE nope;")


def test_explain_shows_the_plan_of_a_statement_without_running_it(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM)
    explained = sandbox.execute("EXPLAIN " + COPY)[0]["queryDescription"]
    assert "SINK STREAM C" in explained["executionPlan"]
    assert [source["name"] for source in sandbox.sources()] == ["S"]
    sandbox.execute(COPY)
    assert sandbox.execute("EXPLAIN CSAS_C_1;")[0]["queryDescription"]["state"] == "RUNNING"


def test_assert_topic_tells_whether_a_topic_is_there(sandbox: Sandbox) -> None:
    sandbox.create_topic("t", partitions=2)
    assert sandbox.execute("ASSERT TOPIC t WITH (PARTITIONS=2);")[0]["exists"] is True
    with pytest.raises(Exception, match="expected 3 got 2"):
        sandbox.execute("ASSERT TOPIC t WITH (PARTITIONS=3) TIMEOUT 10 MILLISECONDS;")
    assert sandbox.execute("ASSERT NOT EXISTS TOPIC u;")[0]["exists"] is False
