"""Tables, queries and clients that come and go, and what a server keeps of them.

For a process of its own: all objects are counted, those of another test's servers too.
"""

from __future__ import annotations

import contextlib
import gc
import json
from collections import Counter
from pathlib import Path

import httpx
from confluent_kafka import Consumer, TopicPartition
from running_server import service_in
from waiting import eventually

from millstream.server.client import Client, connect
from millstream.server.service import Service

WARM_UP, CYCLES = 3, 6
SOURCE = """
CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
INSERT INTO s VALUES (1, 1);
"""


_KEPT_FOR_A_WHILE = (
    "millstream.logcore.replication.controller.metadata_records.",
    "millstream.logcore.replication.raft.",
    "millstream.logcore.coordination.group_offset_bytes.Settled",
    "millstream.server.engine.command_statuses._Known",
    "millstream.server.engine.entities.CommandState",
)
"""A node has the last two thousand records of the metadata log in memory, a server the statuses of its last thousand
commands, and a group's coordinator for ten minutes what deleted groups have settled
(`tests/logcore/test_forgotten_producers.py` shows that it goes then)."""


def objects() -> Counter[str]:
    """Of our classes and the parser's, by class."""
    gc.collect()
    names = (f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    ours = (name for name in names if name.startswith(("millstream.", "sqlglot.")))
    return Counter(name for name in ours if not name.startswith(_KEPT_FOR_A_WHILE))


def come_and_go(service: Service, client: Client, number: int) -> None:
    """A table, a stream in columns, a push query and their readers, all with names and texts of their own."""
    client.execute(f"CREATE TABLE t_{number} AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;")
    client.execute(f"CREATE STREAM c_{number} WITH (value_format='ARROW') AS SELECT k, v + {number} AS n FROM s;")
    eventually(lambda: _looked_up(service, number) == [[1, 1]], 60)
    push = client.query(f"SELECT k, v AS v_{number} FROM s EMIT CHANGES;")
    assert next(iter(push)).values == (1, 1)
    push.close()
    assert _consumed(service, f"C_{number}") == f'{{"N":{1 + number}}}'
    client.execute(f"DROP TABLE t_{number} DELETE TOPIC; DROP STREAM c_{number} DELETE TOPIC;")


def _looked_up(service: Service, number: int) -> list[list[int]]:
    body = {"sql": f"SELECT * FROM t_{number} WHERE k = 1;", "properties": {"auto.offset.reset": "earliest"}}
    answer = httpx.post(f"http://{service.http_address}/query-stream", json=body, timeout=60)
    return [json.loads(line) for line in answer.text.splitlines()[1:]]


def _consumed(service: Service, topic: str) -> str:
    consumer = Consumer({"bootstrap.servers": str(service.kafka_address), "group.id": "readers"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    record = consumer.poll(60)
    consumer.close()
    assert record is not None
    value = record.value()
    assert value is not None, record.error()
    return value.decode()


def left_behind(folder: Path) -> dict[str, int]:
    """How many objects of each class are there more after CYCLES, where every cycle has left at least one."""
    with service_in(folder) as service:
        client = connect(f"http://{service.http_address}")
        client.execute("SET 'auto.offset.reset'='earliest';")
        client.execute(SOURCE)
        for number in range(WARM_UP):
            come_and_go(service, client, number)
        before = objects()
        for number in range(WARM_UP, WARM_UP + CYCLES):
            come_and_go(service, client, number)

        def more() -> dict[str, int]:
            return {kind: count for kind, count in (objects() - before).items() if count >= CYCLES}

        with contextlib.suppress(AssertionError):  # what a client has left goes within the second
            eventually(lambda: not more(), 20)
            return {}  # another look could meet what housekeeping holds for a moment
        return more()
