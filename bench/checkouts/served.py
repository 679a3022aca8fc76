"""A server of one checkout, and what clients cost it."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ..measuring import cpu_seconds_of, private_bytes_of
from ..producing import TIMEOUT_S, fast_producer, seconds_to_produce

_RECORDS, _SINGLE, _RATE, _RESULTS = 100_000, 300, 100, 500
_VALUE: Final = b'{"price": 7, "text": "' + b"x" * 80 + b'"}'
_AT_REST_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Served:
    """A running server. `process`: its id; `kafka`: HOST:PORT."""

    process: int
    url: str
    kafka: str

    def execute(self, sql: str) -> None:
        """Raises `urllib.error.HTTPError`."""
        body = json.dumps({"ksql": sql, "streamsProperties": {}}).encode()
        request = urllib.request.Request(f"{self.url}/ksql", body, {"Content-Type": "application/vnd.ksql.v1+json"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            answer.read()


def server_costs(python: str, folder: str) -> dict[str, float]:
    """In: the checkout's Python, the checkout. Processor seconds of the server per record, milliseconds, and MB."""
    with _server(python, folder) as served:
        time.sleep(_AT_REST_S)
        memory = private_bytes_of(served.process) / 1e6
        admin = AdminClient({"bootstrap.servers": served.kafka})
        created = admin.create_topics([NewTopic("records", 1), NewTopic("single", 1)])
        for waiting in created.values():
            waiting.result(TIMEOUT_S)
        fast = fast_producer(served.kafka, {"linger.ms": 5})
        seconds_to_produce(fast, "records", _VALUE, 1)  # the first record loads what it needs
        each = _cpu(served, lambda: seconds_to_produce(fast, "records", _VALUE, _RECORDS)) / _RECORDS
        fetched = _cpu(served, lambda: _fetch(served.kafka, _RECORDS)) / _RECORDS
        single = _cpu(served, lambda: _one_by_one(served.kafka)) / _SINGLE
        return {
            "empty server: private memory, MB": memory,
            "Kafka port: produce, a record": each,
            "Kafka port: fetch, a record": fetched,
            "Kafka port: a request with one record": single,
            "append → result at 100 rows/s: p50, ms": _append_to_result(served),
        }


def _fetch(brokers: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition("records", 0, 0)])
    while count > 0:
        count -= len(consumer.consume(10_000, TIMEOUT_S))
    consumer.close()


def _one_by_one(brokers: str) -> None:
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 0, "log_level": 2})
    for _ in range(_SINGLE):
        producer.produce("single", _VALUE)
        producer.flush(TIMEOUT_S)


def _append_to_result(served: Served) -> float:
    """Of the median record, through a filter over JSON, by Kafka's clients on both sides."""
    served.execute("CREATE STREAM asked (price INT) WITH (KAFKA_TOPIC='asked', PARTITIONS=1, VALUE_FORMAT='JSON');")
    served.execute("CREATE STREAM told WITH (KAFKA_TOPIC='told') AS SELECT price FROM asked WHERE price > 0;")
    settings: dict[str, Any] = {"group.id": "told", "isolation.level": "read_committed", "fetch.wait.max.ms": 100}
    consumer = Consumer({"bootstrap.servers": served.kafka, **settings})
    consumer.assign([TopicPartition("told", 0, 0)])
    producer = Producer({"bootstrap.servers": served.kafka, "linger.ms": 0, "log_level": 2})
    taken: list[float] = []
    for number in range(_RESULTS):
        began = time.perf_counter()
        producer.produce("asked", b'{"price": %d}' % (number + 1))
        producer.poll(0)
        while not (found := consumer.consume(1, TIMEOUT_S)) or found[0].error():
            pass
        taken.append(time.perf_counter() - began)
        time.sleep(max(0.0, 1 / _RATE - taken[-1]))
    producer.flush(TIMEOUT_S)
    consumer.close()
    return statistics.median(taken[len(taken) // 5 :]) * 1000


def _cpu(served: Served, work: Callable[[], object]) -> float:
    before = cpu_seconds_of(served.process)
    work()
    return cpu_seconds_of(served.process) - before


@contextmanager
def _server(python: str, folder: str) -> Generator[Served]:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as data:
        command = [python, "-m", "millstream", "server", "--data", data, "--http", "127.0.0.1:0"]
        command += ["--kafka", "127.0.0.1:0", "--executor", "duckdb"]
        with Path(data, "said").open("w", encoding="utf-8") as errors:
            running = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert running.stdout is not None
            lines = [running.stdout.readline() for _ in range(2)]
            http, kafka = re.search(r"http://\S+", lines[0]), re.search(r"[0-9.]+:[0-9]+", lines[1])
            if http is None or kafka is None:
                raise RuntimeError(f"the server of {folder} did not start: {Path(data, 'said').read_text()}")
            yield Served(running.pid, http[0], kafka[0])
        finally:
            running.terminate()
            running.wait()
