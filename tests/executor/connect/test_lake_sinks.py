"""Topics in tables of Delta Lake and Iceberg: each record has its effect once, whenever the task dies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from connectors import read_topic
from drawn import checkered
from lakes import Lake

from millstream.executor.connect.connector import ConnectRecord, TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.sinks.lake_sink import LakeSink
from millstream.executor.connect.task_clock import VirtualClock
from millstream.logcore.client import TopicPartition
from millstream.testing import ConnectorSandbox

POINTS = ("sink_after_read", "lake_before_commit", "lake_after_commit", "sink_after_write", "sink_after_commit")
UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}


@pytest.fixture
def box(lake: Lake) -> Iterator[ConnectorSandbox]:
    with lake.sandbox() as made:
        yield made


def test_a_table_is_created_by_what_comes(lake: Lake, box: ConnectorSandbox) -> None:
    box.produce("orders", None, {"id": 1, "n": 1, "tags": ["a"], "who": {"name": "ada", "age": None}, "nothing": None})
    box.produce("orders", None, {"id": 2, "n": 1.5, "tags": [], "who": {"name": "bob", "age": 3}, "ok": True})
    box.run()
    assert lake.rows() == [
        {"id": 1, "n": 1.0, "tags": ["a"], "who": {"name": "ada", "age": None}, "ok": None},
        {"id": 2, "n": 1.5, "tags": [], "who": {"name": "bob", "age": 3}, "ok": True},
    ]


def test_values_take_the_types_of_the_table(lake: Lake, box: ConnectorSandbox) -> None:
    types = {
        "id": pa.int32(), "price": pa.decimal128(10, 2), "day": pa.date32(), "at": pa.timestamp("us", "UTC"),
        "text": pa.string(), "raw": pa.binary(), "big": pa.decimal128(38, 10),
    }  # fmt: skip
    lake.create("orders", pa.schema(list(types.items())))
    moment = datetime(2026, 11, 26, 1, 2, 3, 4000, tzinfo=UTC)
    box.produce("orders", None, {
        "id": 1, "price": Decimal("12.5"), "day": 20783, "at": int(moment.timestamp() * 1000), "text": {"a": 1},
        "raw": "AAE=", "big": Decimal("1234567890123456789012345678.1234567891"),
    })  # fmt: skip
    box.produce("orders", None, {"id": 2, "day": "2026-11-26", "at": "2026-11-26T02:02:03.004+01:00"})
    box.run()
    first, second = lake.rows()
    assert first == {
        "id": 1, "price": Decimal("12.50"), "day": date(2026, 11, 26), "at": moment, "text": '{"a":1}',
        "raw": b"\0\1", "big": Decimal("1234567890123456789012345678.1234567891"),
    }  # fmt: skip
    assert second == {**dict.fromkeys(first), "id": 2, "day": date(2026, 11, 26), "at": moment}


def test_upserts_keep_one_row_of_each_key_and_tombstones_delete_it(lake: Lake) -> None:
    with lake.sandbox(**UPSERT) as box:
        for n, value in [(1, "a"), (2, "b"), (3, "c"), (1, "d")]:
            box.produce("orders", n, {"v": value, "w": value})
        box.run()
        for n, value in [(2, None), (3, {"v": "e"}), (4, {"v": "f", "w": "f"}), (5, None), (4, None), (6, {"v": "g"})]:
            box.produce("orders", n, value)
        box.run()
        assert [(row["id"], row["v"], row["w"]) for row in lake.rows()] == [
            (1, "d", "d"), (3, "e", None), (6, "g", None)]  # fmt: skip
        box.produce("orders", 1, None)
        box.run()
        assert [row["id"] for row in lake.rows()] == [3, 6]


def test_keys_of_several_columns_and_null_in_one(lake: Lake) -> None:
    with lake.sandbox(insert_mode="upsert", pk_mode="record_value", pk_fields="a,b") as box:
        for a, b, v in [(1, "x", 1), (1, None, 2), (1, "x", 3), (1, None, 4), (2, "x", 5)]:
            box.produce("orders", None, {"a": a, "b": b, "v": v})
            box.run()
    found = sorted(((row["a"], row["b"] or "", row["v"]) for row in lake.rows()), key=str)
    assert found == [(1, "", 4), (1, "x", 3), (2, "x", 5)]


def test_records_that_are_no_rows_are_dead_letters_and_the_others_are_written(lake: Lake) -> None:
    letters = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "letters"}
    with lake.sandbox(**UPSERT, **letters) as box:
        for topic in ("orders", "refunds"):
            for key, value in [(1, {"v": "a"}), (None, {"v": "b"}), (2, [3]), (3, {"v": "c"})]:
                box.produce(topic, key, value)
        box.run()
        found = [(letter.key, letter.value) for letter in box.records("letters")]
    assert [[row["id"] for row in lake.rows(topic)] for topic in ("orders", "refunds")] == [[1, 3], [1, 3]]
    assert found == [(None, {"v": "b"}), (2, [3])] * 2


def test_a_new_field_adds_a_column_where_that_is_wanted(lake: Lake) -> None:
    for evolve in ("false", "true"):
        with lake.sandbox(auto_evolve=evolve) as box:
            box.produce("orders", None, {"id": f"{evolve} 1"})
            box.run()
            box.produce("orders", None, {"id": f"{evolve} 2", "more": [1]})
            if evolve == "false":
                with pytest.raises(ConnectorFailed, match="no column more"):
                    box.run()
            else:
                box.run()
    assert [(row["id"], row["more"]) for row in lake.rows()] == [("false 1", None), ("true 1", None), ("true 2", [1])]


def test_without_auto_create_a_missing_table_is_an_error(lake: Lake) -> None:
    with lake.sandbox(auto_create="false") as box:
        box.produce("orders", None, {"id": 1})
        with pytest.raises(ConnectorFailed, match="orders does not exist"):
            box.run()


def test_a_value_that_does_not_fit_names_its_column(lake: Lake, box: ConnectorSandbox) -> None:
    lake.create("orders", pa.schema([("id", pa.int32())]))
    box.produce("orders", None, {"id": "one"})
    with pytest.raises(ConnectorFailed, match="column id of type int32"):
        box.run()


@pytest.mark.parametrize(("point", "nth"), checkered(POINTS, [1, 2]))
def test_each_record_is_there_once_wherever_the_task_dies(lake: Lake, point: str, nth: int) -> None:
    with lake.sandbox() as box:
        for part in range(3):
            for n in range(20):
                topic = "refunds" if n % 4 == 0 else "orders"
                box.produce(topic, n, {"id": 100 * part + n}, partitions=2)
            if part == 0:
                box.kill_at(point, nth)
            box.run()
        assert box.deaths == 1
    ids = [row["id"] for topic in ("orders", "refunds") for row in lake.rows(topic)]
    assert sorted(ids) == sorted(100 * part + n for part in range(3) for n in range(20))


@pytest.mark.parametrize("seed", range(3))
def test_upserts_under_many_deaths_give_the_last_value_of_each_key(lake: Lake, seed: int) -> None:
    chance, last = random.Random(seed), dict[int, int | None]()
    with lake.sandbox(**UPSERT) as box:
        for n in range(6):
            for _ in range(10):
                key, value = chance.randrange(8), chance.choice([None, chance.randrange(100)])
                last[key] = value
                box.produce("orders", key, None if value is None else {"v": value}, partitions=2)
            box.kill_at(chance.choice(POINTS), 1)
            box.run()
            assert {row["id"]: row["v"] for row in lake.rows()} == {k: v for k, v in last.items() if v is not None}, n
        assert box.deaths


def test_of_two_tasks_that_write_the_same_records_one_is_refused(lake: Lake) -> None:
    """A task that hangs and its successor: both have opened the table before either writes."""
    task = TaskInfo("out", identity="i", clock=VirtualClock())
    lake.create("orders", pa.schema([("id", pa.int64())]))
    one, two = (lake.sink(task) for _ in range(2))
    assert isinstance(one, LakeSink)
    assert isinstance(two, LakeSink)
    opened = one.open_table("orders")
    one.open_table = lambda topic: opened  # pyrefly: ignore[method-assign]
    records = [ConnectRecord("orders", None, {"id": n}, 0, (), 0, n, "orders") for n in range(3)]
    two.write(records, {TopicPartition("orders", 0): 3})
    with pytest.raises(SystemUnavailable, match="changed meanwhile"):
        one.write(records, {TopicPartition("orders", 0): 3})
    assert [row["id"] for row in lake.rows()] == [0, 1, 2]
    two.write([replace(record, offset=record.offset + 1) for record in records if record.offset is not None],
              {TopicPartition("orders", 0): 4})  # fmt: skip
    assert [row["id"] for row in lake.rows()] == [0, 1, 2, 2]


def test_topics_that_a_transform_brings_together_keep_their_own_offsets(lake: Lake) -> None:
    renamed = {"transforms": "one", "transforms.one.type": "RegexRouter", "transforms.one.regex": ".*",
               "transforms.one.replacement": "all"}  # fmt: skip
    with lake.sandbox(**renamed) as box:
        for n in range(3):
            box.produce("orders", None, {"id": f"order {n}"})
        box.run()
        box.produce("refunds", None, {"id": "refund 0"})
        box.clock.advance(5000)  # then a sink looks for new topics
        box.kill_at("lake_after_commit", 1)
        box.run()
    assert [row["id"] for row in lake.rows("all")] == ["order 0", "order 1", "order 2", "refund 0"]


def test_a_connector_that_is_created_again_writes_everything_again(lake: Lake) -> None:
    records = [ConnectRecord("orders", None, {"id": n}, 0, (), 0, n, "orders") for n in range(2)]
    for identity in ("first", "first", "second"):
        lake.sink(TaskInfo("out", identity=identity)).write(records, {TopicPartition("orders", 0): 2})
    assert [row["id"] for row in lake.rows()] == [0, 0, 1, 1]


def test_records_come_together_between_two_commits(lake: Lake) -> None:
    with lake.sandbox(commit_interval_ms="5000") as box:
        box.produce("orders", None, {"id": 0})
        box.run()
        before = lake.commits()
        for n in range(1, 4):
            box.produce("orders", None, {"id": n})
            box.run()
        assert lake.commits() == before
        box.clock.advance(4999)
        box.run()
        assert lake.commits() == before
        box.clock.advance(1)
        box.run()
        assert lake.commits() == before + 1
        assert [row["id"] for row in lake.rows()] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"insert.mode": "upsert"}, "pk.mode is none"),
        ({"pk.mode": "record_value"}, "pk.fields"),
        ({"commit.interval.ms": "-1"}, "must not be negative"),
    ],
)
def test_settings_that_do_not_go_together(lake: Lake, more: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConnector, match=message):
        read_settings(lake.kind.settings, {**lake.config, **more})


def test_a_table_that_columns_of_a_stream_fill_is_read_by_duckdb(lake: Lake, box: ConnectorSandbox) -> None:
    """The files are what any reader of Parquet takes."""
    import duckdb

    for n in range(5):
        box.produce("orders", None, {"id": n, "amount": n / 2})
    box.run()
    rows = lake.table()
    assert rows.num_rows == 5
    summed = duckdb.sql("SELECT SUM(id), SUM(amount) FROM rows")
    assert summed is not None
    assert summed.fetchall() == [(10, 5.0)]
    assert len(read_topic(box.log, "orders")) == 5


def test_a_table_is_asked_once_for_the_offset_of_a_partition(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta Lake reads its log for the answer: asked for each record, a task with a backlog never got to its commit."""
    with lake.sandbox(topics="orders") as box:
        box.produce("orders", None, {"n": 0})
        box.run()
        asked: list[str] = []
        loaded = lake.kind
        assert issubclass(loaded, LakeSink)
        plain = loaded._offset_name
        monkeypatch.setattr(loaded, "_offset_name", lambda self, at: asked.append(str(at)) or plain(self, at))
        for number in range(1, 50):
            box.produce("orders", None, {"n": number})
        box.run()
    assert sorted(row["n"] for row in lake.table("orders").to_pylist()) == list(range(50))
    assert len(asked) < 10
