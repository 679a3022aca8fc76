"""What requests leave for the collector of cyclic garbage, by class.

For a process of its own: other threads' garbage would be counted too.
"""

from __future__ import annotations

import gc
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import psycopg
from confluent_kafka import Consumer, Producer
from running_server import service_in

from millstream.server.service import Service

TIMES = 6
SOURCE = """
CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;
"""
SHAPES = (
    "statement", "http_connection", "pull_query", "push_query", "produce", "kafka_connection", "transaction",
    "consumer", "query", "rest_proxy", "pg_connection",
)  # fmt: skip
_MAY_BE_LEFT = ("millstream.errors.Span",)  # of the nodes of a parsed statement, which know their parents
_SETTLED_S = 1.0  # connections end after their clients


class Clients:
    """One request of each shape, on connections of its own where that is what the shape is about."""

    def __init__(self, service: Service) -> None:
        self._url = f"http://{service.http_address}"
        self._kafka = {"bootstrap.servers": str(service.kafka_address)}
        self._http = httpx.Client(base_url=self._url, timeout=60)
        self._producer = Producer({**self._kafka, "linger.ms": 0})
        self._pg = str(service.pg_address)
        self._number = 0

    def statement(self) -> None:
        self.execute("INSERT INTO s VALUES (1, 1);")

    def http_connection(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            client.get("/info").raise_for_status()

    def pull_query(self) -> None:
        for sql in ("SELECT * FROM t WHERE k = 1;", "SELECT k, n FROM t WHERE n > 0;"):
            self._http.post("/query-stream", json={"sql": sql}).raise_for_status()

    def push_query(self) -> None:
        body = {
            "sql": "SELECT * FROM s EMIT CHANGES LIMIT 1;", "properties": {"auto.offset.reset": "earliest"},
        }  # fmt: skip
        self._http.post("/query-stream", json=body).raise_for_status()

    def produce(self) -> None:
        self._producer.produce("s", json.dumps({"V": 1}).encode(), (1).to_bytes(4, "big"))
        assert self._producer.flush(60) == 0

    def kafka_connection(self) -> None:
        Producer(self._kafka).list_topics(timeout=60)

    def transaction(self) -> None:
        self._number += 1
        producer = Producer({**self._kafka, "transactional.id": f"t-{self._number % 3}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("s", json.dumps({"V": 1}).encode(), (1).to_bytes(4, "big"))
        producer.commit_transaction(60)

    def consumer(self) -> None:
        consumer = Consumer({**self._kafka, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["s"])
        self.produce()  # what the previous one has read is committed
        assert consumer.consume(1, 60)
        consumer.close()

    def rest_proxy(self) -> None:
        body = json.dumps({"records": [{"value": {"V": 1}}]})
        kind = {"content-type": "application/vnd.kafka.json.v2+json"}
        self._http.post("/topics/s", content=body, headers=kind).raise_for_status()

    def pg_connection(self) -> None:
        host, _, port = self._pg.partition(":")
        with psycopg.connect(host=host, port=int(port), user="ana", dbname="ksql", autocommit=True) as connection:
            connection.execute("SELECT n FROM t WHERE k = 1").fetchall()

    def query(self) -> None:
        self._number += 1
        self.execute(f"CREATE TABLE t_{self._number} AS SELECT k, SUM(v) AS n FROM s GROUP BY k;")
        time.sleep(0.2)
        self.execute(f"DROP TABLE t_{self._number} DELETE TOPIC;")

    def execute(self, sql: str) -> None:
        answer = self._http.post("/ksql", json={"ksql": sql})
        assert answer.is_success, answer.text


def left_for_the_collector(
    folder: Path, shapes: Sequence[str] = SHAPES, times: int = TIMES
) -> dict[str, dict[str, int]]:
    """By shape: how many objects of each class only the collector could free, where every request left one."""
    with service_in(folder, pg="127.0.0.1:0") as service:
        clients = Clients(service)
        clients.execute(SOURCE)
        clients.produce()
        return {shape: _left(getattr(clients, shape), times) for shape in shapes}


def _left(ask: Callable[[], None], times: int) -> dict[str, int]:
    ask()  # what is made at first use stays
    time.sleep(_SETTLED_S)
    gc.collect()
    gc.disable()
    try:
        for _ in range(times):
            ask()
        time.sleep(_SETTLED_S)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    ours = ((kind, count) for kind, count in kinds.items() if kind.startswith(("millstream.", "hypercorn.")))
    return {kind: count for kind, count in ours if count >= times and kind not in _MAY_BE_LEFT}
