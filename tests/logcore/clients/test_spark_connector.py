"""Spark's connector for Kafka reads and writes topics of the log: in batches and as streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from running_server import service_in

from bench.maven import Unavailable, jars
from millstream.server.engine.session import Session

from . import with_confluent
from .driver import Record
from .outside import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

WORKLOAD = Path(__file__).with_name("spark_workload.py")
CONNECTOR: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # to be had wherever we looked, and the same
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


@pytest.fixture(scope="module")
def connector() -> Sequence[Path]:
    try:
        return jars(*CONNECTOR, alone=True)
    except Unavailable as reason:
        pytest.skip(f"Spark's Kafka connector: {reason}")


def spark_rows(address: str, connector: Sequence[Path], folder: Path) -> dict[str, list[list[Any]]]:
    command = [sys.executable, str(WORKLOAD), address, ",".join(map(str, connector)), str(folder)]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_sparks_connector_reads_and_writes_exactly_the_records(tmp_path: Path, connector: Sequence[Path]) -> None:
    sent = [
        Record(
            None if number % 10 == 9 else b"value %d" % number,
            None if number % 7 == 0 else b"key %d" % number,
            (("number", b"%d" % number),) * (number % 3),
            1_700_000_000_000 + number,
            number % 2,
        )
        for number in range(200)
    ]
    with service_in(tmp_path / "data") as service:
        address = str(service.kafka_address)
        for topic in ("source", "batch", "streamed"):
            create_topic(address, topic, 2)
        with_confluent.produce(address, "source", sent, compression="zstd")
        service.engine.execute(
            "CREATE STREAM columns (id STRING KEY, name STRING)"
            " WITH (kafka_topic='columns', partitions=1, value_format='ARROW');"
            "INSERT INTO columns (id, name) VALUES ('1', 'ada'); INSERT INTO columns (id, name) VALUES ('2', NULL);",
            Session(),
        )
        found = spark_rows(address, connector, tmp_path / "spark")
    expected = [
        [partition, offset, record.timestamp_ms / 1000, *contents(record)]
        for partition in range(2)
        for offset, record in enumerate(record for record in sent if record.partition == partition)
    ]
    assert found["source"] == expected
    assert [row[3:5] for row in found["columns"]] == [["1", '{"NAME":"ada"}'], ["2", '{"NAME":null}']]
    for topic in ("batch", "streamed"):
        assert [[row[0], *row[3:]] for row in found[topic]] == [[row[0], *row[3:]] for row in expected], topic


def contents(record: Record) -> list[Any]:
    def text(content: bytes | None) -> str | None:
        return None if content is None else content.decode()

    return [text(record.key), text(record.value), [[name, text(value)] for name, value in record.headers]]
