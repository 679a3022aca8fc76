"""Types of the columns of a lake's tables: those that a stream or table declares, else types that lose no value."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lakes import Lake
from waiting import eventually

from millstream.executor.connect.connector import ConnectRecord, TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed
from millstream.executor.connect.connector_sandbox import ConnectorSandbox
from millstream.executor.connect.declared_columns import DeclaredColumns
from millstream.executor.connect.json_times import time_of
from millstream.executor.connect.sinks.lake_values import suggested_types
from millstream.logcore.client import TopicPartition
from millstream.logcore.clients.producer import Producer
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

DUCKDB = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}
AS_JSON = "WITH (kafka_topic='orders', value_format='JSON', partitions=1)"
COLUMNS = """id INT KEY, flag BOOLEAN, small INT, big BIGINT, real DOUBLE, text STRING, raw BYTES, price DECIMAL(10, 2),
    wide DECIMAL(38, 10), day DATE, clock TIME, moment TIMESTAMP, reals ARRAY<DOUBLE>, named MAP<STRING, DECIMAL(5, 1)>,
    who STRUCT<name STRING, born DATE, marks ARRAY<INT>>, nothing ARRAY<STRUCT<a TIMESTAMP>>"""
NAMES = "id, flag, small, big, real, text, raw, price, wide, day, clock, moment, reals, named, who"
VALUES = """1, true, 3, 9007199254740993, 3.0, '7', TO_BYTES('AAE=', 'base64'), 3.10,
    1234567890123456789012345678.1, '2026-11-26', '01:02:03', '2026-11-26T01:02:03.004', ARRAY[3.0, 0.5],
    MAP('a':=1.5), STRUCT(name:='ada', born:='1815-12-10', marks:=ARRAY[1, 2])"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with open_engine(tmp_path / "data", DUCKDB, sync="never") as opened:
        yield opened


def run(engine: EmbeddedEngine, text: str) -> None:
    engine.execute(text, Session())


def written(engine: EmbeddedEngine, count: int) -> None:
    def done() -> bool:
        (task,) = engine.connectors.status("LAKE").tasks
        assert task.state == "RUNNING", task.error
        return task.records == count

    eventually(done)


def send(engine: EmbeddedEngine, *values: bytes, topic: str = "orders") -> None:
    with Producer(engine.log) as producer:
        for value in values:
            producer.send(topic, value, None)


def moved(lake: Lake, topic: str = "orders") -> list[dict[str, Any]]:
    """Rows as DuckDB reads them."""
    import duckdb

    rows = lake.table(topic)
    found = duckdb.sql("SELECT * FROM rows") if rows.num_rows else None
    assert found is not None
    return found.to_arrow_table().to_pylist(maps_as_pydicts="strict")


@pytest.mark.parametrize("value_format", ["JSON", "ARROW"])
def test_every_sql_type_is_the_columns_type(lake: Lake, engine: EmbeddedEngine, value_format: str) -> None:
    run(engine, f"CREATE STREAM orders ({COLUMNS}) WITH (kafka_topic='orders', value_format='{value_format}', "
                "partitions=1, key_format='KAFKA');")  # fmt: skip
    run(engine, f"INSERT INTO orders ({NAMES}) VALUES ({VALUES});")
    run(engine, lake.statement(topics="orders", pk_mode="record_key", pk_fields="ID", key_converter="integer"))
    written(engine, 1)
    run(engine, "INSERT INTO orders (id) VALUES (2);")
    written(engine, 2)
    types = {name: str(type_) for name, type_ in lake.types("orders").items()}
    clock = "int64" if lake.name == "delta" else "time64[us]"
    assert types == {
        "ID": "int32", "FLAG": "bool", "SMALL": "int32", "BIG": "int64", "REAL": "double", "TEXT": "string",
        "RAW": "binary", "PRICE": "decimal128(10, 2)", "WIDE": "decimal128(38, 10)", "DAY": "date32[day]",
        "CLOCK": clock, "MOMENT": "timestamp[us, tz=UTC]", "REALS": "list<item: double>",
        "NAMED": "map<string, decimal128(5, 1)>",
        "WHO": "struct<NAME: string, BORN: date32[day], MARKS: list<item: int32>>",
        "NOTHING": "list<item: struct<A: timestamp[us, tz=UTC]>>",
    }  # fmt: skip
    first, second = sorted(moved(lake), key=lambda row: row["ID"])
    # PyIceberg writes and reads a NULL list of structs as an empty one
    assert first.pop("NOTHING") == ([] if lake.name == "iceberg" else None)
    seconds = (3600 + 2 * 60 + 3) * 1000
    assert first == {
        "ID": 1, "FLAG": True, "SMALL": 3, "BIG": 9007199254740993, "REAL": 3.0, "TEXT": "7", "RAW": b"\0\1",
        "PRICE": Decimal("3.10"), "WIDE": Decimal("1234567890123456789012345678.1"), "DAY": date(2026, 11, 26),
        "CLOCK": seconds if lake.name == "delta" else time(1, 2, 3),
        "MOMENT": datetime(2026, 11, 26, 1, 2, 3, 4000, UTC), "REALS": [3.0, 0.5], "NAMED": {"a": Decimal("1.5")},
        "WHO": {"NAME": "ada", "BORN": date(1815, 12, 10), "MARKS": [1, 2]},
    }  # fmt: skip
    assert second == {**dict.fromkeys(first), "ID": 2, "NOTHING": [] if lake.name == "iceberg" else None}


