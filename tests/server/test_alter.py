"""ALTER … DROP COLUMN, RENAME COLUMN and RENAME TO: what the records of the topic allow, and what depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import InvalidStatement, MillstreamError, SourceExists, UnknownColumn, UnknownSource
from millstream.server.engine.embedded import open_engine
from millstream.server.engine.session import Session
from millstream.testing import Sandbox

JSON = """
CREATE STREAM j (id INT KEY, a INT, b STRING, h ARRAY<STRUCT<key STRING, value BYTES>> HEADERS)
  WITH (kafka_topic='j', value_format='JSON', partitions=1);
"""
LINES = "CREATE STREAM d (id INT KEY, a INT, b STRING) WITH (kafka_topic='d', value_format='DELIMITED', partitions=1);"
AVRO = "CREATE STREAM v (id INT KEY, a INT, b STRING) WITH (kafka_topic='v', value_format='AVRO', partitions=1);"
PROTOBUF = (
    "CREATE STREAM p (id INT KEY, a INT, b STRING) WITH (kafka_topic='p', value_format='PROTOBUF', partitions=1);"
)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as opened:
        opened.execute(JSON + LINES + AVRO + PROTOBUF)
        yield opened


def _schema(sandbox: Sandbox, name: str) -> str:
    return next(source["schema"] for source in sandbox.sources() if source["name"] == name)


def _copied(sandbox: Sandbox, text: str) -> list[object]:
    """What a query over the altered source reads of the records that were there before."""
    sandbox.execute(f"CREATE STREAM copied AS {text};")
    sandbox.drain()
    return [(record["key"], record["value"]) for record in sandbox.consume("COPIED")]


@pytest.mark.parametrize("name", ["j", "v"])
def test_a_column_of_a_format_that_names_its_fields_is_dropped(sandbox: Sandbox, name: str) -> None:
    sandbox.execute(f"INSERT INTO {name} (id, a, b) VALUES (1, 2, 'x');")
    sandbox.execute(f"ALTER STREAM {name} DROP COLUMN a;")
    assert "`A`" not in _schema(sandbox, name.upper())
    sandbox.execute(f"INSERT INTO {name} (id, b) VALUES (2, 'y');")
    assert _copied(sandbox, f"SELECT id, b FROM {name}") == [(1, {"B": "x"}), (2, {"B": "y"})]


def test_a_column_of_lines_is_renamed_and_keeps_its_place(sandbox: Sandbox) -> None:
    sandbox.execute("INSERT INTO d VALUES (1, 2, 'x'); ALTER STREAM d RENAME COLUMN a TO c, RENAME id TO number;")
    assert _schema(sandbox, "D") == "`NUMBER` INTEGER KEY, `C` INTEGER, `B` STRING"
    assert _copied(sandbox, "SELECT number, c FROM d") == [(1, "2")]


def test_a_stream_gets_another_name_and_keeps_its_topic_also_after_a_restart(tmp_path: Path) -> None:
    given = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}
    with open_engine(tmp_path, given, sync="never") as engine:
        text = LINES + "INSERT INTO d VALUES (1, 2, 'x'); ALTER STREAM d RENAME TO e, RENAME COLUMN a TO c;"
        engine.execute(text, Session())
    with open_engine(tmp_path, given, sync="never") as engine:
        assert list(engine.catalog.sources) == ["E"]
        source = engine.catalog.sources["E"]
        assert (source.topic, [column.name for column in source.schema]) == ("d", ["ID", "C", "B"])


REFUSED = {
    "ALTER STREAM j RENAME COLUMN a TO c;": (InvalidStatement, "in JSON the existing records contain the name `A`"),
    "ALTER STREAM v RENAME COLUMN a TO c;": (InvalidStatement, "in AVRO the existing records"),
    "ALTER STREAM p RENAME COLUMN a TO c;": (InvalidStatement, "in PROTOBUF the existing records"),
    "ALTER STREAM p DROP COLUMN a;": (InvalidStatement, "PROTOBUF does not find its fields by name"),
    "ALTER STREAM d DROP COLUMN b;": (InvalidStatement, "DELIMITED does not find its fields by name"),
    "ALTER STREAM j DROP COLUMN id;": (InvalidStatement, "it is a key column"),
    "ALTER STREAM j DROP COLUMN a, DROP COLUMN b, DROP COLUMN h;": (InvalidStatement, "would have no columns"),
    "ALTER STREAM j DROP COLUMN z;": (UnknownColumn, "`Z` does not exist in stream J"),
    "ALTER STREAM d RENAME COLUMN a TO b;": (InvalidStatement, "same name already exists"),
    "ALTER STREAM d RENAME COLUMN a TO rowtime;": (InvalidStatement, "reserved column name"),
    "ALTER STREAM d RENAME TO j;": (SourceExists, "a stream or table with this name exists"),
    "ALTER TABLE d RENAME TO e;": (InvalidStatement, "Incompatible data source type"),
    "ALTER STREAM nope RENAME TO e;": (UnknownSource, "NOPE does not exist"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_would_make_records_unreadable_is_refused(sandbox: Sandbox, text: str) -> None:
    kind, words = REFUSED[text]
    before = sandbox.sources()
    with pytest.raises(kind, match=words):
        sandbox.execute(text)
    assert sandbox.sources() == before


def test_the_column_that_holds_the_time_stays(sandbox: Sandbox) -> None:
    sandbox.execute(
        JSON.replace("STREAM j", "STREAM t").replace("partitions=1", "timestamp='b', timestamp_format='yyyy'")
    )
    with pytest.raises(InvalidStatement, match="the records' time is read from it"):
        sandbox.execute("ALTER STREAM t DROP COLUMN b;")


def test_queries_that_use_it_are_named(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM reader AS SELECT id, a FROM j; CREATE STREAM o AS SELECT id, a FROM d;")
    for text in ("ALTER STREAM j DROP COLUMN a;", "ALTER STREAM j RENAME TO k;"):
        with pytest.raises(InvalidStatement, match="it is read by CSAS_READER_") as refused:
            sandbox.execute(text)
        assert "TERMINATE" in (refused.value.hint or "")
    sandbox.execute("ALTER STREAM j DROP COLUMN b;")  # which nobody reads
    sandbox.execute("INSERT INTO d SELECT id, a, 'x' AS b FROM j;")
    with pytest.raises(InvalidStatement, match=r"it is read by CSAS_O_[0-9]+ and written by INSERTQUERY_"):
        sandbox.execute("ALTER STREAM d RENAME COLUMN a TO c;")
    with pytest.raises(MillstreamError, match=r"not supported for CREATE \.\.\. AS"):
        sandbox.execute("ALTER STREAM o RENAME TO p;")
