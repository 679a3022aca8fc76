"""Spark's tasks write their state, their markers and what they pass on to Apache Kafka themselves."""

from __future__ import annotations

import pytest
from external_topics import consumed, create_topic, produce

from bench.apache_kafka import ApacheKafka
from millstream.server.engine.session import Session

from .conftest import Serving

pytestmark = [pytest.mark.spark, pytest.mark.soak]


def test_an_aggregate_of_an_aggregate_on_spark(kafka: ApacheKafka, serve: Serving, service_id: str) -> None:
    topic = create_topic(kafka.address, f"given-{service_id}", 2)
    produce(kafka.address, topic, [(f"k{n % 4}", {"N": n}) for n in range(40)])
    service = serve(executor="spark")
    service.engine.execute(
        f"CREATE STREAM given (u STRING KEY, n INT) WITH (kafka_topic='{topic}', value_format='JSON');"
        f"CREATE TABLE sums WITH (kafka_topic='sums-{service_id}', cleanup_policy='delete') AS"
        " SELECT u, SUM(n) AS n FROM given GROUP BY u;"
        f"CREATE TABLE evens WITH (kafka_topic='evens-{service_id}', cleanup_policy='delete') AS"
        " SELECT n % 2 AS even, COUNT(*) AS m FROM sums GROUP BY n % 2;",
        Session(),
    )
    found = dict(consumed(kafka.address, f"sums-{service_id}", 40, more_s=2.0))
    assert found == {f"k{key}": {"N": sum(range(key, 40, 4))} for key in range(4)}
    assert len(consumed(kafka.address, f"sums-{service_id}", 40)) == 40
