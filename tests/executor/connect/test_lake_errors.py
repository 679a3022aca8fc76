"""Errors of a lake: what passes is waited out, what somebody has to change stops the task, the rest stops it later."""

from __future__ import annotations

import http.server
import json
import threading
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lakes import Lake
from pyiceberg.catalog import load_catalog

from millstream.executor.connect.connector import ConnectRecord, TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, SystemFault, SystemUnavailable
from millstream.executor.connect.task_clock import VirtualClock
from millstream.logcore.client import TopicPartition

deltalake = pytest.importorskip("deltalake")

DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@contextmanager
def answering(status: int, body: bytes) -> Generator[str]:
    """A server that gives this answer to everything."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def write(lake: Lake, value: Any = 1, **more: str) -> None:
    sink = lake.sink(TaskInfo("out", identity=uuid.uuid4().hex, clock=VirtualClock()), **more)
    record = ConnectRecord("orders", 1, {"id": value}, 0, (), 0, 0, "orders")
    sink.write([record], {TopicPartition("orders", 0): 1})


def test_a_topic_that_was_created_again_is_not_left_out_in_silence(delta: Lake) -> None:
    task = TaskInfo("out", identity="i", clock=VirtualClock(), log_end=lambda at: 3)
    records = [ConnectRecord("orders", 1, {"id": number}, 0, (), 0, number, "orders") for number in range(3)]
    delta.sink(task).write(records, {TopicPartition("orders", 0): 3})
    delta.sink(task).write(records, {TopicPartition("orders", 0): 3})  # a task that died before its commit
    task = TaskInfo("out", identity="i", clock=VirtualClock(), log_end=lambda at: 1)
    with pytest.raises(ConnectorFailed, match="it was deleted and created again"):
        delta.sink(task).write(records[:1], {TopicPartition("orders", 0): 1})


def on_s3(url: str) -> dict[str, str]:
    options = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu-west-1", "max_retries": "0",
               "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"}  # fmt: skip
    given = ",".join(f"{name}={value}" for name, value in options.items())
    return {"location": "s3://bucket/orders", "storage_options": given}


@pytest.fixture
def delta(tmp_path: Path) -> Lake:
    return Lake("delta", tmp_path)


@pytest.fixture
def iceberg(tmp_path: Path) -> Lake:
    return Lake("iceberg", tmp_path)


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (403, DENIED, ConnectorFailed, "the store refuses access"),
        (401, b"", ConnectorFailed, "the store refuses access"),
        (400, b"<Error><Code>InvalidAccessKeyId</Code></Error>", ConnectorFailed, "the store refuses access"),
        (404, b"<Error><Code>NoSuchBucket</Code></Error>", ConnectorFailed, "the place of the table cannot be used"),
        (503, b"<Error><Code>SlowDown</Code></Error>", SystemUnavailable, "the store does not answer"),
        (500, b"", SystemUnavailable, "the store does not answer"),
    ],
)
def test_what_an_object_store_answers_decides(
    delta: Lake, status: int, body: bytes, kind: type[Exception], message: str
) -> None:
    with answering(status, body) as url, pytest.raises(kind, match=message) as raised:
        write(delta, **on_s3(url))
    assert "\x1b" not in str(raised.value)
    assert "unknown" not in str(raised.value)


def test_a_store_that_nobody_hears_from_is_waited_for(delta: Lake) -> None:
    with pytest.raises(SystemUnavailable, match="the store does not answer"):
        write(delta, **on_s3("http://127.0.0.1:1"))


@pytest.mark.parametrize("location", ["{folder}/file/orders", "nowhere://bucket/orders"])
def test_a_place_that_can_hold_no_table_is_final(delta: Lake, tmp_path: Path, location: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConnectorFailed, match="the place of the table cannot be used"):
        write(delta, location=location.format(folder=tmp_path))


def test_what_a_table_of_delta_forbids_is_final(delta: Lake) -> None:
    delta.create("orders", pa.schema([("id", pa.int64())]))
    table = deltalake.DeltaTable(delta.config["location"].replace("${topic}", "orders"))
    table.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(ConnectorFailed, match=r"the table cannot take these rows: .*validation"):
        write(delta, -1)
    write(delta, 1)
    table.update_incremental()
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(ConnectorFailed, match=r"the table cannot take these rows: .*append-only"):
        write(delta, 1, insert_mode="upsert", pk_mode="record_value", pk_fields="id")


def test_a_feature_that_the_library_does_not_know_is_final(delta: Lake, tmp_path: Path) -> None:
    delta.create("orders", pa.schema([("id", pa.int64())]))
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["new"], "writerFeatures": ["new"]}
    log = tmp_path / "lake" / "orders" / "_delta_log" / "00000000000000000001.json"
    log.write_text(json.dumps({"protocol": protocol}))
    with pytest.raises(ConnectorFailed, match=r"the table needs what this library cannot do: .*'new'"):
        write(delta)


def test_an_error_that_nobody_knows_is_neither(delta: Lake, tmp_path: Path) -> None:
    delta.create("orders", pa.schema([("id", pa.int64())]))
    (tmp_path / "lake" / "orders" / "_delta_log" / "00000000000000000001.json").write_text("garbage")
    with pytest.raises(SystemFault, match=r"not known to pass: .*Json error"):
        write(delta)


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (401, ConnectorFailed, "the catalog of Iceberg refuses access"),
        (403, ConnectorFailed, "the catalog of Iceberg refuses access"),
        (400, ConnectorFailed, "the catalog of Iceberg refuses the request"),
        (500, SystemUnavailable, "the catalog of Iceberg does not answer"),
        (503, SystemUnavailable, "the catalog of Iceberg does not answer"),
        (429, SystemUnavailable, "the catalog of Iceberg does not answer"),
        (418, SystemFault, "not known to pass"),
    ],
)
def test_what_a_catalog_of_iceberg_answers_decides(
    iceberg: Lake, status: int, kind: type[Exception], message: str
) -> None:
    body = json.dumps({"error": {"message": "no", "type": "Some", "code": status}}).encode()
    with answering(status, body) as url, pytest.raises(kind, match=message):
        write(iceberg, catalog_properties=f"type=rest,uri={url}")


def test_a_catalog_that_nobody_hears_from_is_waited_for(iceberg: Lake) -> None:
    with pytest.raises(SystemUnavailable, match="the catalog of Iceberg does not answer"):
        write(iceberg, catalog_properties="type=rest,uri=http://127.0.0.1:1")


def test_a_catalog_in_a_database_that_is_away_is_waited_for(iceberg: Lake, tmp_path: Path) -> None:
    with pytest.raises(SystemUnavailable, match="the catalog of Iceberg does not answer"):
        write(iceberg, catalog_properties=f"type=sql,uri=sqlite:///{tmp_path}/none/c.db,warehouse=file://{tmp_path}")


def test_a_required_column_of_iceberg_without_a_value_is_final(iceberg: Lake) -> None:
    iceberg.create("orders", pa.schema([("id", pa.int64()), pa.field("must", pa.int64(), nullable=False)]))
    with pytest.raises(ConnectorFailed, match="the table cannot take these rows"):
        write(iceberg)


def test_a_table_of_iceberg_that_is_dropped_meanwhile_is_made_again(iceberg: Lake) -> None:
    with iceberg.sandbox() as box:
        box.produce("orders", None, {"id": 1})
        box.run()
        load_catalog("default", **iceberg.catalog).drop_table("shop.orders")
        box.produce("orders", None, {"id": 2})
        box.run()
    assert [row["id"] for row in iceberg.rows()] == [2]
