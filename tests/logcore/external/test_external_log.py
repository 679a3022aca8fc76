"""An external log is used by its own names, and says what it can do: here on the Kafka port of another Millstream."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.logcore.capabilities import MILLSTREAM
from millstream.logcore.client import FetchedRows, RowRecords, TopicPartition
from millstream.logcore.errors import ProducerFenced
from millstream.logcore.external.external_log import ExternalLog, ExternalLogSettings
from millstream.logcore.log import Log, open_log
from millstream.logcore.remote import RemoteLog
from millstream.logcore.server import LogServer

_SCHEMA = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


def rows(*values: bytes) -> RowRecords:
    count = len(values)
    return RowRecords(pa.table({"timestamp": [0] * count, "key": [b"k"] * count, "value": values}, schema=_SCHEMA))


def values_of(log: ExternalLog, topic: str) -> list[bytes]:
    runs = [run for run in log.fetch(topic, 0, 0).runs if isinstance(run, FetchedRows)]
    return [value for run in runs for value in run.table["value"].to_pylist()]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        yield opened


@pytest.fixture
def address(log: Log) -> Iterator[str]:
    with LogServer(log, port=0) as running:
        yield running.address


@pytest.fixture
def external(address: str) -> Iterator[ExternalLog]:
    with ExternalLog(ExternalLogSettings.of({"bootstrap.servers": address}, "prod_")) as opened:
        yield opened


def test_a_millstream_says_over_the_network_what_it_can_do(log: Log, address: str, external: ExternalLog) -> None:
    assert log.capabilities == MILLSTREAM
    with RemoteLog(address) as remote:
        assert remote.capabilities == MILLSTREAM
    assert external.capabilities.columnar
    assert not external.capabilities.protects_names


def test_own_topics_have_the_prefix_there_and_their_usual_names_here(log: Log, external: ExternalLog) -> None:
    log.create_topic("orders", 2)
    log.create_topic("_schemas", 1)
    log.create_topic("millstream-other_command", 1)
    external.create_topic("_millstream-command", 1, {"retention.ms": "-1"})
    external.create_topic("_schemas", 1, {"cleanup.policy": "compact"})
    external.append("_millstream-command", 0, rows(b"one"))
    there = set(log.topics())
    assert {"millstream-prod_command", "millstream-prod_schemas"} <= there
    assert "_millstream-command" not in there
    assert set(external.topics()) - {"__transaction_state", "__consumer_offsets"} == {
        "orders", "_millstream-command", "_schemas"
    }, "those of another Millstream are left out"  # fmt: skip
    for name in ("millstream-other_command", "millstream-prod_command"):
        assert external.topic(name) is None
    assert external.capabilities.reserved == ("_millstream", "millstream-")
    assert external.topic("_millstream-command") is not None
    assert values_of(external, "_millstream-command") == [b"one"]
    external.delete_topic("_schemas")
    assert "_schemas" in log.topics(), "that of the registry"


def test_topics_of_the_other_millstream_itself_are_not_seen(log: Log, external: ExternalLog) -> None:
    log.create_topic("_millstream-command", 1)
    assert external.topic("_millstream-command") is None
    assert "_millstream-command" not in external.topics()


def test_groups_and_transactional_ids_have_the_prefix_too(log: Log, external: ExternalLog) -> None:
    external.create_topic("_millstream-q-changelog", 1, {"cleanup.policy": "compact"})
    log.create_topic("orders", 1)
    producer = external.transactional_producer("CSAS_1")
    producer.begin()
    producer.append("_millstream-q-changelog", 0, rows(b"state"))
    producer.send_offsets("CSAS_1", {TopicPartition("orders", 0): 3, TopicPartition("_millstream-q-changelog", 0): 1})
    producer.commit()
    expected = {TopicPartition("orders", 0): 3, TopicPartition("_millstream-q-changelog", 0): 1}
    assert external.committed_offsets("CSAS_1") == expected
    assert log.committed_offsets("millstream-prod_query-CSAS_1")[TopicPartition("orders", 0)] == 3
    other = pickle.loads(pickle.dumps(external))
    other.transactional_producer("CSAS_1")
    other.close()
    with pytest.raises(ProducerFenced):
        producer.begin()


def test_a_producer_is_renewed_unless_somebody_else_has_its_id(external: ExternalLog) -> None:
    external.create_topic("t", 1)
    producer = external.transactional_producer("engine")
    producer.begin()
    producer.append("t", 0, rows(b"open"))
    producer.renew()
    producer.begin()
    producer.append("t", 0, rows(b"kept"))
    producer.commit()
    assert values_of(external, "t") == [b"kept"]
    external.transactional_producer("engine")
    with pytest.raises(ProducerFenced):
        producer.renew()


def test_batches_that_are_too_large_for_the_topic_are_divided(external: ExternalLog) -> None:
    external.create_topic("small", 1, {"max.message.bytes": "400"})
    values = [bytes([n]) * 60 for n in range(20)]
    assert external.append("small", 0, rows(*values)) == 0
    producer = external.transactional_producer("id")
    producer.begin()
    producer.append("small", 0, rows(*values))
    producer.append("small", 0, rows(*values))
    producer.commit()
    assert values_of(external, "small") == values * 3


def test_a_wait_behind_the_end_of_a_partition_that_became_shorter_is_over(log: Log, external: ExternalLog) -> None:
    log.create_topic("t", 1)
    external.append("t", 0, rows(b"one"))
    at = TopicPartition("t", 0)
    assert not external.wait({at: 1}, 0.1)
    assert external.wait({at: 5}, 5.0)