def test_a_declared_double_takes_whole_numbers_first_and_fractions_later(lake: Lake, engine: EmbeddedEngine) -> None:
    run(engine, f"CREATE STREAM orders (amount DOUBLE) {AS_JSON};")
    run(engine, lake.statement(topics="orders"))
    send(engine, b'{"amount": 3}', b'{"amount": 9007199254740993}')
    written(engine, 2)
    send(engine, b'{"AMOUNT": 3.5}', b'{"amount": 0.1234567890123456789}')
    written(engine, 4)
    rows = sorted(row["AMOUNT"] for row in moved(lake))
    assert rows == [0.12345678901234568, 3.0, 3.5, 9007199254740992.0]


def test_the_query_that_writes_a_topic_decides_before_other_streams_on_it(lake: Lake, engine: EmbeddedEngine) -> None:
    run(engine, f"CREATE STREAM orders (id INT, n INT) {AS_JSON};")
    run(
        engine,
        "CREATE STREAM doubled WITH (kafka_topic='doubled') AS SELECT id, CAST(n AS DECIMAL(12, 3)) n FROM orders;",
    )
    run(engine, "CREATE STREAM other (id STRING, n DOUBLE) WITH (kafka_topic='doubled', value_format='JSON');")
    run(engine, lake.statement(topics="doubled"))
    run(engine, "INSERT INTO orders (id, n) VALUES (1, 3);")
    written(engine, 1)
    assert {name: str(type_) for name, type_ in lake.types("doubled").items()} == {
        "ID": "int32",
        "N": "decimal128(12, 3)",
    }


def test_fields_that_nobody_declares_are_columns_too(lake: Lake, engine: EmbeddedEngine) -> None:
    run(engine, f"CREATE STREAM orders (id INT, who STRUCT<name STRING>) {AS_JSON};")
    run(engine, lake.statement(topics="orders"))
    send(engine, b'{"id": 1, "note": "x", "who": {"name": "ada", "age": 36}}')
    written(engine, 1)
    assert moved(lake) == [{"ID": 1, "WHO": {"NAME": "ada", "age": 36.0}, "note": "x"}]


def test_transforms_that_make_other_values_take_the_declaration_away(lake: Lake, engine: EmbeddedEngine) -> None:
    run(
        engine,
        f"CREATE STREAM orders (id INT, seen TIMESTAMP) {AS_JSON};",
    )
    hoist = {"transforms": "h", "transforms.h.type": "HoistField$Value", "transforms.h.field": "row"}
    run(engine, lake.statement(topics="orders", **hoist))
    send(engine, b'{"id": 1, "seen": 5}')
    written(engine, 1)
    assert moved(lake) == [{"row": {"id": 1.0, "seen": 5.0}}]


def test_debezium_rows_have_the_declared_types_after_unwrap(lake: Lake, engine: EmbeddedEngine) -> None:
    run(engine, "CREATE TABLE orders (id INT PRIMARY KEY, price DECIMAL(8, 2)) WITH (kafka_topic='orders', "
                "value_format='DEBEZIUM', key_format='JSON', partitions=1);")  # fmt: skip
    run(engine, lake.statement(topics="orders", transforms="unwrap"))
    send(engine, b'{"op": "c", "before": null, "after": {"id": 1, "price": 3}}')
    written(engine, 1)
    assert str(lake.types("orders")["PRICE"]) == "decimal128(8, 2)"


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([3, 2**53], pa.float64()),
        ([3, 3.5], pa.float64()),
        ([3, 2**53 + 1], pa.int64()),
        ([2**53 + 1, 0.5], pa.string()),
        ([2**63], pa.string()),
        ([Decimal("0.1")], pa.float64()),
        ([Decimal("0.12345678901234567890")], pa.string()),
        ([True, None], pa.bool_()),
        ([True, 1], pa.string()),
        (["a", 1], pa.string()),
        ([[], [1], [2.5]], pa.list_(pa.float64())),
        ([{"a": None, "b": 1}, {"b": "x"}], pa.struct([("b", pa.string())])),
        ([{"a": [], "b": {}}], None),
        ([None], None),
    ],
)
def test_without_a_declaration_a_type_holds_all_values_exactly(values: list[Any], type_: pa.DataType | None) -> None:
    assert suggested_types([{"c": value} for value in values]).get("c") == type_


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (3, 2**53 + 1), (2**53 + 1, 3.5), (1.5, Decimal("0.12345678901234567890")), (True, 1), (1, True),
        ({"a": 1}, {"a": 1, "b": 2}), ([{"a": 1}], [{"a": 1, "b": 2}]), ("x", None), (3, "three"),
    ],
)  # fmt: skip
def test_a_later_value_is_stored_as_it_is_or_stops_the_task(lake: Lake, first: Any, later: Any) -> None:
    with lake.sandbox() as box:
        box.produce("orders", None, {"id": "1", "c": first})
        box.run()
        box.produce("orders", None, {"id": "2", "c": later})
        if later is None:
            box.run()
        else:
            with pytest.raises(ConnectorFailed, match=r"column c|no column c\.b"):
                box.run()
    assert [row["c"] for row in lake.rows()] == ([first] if later is not None else [first, None])


