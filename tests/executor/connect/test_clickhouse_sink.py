"""Tables of ClickHouse: each record is a row once, or the row of its key, whatever dies.

The tests with `server` take a real ClickHouse, where chdb-core is installed; the others answers of its HTTP interface.
"""

from __future__ import annotations

import datetime
import re
import urllib.parse
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from clickhouse_server import ClickHouseServer, clickhouse_server
from scripted_worker import Answer, Asked, scripted_worker

from millstream.executor.connect.connector_errors import (
    ConnectorFailed,
    InvalidConnector,
    SystemFault,
    SystemUnavailable,
)
from millstream.executor.connect.connector_sandbox import ConnectorSandbox
from millstream.executor.connect.sinks.clickhouse_sink import ClickHouseSink

SECRET = "hunter2-hunter2"
KEYED = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "key.converter": "string"}
POINTS = (*ClickHouseSink.kill_points, "sink_after_read", "sink_after_write", "sink_after_commit")


def sandbox(url: str, config: dict[str, str] | None = None) -> ConnectorSandbox:
    settings = {"connection.url": url, "topics": "orders", "commit.interval.ms": "0", "key.converter": "string"}
    return ConnectorSandbox(ClickHouseSink, {**settings, **(config or {})})


@pytest.fixture(scope="module")
def server() -> Iterator[ClickHouseServer]:
    with clickhouse_server() as started:
        yield started


@pytest.fixture
def table(server: ClickHouseServer) -> ClickHouseServer:
    server.run("DROP TABLE IF EXISTS default.orders")
    return server


# ------------------------------------------------------------------ without a server


def columns(*more: tuple[str, str]) -> Answer:
    own = [("_millstream_source", "LowCardinality(String)"), ("_millstream_offset", "UInt64")]
    return 200, {"data": [{"name": name, "type": type_} for name, type_ in [*more, *own]]}


OWN = "ReplacingMergeTree(_millstream_offset, _millstream_deleted) ORDER BY id SETTINGS index_granularity = 8192"
REPLACING = {"engine_full": OWN, "partition_key": "", "sorting_key": "id"}


class Interface:
    """State: what was asked. In: `inserts`: the answers of inserts, 200 after them."""

    def __init__(self, *inserts: Answer, table: Answer = None, offsets: dict[str, str] | None = None) -> None:
        self.inserts = list(inserts)
        self.table = table
        self.offsets = offsets or {}
        self.engine = REPLACING
        self.statements: list[str] = []
        self.blocks: list[tuple[str, pa.Table]] = []

    def answer(self, asked: Asked) -> Answer:
        parameters = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(asked.path).query))
        if "query" in parameters:
            rows = pa.ipc.open_stream(asked.body).read_all()
            self.blocks.append((parameters["insert_deduplication_token"], rows))
            return self.inserts.pop(0) if self.inserts else (200, b"")
        query = asked.body.decode()
        self.statements.append(query)
        if "system.columns" in query:
            return self.table or (200, {"data": []})
        if "system.tables" in query:
            return 200, {"data": [self.engine]}
        if query.startswith("CREATE TABLE"):
            self.table = columns(("n", "Nullable(Float64)"), ("text", "Nullable(String)"))
            return 200, b""
        return 200, {"data": [{"s": source, "o": offset} for source, offset in self.offsets.items()]}


def test_a_table_is_made_and_a_block_sent_with_the_token_of_its_offsets() -> None:
    interface = Interface()
    with scripted_worker(interface.answer) as http, sandbox(http.url) as box:
        box.produce("orders", "a", {"n": 1, "text": "x"})
        box.produce("orders", "b", None)
        box.produce("orders", "c", {"n": 2.5})
        box.run()
    (create,) = [text for text in interface.statements if text.startswith("CREATE")]
    assert "`default`.`orders` (`n` Nullable(Float64), `text` Nullable(String)" in create
    assert "ReplacingMergeTree ORDER BY (_millstream_source, _millstream_offset)" in create
    ((token, rows),) = interface.blocks
    assert re.fullmatch(r"millstream/\w+/orders@\w+/0/0-2", token)
    assert rows.column("n").to_pylist() == [1.0, 2.5]
    assert rows.column("_millstream_offset").to_pylist() == [0, 2]


