"""Crashes of the server, and of the broker that is its log: a foreign consumer of what is committed sees each result
once."""

from __future__ import annotations

import random
import signal
import threading
import time
from pathlib import Path

import pytest
from external_server import ExternalServer, copy_and_count, external_server
from external_topics import consumed, create_topic, produce
from waiting import eventually

from bench.apache_kafka import ApacheKafka
from millstream.server.client import connect

pytestmark = pytest.mark.timeout(240)

_KEYS, _ROWS = 5, 60  # per key and round


def add_events(kafka: ApacheKafka, service_id: str, round_: int) -> None:
    rows = [(f"k{key}", {"N": round_ * _ROWS + n}) for n in range(_ROWS) for key in range(_KEYS)]
    produce(kafka.address, f"events-{service_id}", rows)


def check_results(kafka: ApacheKafka, service_id: str, rounds: int) -> None:
    """Every row once in the copy; of the counts of each key every number once, in order, with its sum."""
    count = rounds * _ROWS
    copied = consumed(kafka.address, f"copied-{service_id}", count * _KEYS, more_s=1.0)
    assert sorted((key or "", value["N"]) for key, value in copied) == [
        (f"k{key}", n + 1) for key in range(_KEYS) for n in range(count)
    ]
    counted = consumed(kafka.address, f"counted-{service_id}", count * _KEYS, more_s=1.0)
    for key in range(_KEYS):
        found = [(value["N"], value["TOTAL"]) for name, value in counted if name == f"k{key}"]
        assert found == [(n, n * (n - 1) // 2) for n in range(1, count + 1)]


def test_the_server_is_killed_and_each_result_is_there_once(
    kafka: ApacheKafka, service_id: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    create_topic(kafka.address, f"events-{service_id}", 2)
    with external_server(tmp_path / "server", kafka.address, service_id) as server:
        copy_and_count(server, service_id)
        for round_ in range(2):
            add_events(kafka, service_id, round_)
            time.sleep(chance.uniform(0.05, 0.6))
            server.kill()
            server.start()
        check_results(kafka, service_id, 2)


@pytest.mark.soak
def test_the_broker_is_killed_and_each_result_is_there_once(
    kafka: ApacheKafka, service_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.address, f"events-{service_id}", 2)
    with external_server(tmp_path / "server", kafka.address, service_id) as server:
        copy_and_count(server, service_id)
        add_events(kafka, service_id, 0)
        time.sleep(0.3)
        kafka.kill()
        time.sleep(1.0)
        kafka.start_again()
        add_events(kafka, service_id, 1)
        check_results(kafka, service_id, 2)
        assert server.process.poll() is None, "it waits the outage out"


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_broker_is_killed_under_statements_and_each_answer_is_true(
    kafka: ApacheKafka, service_id: str, tmp_path: Path
) -> None:
    """Statements follow each other at once, so the outcome of one is in doubt each time."""
    chance = random.Random(11)
    done: list[str] = []
    with external_server(tmp_path / "server", kafka.address, service_id) as server:
        for kill in range(20):
            statements = _Statements(server, f"t{kill}")
            time.sleep(chance.uniform(0.3, 1.0))
            kafka.kill()
            time.sleep(chance.uniform(0.1, 2.0))
            kafka.start_again()
            done += statements.ended()
            assert server.process.poll() is None, server.output.read_text()[-2000:]
            assert types_of(server) == sorted(done)
        server.execute("CREATE TYPE last_one AS STRUCT<x INT>;")
        server.kill()
        server.start()
        assert types_of(server) == sorted([*done, "LAST_ONE"])


def types_of(server: ExternalServer) -> list[str]:
    client = connect(server.url)
    try:
        [types] = client.execute("SHOW TYPES;")
        return sorted(types["types"])
    finally:
        client.close()


class _Statements:
    """One after the other, on a thread, until one fails or some came after the outage. State: those that went well."""

    def __init__(self, server: ExternalServer, name: str) -> None:
        self._server, self._name = server, name
        self._done: list[str] = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ended(self) -> list[str]:
        self._enough.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self._done

    def _run(self) -> None:
        number = 0
        while not self._enough.is_set():
            name = f"{self._name}_{number}".upper()
            try:
                self._server.execute(f"CREATE TYPE {name} AS STRUCT<x INT>;")
            except Exception as error:
                if "nothing was written" not in str(error):
                    return
                time.sleep(0.05)  # the brokers are away for seconds
            else:
                self._done.append(name)
            number += 1


def test_a_second_server_with_the_service_id_ends_the_first(
    kafka: ApacheKafka, service_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.address, f"events-{service_id}", 2)
    with external_server(tmp_path / "one", kafka.address, service_id) as first:
        copy_and_count(first, service_id)
        first.process.send_signal(signal.SIGSTOP)  # a pause, in which somebody starts another one
        with external_server(tmp_path / "two", kafka.address, service_id) as second:
            add_events(kafka, service_id, 0)
            first.process.send_signal(signal.SIGCONT)
            with pytest.raises(Exception, match=r".*"):
                first.execute("CREATE TYPE point AS STRUCT<x INT>;")
            eventually(lambda: first.process.poll() is not None)
            assert "has taken over its queries" in first.output.read_text()
            check_results(kafka, service_id, 1)
            second.execute("CREATE TYPE point AS STRUCT<x INT>;")
