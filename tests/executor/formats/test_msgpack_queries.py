"""MSGPACK in statements: what is inserted, queried, printed, and left out with a reason."""

from __future__ import annotations

from typing import Any, cast

import msgpack
import pyarrow as pa
import pytest

from millstream.errors import StatementError
from millstream.executor import processing_log
from millstream.logcore.client import RowRecords
from millstream.sql.ast import PrintTopic
from millstream.testing import Sandbox

STREAM = """
    CREATE STREAM s (
      k STRING KEY, b BOOLEAN, i INT, l BIGINT, d DOUBLE, t STRING, y BYTES, n DECIMAL(10, 2), da DATE, ti TIME,
      ts TIMESTAMP, st STRUCT<x INT, a ARRAY<MAP<STRING, DECIMAL(4, 1)>>>
    ) WITH (kafka_topic='s', format='MSGPACK', partitions=2);
    INSERT INTO s VALUES (
      'a', TRUE, -1, 9223372036854775807, 1.5, 'grüße', TO_BYTES('00ff', 'hex'), 12.5, '1815-12-10', '23:59:59',
      '2001-09-09T01:46:40.005', STRUCT(x := 7, a := ARRAY[MAP('m' := 1.5), NULL])
    );
    INSERT INTO s (k) VALUES ('b');
"""
EARLIEST = {"auto.offset.reset": "earliest"}


def values(sandbox: Sandbox, topic: str) -> list[bytes | None]:
    """The values of a topic as their bytes, all partitions one after the other."""
    found: list[bytes | None] = []
    for partition in range(sandbox.log.topics()[topic].partition_count):
        for run in sandbox.log.fetch(topic, partition, 0).runs:
            found += [row["value"] for row in run.table.to_pylist()]
    return found


def append(sandbox: Sandbox, topic: str, *rows: Any) -> None:
    data = [None if row is None else row if isinstance(row, bytes) else cast(bytes, msgpack.packb(row)) for row in rows]
    count = len(data)
    table = {"timestamp": pa.array([0] * count, pa.int64()), "key": pa.nulls(count, pa.binary())}
    sandbox.log.append(topic, 0, RowRecords(pa.table({**table, "value": pa.array(data, pa.binary())})))


def rows(sandbox: Sandbox, query: str) -> list[list[Any]]:
    return [line["row"]["columns"] for line in sandbox.query(query) if "row" in line]


def printed(sandbox: Sandbox, topic: str, count: int) -> list[str]:
    (statement,) = sandbox.engine.parse(f"PRINT {topic} FROM BEGINNING LIMIT {count};", sandbox.session)
    assert isinstance(statement, PrintTopic)
    return list(sandbox.engine.print_topic(statement))


def test_every_type_goes_through_insert_query_and_print() -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(STREAM)
        expected = [
            ["a", True, -1, 2**63 - 1, 1.5, "grüße", "AP8=", 12.5, "1815-12-10", "23:59:59"],
            ["b", *[None] * 9],
        ]
        columns = "k, b, i, l, d, t, y, n, da, ti, ts, st"
        sandbox.execute(f"CREATE STREAM copy AS SELECT {columns} FROM s;")
        sandbox.drain()
        for source in ("s", "copy"):
            found = sorted(rows(sandbox, f"SELECT {columns} FROM {source};"))
            assert [[float(v) if type(v).__name__ == "Decimal" else v for v in row[:10]] for row in found] == expected
            assert found[1][10:] == [None, None]
            assert found[0][10].startswith("2001-09-09T01:46:40.005")
        first = next(msgpack.unpackb(data) for data in values(sandbox, "COPY") if data and b"gr" in data)
        assert first["N"] == "12.50"
        assert first["TS"] == msgpack.Timestamp(1_000_000_000, 5_000_000)
        assert first["ST"] == {"X": 7, "A": [{"m": "1.5"}, None]}
        lines = printed(sandbox, "s", 2)
        assert lines[:2] == ["Key format: MSGPACK", "Value format: MSGPACK"]
        assert any('"N":12.50' in line and '"TS":1000000000005' in line for line in lines[2:])