def test_a_lost_answer_is_repeated_with_the_same_token() -> None:
    interface = Interface(None, (500, b"Code: 252. DB::Exception: Too many parts"))
    with scripted_worker(interface.answer) as http, sandbox(http.url) as box:
        box.produce("orders", "a", {"n": 1, "text": "x"})
        box.run()
    assert len(interface.blocks) == 3
    assert len({token for token, _ in interface.blocks}) == 1


@pytest.mark.parametrize(
    ("answer", "raises", "says"),
    [
        ((500, b"Code: 241. DB::Exception: Memory limit"), SystemUnavailable, "Memory limit"),
        ((503, b""), SystemUnavailable, "answered 503"),
        ((500, b"oops"), SystemFault, "oops"),
        ((500, b"Code: 164. DB::Exception: readonly mode"), ConnectorFailed, "readonly mode"),
        ((404, b"Code: 60. DB::Exception: Unknown table"), ConnectorFailed, "Unknown table"),
        ((400, b"Code: 53. DB::Exception: Type mismatch"), ConnectorFailed, "Type mismatch"),
        ((403, b"Code: 516. DB::Exception: default: Authentication failed"), ConnectorFailed, "refuses the user"),
    ],
)
def test_what_passes_is_waited_out_and_the_rest_says_what_to_do(
    answer: Answer, raises: type[Exception], says: str
) -> None:
    interface = Interface(*[answer] * 30)
    with scripted_worker(interface.answer) as http, sandbox(http.url, {"connection.password": SECRET}) as box:
        box.produce("orders", "a", {"n": 1, "text": "x"})
        with pytest.raises(raises, match=says) as failed:
            box.run()
        assert SECRET not in str(failed.value)


@pytest.mark.parametrize(
    ("table", "value", "says"),
    [
        ((200, {"data": [{"name": "n", "type": "Int8"}]}), {"n": 1}, "no column _millstream_source"),
        (columns(("n", "Int8")), {"n": 300}, "the column n of type int8 cannot hold a value"),
        (columns(("n", "Date")), {"n": 1}, "the column n of orders has the type Date"),
        (columns(("n", "Int8")), {"n": 1, "more": 2}, "the table of the topic orders has no column more"),
        ((200, b"<html>"), {"n": 1}, "does not answer as ClickHouse does"),
    ],
)
def test_a_table_or_a_value_that_does_not_go_is_an_error_that_says_so(table: Answer, value: Any, says: str) -> None:
    interface = Interface(table=table)
    with scripted_worker(interface.answer) as http, sandbox(http.url) as box:
        box.produce("orders", "a", value)
        with pytest.raises(ConnectorFailed, match=says):
            box.run()
    assert interface.blocks == []


UPSERT = {"insert.mode": "upsert", "key.converter": "json", "auto.create": "false"}


def keyed_columns(key: str = "id") -> Answer:
    return columns((key, "Int32"), ("n", "Nullable(Float64)"), ("_millstream_deleted", "UInt8"))


@pytest.mark.parametrize(
    ("config", "key", "value", "says"),
    [
        (
            {"pk.mode": "record_value", "pk.fields": "id"},
            "k",
            {"id": None, "n": 1},
            "offset 0 has NULL in id of its key",
        ),
        ({"pk.mode": "record_key"}, {"id": None}, {"n": 1}, "offset 0 has NULL in id of its key"),
        ({"pk.mode": "record_key"}, {"id": None}, None, "offset 0 has NULL in id of its key"),
        ({"pk.mode": "record_key"}, {"nr": 1}, None, "the table has no column nr of the key"),
    ],
)
def test_a_key_that_the_table_cannot_hold_is_no_other_row(config: Any, key: Any, value: Any, says: str) -> None:
    """ClickHouse would take it for the key 0."""
    interface = Interface(table=keyed_columns())
    with scripted_worker(interface.answer) as http, sandbox(http.url, {**UPSERT, **config}) as box:
        box.produce("orders", key, value)
        with pytest.raises(ConnectorFailed, match=says):
            box.run()
    assert interface.blocks == []


