"""Transactions on Apache Kafka that take too long, and records that are too large for a topic's batches."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from external_topics import create_topic

from millstream.logcore.client import FetchedRows, LogClient, RowRecords
from millstream.logcore.errors import InvalidTransactionState, LogUnavailable
from millstream.logcore.external.external_log import ExternalLog, ExternalLogSettings
from millstream.server.catalog.command_topic import COMMAND_TOPIC, CommandTopic
from millstream.server.catalog.commands import RemoveType
from millstream.server.cluster.engine_log import EngineLog

from .conftest import GuardedKafka

pytestmark = pytest.mark.timeout(240)

_SCHEMA = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


def rows(*values: bytes) -> RowRecords:
    now = int(time.time() * 1000)
    columns = {"timestamp": [now] * len(values), "key": [b"k"] * len(values), "value": values}
    return RowRecords(pa.table(columns, schema=_SCHEMA))


def values_of(log: LogClient, topic: str) -> list[bytes]:
    runs = [run for run in log.fetch(topic, 0, 0).runs if isinstance(run, FetchedRows)]
    return [value for run in runs for value in run.table["value"].to_pylist()]


def settings(kafka: GuardedKafka, service_id: str) -> ExternalLogSettings:
    properties = {"bootstrap.servers": kafka.address, "transaction.timeout.ms": "1000"}
    return ExternalLogSettings.of(properties, service_id)


def test_a_transaction_that_the_broker_has_timed_out_is_begun_again(kafka: GuardedKafka, service_id: str) -> None:
    topic = create_topic(kafka.address, f"slow-{service_id}", 1)
    lost: list[str] = []
    with ExternalLog(settings(kafka, service_id)) as external:
        log = EngineLog(external, lambda: lost.append("lease"), outlasts=True)
        producer = log.transactional_producer("query")
        producer.begin()
        producer.append(topic, 0, rows(b"gone"))
        time.sleep(2.5)
        with pytest.raises((LogUnavailable, InvalidTransactionState)):  # after which a query begins its batch again
            producer.commit()
        again = log.transactional_producer("query")
        again.begin()
        again.append(topic, 0, rows(b"kept"))
        again.commit()
        deadline = time.monotonic() + 10
        while values_of(log, topic) != [b"kept"]:
            assert time.monotonic() < deadline, values_of(log, topic)
            time.sleep(0.05)
        assert not lost


def test_a_lease_that_the_broker_has_fenced_for_its_slowness_goes_on(kafka: GuardedKafka, service_id: str) -> None:
    lost: list[str] = []
    with ExternalLog(settings(kafka, service_id)) as external:
        log = EngineLog(external, lambda: lost.append("lease"), outlasts=True)
        commands = CommandTopic(log)

        def write_slowly() -> None:
            with log._transaction() as lease:
                lease.append(COMMAND_TOPIC, 0, rows(b"gone"))
                time.sleep(2.5)

        with pytest.raises((LogUnavailable, InvalidTransactionState)):
            write_slowly()
        command = RemoveType(statement="", name="A")
        commands.append(command)
        assert [found for _, found in commands.read_all()] == [command]
        assert not lost


def test_batches_are_divided_to_fit_the_topic(kafka: GuardedKafka, service_id: str) -> None:
    topic = create_topic(kafka.address, f"small-{service_id}", 1, max_message_bytes="2000")
    values = [bytes([n]) * 300 for n in range(30)]
    with ExternalLog(settings(kafka, service_id)) as log:
        assert log.append(topic, 0, rows(*values)) == 0
        assert values_of(log, topic) == values


def test_a_full_batch_fits_a_topic_without_settings(kafka: GuardedKafka, service_id: str) -> None:
    topic = create_topic(kafka.address, f"full-{service_id}", 1)
    with ExternalLog(settings(kafka, service_id)) as log:
        values = [b"x" * 1000] * 4000
        log.append(topic, 0, rows(*values))
        assert log.offsets(topic, 0).log_end_offset == len(values)