def test_keys_find_their_partition_and_tables_join_by_them() -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(
            """
            CREATE TABLE person (id INT PRIMARY KEY, name STRING)
              WITH (kafka_topic='person', format='MSGPACK', partitions=6);
            CREATE STREAM visit (person INT, page STRING)
              WITH (kafka_topic='visit', value_format='MSGPACK', partitions=3);
            CREATE STREAM named WITH (format='MSGPACK') AS
              SELECT v.person AS id, p.name AS name, v.page AS page FROM visit v JOIN person p ON v.person = p.id;
            CREATE TABLE pages WITH (key_format='MSGPACK') AS
              SELECT id, page, COUNT(*) AS n FROM named GROUP BY id, page;
            """
        )
        for number in range(10):
            sandbox.execute(f"INSERT INTO person VALUES ({number}, 'p{number}');")
        for number in range(30):
            sandbox.execute(f"INSERT INTO visit VALUES ({number % 10}, '/{number % 3}');")
        sandbox.drain()
        assert sorted(rows(sandbox, "SELECT id, page, n FROM pages;")) == sorted(
            [i, f"/{p}", 1] for i in range(10) for p in range(3)
        )
        assert rows(sandbox, "SELECT n FROM pages WHERE id = 4 AND page = '/1';") == [[1]]


@pytest.mark.parametrize(("wrapped", "expected"), [("true", {"V": 1}), ("false", 1)])
def test_a_single_value_is_wrapped_as_the_statement_says(wrapped: str, expected: object) -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(
            f"CREATE STREAM one (v INT) WITH (kafka_topic='one', value_format='MSGPACK', partitions=1, "
            f"wrap_single_value={wrapped});"
        )
        sandbox.execute("INSERT INTO one VALUES (1);")
        (data,) = values(sandbox, "one")
        assert data is not None
        assert msgpack.unpackb(data) == expected
        assert rows(sandbox, "SELECT v FROM one;") == [[1]]


def test_what_cannot_be_read_is_left_out_and_said_in_the_processing_log() -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(
            "CREATE STREAM p (v INT, a ARRAY<INT>) WITH (kafka_topic='p', value_format='MSGPACK', partitions=1);"
            "CREATE STREAM good AS SELECT v, a FROM p;"
        )
        append(sandbox, "p", {"V": 1}, {"A": [1, "x"]}, b"\x81\xa1V", b"\x91" * 100_000, {"V": 2}, b"\xc0", None)
        sandbox.drain()
        assert [msgpack.unpackb(data) for data in values(sandbox, "GOOD") if data] == [
            {"V": 1, "A": None},
            {"V": 2, "A": None},
        ]
        said = "".join(record["value"] for record in sandbox.consume(processing_log.TOPIC))
        assert r"$.A[1]: INTEGER wanted, the text \"x\" came" in said
        assert "the 3 bytes are not MessagePack: they end inside a value" in said
        assert "the MessagePack value is nested too deeply" in said


def test_print_shows_whatever_is_in_a_record() -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute("CREATE STREAM p (v INT) WITH (kafka_topic='p', value_format='MSGPACK', partitions=1);")
        deep: Any = 1
        for _ in range(400):  # pyrefly: ignore[non-convergent-recursion]
            deep = [deep]
        strange = [b"\xff", msgpack.ExtType(9, b"\1"), float("nan"), {1: 2}, deep]
        append(sandbox, "p", {"v": 1, "other": msgpack.Timestamp(1, 0)}, *strange, b"\xa1\xff", b"\xc1")
        lines = [line.partition("value: ")[2] for line in printed(sandbox, "p", 8)[2:]]
        assert lines[0] == '{"v":1,"other":1000}, partition: 0'
        assert lines[4] == '{"1":2}, partition: 0'
        assert len(lines) == 8


def test_alter_adds_and_drops_columns_since_they_are_found_by_name() -> None:
    with Sandbox(properties=EARLIEST) as sandbox:
        sandbox.execute(
            "CREATE STREAM e (a INT, b INT) WITH (kafka_topic='e', value_format='MSGPACK', partitions=1);"
            "INSERT INTO e VALUES (1, 2);"
            "ALTER STREAM e DROP COLUMN a;"
            "ALTER STREAM e ADD COLUMN c INT;"
        )
        assert rows(sandbox, "SELECT b, c FROM e;") == [[2, None]]


def test_maps_with_other_keys_are_refused() -> None:
    with (
        Sandbox(properties=EARLIEST) as sandbox,
        pytest.raises(StatementError, match="MSGPACK only supports MAP types with STRING keys"),
    ):
        sandbox.execute(
            "CREATE STREAM m (m MAP<INT, STRING>) WITH (kafka_topic='m', value_format='MSGPACK', partitions=1);"
        )
