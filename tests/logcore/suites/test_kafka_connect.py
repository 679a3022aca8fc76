"""A distributed worker of Kafka Connect, as it is released: a file becomes a topic, and the topic a file, while the
worker and the server are killed again and again; and the statements about connectors drive it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from connect_statements import live_of_a_connector, run
from connect_worker import QUIET_S, ConnectWorker
from waiting import eventually

from bench.apache_kafka import VERSION
from millstream.errors import InvalidStatement
from millstream.server.connect.connect_client import ConnectRefused
from millstream.server.engine.embedded import open_engine

from .serving import JAVA_OPTIONS, Product, classpath, count_of

confluent_kafka = pytest.importorskip("confluent_kafka")

_LINES_EACH: Final = 400


def committed(address: str, topic: str) -> list[str]:
    """The values of one partition that count, in their order."""
    settings = {"bootstrap.servers": address, "group.id": "checker", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[str] = []
    deadline = time.monotonic() + 60
    while (message := consumer.poll(1.0)) is None or message.error() is None:
        assert time.monotonic() < deadline, f"{topic} is not read to its end"
        if message is not None:
            found.append(message.value().decode())
    consumer.close()
    return found


@pytest.fixture
def worker(tmp_path: Path, product: Product) -> Iterator[ConnectWorker]:
    coordinates = [f"org.apache.kafka:{name}:{VERSION}" for name in ("connect-runtime", "connect-file")]
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    command = ["java", *JAVA_OPTIONS, logging, "-cp", classpath(*coordinates)]
    running = ConnectWorker(product.address, command, tmp_path)
    running.start()
    yield running
    running.kill()


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    with Product(tmp_path / "data") as running:
        yield running


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_each_line_of_a_file_is_in_the_topic_once_and_in_the_other_file_whoever_is_killed(
    tmp_path: Path, product: Product, worker: ConnectWorker
) -> None:
    """What a source with exactly.once.source.support promises, and a sink that may write again."""
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    connector = "org.apache.kafka.connect.file.FileStream"
    worker.configure(
        "source", connector_class=f"{connector}SourceConnector", file=str(source), topic="lines", tasks_max="1"
    )
    worker.configure("sink", connector_class=f"{connector}SinkConnector", file=str(sink), topics="lines", tasks_max="1")
    written: list[str] = []
    for turn in range(count_of("CONNECT_KILLS", 4)):
        written += _lines(source, len(written))
        eventually(
            lambda: sink.exists() and sink.stat().st_size > 0, QUIET_S, otherwise=f"nothing comes: {worker.said}"
        )
        if turn % 2:
            product.end()
            product.start()
            product.wait_until_started()
        else:
            worker.kill()
            worker.start()
    written += _lines(source, len(written))
    eventually(
        lambda: set(written) <= set(sink.read_text().split("\n")),
        QUIET_S,
        otherwise=f"lines are missing: {worker.said}",
    )
    assert committed(product.address, "lines") == written
    assert "Traceback" not in product.said


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_statements_about_connectors_drive_the_worker(tmp_path: Path, worker: ConnectWorker) -> None:
    """`ksql.connect.url`: what they answer is the same as with connectors of our own."""
    file = "org.apache.kafka.connect.file.FileStream"
    (tmp_path / "in.txt").write_text("a line\n")
    settings = {"millstream.executor": "duckdb", "ksql.connect.url": f"http://127.0.0.1:1,{worker.url}"}
    with open_engine(tmp_path / "engine", settings, sync="never") as engine:
        worker.wait_until_started()
        source = {"connector.class": f"{file}SourceConnector", "topic": "lines", "tasks.max": "1"}
        source["file"] = str(tmp_path / "in.txt")
        live_of_a_connector(engine, source, ("topic", "others"), kind="SOURCE")
        with pytest.raises(ConnectRefused, match=r"Invalid value .* for configuration topic") as refused:
            run(engine, f"CREATE SOURCE CONNECTOR c WITH ('connector.class'='{file}SourceConnector', 'topic'='');")
        assert refused.value.status == 400 and "'topic'" in refused.value.render().splitlines()[-2]
        with pytest.raises(InvalidStatement, match="is a source connector"):
            run(engine, f"CREATE SINK CONNECTOR c WITH ('connector.class'='{file}SourceConnector', 'topic'='t');")
        bad = tmp_path / "nowhere" / "out.txt"
        run(engine, f"CREATE SINK CONNECTOR c WITH ('connector.class'='{file}SinkConnector', 'topics'='t', "
                    f"'file'='{bad}');")  # fmt: skip

        def task() -> Any:
            return next(iter(run(engine, "DESCRIBE CONNECTOR c;")["status"]["tasks"]), {})

        eventually(lambda: task().get("state") == "FAILED", QUIET_S, otherwise=f"it does not fail: {worker.said}")
        assert "Couldn't find or create file" in task()["trace"]
        assert run(engine, "EXPLAIN STALL CONNECTOR c;")["stalled"]
        run(engine, "DROP CONNECTOR c;")


def _lines(source: Path, first: int) -> list[str]:
    """Written in pieces, so that kills come between them and within."""
    made = [f"line {number}" for number in range(first, first + _LINES_EACH)]
    for begin in range(0, _LINES_EACH, 20):
        with source.open("a") as file:
            file.write("".join(f"{line}\n" for line in made[begin : begin + 20]))
        time.sleep(0.2)
    return made