def test_a_tombstone_whose_key_would_be_in_its_value_is_left_out() -> None:
    interface = Interface(table=keyed_columns())
    config = {**UPSERT, "pk.mode": "record_value", "pk.fields": "id"}
    with scripted_worker(interface.answer) as http, sandbox(http.url, config) as box:
        box.produce("orders", "a", {"id": 7, "n": 1})
        box.produce("orders", "a", None)
        box.run()
    ((_, rows),) = interface.blocks
    assert (rows.column("id").to_pylist(), rows.column("_millstream_deleted").to_pylist()) == ([7], [0])


@pytest.mark.parametrize("count", [1, 4])
def test_a_topic_that_is_created_again_is_written_again(count: int) -> None:
    interface = Interface(table=columns(("n", "Nullable(Float64)")))
    with scripted_worker(interface.answer) as http, sandbox(http.url) as box:
        for number in range(3):
            box.produce("orders", "a", {"n": number})
        box.run()
        interface.offsets = {token.rpartition("/")[0]: "2" for token, _ in interface.blocks}
        box.log.delete_topic("orders")
        for number in range(count):
            box.produce("orders", "a", {"n": 10 + number})
        box.restart()
        box.run()
    assert interface.blocks[1][1].column("n").to_pylist() == [10.0 + number for number in range(count)]


def test_rows_of_a_topic_from_before_it_was_created_again_do_not_compare() -> None:
    interface = Interface(table=keyed_columns())
    config = {**UPSERT, "pk.mode": "record_value", "pk.fields": "id"}
    with scripted_worker(interface.answer) as http, sandbox(http.url, config) as box:
        box.produce("orders", "a", {"id": 1})
        box.run()
        interface.offsets = {token.rpartition("/")[0]: "0" for token, _ in interface.blocks}
        box.log.delete_topic("orders")
        box.produce("orders", "a", {"id": 1})
        box.restart()
        with pytest.raises(ConnectorFailed, match="has rows of the topic orders from before it was deleted"):
            box.run()


def test_two_topics_never_share_a_table_of_upserts() -> None:
    interface = Interface(table=keyed_columns())
    config = {**UPSERT, "pk.mode": "record_value", "pk.fields": "id", "topics": "orders,more"}
    config |= {"transforms": "r", "transforms.r.type": "RegexRouter"}
    config |= {"transforms.r.regex": ".*", "transforms.r.replacement": "all"}
    with scripted_worker(interface.answer) as http, sandbox(http.url, config) as box:
        box.produce("orders", "a", {"id": 1})
        box.produce("more", "a", {"id": 1})
        with pytest.raises(ConnectorFailed, match=r"has rows of the topic more|has rows of the topic orders"):
            box.run()


