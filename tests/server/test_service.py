"""The server as a process: it announces itself, keeps everything over a restart, ends cleanly, and says why it cannot
start."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import ServerProcess, eventually, millstream, service_in

from millstream import cli
from millstream.logcore import failpoints
from millstream.server.client import connect

FREE = ("--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--executor", "duckdb")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def only_line(text: str) -> str:
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


def test_a_restart_keeps_the_catalog_and_goes_on_with_the_queries(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, anew=True) as server:
        assert server.announced[0].startswith("http: listening on http://127.0.0.1:")
        assert server.announced[1].startswith("kafka: listening on 127.0.0.1:")
        assert server.announced[2] == "executor: DuckDB runs persistent queries in this process\n"
        client = connect(server.url)
        client.execute("SET 'auto.offset.reset'='earliest';")
        client.execute("CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        client.execute("CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;")
        client.execute("INSERT INTO s VALUES (1, 5);")
        eventually(lambda: [row.values for row in client.query("SELECT * FROM t;")] == [(1, 1)])
        assert server.stop(signal.SIGTERM) == 0
    with ServerProcess(tmp_path) as server:
        client = connect(server.url)
        assert client.execute("SHOW QUERIES;")[0]["queries"][0]["state"] == "RUNNING"
        client.execute("INSERT INTO s VALUES (1, 5);")
        eventually(lambda: [row.values for row in client.query("SELECT * FROM t;")] == [(1, 2)])
        rows = client.query("SELECT * FROM s EMIT CHANGES;")  # an open push query does not keep the server
        assert server.stop(signal.SIGINT) == 0
        assert list(rows) == []


def test_a_server_that_starts_paused_runs_no_query_before_a_resume(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        client = connect(server.url)
        client.execute("SET 'auto.offset.reset'='earliest';")
        client.execute("CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        client.execute("CREATE STREAM a AS SELECT * FROM s;")
        client.execute("CREATE STREAM b AS SELECT * FROM s;")
        assert server.stop(signal.SIGTERM) == 0
    with ServerProcess(tmp_path, "--paused") as server:
        client = connect(server.url)
        listed = {query["sinks"][0]: query for query in client.execute("SHOW QUERIES;")[0]["queries"]}
        assert [query["state"] for query in listed.values()] == ["PAUSED", "PAUSED"]
        client.execute("INSERT INTO s VALUES (1, 5);")
        client.execute(f"TERMINATE {listed['A']['id']};")
        client.execute(f"RESUME {listed['B']['id']};")
        eventually(lambda: [row.values for row in client.query("SELECT v FROM b;")] == [(5,)])
        assert list(client.query("SELECT v FROM a;")) == []
        assert server.stop(signal.SIGTERM) == 0
    with ServerProcess(tmp_path) as server:
        assert [query["state"] for query in connect(server.url).execute("SHOW QUERIES;")[0]["queries"]] == ["RUNNING"]


@pytest.mark.parametrize(("before", "asks"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)], ids=["plain", "nohup"])
def test_the_end_of_its_terminal_stops_a_server_unless_it_is_ignored(before: signal.Handlers, asks: bool) -> None:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, before)
        asked = cli._stop_on_signals()
        os.kill(os.getpid(), signal.SIGHUP)
        assert (not asked.empty()) is asks
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def test_nobody_reaches_the_log_any_more_when_it_closes(tmp_path: Path) -> None:
    service = service_in(tmp_path)
    service.start()
    address = (service.kafka_address.host, service.kafka_address.port)
    failpoints.arm("log.close:1:sleep(300)")
    stopping = threading.Thread(target=service.stop)
    stopping.start()
    eventually(lambda: failpoints.hits("log.close"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    stopping.join()
    failpoints.arm("")


def test_a_port_in_use_is_one_sentence(tmp_path: Path, taken_port: int) -> None:
    for flag in ("--http", "--kafka", "--schema-registry"):
        ended = millstream("server", "--data", str(tmp_path / flag), *FREE, flag, f"127.0.0.1:{taken_port}")
        assert ended.returncode == 1
        assert only_line(ended.stderr).startswith(f"error: port {taken_port} of 127.0.0.1 is in use by another process")
        assert flag in ended.stderr


def test_a_locked_data_directory_is_one_sentence(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        ended = millstream("server", "--data", str(tmp_path), *FREE)
        assert ended.returncode == 1
        assert f"is already open in process {server.process.pid}" in only_line(ended.stderr)
        assert ended.stdout == ""


@pytest.mark.parametrize("command", ["server", "sql"])
def test_a_data_directory_that_cannot_be_one_is_one_sentence(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("")
    for data, reason in ((tmp_path / "file", "not a directory"), (tmp_path / "file" / "below", "not a directory")):
        flags = FREE if command == "server" else ("-c", "SHOW STREAMS;")
        ended = millstream(command, "--data", str(data), *flags)
        assert (ended.returncode, ended.stdout) == (1, "")
        first = ended.stderr.splitlines()[0]
        assert first.startswith(f"error: the data directory {data}")
        assert f"cannot be used: {reason}" in first


def test_a_server_that_ends_reports_no_leaks_of_what_it_had_loaded(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, anew=True) as server:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=50) == 0
        assert "leaked" not in server.end()


def test_spark_without_java_is_one_sentence(tmp_path: Path) -> None:
    ended = millstream(
        "server", "--data", str(tmp_path), *FREE, "--executor", "spark", env={"PATH": "", "JAVA_HOME": ""}
    )
    assert ended.returncode == 1
    assert only_line(ended.stderr).startswith("error: Spark cannot run persistent queries here")


def test_an_unreadable_configuration_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "millstream.toml"
    file.write_text("data = [")
    for path, words in ((file, "is not valid TOML"), (tmp_path / "none.toml", "cannot be read")):
        ended = millstream("server", "--config", str(path))
        assert ended.returncode == 1
        assert words in only_line(ended.stderr)


@pytest.mark.parametrize("command", ["server", "sql"])
def test_an_empty_data_directory_is_wrong_usage_and_not_the_current_folder(command: str) -> None:
    ended = millstream(command, "--data", "")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "the path is empty" in ended.stderr


def test_no_data_directory_is_one_sentence() -> None:
    ended = millstream("server")
    assert ended.returncode == 1
    assert only_line(ended.stderr).startswith("error: no data folder is given")


def test_the_schema_registry_answers_beside_the_api_where_one_is_wanted(tmp_path: Path) -> None:
    with service_in(tmp_path, schema_registry="127.0.0.1:0") as service:
        registry = service.schema_registry_address
        assert registry is not None
        assert registry.port != 0
        assert f"schema registry: listening on http://{registry}" in service.announcements()
        ask = urllib.request.Request(
            f"http://{registry}/subjects/x-value/versions",
            data=b'{"schema": "\\"string\\""}',
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(ask) as answer:
            assert json.loads(answer.read())["id"] == 1
        client = connect(f"http://{service.http_address}")
        client.execute("CREATE STREAM s (v INT) WITH (kafka_topic='t', value_format='AVRO', partitions=1);")
        with urllib.request.urlopen(f"http://{registry}/subjects") as answer:
            assert b"t-value" in answer.read()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind((registry.host, registry.port))
        again.listen()  # nobody listens there any more
    with service_in(tmp_path) as service:
        assert service.schema_registry_address is None
