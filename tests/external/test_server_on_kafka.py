"""A server whose log is Apache Kafka: statements, queries and restarts, on topics that were there before."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from external_topics import consumed, create_topic, produce, topic_names
from waiting import eventually

from bench.apache_kafka import ApacheKafka
from millstream.logcore.client import RowRecords, TopicPartition
from millstream.logcore.external.external_log import ExternalLog, ExternalLogSettings
from millstream.server.engine.session import Session

from .conftest import Serving

pytestmark = pytest.mark.timeout(240)


def test_a_stream_over_an_existing_topic_is_filtered_and_goes_on_after_a_restart(
    kafka: ApacheKafka, serve: Serving, service_id: str
) -> None:
    clicks = create_topic(kafka.address, f"clicks-{service_id}", 2)
    produce(kafka.address, clicks, [("ada", {"N": n}) for n in range(4)])
    first = serve()
    first.engine.execute(
        f"CREATE STREAM clicks (u STRING KEY, n INT) WITH (kafka_topic='{clicks}', value_format='JSON');"
        f"CREATE STREAM large WITH (kafka_topic='large-{service_id}') AS SELECT * FROM clicks WHERE n > 1;"
        "INSERT INTO clicks (u, n) VALUES ('bo', 7);",
        Session(),
    )
    found = sorted(consumed(kafka.address, f"large-{service_id}", 3), key=repr)
    assert found == [("ada", {"N": 2}), ("ada", {"N": 3}), ("bo", {"N": 7})]
    first.stop()
    produce(kafka.address, clicks, [("eve", {"N": 9})])
    serve()
    found = sorted(consumed(kafka.address, f"large-{service_id}", 4), key=repr)
    assert found == [("ada", {"N": 2}), ("ada", {"N": 3}), ("bo", {"N": 7}), ("eve", {"N": 9})]


def test_what_is_ours_has_the_prefix_of_the_service_and_nothing_else_is_touched(
    kafka: ApacheKafka, serve: Serving, service_id: str
) -> None:
    before = topic_names(kafka.address)
    topic = create_topic(kafka.address, f"things-{service_id}", 1)
    service = serve()
    service.engine.execute(
        f"CREATE STREAM things (id STRING KEY, n INT) WITH (kafka_topic='{topic}', value_format='JSON');"
        f"CREATE TABLE counts WITH (kafka_topic='counts-{service_id}') AS SELECT id, COUNT(*) AS n FROM things"
        " GROUP BY id;",
        Session(),
    )
    prefix = f"millstream-{service_id}-"
    eventually(lambda: any(name.endswith("-changelog") for name in topic_names(kafka.address) - before))
    made = topic_names(kafka.address) - before - {topic, f"counts-{service_id}", "__consumer_offsets"}
    made -= {"__transaction_state"}
    assert made
    assert all(name.startswith(prefix) for name in made), made
    shown: list[dict[str, Any]] = [each.as_json() for each in service.engine.execute("SHOW TOPICS;", Session())]
    names = {each["name"] for each in shown[0]["topics"]}
    assert {topic, f"counts-{service_id}"} <= names
    assert not any(name.startswith(prefix) for name in names)


@pytest.mark.soak
def test_many_queries_wait_with_few_threads_and_wake_soon(kafka: ApacheKafka, serve: Serving, service_id: str) -> None:
    count = 30
    engine = serve().engine
    topics = [create_topic(kafka.address, f"in{n}-{service_id}", 2) for n in range(count)]
    before = threading.active_count()
    for number, topic in enumerate(topics):
        engine.execute(
            f"CREATE STREAM in{number} (u STRING KEY, n INT) WITH (kafka_topic='{topic}', value_format='JSON');"
            f"CREATE STREAM out{number} WITH (kafka_topic='out{number}-{service_id}') AS SELECT * FROM in{number};",
            Session(),
        )
    assert threading.active_count() - before < 12
    time.sleep(2.0)
    used = time.process_time()
    time.sleep(2.0)
    assert time.process_time() - used < 1.0
    for chosen in (3, 17, 29):
        produce(kafka.address, topics[chosen], [("ada", {"N": 1})])
        began = time.monotonic()
        at = TopicPartition(f"out{chosen}-{service_id}", 0)
        other = TopicPartition(f"out{chosen}-{service_id}", 1)
        assert engine.log.wait({at: 0, other: 0}, 10.0)
        assert time.monotonic() - began < 3.0


def test_a_wait_is_over_when_a_record_comes(kafka: ApacheKafka, service_id: str) -> None:
    """Not at the end of a question's time, which is a second."""
    topic = create_topic(kafka.address, f"waited-{service_id}", 1)
    settings = ExternalLogSettings.of({"bootstrap.servers": kafka.address}, service_id)
    row = pa.table({"timestamp": [0], "key": [b"k"], "value": [b"v"]})
    took_s: list[float] = []
    with ExternalLog(settings) as log, ThreadPoolExecutor(1) as pool:
        for position in range(6):
            at = {TopicPartition(topic, 0): position}
            waiting = pool.submit(log.wait, at, 10.0) if position % 2 else pool.submit(log.advanced, at, 10.0)
            time.sleep(0.05)
            assert not waiting.done()
            log.append(topic, 0, RowRecords(row))
            began = time.monotonic()
            assert waiting.result()
            took_s.append(time.monotonic() - began)
        assert log.advanced({TopicPartition("none", 0): 0}, 10.0) == {TopicPartition("none", 0): None}
    assert min(took_s[::2]) < 0.4 and min(took_s[1::2]) < 0.4, took_s
