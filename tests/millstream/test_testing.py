"""The Sandbox: order, formats, windows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from millstream.errors import InvalidStatement, ServerError, Unsupported
from millstream.testing import Sandbox, Window


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as opened:
        yield opened


def test_records_come_back_in_the_order_of_production_whatever_their_partition(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=5);")
    sandbox.execute("CREATE STREAM c AS SELECT * FROM s;")
    for number in range(50):
        sandbox.produce("s", number, {"V": number}, timestamp=1_000 - number)
    sandbox.drain()
    for topic in ("s", "C"):
        assert [record["value"]["V"] for record in sandbox.consume(topic)] == list(range(50))
    used = [sandbox.log.offsets("C", partition).log_end_offset for partition in range(5)]
    assert sum(used) == 50
    assert max(used) < 50


def test_produced_records_of_several_topics_reach_a_join_in_their_order(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
    sandbox.execute("CREATE TABLE t (id INT PRIMARY KEY, w INT) WITH (kafka_topic='t', format='JSON', partitions=1);")
    sandbox.execute("CREATE STREAM j AS SELECT s.id, v, w FROM s LEFT JOIN t ON s.id = t.id;")
    sandbox.produce("s", 1, {"V": 1}, timestamp=9)
    sandbox.produce("t", 1, {"W": 10}, timestamp=5)
    sandbox.produce("s", 1, {"V": 2}, timestamp=1)
    sandbox.produce("t", 1, None, timestamp=2)
    sandbox.produce("s", 1, {"V": 3}, timestamp=3)
    sandbox.drain()
    assert [record["value"] for record in sandbox.consume("J")] == [
        {"V": 1, "W": None},
        {"V": 2, "W": 10},
        {"V": 3, "W": None},
    ]


def test_draining_in_steps_gives_what_draining_at_once_gives() -> None:
    outputs: list[list[object]] = []
    for step in (1, 3, 20):
        with Sandbox() as sandbox:
            sandbox.execute("CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', format='JSON', partitions=2);")
            sandbox.execute(
                "CREATE TABLE n AS SELECT id, COUNT(*) AS c, SUM(v) AS t FROM s"
                " WINDOW TUMBLING (SIZE 10 MILLISECONDS, GRACE PERIOD 0 SECONDS) GROUP BY id;"
            )
            for number in range(20):
                sandbox.produce("s", number % 3, {"V": number}, timestamp=(number * 7) % 31)
                if number % step == 0:
                    sandbox.drain()
            sandbox.drain()
            outputs.append(list(sandbox.consume("N")))
    assert outputs[0] == outputs[1] == outputs[2]
    assert outputs[0]


def test_a_new_stream_table_join_finds_the_table_rows_that_were_inserted_before() -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(
            """CREATE STREAM s (k STRING KEY, a INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
            CREATE TABLE t (k STRING PRIMARY KEY, b INT) WITH (kafka_topic='t', value_format='JSON', partitions=1);
            INSERT INTO s VALUES ('x', 10);
            INSERT INTO t VALUES ('x', 1);
            CREATE STREAM j AS SELECT s.k, a, b FROM s JOIN t ON s.k = t.k;"""
        )
        sandbox.drain()
        assert [record["value"] for record in sandbox.consume("J")] == [{"A": 10, "B": 1}]


def test_queries_that_feed_each_other_run_until_nothing_is_left(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM a (v INT) WITH (kafka_topic='a', format='JSON', partitions=1);")
    sandbox.execute("CREATE STREAM b (v INT) WITH (kafka_topic='b', format='JSON', partitions=1);")
    sandbox.execute("CREATE STREAM c AS SELECT * FROM b;")
    sandbox.execute("INSERT INTO b SELECT v + 1 AS v FROM a;")
    sandbox.produce("a", None, {"V": 1})
    sandbox.drain()
    assert [record["value"] for record in sandbox.consume("C")] == [{"V": 2}]


def test_with_latest_a_query_sees_only_what_comes_after_it() -> None:
    with Sandbox() as sandbox:
        sandbox.execute("CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        sandbox.execute("INSERT INTO s VALUES (1);")
        sandbox.execute("CREATE STREAM c AS SELECT * FROM s;")
        sandbox.execute("INSERT INTO s VALUES (2);")
        sandbox.drain()
        assert [record["value"] for record in sandbox.consume("C")] == [{"V": 2}]


def test_windowed_keys_are_written_and_read(sandbox: Sandbox) -> None:
    sandbox.execute(
        "CREATE STREAM w (k STRING KEY, v INT) WITH (kafka_topic='w', format='JSON', partitions=1,"
        " window_type='SESSION');"
    )
    window = Window(start=10, end=25, type="SESSION")
    sandbox.produce("w", "a", {"V": 1}, window=window)
    record = sandbox.consume("w")[0]
    assert (record["key"], record["value"], record["window"]) == ("a", {"V": 1}, window)


def test_headers_and_exact_numbers_come_back(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM d (v DECIMAL(4,2)) WITH (kafka_topic='d', value_format='JSON', partitions=1);")
    sandbox.produce("d", None, {"V": Decimal("1.10")}, timestamp=7, headers=[("h", b"\x01"), ("n", None)])
    record = sandbox.consume("d")[0]
    assert str(record["value"]["V"]) == "1.10"
    assert record["headers"] == [("h", b"\x01"), ("n", None)]
    assert record["timestamp"] == 7


def test_a_bad_record_goes_to_the_processing_log_and_the_query_goes_on(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
    sandbox.execute("CREATE STREAM c AS SELECT * FROM s;")
    sandbox.produce("s", None, {"V": "not a number"})
    sandbox.produce("s", None, {"V": 2})
    sandbox.drain()
    assert [record["value"] for record in sandbox.consume("C")] == [{"V": 2}]
    assert len(sandbox.consume("default_ksql_processing_log")) == 1


def test_the_stream_of_the_processing_log_is_created_where_the_server_is_asked_to() -> None:
    created = {"ksql.logging.processing.stream.auto.create": "true", "auto.offset.reset": "earliest"}
    with Sandbox(properties=created) as sandbox:
        sandbox.execute("CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='DELIMITED', partitions=1);")
        sandbox.execute("CREATE STREAM o AS SELECT v FROM s;")
        sandbox.produce("s", None, "no number")
        sandbox.drain()
        asked = (
            "SELECT message->type, message->deserializationError->topic FROM ksql_processing_log EMIT CHANGES LIMIT 1;"
        )
        (row,) = (each["row"]["columns"] for each in sandbox.query(asked) if "row" in each)
        assert row == [0, "s"]
    with Sandbox() as sandbox:
        assert sandbox.sources() == []


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Sandbox() as sandbox:
        sandbox.create_topic("t")
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("statement", ["SELECT * FROM s;", "SELECT * FROM s EMIT CHANGES;", "PRINT s;"])
def test_a_select_is_sent_to_the_method_that_gives_rows(sandbox: Sandbox, statement: str) -> None:
    sandbox.execute("CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
    with pytest.raises(InvalidStatement) as raised:
        sandbox.execute(statement)
    assert raised.value.hint == "Send it to Sandbox.query(…)."


def test_what_cannot_be_done_is_said(sandbox: Sandbox) -> None:
    with pytest.raises(ServerError, match='topic "nope" does not exist'):
        sandbox.produce("nope", None, "x")
    with pytest.raises(Unsupported, match="abacus"):
        Sandbox(executor="abacus")
