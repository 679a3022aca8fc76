"""Clients that we did not write use the log: librdkafka, through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from millstream.logcore import client
from millstream.logcore.log import Log
from millstream.logcore.records.batch import COMPRESSION, read_header
from millstream.logcore.server import LogServer

from .log_records import columnar, records_of, rows, segment_files, values_of

ALL_TIMEOUT_S = 60.0
CODES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.fixture
def server(log: Log) -> Iterator[LogServer]:
    with LogServer(log, port=0) as running:
        yield running


@pytest.fixture
def consume(server: LogServer) -> Iterator[Callable[..., list[Message]]]:
    """Reads partition 0 of a topic from an offset to its end."""
    consumers: list[Consumer] = []

    def read(topic: str = "t", offset: int = 0, **settings: Any) -> list[Message]:
        consumer = Consumer(
            {
                "bootstrap.servers": server.address,
                "group.id": "g",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "check.crcs": True,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        consumers.append(consumer)
        consumer.assign([TopicPartition(topic, 0, offset)])
        found: list[Message] = []
        deadline = time.monotonic() + ALL_TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
        raise TimeoutError(f"no end of the partition after {len(found)} records")

    yield read
    for consumer in consumers:
        consumer.close()


def producer_of(server: LogServer, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": server.address, **{k.replace("_", "."): v for k, v in settings.items()}})


def send(producer: Producer, values: Sequence[bytes], topic: str = "t", partition: int = 0) -> None:
    failures: list[KafkaError | None] = []
    for value in values:
        producer.produce(
            topic, value, key=b"k", partition=partition, on_delivery=lambda error, _: failures.append(error)
        )
    assert producer.flush(ALL_TIMEOUT_S) == 0
    assert failures == [None] * len(values)


@pytest.mark.parametrize("compression", CODES)
def test_what_a_client_produces_is_read_by_it_and_by_us(
    log: Log, server: LogServer, consume: Callable[..., list[Message]], compression: str
) -> None:
    values = [b"value %d" % i for i in range(3000)]
    send(producer_of(server, compression_type=compression, linger_ms=20), values)
    assert values_of(log, "t") == values
    messages = consume()
    assert [(message.offset(), message.value()) for message in messages] == list(enumerate(values))
    (file,) = segment_files(log.served.path)
    assert read_header(file.read_bytes()).attributes & COMPRESSION == CODES[compression]


def test_keys_timestamps_and_headers_pass_both_ways(
    log: Log, server: LogServer, consume: Callable[..., list[Message]]
) -> None:
    producer = producer_of(server)
    producer.produce("t", None, key=b"\x00", partition=0, timestamp=123, headers=[("h", b"x"), ("h", None)])
    assert producer.flush(ALL_TIMEOUT_S) == 0
    (run,) = log.fetch("t", 0, 0).runs
    assert isinstance(run, client.FetchedRows)
    headers = [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
    assert run.table.to_pylist() == [{"offset": 0, "timestamp": 123, "key": b"\x00", "value": None, "headers": headers}]
    log.append("t", 0, client.RowRecords(run.table.drop(["offset"])))
    for message in consume():
        assert (message.key(), message.value(), message.timestamp()[1]) == (b"\x00", None, 123)
        assert message.headers() == [("h", b"x"), ("h", None)]


def test_an_idempotent_producer_is_served(log: Log, server: LogServer) -> None:
    producer = producer_of(server, enable_idempotence=True, linger_ms=0, batch_num_messages=10)
    values = [b"%d" % i for i in range(2000)]
    send(producer, values[:1000])
    send(producer, values[1000:])
    assert values_of(log, "t") == values


def test_read_committed_sees_what_was_committed_and_not_what_was_aborted(
    log: Log, server: LogServer, consume: Callable[..., list[Message]]
) -> None:
    producer = producer_of(server, transactional_id="tx")
    producer.init_transactions(ALL_TIMEOUT_S)
    for value, commits in [(b"a", True), (b"b", False), (b"c", True), (b"d", False)]:
        producer.begin_transaction()
        producer.produce("t", value, partition=0)
        producer.produce("t", value, partition=1)
        if commits:
            producer.commit_transaction(ALL_TIMEOUT_S)
        else:
            producer.flush(ALL_TIMEOUT_S)
            producer.abort_transaction(ALL_TIMEOUT_S)
    assert [message.value() for message in consume(isolation_level="read_committed")] == [b"a", b"c"]
    assert [message.value() for message in consume(isolation_level="read_uncommitted")] == [b"a", b"b", b"c", b"d"]
    assert records_of(log, "t", 1) == [(0, b"a"), (4, b"c")]


def test_an_open_transaction_holds_read_committed_back(
    server: LogServer, consume: Callable[..., list[Message]]
) -> None:
    producer = producer_of(server, transactional_id="tx")
    producer.init_transactions(ALL_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("t", b"open", partition=0)
    producer.flush(ALL_TIMEOUT_S)
    send(producer_of(server), [b"after"])
    assert consume(isolation_level="read_committed") == []
    assert [message.value() for message in consume(isolation_level="read_uncommitted")] == [b"open", b"after"]
    producer.commit_transaction(ALL_TIMEOUT_S)
    assert [message.value() for message in consume(isolation_level="read_committed")] == [b"open", b"after"]


def test_offsets_are_part_of_a_transaction(log: Log, server: LogServer) -> None:
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "g"})
    producer = producer_of(server, transactional_id="tx")
    producer.init_transactions(ALL_TIMEOUT_S)
    for offset, commits in [(5, True), (9, False)]:
        producer.begin_transaction()
        producer.produce("t", b"x", partition=0)
        group = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("t", 1, offset)], group, ALL_TIMEOUT_S)
        (producer.commit_transaction if commits else producer.abort_transaction)(ALL_TIMEOUT_S)
    assert log.committed_offsets("g") == {client.TopicPartition("t", 1): 5}
    assert consumer.committed([TopicPartition("t", 1)], ALL_TIMEOUT_S)[0].offset == 5
    consumer.close()


def test_a_second_producer_of_a_transactional_id_fences_the_first(log: Log, server: LogServer) -> None:
    first, second = (producer_of(server, transactional_id="tx") for _ in range(2))
    first.init_transactions(ALL_TIMEOUT_S)
    first.begin_transaction()
    first.produce("t", b"zombie", partition=0)
    first.flush(ALL_TIMEOUT_S)
    second.init_transactions(ALL_TIMEOUT_S)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(ALL_TIMEOUT_S)
    assert raised.value.args[0].code() in (KafkaError._FENCED, KafkaError._STATE)
    second.begin_transaction()
    second.produce("t", b"fresh", partition=0)
    second.commit_transaction(ALL_TIMEOUT_S)
    assert log.wait({client.TopicPartition("t", 0): 2}, ALL_TIMEOUT_S)
    assert values_of(log, "t") == [b"fresh"]


def test_a_transaction_goes_on_when_its_server_is_back(log: Log, server: LogServer) -> None:
    producer = producer_of(server, transactional_id="tx")
    producer.init_transactions(ALL_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("t", b"before", partition=0)
    producer.flush(ALL_TIMEOUT_S)
    port = server.port
    server.stop()
    with LogServer(log, port=port):
        producer.produce("t", b"after", partition=0)
        producer.commit_transaction(ALL_TIMEOUT_S)
        assert log.wait({client.TopicPartition("t", 0): 0}, ALL_TIMEOUT_S)
    assert values_of(log, "t") == [b"before", b"after"]


def test_columnar_batches_pass_through_as_one_record_each(log: Log, consume: Callable[..., list[Message]]) -> None:
    log.append("t", 0, rows(b"before"))
    log.append("t", 0, columnar(*range(100)))
    log.append("t", 0, rows(b"after"))
    messages = consume()
    assert [message.offset() for message in messages] == [0, 100, 101]
    assert messages[1].headers() == [("ms.enc", b"arrow")]
    assert [message.value() for message in consume(offset=50)] == [message.value() for message in messages[1:]]


def test_offsets_are_found_by_time(log: Log, server: LogServer) -> None:
    for timestamp in (10, 20, 30):
        log.append("t", 0, rows(b"a", b"b", timestamp=timestamp))
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "g"})
    asked = {0: 0, 10: 0, 11: 2, 20: 2, 30: 4, 31: -1}
    for timestamp, offset in asked.items():
        (found,) = consumer.offsets_for_times([TopicPartition("t", 0, timestamp)], ALL_TIMEOUT_S)
        assert found.offset == offset
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), ALL_TIMEOUT_S) == (0, 6)
    consumer.close()


def test_a_group_goes_on_where_it_committed(log: Log, server: LogServer, consume: Callable[..., list[Message]]) -> None:
    log.append("t", 0, rows(b"a", b"b", b"c"))
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("t", 0, 2)], asynchronous=False)
    assert log.committed_offsets("g") == {client.TopicPartition("t", 0): 2}
    consumer.close()
    assert [message.value() for message in consume(offset=-1000)] == [b"c"]  # the committed offset


def test_topics_are_administered(log: Log, server: LogServer) -> None:
    admin = AdminClient({"bootstrap.servers": server.address})

    def outcome(futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        try:
            return future.result(ALL_TIMEOUT_S)
        except KafkaException as error:
            return error.args[0].code()

    topic = NewTopic("u", 3, 1, config={"segment.bytes": "4096"})
    assert outcome(admin.create_topics([topic], validate_only=True)) is None
    assert "u" not in log.topics()
    assert outcome(admin.create_topics([topic])) is None
    assert log.topics()["u"] == client.Topic("u", 3, {"segment.bytes": "4096"})
    assert outcome(admin.create_topics([topic])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert outcome(admin.create_topics([NewTopic("a b", 1, 1)])) == KafkaError.TOPIC_EXCEPTION
    configs = outcome(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "u")]))
    assert {name: entry.value for name, entry in configs.items() if not entry.is_default} == {"segment.bytes": "4096"}
    assert configs["retention.ms"].value == "604800000"
    described = admin.list_topics(timeout=ALL_TIMEOUT_S)
    assert len(described.topics["u"].partitions) == 3
    assert outcome(admin.delete_topics(["u"])) is None
    assert "u" not in log.topics()
    assert outcome(admin.delete_topics(["u"])) == KafkaError.UNKNOWN_TOPIC_OR_PART
