"""Both servers: ours, and a worker of Apache Kafka Connect, which only `make soak` starts."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest
from connect_worker import ConnectWorker
from of_folder import of_folder
from running_server import ServerProcess, service_in

from bench.apache_kafka import VERSION, free_ports
from bench.maven import Unavailable, jars

from .connect_server import ConnectServer

HERE = Path(__file__).parent
_LIBRARIES = [f"org.apache.kafka:{name}:{VERSION}" for name in ("connect-runtime", "connect-file")]
_LOGGING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"  # as it is released: its loggers are Log4j's


@pytest.fixture(params=["millstream", pytest.param("kafka", marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    make = {"millstream": _millstream, "kafka": _kafka}[request.param]
    shared = of_folder(HERE, request.param, lambda: make(tmp_path_factory.mktemp(request.param)))
    with shared.lines.open("a") as lines:  # a worker goes on where a connector of this name was
        lines.write("one\ntwo\n")
    yield shared
    shared.remove_all()


@contextlib.contextmanager
def _millstream(folder: Path) -> Generator[ConnectServer]:
    sink = {"connector.class": "http", "http.api.url": "http://127.0.0.1:1", "topics": "rows"}
    with service_in(folder / "data") as service, _client(f"http://{service.http_address}") as http:
        service.engine.log.create_topic("rows", 1)
        yield ConnectServer("millstream", http, folder / "in.txt", sink)


@contextlib.contextmanager
def _kafka(folder: Path) -> Generator[ConnectServer]:
    if shutil.which("java") is None:
        pytest.skip("needs java on PATH")
    try:
        libraries = ":".join(map(str, jars(*_LIBRARIES, _LOGGING)))
    except Unavailable as reason:
        pytest.skip(str(reason))
    (port,) = free_ports(1)
    (folder / "log4j2.properties").write_text(_LOG4J)
    java = [
        "java",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        libraries,
    ]
    sink = {"connector.class": "FileStreamSink", "file": os.devnull, "topics": "rows"}
    with ServerProcess(folder / "data", "--kafka", f"127.0.0.1:{port}") as broker:
        worker = ConnectWorker(f"127.0.0.1:{port}", java, folder, topic_tracking_allow_reset="false")
        worker.start()
        try:
            worker.wait_until_started()
            with _client(worker.url) as http:
                assert httpx.post(f"{broker.url}/ksql", json={"ksql": _ROWS}).status_code == 200
                yield ConnectServer("kafka", http, folder / "in.txt", sink)
        finally:
            worker.kill()


_LOG4J = """appender.console.type = Console
appender.console.name = STDOUT
rootLogger.level = WARN
rootLogger.appenderRef.stdout.ref = STDOUT
"""
_ROWS = "CREATE STREAM r (a STRING) WITH (kafka_topic='rows', value_format='kafka', partitions=1);"


def _client(url: str) -> httpx.Client:
    """Without connections that wait: a worker closes some, and does not say so."""
    return httpx.Client(base_url=url, timeout=100, limits=httpx.Limits(max_keepalive_connections=0))