@pytest.mark.parametrize(
    ("engine", "config", "says"),
    [
        ({"partition_key": "toYYYYMM(at)"}, {}, r"is partitioned by toYYYYMM\(at\)"),
        ({"partition_key": "day"}, UPSERT, "is partitioned by day"),
        ({"engine_full": "MergeTree ORDER BY id"}, UPSERT, "has the engine MergeTree, and upsert needs Replacing"),
        ({"engine_full": "ReplacingMergeTree ORDER BY id"}, UPSERT, "has the engine ReplacingMergeTree, and"),
        ({"engine_full": "ReplacingMergeTree(_millstream_offset) ORDER BY id"}, UPSERT, "has the engine Repl"),
        ({"sorting_key": "id, n"}, UPSERT, "is ordered by id, n, and upsert needs the key, ID"),
        ({"engine_full": "MergeTree ORDER BY n", "sorting_key": "n"}, {}, None),
        ({"engine_full": f"Replicated{OWN}".replace("(", "('/a/{shard}', '{replica}', ", 1)}, UPSERT, None),
        ({"sorting_key": "`id`"}, UPSERT, None),
        ({"sorting_key": "(id)"}, UPSERT, None),
    ],
)
def test_a_table_of_ones_own_keeps_the_last_row_of_each_key(engine: Any, config: Any, says: str | None) -> None:
    interface = Interface(table=keyed_columns())
    interface.engine = {**REPLACING, **engine}
    settings = {**config, "pk.mode": "record_value", "pk.fields": "ID"} if config else {}
    with scripted_worker(interface.answer) as http, sandbox(http.url, settings) as box:
        box.produce("orders", "a", {"ID": 1, "n": 1})
        if says is None:
            box.run()
            assert len(interface.blocks) == 1
            return
        with pytest.raises(ConnectorFailed, match=says):
            box.run()
    assert interface.blocks == []


@pytest.mark.parametrize(("type_", "at"), [("DateTime64(0)", 1500), ("DateTime64(3)", "2024-02-03T04:05:06.000001Z")])
def test_a_moment_is_not_cut(type_: str, at: Any) -> None:
    interface = Interface(table=columns(("at", type_)))
    with scripted_worker(interface.answer) as http, sandbox(http.url) as box:
        box.produce("orders", "a", {"at": at})
        with pytest.raises(ConnectorFailed, match="the column at of type"):
            box.run()
    assert interface.blocks == []


@pytest.mark.parametrize("value", [{}, {"later": None}])
def test_a_row_without_values_is_a_row(value: Any) -> None:
    interface = Interface(table=columns(("n", "Nullable(Float64)")))
    with scripted_worker(interface.answer) as http, sandbox(http.url) as box:
        box.produce("orders", "a", value)
        box.run()
    ((_, rows),) = interface.blocks
    assert rows.column("_millstream_offset").to_pylist() == [0]


@pytest.mark.parametrize("url", ["localhost:8123", "ftp://host"])
def test_settings_that_cannot_work_are_refused(url: str) -> None:
    with pytest.raises(InvalidConnector, match="must begin with http"):
        sandbox(url)


# ------------------------------------------------------------------ with a real one


def test_rows_keep_their_values(table: ClickHouseServer) -> None:
    rows: list[dict[str, Any]] = [
        {"n": 1, "text": "ünï'\\\u0001 𝄞", "flag": True, "big": 2**60, "deep": {"a": [1, None]}},
        {"n": -0.5, "text": "x" * 300_000, "flag": None, "big": -(2**63)},
        {"n": 1e308},
    ]
    with sandbox(table.url) as box:
        for row in rows:
            box.produce("orders", "k", row)
        box.run()
    found = table.rows("SELECT * EXCEPT (_millstream_source) FROM orders ORDER BY _millstream_offset")
    assert [row.pop("_millstream_offset") for row in found] == [0, 1, 2]
    assert found[0] == {**rows[0], "deep": '{"a":[1,null]}'}
    assert found[1] == {**rows[1], "deep": None}
    assert found[2] == {"n": 1e308, "text": None, "flag": None, "big": None, "deep": None}


