"""Clients that do what a server is for, all day: they write, ask, subscribe, and change the pipeline.

What the server has to keep is bounded: a fixed set of keys, topics that forget after a minute.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import confluent_kafka
import httpx
from confluent_kafka.admin import AdminClient, NewTopic

KEYS: Final = 500
_FORGETFUL: Final = {"retention.ms": "60000", "segment.ms": "10000", "retention.bytes": "4000000"}
PIPELINE: Final = """
CREATE STREAM orders (customer INT KEY, item STRING, amount BIGINT) WITH (kafka_topic='orders', value_format='JSON');
CREATE TABLE customers (id INT PRIMARY KEY, name STRING)
  WITH (kafka_topic='customers', value_format='JSON', partitions=2);
CREATE TABLE spent AS SELECT customer, COUNT(*) AS n, SUM(amount) AS total, TOPK(amount, 3) AS largest
  FROM orders GROUP BY customer;
CREATE TABLE per_minute WITH (retention_ms=60000) AS SELECT item, COUNT(*) AS n, SUM(amount) AS total
  FROM orders WINDOW TUMBLING (SIZE 10 SECONDS, RETENTION 1 MINUTE, GRACE PERIOD 5 SECONDS) GROUP BY item;
CREATE STREAM named WITH (retention_ms=60000) AS SELECT o.customer, c.name, o.amount
  FROM orders o LEFT JOIN customers c ON o.customer = c.id;
CREATE STREAM pairs WITH (retention_ms=60000) AS SELECT a.customer, a.amount AS first, b.amount AS second
  FROM orders a JOIN orders b WITHIN 2 SECONDS GRACE PERIOD 1 SECOND ON a.customer = b.customer WHERE a.amount < 20;
"""


class OrdinaryClients:
    """Threads that go on until `stop`. `done` counts what they did, by name; `failed` are the errors that they met."""

    def __init__(self, url: str, kafka: str, seed: int) -> None:
        self._url, self._kafka = url, kafka
        self._stopped, self._wrote = threading.Event(), threading.Event()
        self._numbers = itertools.count()
        self.done: Counter[str] = Counter()
        self.failed: list[str] = []
        self._set_up()
        kinds: list[tuple[Callable[[random.Random], None], float, threading.Event]] = [
            (self._sells, 0.3, self._wrote), (self._sells_in_transactions, 0.5, self._wrote),
            (self._renames_customers, 0.5, self._wrote), (self._looks_up, 0.2, self._stopped),
            (self._subscribes, 1.0, self._stopped), (self._changes_the_pipeline, 4.0, self._stopped),
            (self._consumes, 5.0, self._stopped),
        ]  # fmt: skip
        self._threads = [
            (threading.Thread(target=self._run, args=(*kind, random.Random(seed + at)), daemon=True), kind[2])
            for at, kind in enumerate(kinds)
        ]
        for thread, _ in self._threads:
            thread.start()

    def stop(self) -> None:
        """Who writes is the last to stop: else who has just subscribed would wait for rows that nobody writes."""
        for end in (self._stopped, self._wrote):
            end.set()
            for thread in (thread for thread, until in self._threads if until is end):
                thread.join(60)

    def _run(
        self, kind: Callable[[random.Random], None], pause_s: float, until: threading.Event, chance: random.Random
    ) -> None:
        name = kind.__name__.strip("_")
        while not until.wait(pause_s):
            try:
                kind(chance)
            except Exception as error:
                self.failed.append(f"{name}: {type(error).__name__}: {error}")
            self.done[name] += 1

    def _set_up(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._kafka})
        for made in admin.create_topics([NewTopic("orders", 2, 1, config=_FORGETFUL)]).values():
            made.result(60)
        self._execute(PIPELINE)

    def _execute(self, sql: str) -> Any:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            answer = client.post("/ksql", json={"ksql": sql})
        if not answer.is_success:
            raise RuntimeError(answer.text[:500])
        return answer.json()

    def _sells(self, chance: random.Random) -> None:
        rows = (
            f"({chance.randrange(KEYS)}, 'item {chance.randrange(20)}', {chance.randrange(1000)})" for _ in range(5)
        )
        self._execute("".join(f"INSERT INTO orders (customer, item, amount) VALUES {row};" for row in rows))

    def _sells_in_transactions(self, chance: random.Random) -> None:
        settings = {"bootstrap.servers": self._kafka, "transactional.id": f"seller-{next(self._numbers) % 50}"}
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(30)
        for _ in range(3):
            producer.begin_transaction()
            for _ in range(100):
                value = {"ITEM": f"item {chance.randrange(20)}", "AMOUNT": chance.randrange(1000)}
                key = chance.randrange(KEYS).to_bytes(4, "big")
                producer.produce("orders", json.dumps(value).encode(), key)
            if chance.random() < 0.2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)

    def _renames_customers(self, chance: random.Random) -> None:
        row = f"({chance.randrange(KEYS)}, 'name {chance.randrange(1000)}')"
        self._execute(f"INSERT INTO customers (id, name) VALUES {row};")

    def _looks_up(self, chance: random.Random) -> None:
        sql = chance.choice(
            (
                f"SELECT * FROM spent WHERE customer = {chance.randrange(KEYS)};",
                f"SELECT * FROM per_minute WHERE item = 'item {chance.randrange(20)}';",
                "SELECT n, COUNT(*) AS customers FROM spent GROUP BY n;",
                "SELECT customer, n FROM spent WHERE n > 10 ORDER BY n DESC LIMIT 10;",
            )
        )
        with httpx.Client(base_url=self._url, timeout=60) as client:
            answer = client.post("/query-stream", json={"sql": sql, "properties": {"millstream.pull.full.sql": "true"}})
        if not answer.is_success:
            raise RuntimeError(f"{sql} {answer.text[:500]}")

    def _subscribes(self, chance: random.Random) -> None:
        sql = chance.choice(
            (
                "SELECT * FROM orders EMIT CHANGES LIMIT 20;",
                "SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer EMIT CHANGES LIMIT 5;",
                "SELECT * FROM named EMIT CHANGES LIMIT 5;",
            )
        )
        request = {"sql": sql, "properties": {"auto.offset.reset": "latest"}}
        with (
            httpx.Client(base_url=self._url, timeout=60) as client,
            client.stream("POST", "/query-stream", json=request) as answer,
        ):
            for _ in answer.iter_lines():
                if self._stopped.is_set():
                    break

    def _changes_the_pipeline(self, chance: random.Random) -> None:
        number = next(self._numbers)
        self._execute(
            f"CREATE TABLE t_{number} AS SELECT item, COUNT(*) AS n FROM orders GROUP BY item;"
            f"CREATE STREAM s_{number} WITH (retention_ms=60000) AS SELECT * FROM orders WHERE amount > 990;"
        )
        time.sleep(chance.uniform(0.5, 2))
        self._execute(f"DROP TABLE t_{number} DELETE TOPIC; DROP STREAM s_{number} DELETE TOPIC;")

    def _consumes(self, chance: random.Random) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._kafka,
                "group.id": f"readers-{chance.randrange(5)}",
                "auto.offset.reset": "latest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe(["orders", "NAMED"])
        try:
            deadline = time.monotonic() + chance.uniform(3, 10)
            while time.monotonic() < deadline and not self._stopped.is_set():
                consumer.consume(500, 0.5)
        finally:
            consumer.close()
