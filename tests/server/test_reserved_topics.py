"""Millstream's own topics can be read by statements, but are neither created, written nor deleted by them: a record of
somebody else in the command topic would keep the server from starting again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.logcore.errors import InvalidTopic
from millstream.testing import Sandbox

SOURCES = """
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM commands (v STRING) WITH (kafka_topic='_millstream-command', value_format='JSON');
CREATE TABLE schemas (k STRING PRIMARY KEY, v STRING) WITH (kafka_topic='_schemas', value_format='JSON');
"""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        opened.log.create_topic("_schemas", 1)
        opened.execute(SOURCES)
        opened.produce("_schemas", "a", {"V": "kept"})
        yield opened


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE STREAM c WITH (kafka_topic='_millstream-command') AS SELECT * FROM s;",
        "CREATE STREAM c WITH (kafka_topic='_millstream-new') AS SELECT * FROM s;",
        "CREATE STREAM c (v INT) WITH (kafka_topic='_millstream-new', value_format='JSON', partitions=1);",
        "CREATE STREAM c WITH (kafka_topic='_schemas') AS SELECT * FROM s;",
        "CREATE STREAM c WITH (kafka_topic='__consumer_offsets') AS SELECT * FROM s;",
        "INSERT INTO commands SELECT CAST(v AS STRING) AS v FROM s PARTITION BY NULL;",
        "INSERT INTO commands (v) VALUES ('a');",
        "INSERT INTO commands (v) VALUES ('a'), ('b');",
        "INSERT INTO schemas (k, v) VALUES ('a', 'b');",
        "DELETE FROM schemas WHERE k = 'a';",
        "DROP STREAM commands DELETE TOPIC;",
        "DROP TABLE schemas DELETE TOPIC;",
    ],
)
def test_no_statement_writes_or_deletes_them(sandbox: Sandbox, statement: str) -> None:
    end, topics = sandbox.log.offsets("_millstream-command", 0), set(sandbox.log.topics())
    with pytest.raises(InvalidTopic, match="is reserved") as refused:
        sandbox.execute(statement)
    assert refused.value.hint is not None and "KAFKA_TOPIC" in refused.value.hint
    assert sandbox.log.offsets("_millstream-command", 0) == end
    assert set(sandbox.log.topics()) == topics


def test_they_are_read_and_let_go(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM kinds AS SELECT v FROM commands;")
    sandbox.execute("DROP TABLE schemas; DROP STREAM commands CASCADE;")
    assert {"_schemas", "_millstream-command"} <= set(sandbox.log.topics())