def test_columns_of_a_table_of_ones_own(table: ClickHouseServer) -> None:
    table.run(
        """CREATE TABLE orders (Amount Decimal(12, 2), at DateTime64(6, 'UTC'), day Date32, small UInt8 DEFAULT 7,
        odd UUID, _millstream_source String, _millstream_offset UInt64) ENGINE = MergeTree ORDER BY at"""
    )
    with sandbox(table.url) as box:
        box.produce("orders", "k", {"AMOUNT": "1.25", "at": 1_700_000_000_123, "day": 19_000})
        box.run()
        (row,) = table.rows("SELECT toString(Amount) AS a, at, day, small FROM orders")
        assert row == {"a": "1.25", "at": "2023-11-14 22:13:20.123000", "day": "2022-01-08", "small": 7}
        box.produce("orders", "k", {"AMOUNT": "1.255"})
        with pytest.raises(ConnectorFailed, match="the column Amount"):
            box.run()
    assert table.rows("SELECT count() AS c FROM orders") == [{"c": 1}]


def expected(records: list[tuple[str, Any]]) -> list[Any]:
    return sorted(value["n"] for _, value in records if value is not None)


@pytest.mark.parametrize("point", POINTS)
def test_each_record_is_a_row_once_wherever_the_task_dies(table: ClickHouseServer, point: str) -> None:
    """Also without FINAL: what is there is left out."""
    records: list[tuple[str, Any]] = []
    with sandbox(table.url) as box:
        for nth in range(1, 4):
            for number in range(30):
                records.append((f"k{number}", None if number % 7 == 0 else {"n": nth * 100 + number}))
                box.produce("orders", *records[-1], partitions=3)
            box.kill_at(point, nth)
            box.run()
        box.run()
        assert box.deaths >= 1
    assert [row["n"] for row in table.rows("SELECT n FROM orders ORDER BY n")] == expected(records)


def test_a_key_has_one_row_and_a_tombstone_deletes_it_under_kills(table: ClickHouseServer) -> None:
    wanted: dict[str, Any] = {}
    with sandbox(table.url, KEYED) as box:
        for life in range(10):
            for number in range(25):
                key = f"k{(number * 3 + life) % 20}"
                value = None if (number + life) % 5 == 0 else {"n": float(number), "life": float(life)}
                box.produce("orders", key, value, partitions=2)
                wanted[key] = value
            box.kill_at(POINTS[life % len(POINTS)])
            box.run()
        box.run()
        assert box.deaths >= 8
        found = table.rows("SELECT id, n, life FROM orders FINAL")
        assert {row.pop("id"): row for row in found} == {key: row for key, row in wanted.items() if row is not None}
    with sandbox(table.url, KEYED) as other:
        other.produce("orders", "k1", {"n": 1})
        with pytest.raises(ConnectorFailed, match="rows of another connector"):
            other.run()


def test_a_server_that_dies_is_waited_for(table: ClickHouseServer) -> None:
    with sandbox(table.url, {"auto.evolve": "true"}) as box:
        box.produce("orders", "a", {"n": 1})
        box.run()
        table.kill()
        box.produce("orders", "a", {"n": 2, "more": "new"})
        with pytest.raises(SystemUnavailable):
            box.run()
        table.start()
        box.run()
    found = table.rows("SELECT n, more FROM orders ORDER BY n")
    assert found == [{"n": 1, "more": None}, {"n": 2, "more": "new"}]


def test_moments_and_decimals_go_through_as_they_are() -> None:
    """The block that is sent, for values that the log's JSON has."""
    types = (("at", "DateTime64(3, 'UTC')"), ("price", "Nullable(Decimal(20, 4))"), ("day", "Date32"))
    interface = Interface(table=columns(*types))
    with scripted_worker(interface.answer) as http, sandbox(http.url) as box:
        box.produce("orders", "a", {"at": "2024-02-03T04:05:06.789Z", "price": "12.3456", "day": "2024-02-03"})
        box.run()
    ((_, rows),) = interface.blocks
    (row,) = rows.to_pylist()
    assert row["price"] == Decimal("12.3456") and row["day"] == datetime.date(2024, 2, 3)
    assert row["at"] == datetime.datetime(2024, 2, 3, 4, 5, 6, 789000, tzinfo=datetime.UTC)
