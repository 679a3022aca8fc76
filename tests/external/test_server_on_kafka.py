"""A server whose log is Apache Kafka: statements, queries and restarts, on topics that were there before."""

from __future__ import annotations

from typing import Any

import pytest
from external_topics import consumed, create_topic, produce, topic_names
from waiting import eventually

from bench.apache_kafka import ApacheKafka
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
