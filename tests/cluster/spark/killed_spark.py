"""Queries on a standalone Spark cluster while executors, workers, the master, drivers and nodes of the log are killed.

The log is a cluster of three nodes, one of which runs the engine, with Spark's driver below it. Records come all the
while. After each kill what died is started again, as a service manager would, and each query has to get past what was
there at that moment, with no statement from anybody. In the end each record that queries have written is compared with
the answers of a batch query.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.clusters import local_places, millstream

from .pipelines_of_all_kinds import (
    BEFORE_MS,
    KEYS,
    LAST_MS,
    ORDERS,
    PARTITIONS,
    PRODUCTS,
    QUERIES,
    READ,
    SOURCES,
    START_MS,
    STEP_MS,
    Inputs,
    answers,
    changes_of,
    differences,
    group_of,
    name_of,
)
from .standalone import StandaloneSpark, driver_below, kill

VICTIMS: Final = ("executor", "worker", "driver", "server", "master", "log node")
_RATE: Final = 150  # records per second
_AWAY_S: Final = (0.5, 6.0)  # how long what was killed stays away
_BETWEEN_S: Final = (1.0, 4.0)  # from one recovery to the next kill
_READY_S: Final = 180.0
_RECOVERED_S: Final = 600.0
_SETTLED_S: Final = 60.0
_QUIET_S: Final = 2.0
_PROPERTIES: Final = {"auto.offset.reset": "earliest", "ksql.streams.cache.max.bytes.buffering": "0"}
_SPARK: Final = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(slots=True)
class Outcome:
    """`wrong`: in words. `recovered_s`: for each kill, who died, and how long it took until all queries had got past
    it."""

    records: int = 0
    recovered_s: list[tuple[str, float]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def kills(self) -> Counter[str]:
        return Counter(victim for victim, _ in self.recovered_s)


class KilledSpark:
    """One run, in `folder`. In: `kills`: how many, one after the other; `executor`: "duckdb" shows that the answers are
    what queries write where nothing is killed."""

    def __init__(
        self, folder: Path, *, seed: int, kills: int, victims: Sequence[str] = VICTIMS, executor: str = "spark"
    ) -> None:
        self._chance = random.Random(seed)
        self._kills, self._victims = kills, victims
        self._spark = StandaloneSpark(folder / "spark") if executor == "spark" else None
        master = {} if self._spark is None else {"spark.master": self._spark.address, **_SPARK}
        self._log = millstream(
            local_places(3, folder / "data"),
            folder / "output",
            session_ms=3_000,
            executor=executor,
            properties=master,
        )
        self._inputs = Inputs()
        self._versions = itertools.count()
        self._outcome = Outcome()

    def execute(self) -> Outcome:
        try:
            self._begin()
            for victim in self._drawn():
                self._kill(victim)
            self._close_windows()
            self._compare()
            return self._outcome
        finally:
            self._log.stop()
            if self._spark is not None:
                self._spark.stop()

    def _begin(self) -> None:
        if self._spark is not None:
            self._spark.start()
        self._log.start_all()
        self._command(SOURCES)
        brokers = self._log.brokers
        self._producer = Producer(
            {
                "bootstrap.servers": brokers,
                "enable.idempotence": True,
                "message.timeout.ms": 600_000,
                "partitioner": "murmur2_random",  # as Java's clients, and as queries change tasks
                "log_level": 2,
            }
        )
        for key in KEYS:
            self._produce("names", key, {"G": group_of(key)}, BEFORE_MS)
        for product in PRODUCTS:
            self._produce("products", product, {"NAME": name_of(product)}, BEFORE_MS)
        self._flush()
        self._command(QUERIES)
        self._send_for(2.0)
        self._until_past("the start", self._ends())

    # Faults

    def _drawn(self) -> list[str]:
        """Each kind as often as any other, in any order."""
        kinds = [self._victims[number % len(self._victims)] for number in range(self._kills)]
        self._chance.shuffle(kinds)
        return kinds

    def _kill(self, victim: str) -> None:
        began = time.monotonic()
        spark, log = self._spark, self._log
        assert spark is not None
        away_s = self._chance.uniform(*_AWAY_S)
        match victim:
            case "executor":
                executors = spark.executors()
                if executors:
                    kill(self._chance.choice(executors))
            case "worker":
                number = self._chance.choice(spark.workers)
                spark.kill_worker(number)
                self._send_for(away_s)
                spark.start_worker(number)
            case "master":
                spark.kill_master()
                self._send_for(away_s)
                spark.start_master()
            case "driver":
                driver = driver_below(log.process_id(self._engine()))
                if driver is not None:
                    kill(driver)
            case _:
                engine = self._engine()
                node = engine if victim == "server" else self._chance.choice([n for n in log.nodes if n != engine])
                log.signal(node, signal.SIGKILL)
                self._send_for(away_s)
                log.kill(node)
                log.start(node)
                self._until_back(node)
        self._until_past(victim, self._ends())
        took_s = time.monotonic() - began
        self._outcome.recovered_s.append((victim, took_s))
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {victim}: all queries past it after {took_s:.0f} s\n")
        self._send_for(self._chance.uniform(*_BETWEEN_S))

    def _until_back(self, node: int) -> None:
        until = time.monotonic() + _READY_S
        while time.monotonic() < until:
            try:
                if httpx.get(self._url(node, "/healthcheck"), timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            self._send_for(0.3)

    def _until_past(self, what: str, ends: dict[tuple[str, int], int]) -> None:
        """Until each query has committed what was there. Records come meanwhile."""
        until = time.monotonic() + _RECOVERED_S
        left: list[str] = ["none is known"]
        while left:
            assert time.monotonic() < until, f"after {what}: {left}"
            self._send_for(0.5)
            try:
                left = self._behind(ends)
            except (httpx.HTTPError, KeyError, ValueError) as error:  # the engine moves
                left = [repr(error)]

    def _behind(self, ends: dict[tuple[str, int], int]) -> list[str]:
        found: list[str] = []
        (shown,) = self._ask("SHOW QUERIES;")
        if len(shown["queries"]) != len(READ):
            return [f"{len(shown['queries'])} queries"]
        for query in shown["queries"]:
            assert query["state"] != "ERROR", query
            answer = httpx.get(self._any_url(f"/queries/{query['id']}/positions"), timeout=10).json()
            if any(
                (each["currentOffsetPosition"] or 0) < ends.get((each["topic"], each["partition"]), 0)
                for each in answer["positions"]
            ):
                found.append(f"{query['id']}: {answer['error']}")
        return found

    # Input

    def _send_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(_RATE // 10):
                self._send()
            self._producer.poll(0)
            time.sleep(0.1)

    def _send(self) -> None:
        number = len(self._inputs.events) + len(self._inputs.orders)
        time_ms = START_MS + number * STEP_MS
        if self._chance.random() < 0.2:
            order, product = self._chance.choice(ORDERS), self._chance.choice(PRODUCTS)
            self._inputs.orders.append((order, product, next(self._versions)))
            self._produce("orders", order, {"P": product, "VERSION": self._inputs.orders[-1][2]}, time_ms)
            return
        key, value = self._chance.choice(KEYS), self._chance.randrange(1000)
        self._inputs.events.append((key, number, value, time_ms))
        self._produce("events", key, {"ID": number, "V": value}, time_ms)

    def _close_windows(self) -> None:
        """One record in each partition, behind all others."""
        for partition in range(PARTITIONS):
            row = f"end{partition}", 10**9 + partition, 0, LAST_MS
            self._inputs.closing.append(row)
            self._produce("events", row[0], {"ID": row[1], "V": row[2]}, LAST_MS, partition)
        self._flush()

    def _produce(self, topic: str, key: str, value: object, time_ms: int, partition: int = -1) -> None:
        while True:
            try:
                self._producer.produce(
                    topic, json.dumps(value), key, partition, timestamp=time_ms, on_delivery=self._delivered
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._outcome.wrong.append(f"record {message.value()!r} was not taken: {error}")

    def _flush(self) -> None:
        assert self._producer.flush(120) == 0, "records were not acknowledged"

    def _ends(self) -> dict[tuple[str, int], int]:
        self._flush()
        consumer = self._consumer()
        try:
            return {
                (topic, partition): consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)[1]
                for topic in ("events", "orders")
                for partition in range(PARTITIONS)
            }
        finally:
            consumer.close()

    # Statements

    def _url(self, node: int, path: str) -> str:
        place = self._log.places[node]
        return f"http://{place.host}:{place.http}{path}"

    def _any_url(self, path: str) -> str:
        return self._url(next(node for node in self._log.nodes if self._log.runs(node)), path)

    def _ask(self, text: str) -> Any:
        answer = httpx.post(self._any_url("/ksql"), json={"ksql": text, "streamsProperties": _PROPERTIES}, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def _command(self, text: str) -> None:
        until = time.monotonic() + _READY_S
        while True:
            try:
                self._ask(text)
                return
            except httpx.HTTPError as error:
                said = error.response.text if isinstance(error, httpx.HTTPStatusError) else repr(error)
                assert time.monotonic() < until, f"no node takes statements: {said}"
                time.sleep(0.5)

    def _engine(self) -> int:
        """The node that runs the engine."""
        until = time.monotonic() + _READY_S
        while time.monotonic() < until:
            for node in self._log.nodes:
                try:
                    if "millstream_query_state" in httpx.get(self._url(node, "/metrics"), timeout=5).text:
                        return node
                except httpx.HTTPError:
                    continue
            self._send_for(0.3)
        raise AssertionError("no node runs the engine")

    # The end

    def _compare(self) -> None:
        self._outcome.records = len(self._inputs.events) + len(self._inputs.orders)
        for topic, expected in answers(self._inputs).items():
            records = self._read(topic, sum(map(len, expected.values())))
            self._outcome.wrong += differences(topic, expected, changes_of(topic, records))

    def _read(self, topic: str, count: int) -> list[tuple[bytes, Any]]:
        """All committed records: until there are as many as expected and no more for two seconds, or none for long."""
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found: list[tuple[bytes, Any]] = []
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < (_QUIET_S if len(found) >= count else _SETTLED_S):
            messages: list[Any] = [message for message in consumer.consume(5_000, 0.5) if message.error() is None]
            found += [(each.key(), None if each.value() is None else json.loads(each.value())) for each in messages]
            quiet_since = time.monotonic() if messages else quiet_since
        consumer.close()
        return found

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._log.brokers,
                "group.id": "check",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, _interrupt)  # nothing is left running
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.spark.killed_spark")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--victims", default=",".join(VICTIMS))
    parser.add_argument("--executor", default="spark")
    given: Any = parser.parse_args()
    outcome = KilledSpark(
        given.folder, seed=given.seed, kills=given.kills, victims=given.victims.split(","), executor=given.executor
    ).execute()
    for line in outcome.wrong[:30]:
        sys.stdout.write(line + "\n")
    sys.stdout.write(f"{outcome.records} records, kills: {dict(outcome.kills)}, {len(outcome.wrong)} things wrong\n")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
