"""Topics of others on the brokers: what is refused there, what is left alone, and topics that are made anew."""

from __future__ import annotations

import pytest
from external_topics import consumed, create_topic, delete_topic, produce
from waiting import eventually

from bench.apache_kafka import ApacheKafka
from millstream.errors import StatementError
from millstream.server.engine.session import Session

from .conftest import Serving

pytestmark = pytest.mark.timeout(240)


def test_columnar_topics_are_refused_with_what_to_do(serve: Serving) -> None:
    service = serve()
    with pytest.raises(StatementError, match="no columnar batches") as refused:
        service.engine.execute(
            "CREATE STREAM columns (n INT) WITH (kafka_topic='columns', value_format='ARROW', partitions=1);", Session()
        )
    assert "AVRO" in str(refused.value.hint)
    assert "columns" not in service.engine.log.topics()


def test_reset_leaves_a_topic_of_somebody_else_as_it_is(kafka: ApacheKafka, serve: Serving, service_id: str) -> None:
    create_topic(kafka.address, f"in-{service_id}", 1)
    create_topic(kafka.address, f"shared-{service_id}", 1)
    produce(kafka.address, f"shared-{service_id}", [("z", {"N": 0})])
    produce(kafka.address, f"in-{service_id}", [("a", {"N": 1})])
    service = serve()
    service.engine.execute(
        f"CREATE STREAM given (u STRING KEY, n INT) WITH (kafka_topic='in-{service_id}', value_format='JSON');"
        f"CREATE STREAM shared WITH (kafka_topic='shared-{service_id}') AS SELECT * FROM given;"
        f"CREATE STREAM own WITH (kafka_topic='own-{service_id}') AS SELECT * FROM given;",
        Session(),
    )
    assert len(consumed(kafka.address, f"shared-{service_id}", 2)) == 2
    assert len(consumed(kafka.address, f"own-{service_id}", 1)) == 1
    for query in service.engine.catalog.queries:
        service.engine.execute(f"RESET {query};", Session())
    assert [value["N"] for _, value in consumed(kafka.address, f"shared-{service_id}", 3)] == [0, 1, 1]
    assert [value["N"] for _, value in consumed(kafka.address, f"own-{service_id}", 1)] == [1]


def test_a_source_topic_that_is_made_anew_is_read_anew_or_stops_its_query(
    kafka: ApacheKafka, serve: Serving, service_id: str
) -> None:
    topic = create_topic(kafka.address, f"given-{service_id}", 1)
    produce(kafka.address, topic, [("a", {"N": n}) for n in range(5)])
    service = serve()
    service.engine.execute(
        f"CREATE STREAM given (u STRING KEY, n INT) WITH (kafka_topic='{topic}', value_format='JSON');"
        f"CREATE STREAM copied WITH (kafka_topic='copied-{service_id}') AS SELECT * FROM given;",
        Session(),
    )
    assert len(consumed(kafka.address, f"copied-{service_id}", 5)) == 5
    delete_topic(kafka.address, topic)
    create_topic(kafka.address, topic, 1)
    produce(kafka.address, topic, [("a", {"N": 9})])
    (query,) = service.engine.catalog.queries

    def told() -> bool:
        return service.engine.executor.status(query).state == "ERROR"

    def copied(count: int) -> list[int]:
        return [value["N"] for _, value in consumed(kafka.address, f"copied-{service_id}", count, waits_s=2.0)]

    eventually(lambda: told() or 9 in copied(6))
    if told():  # it looked while the topic was gone, or found the new one before its positions were forgotten
        service.engine.execute(f"RESET {query};", Session())
        eventually(lambda: copied(1) == [9])
    else:
        assert copied(6) == [0, 1, 2, 3, 4, 9]
