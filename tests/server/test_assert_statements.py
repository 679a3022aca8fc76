"""ASSERT VALUES, NULL VALUES, STREAM and TABLE: statements for tests of pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from millstream.errors import InvalidStatement, MillstreamError
from millstream.server.config.server_settings import ServerSettings
from millstream.server.handlers import assertions
from millstream.testing import Sandbox


class Clock:
    """In the place of the module `time`: only sleep lets it go on."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


PIPELINE = """
CREATE STREAM clicks (user STRING KEY, url STRING) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);
CREATE TABLE per_minute AS SELECT user, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY user;
"""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        opened.execute(PIPELINE)
        yield opened


def test_assertions_go_through_the_records_one_after_the_other(sandbox: Sandbox) -> None:
    answers = sandbox.execute(
        "INSERT INTO clicks (ROWTIME, user, url) VALUES (5, 'ada', '/');"
        "INSERT INTO clicks (ROWTIME, user, url) VALUES (70000, 'ada', '/');"
        "ASSERT VALUES per_minute (user, WINDOWSTART, n) VALUES ('ada', 0, 1);"
        "ASSERT VALUES per_minute (user, ROWTIME, n) VALUES ('ada', 70000, 1);"
    )
    assert [answer["@type"] for answer in answers] == ["assert_values", "assert_values"]
    with pytest.raises(MillstreamError, match="all records have already been read"):
        sandbox.execute("ASSERT VALUES per_minute (user) VALUES ('ada');")


NESTED = """
CREATE STREAM nested (id INT KEY, m MAP<STRING, INT>, a ARRAY<STRUCT<x INT, m MAP<STRING, DOUBLE>>>, t TIMESTAMP)
  WITH (kafka_topic='nested', value_format='JSON', partitions=1);
INSERT INTO nested (id, m, a) VALUES (1, MAP('b' := 1, 'a' := 2),
  ARRAY[STRUCT(x := 1, m := MAP('k' := 1.5)), STRUCT(x := 2, m := MAP('k' := 1E308 * 1E1 - 1E308 * 1E1, 'j' := 0.5))]);
"""


def test_entries_of_a_map_have_no_order_and_nan_is_nan(sandbox: Sandbox) -> None:
    sandbox.execute(NESTED)
    sandbox.execute(
        "ASSERT VALUES nested (id, m, a) VALUES (1, MAP('a' := 2, 'b' := 1),"
        " ARRAY[STRUCT(x := 1, m := MAP('k' := 1.5)),"
        " STRUCT(x := 2, m := MAP('j' := 0.5, 'k' := 1E308 * 1E1 - 1E308 * 1E1))]);"
    )


def test_a_time_after_the_year_9999_is_compared(sandbox: Sandbox) -> None:
    sandbox.execute(NESTED + "INSERT INTO nested (id, t) VALUES (2, '+12345-01-01T00:00:00');")
    sandbox.execute("ASSERT VALUES nested (id) VALUES (1); ASSERT VALUES nested (t) VALUES ('+12345-01-01T00:00:00');")


@pytest.mark.parametrize(
    ("values", "different"),
    [
        ("(1, MAP('a' := 2, 'b' := 1), ARRAY[STRUCT(x := 1, m := MAP('k' := 2)), STRUCT(x := 3, m := MAP('k' := 1))])",
         "A[1]->M['k'], A[2]->X, A[2]->M['j'], A[2]->M['k']"),
        ("(2, MAP('a' := 2, 'c' := 1), NULL)", "ID, M['b'], M['c'], A"),
        ("(1, NULL, ARRAY[STRUCT(x := 1, m := MAP('k' := 1.5))])", "M, A"),
        ("(2, MAP('v' := 2, 'w' := 3, 'x' := 4, 'y' := 5), NULL)", "ID, M['a'], M['b'], M['v'], M['w'] and 3 more"),
    ],
)  # fmt: skip
def test_an_error_names_the_places_that_differ(sandbox: Sandbox, values: str, different: str) -> None:
    sandbox.execute(NESTED)
    with pytest.raises(MillstreamError) as failed:
        sandbox.execute(f"ASSERT VALUES nested (id, m, a) VALUES {values};")
    assert str(failed.value).endswith(f". Different: {different}")