@pytest.mark.parametrize("upsert", [False, True])
def test_new_fields_of_structs_are_added_where_columns_may_be(lake: Lake, upsert: bool) -> None:
    more = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"} if upsert else {}
    with lake.sandbox(auto_evolve="true", **more) as box:
        box.produce("orders", None, {"id": "1", "who": {"name": "ada"}, "seen": [{"at": "x"}]})
        box.run()
        box.produce("orders", None, {"id": "2", "who": {"name": "bob", "age": 3}, "seen": [{"at": "y", "by": "z"}]})
        box.run()
    assert lake.rows() == [
        {"id": "1", "who": {"name": "ada", "age": None}, "seen": [{"at": "x", "by": None}]},
        {"id": "2", "who": {"name": "bob", "age": 3.0}, "seen": [{"at": "y", "by": "z"}]},
    ]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int32(), 3.5), (pa.int32(), 2**31), (pa.int64(), True), (pa.decimal128(5, 2), Decimal("1.005")),
        (pa.decimal128(5, 2), 1000), (pa.date32(), 0.5), (pa.time64("us"), "noon"), (pa.bool_(), 1),
        (pa.binary(), "no base64"), (pa.timestamp("us", "UTC"), 1.5), (pa.map_(pa.string(), pa.int32()), {"a": 1.5}),
    ],
)  # fmt: skip
def test_a_value_that_its_declared_type_would_change_stops_the_task(lake: Lake, type_: pa.DataType, value: Any) -> None:
    task = TaskInfo("out", identity="i", declared=lambda topic: DeclaredColumns({}, {"c": type_}))
    record = ConnectRecord("orders", None, {"c": value}, 0, (), 0, 0, "orders")
    with pytest.raises(ConnectorFailed, match="the column c of type"):
        lake.sink(task).write([record], {TopicPartition("orders", 0): 1})


@pytest.mark.parametrize(
    ("converter", "key", "type_"), [("integer", 1, "int32"), ("long", 1, "int64"), ("string", "a", "string")]
)
def test_the_converter_of_the_key_says_its_type(
    lake: Lake, engine: EmbeddedEngine, converter: str, key: Any, type_: str
) -> None:
    engine.log.create_topic("orders", 1)
    run(engine, lake.statement(topics="orders", key_converter=converter, pk_mode="record_key", pk_fields="k"))
    data = {"integer": b"\0\0\0\1", "long": b"\0\0\0\0\0\0\0\1", "string": b"a"}[converter]
    with Producer(engine.log) as producer:
        producer.send("orders", b'{"v": 1}', data)
    written(engine, 1)
    assert str(lake.types("orders")["k"]) == type_
    assert moved(lake) == [{"k": key, "v": 1.0}]


def test_names_match_in_any_case(lake: Lake) -> None:
    lake.create("orders", pa.schema([("ID", pa.int64()), ("Name", pa.string())]))
    with lake.sandbox() as box:
        box.produce("orders", None, {"id": 1, "NAME": "ada"})
        box.run()
        box.produce("orders", None, {"id": 2, "Name": "bob", "name": "eve"})
        with pytest.raises(ConnectorFailed, match="no column name"):
            box.run()
    assert lake.rows() == [{"ID": 1, "Name": "ada"}]


def test_a_sandbox_has_no_declarations(lake: Lake) -> None:
    with ConnectorSandbox(lake.kind, {"topics": "orders", "commit.interval.ms": "0", **lake.config}) as box:
        box.produce("orders", None, {"id": 1})
        box.run()
    assert str(lake.types("orders")["id"]) == "double"


def test_a_time_of_day_is_a_millisecond_of_one_day() -> None:
    assert time_of(86_399_999) == time(23, 59, 59, 999_000)
    for value in (-1, 86_400_000):
        with pytest.raises(ValueError, match="no millisecond of a day"):
            time_of(value)
