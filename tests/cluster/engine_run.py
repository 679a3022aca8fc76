"""A persistent windowed aggregate while nodes are killed: what it has written at the end is what it had to write.

Every change is asked for, so the result topic has to hold, per key and window, the counts 1, 2, 3, … with the sums that
belong to them, each once: a record that was lost, or counted twice, or written twice, shows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.clusters import OpenProcess, Wrap, local_places, millstream

WINDOW_MS: Final = 10_000
_KEYS: Final = 20
_PARTITIONS: Final = 3
RATE: Final = 400  # records per second
_AWAY_S: Final = (0.2, 4.0)  # how long a killed node stays away
_BETWEEN_S: Final = (1.0, 5.0)  # from one node's return to the next kill
_READY_S: Final = 180.0
_SETTLED_S: Final = 300.0
_CREATE: Final = """
CREATE STREAM IF NOT EXISTS events (k STRING KEY, v BIGINT)
  WITH (kafka_topic='events', value_format='JSON', partitions=3);
CREATE TABLE IF NOT EXISTS sums WITH (kafka_topic='sums', value_format='JSON') AS
  SELECT k, COUNT(*) AS n, SUM(v) AS total FROM events WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 1 DAY)
  GROUP BY k EMIT CHANGES;
"""
_PROPERTIES: Final = {"auto.offset.reset": "earliest", "ksql.streams.cache.max.bytes.buffering": "0"}

Group = tuple[str, int]
"""A key, and where its window begins, ms."""


@dataclass(frozen=True, slots=True)
class Result:
    """What was wrong, and what happened: `lost` names groups whose changes are not those of the batch query."""

    records: int
    kills: int
    engine_moves: int
    wrong: Sequence[str]


class EngineRun:
    """Three processes, one of which runs the query. In: `kills`: how many nodes are killed, one after the other."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        kills: int,
        rate: int = RATE,
        session_ms: int = 2_000,
        wrap: Wrap | None = None,
        open_process: OpenProcess = subprocess.Popen,
    ) -> None:
        self._chance = random.Random(seed)
        self._kills = kills
        self._rate = rate
        self._cluster = millstream(
            local_places(3, folder / "data"),
            folder / "output",
            session_ms=session_ms,
            wrap=wrap,
            open_process=open_process,
        )
        self._sent: list[tuple[str, int, int]] = []  # key, time, value
        self._refused: list[str] = []

    def execute(self) -> Result:
        cluster = self._cluster
        try:
            cluster.start_all()
            self._command(_CREATE)
            producer = Producer(
                {"bootstrap.servers": cluster.brokers, "enable.idempotence": True, "message.timeout.ms": 600_000}
            )
            moves = self._suffer(producer)
            assert producer.flush(60) == 0, "records were not acknowledged"
            for node in cluster.nodes:
                if not cluster.runs(node):
                    cluster.start(node)
            return Result(len(self._sent), self._kills, moves, [*self._refused, *self._compare()])
        finally:
            cluster.stop()

    # Faults

    def _suffer(self, producer: Producer) -> int:
        """Sends records all the while. Returns how often the node that ran the engine was killed."""
        moves = 0
        self._send_for(producer, 2.0)
        for _ in range(self._kills):
            node = self._chance.choice(self._cluster.nodes)
            moves += self._runs_engine(node)
            self._cluster.signal(node, signal.SIGKILL)
            self._send_for(producer, self._chance.uniform(*_AWAY_S))
            self._cluster.kill(node)  # it is gone
            self._cluster.start(node)
            self._send_for(producer, self._chance.uniform(*_BETWEEN_S))
            self._until_back(producer, node)
        return moves

    def _until_back(self, producer: Producer, node: int) -> None:
        """A majority has to run, or all of this shows only that nothing happens without one."""
        until = time.monotonic() + _READY_S
        while not self._answers(node) and time.monotonic() < until:
            self._send_for(producer, 0.3)

    def _answers(self, node: int) -> bool:
        try:
            return httpx.get(self._url(node, "/healthcheck"), timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def _send_for(self, producer: Producer, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(self._rate // 20):
                self._send(producer)
            producer.poll(0.05)

    def _send(self, producer: Producer) -> None:
        number = len(self._sent)
        record = (f"k{self._chance.randrange(_KEYS)}", 1_000_000 + number * 7, number)
        self._sent.append(record)
        value = json.dumps({"V": record[2]})
        while True:
            try:
                producer.produce("events", value, record[0], timestamp=record[1], on_delivery=self._delivered)
                return
            except BufferError:
                producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(f"record {message.value()!r} was not taken: {error}")

    def _runs_engine(self, node: int) -> int:
        try:
            answer = httpx.get(self._url(node, "/metrics"), timeout=2).text
        except httpx.HTTPError:
            return 0
        return int("millstream_query_state" in answer)

    # Statements

    def _url(self, node: int, path: str) -> str:
        place = self._cluster.places[node]
        return f"http://{place.host}:{place.http}{path}"

    def _command(self, text: str) -> None:
        """At any node, as soon as one takes it."""
        until = time.monotonic() + _READY_S
        for node in itertools.cycle(self._cluster.nodes):
            body = {"ksql": text, "streamsProperties": _PROPERTIES}
            try:
                answer = httpx.post(self._url(node, "/ksql"), json=body, timeout=60)
                if answer.status_code == 200:
                    return
                said = answer.text
            except httpx.HTTPError as error:
                said = repr(error)
            assert time.monotonic() < until, f"no node takes statements: {said}"
            time.sleep(0.2)

    # The end

    def _compare(self) -> list[str]:
        expected = batch_answer(self._sent)
        count = sum(map(len, expected.values()))
        found = group_changes(self._read("sums", count))
        wrong = [
            f"{group}: expected {expected.get(group, [])[:5]}…, found {found.get(group, [])[:5]}…"
            f" ({len(expected.get(group, []))} and {len(found.get(group, []))} changes)"
            for group in sorted({*expected, *found})
            if expected.get(group) != found.get(group)
        ]
        return wrong

    def _read(self, topic: str, count: int) -> list[Message]:
        """All committed records: until there are as many as expected, and then no more for two seconds."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.brokers,
                "group.id": "check",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(_PARTITIONS)])
        messages: list[Message] = []
        until = time.monotonic() + _SETTLED_S
        quiet_since = time.monotonic()
        while time.monotonic() < until and not (len(messages) >= count and time.monotonic() - quiet_since > 2.0):
            got = [message for message in consumer.consume(5_000, 0.5) if message.error() is None]
            messages += got
            quiet_since = time.monotonic() if got else quiet_since
        consumer.close()
        return messages


def batch_answer(records: Sequence[tuple[str, int, int]]) -> dict[Group, list[tuple[int, int]]]:
    """Per key and window the count and the sum after each record, in the order of the records of a key."""
    answer: dict[Group, list[tuple[int, int]]] = defaultdict(list)
    for key, time_ms, value in records:
        changes = answer[key, time_ms // WINDOW_MS * WINDOW_MS]
        before = changes[-1] if changes else (0, 0)
        changes.append((before[0] + 1, before[1] + value))
    return dict(answer)


def group_changes(messages: Sequence[Any]) -> Mapping[Group, list[tuple[int, int]]]:
    """What the result topic says: its keys are the key's text and eight bytes of the window's beginning."""
    found: dict[Group, list[tuple[int, int]]] = defaultdict(list)
    for message in messages:
        key, value = message.key(), json.loads(message.value())
        found[key[:-8].decode(), int.from_bytes(key[-8:], "big")].append((value["N"], value["TOTAL"]))
    return dict(found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.engine_run")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=20)
    given: Any = parser.parse_args()
    result = EngineRun(given.folder, seed=given.seed, kills=given.kills).execute()
    for line in result.wrong[:20]:
        sys.stdout.write(line + "\n")
    sys.stdout.write(
        f"{result.records} records, {result.kills} kills, {result.engine_moves} of them of the engine's node, "
        f"{len(result.wrong)} things wrong\n"
    )
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