def test_a_record_that_differs_is_shown_and_stays_for_the_next_assertion(sandbox: Sandbox) -> None:
    sandbox.execute("INSERT INTO clicks (user, url) VALUES ('ada', '/');")
    with pytest.raises(MillstreamError, match=r"Expected: \(URL='/b'\). Actual: \(URL='/'\)"):
        sandbox.execute("ASSERT VALUES clicks (url) VALUES ('/b');")
    sandbox.execute("ASSERT VALUES clicks VALUES ('ada', '/');")


def test_a_tombstone_is_asserted_by_its_key(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH (kafka_topic='t', format='JSON', partitions=1);")
    sandbox.produce("t", 1, {"V": 10})
    sandbox.produce("t", 1, None)
    with pytest.raises(MillstreamError, match="does not match"):
        sandbox.execute("ASSERT NULL VALUES t (id) KEY (1);")
    sandbox.execute("ASSERT VALUES t (id, v) VALUES (1, 10); ASSERT NULL VALUES t (id) KEY (1);")


def test_others_work_while_an_assertion_waits_for_them(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(sandbox.execute, "ASSERT TOPIC later TIMEOUT 60 SECONDS;")
        for number in range(20):  # one of them, at the latest, comes while it waits
            sandbox.execute(f"CREATE STREAM s{number} (a INT) WITH (kafka_topic='t', format='JSON', partitions=1);")
        sandbox.execute("CREATE STREAM s (a INT) WITH (kafka_topic='later', format='JSON', partitions=1);")
        assert waiting.result()[0]["@type"] == "assert_topic"


@pytest.mark.parametrize(("statement", "kind"), [("ASSERT TOPIC nowhere;", "topic"), ("ASSERT SCHEMA ID 7;", "schema")])
def test_the_server_says_how_long_an_assertion_waits(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, statement: str, kind: str
) -> None:
    clock = Clock()
    monkeypatch.setattr(assertions, "time", clock)
    for milliseconds in (250, 0):
        properties = {f"ksql.assert.{kind}.default.timeout.ms": str(milliseconds)}
        sandbox.engine.settings = ServerSettings.of(properties)
        clock.now = 0.0
        with pytest.raises(assertions.AssertionFailed):
            sandbox.execute(statement)
        assert clock.now == pytest.approx(milliseconds / 1000)


def test_columns_that_there_are_not_cannot_be_asserted(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidStatement, match="Column name NOPE does not exist in stream CLICKS"):
        sandbox.execute("ASSERT VALUES clicks (nope) VALUES (1);")
    with pytest.raises(InvalidStatement, match="Column name WINDOWSTART does not exist"):
        sandbox.execute("ASSERT VALUES clicks (WINDOWSTART) VALUES (1);")


def test_a_declaration_is_asserted_as_far_as_it_is_written(sandbox: Sandbox) -> None:
    sandbox.execute(
        "ASSERT STREAM clicks (user STRING KEY, url STRING) WITH (kafka_topic='clicks', value_format='JSON');"
        "ASSERT TABLE per_minute (user STRING PRIMARY KEY, n BIGINT) WITH (value_format='JSON');"
    )


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ASSERT TABLE clicks (user STRING PRIMARY KEY) WITH (kafka_topic='clicks');", "Expected type does not match"),
        (
            "ASSERT STREAM clicks (user STRING KEY, url INT) WITH (kafka_topic='clicks');",
            "`URL` INTEGER. Actual: .*STR",
        ),
        ("ASSERT STREAM clicks (user STRING KEY, url STRING) WITH (value_format='DELIMITED');", "value format"),
        ("ASSERT STREAM clicks (user STRING KEY, url STRING) WITH (kafka_topic='x');", "kafka topic"),
        ("ASSERT STREAM clicks (user STRING KEY, url STRING) WITH (partitions=3);", "partition count"),
    ],
)
def test_a_declaration_that_differs_says_how(sandbox: Sandbox, statement: str, message: str) -> None:
    with pytest.raises(MillstreamError, match=message):
        sandbox.execute(statement)
