"""Three brokers of others, of which one is killed, paused or asked to lead again at a time, and the engine is killed:
a foreign consumer of what is committed finds each result once, in its order.

The brokers are Apache Kafka's or Millstream's. MILLSTREAM_SOAK_EXTERNAL_FAULTS says how many faults there are, and
MILLSTREAM_SOAK_EXTERNAL_SEED draws others. A short run with one broker is in `test_kills_on_kafka.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from external_server import ExternalServer, copy_and_count, external_server
from waiting import eventually

from bench.apache_kafka import Unavailable
from bench.clusters import Cluster, apache_kafka, local_places, millstream

FAULTS: Final = int(os.environ.get("MILLSTREAM_SOAK_EXTERNAL_FAULTS", "100"))
SEED: Final = int(os.environ.get("MILLSTREAM_SOAK_EXTERNAL_SEED", "1"))
SESSION_MS: Final = 2_000  # after which a broker that says nothing is replaced
PATIENCE_S: Final = 180.0
KEYS: Final = 5
REPLICATED: Final[dict[str, str | int]] = {"replication.factor": 3, "min.insync.replicas": 2}


@pytest.fixture(params=["Apache Kafka", "Millstream"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("confluent_kafka")
    places = local_places(3, tmp_path / "brokers")
    try:
        make = apache_kafka if request.param == "Apache Kafka" else millstream
        cluster = make(places, tmp_path / "brokers", session_ms=SESSION_MS)
    except Unavailable as reason:
        pytest.skip(f"Apache Kafka: {reason}")
    try:
        cluster.start_all()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_each_result_is_there_once_whatever_ends_or_moves(brokers: Cluster, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    admin = Administrator(brokers)
    admin.create("events-faults", partitions=3)
    with external_server(tmp_path / "server", brokers.brokers, "faults", REPLICATED) as server:
        copy_and_count(server, "faults")
        with Load(brokers.brokers, "events-faults") as load, Committed(brokers.brokers, "faults") as results:
            for number in range(FAULTS):
                fault = chance.choice(FAULTS_THERE_ARE)
                print(f"{number}: {fault.__name__}, {sum(load.acknowledged)} acknowledged", flush=True)
                fault(Scene(brokers, server, admin), chance)
                await_progress(load, results, server, fault.__name__)
            sent = load.end()
            for topic in results.found:
                eventually(lambda: len(results.found[topic]) >= sum(sent), PATIENCE_S, otherwise=f"{topic} lacks some")  # noqa: B023
            time.sleep(3)  # for what would come twice
        check(sent, results.found["copied-faults"], results.found["counted-faults"])


def await_progress(load: Load, results: Committed, server: ExternalServer, fault: str) -> None:
    """Until events written after the fault are acknowledged, and the queries have counted what came before."""
    before = sum(load.acknowledged)
    eventually(lambda: sum(load.acknowledged) > before, PATIENCE_S, otherwise=f"nobody can write after {fault}")
    said = server.output.read_text()[-3000:]
    counted = results.found["counted-faults"]
    eventually(lambda: len(counted) >= before, PATIENCE_S, otherwise=f"the queries do not go on after {fault}: {said}")


def test_what_is_lost_twice_or_out_of_order_is_found() -> None:
    copied = [(f"k{key}", {"N": n}) for n in (1, 2) for key in range(2)]
    counted = [(f"k{key}", {"N": n, "TOTAL": n * (n - 1) // 2}) for n in (1, 2) for key in range(2)]
    check([2, 2], copied, counted)
    for wrong in (copied[:-1], [*copied, copied[-1]], copied[::-1]):
        with pytest.raises(AssertionError):
            check([2, 2], wrong, counted)
    for wrong in (counted[:-1], [*counted, counted[-1]], counted[::-1], [*counted[:-1], ("k1", {"N": 2, "TOTAL": 9})]):
        with pytest.raises(AssertionError):
            check([2, 2], copied, wrong)


def check(sent: list[int], copied: list[tuple[str, Any]], counted: list[tuple[str, Any]]) -> None:
    """Every event once in the copy; of the counts of each key every number once, in order, with its sum."""
    by_key: dict[str, list[Any]] = defaultdict(list)
    for key, value in copied:
        by_key[key].append(value["N"])
    assert by_key == {f"k{key}": list(range(1, count + 1)) for key, count in enumerate(sent)}
    counts: dict[str, list[Any]] = defaultdict(list)
    for key, value in counted:
        counts[key].append((value["N"], value["TOTAL"]))
    assert counts == {f"k{key}": [(n, n * (n - 1) // 2) for n in range(1, count + 1)] for key, count in enumerate(sent)}


# ------------------------------------------------------------------ what happens


class Scene:
    def __init__(self, brokers: Cluster, server: ExternalServer, admin: Administrator) -> None:
        self.brokers, self.server, self.admin = brokers, server, admin


def kill_a_broker(scene: Scene, chance: random.Random) -> None:
    node = chance.choice(scene.brokers.nodes)
    scene.brokers.kill(node)
    time.sleep(chance.choice((0.0, chance.uniform(0.5, 6))))
    scene.brokers.start(node)
    scene.admin.await_replicas()


def pause_a_broker(scene: Scene, chance: random.Random) -> None:
    """Longer than its session, mostly: it comes back and believes that it leads."""
    node = chance.choice(scene.brokers.nodes)
    scene.brokers.signal(node, signal.SIGSTOP)
    time.sleep(chance.uniform(1, 8))
    scene.brokers.signal(node, signal.SIGCONT)
    scene.admin.await_replicas()


def move_leaders(scene: Scene, chance: random.Random) -> None:
    """Of all partitions, those of transactions and groups, and so their coordinators, included."""
    del chance
    scene.admin.elect_preferred()


def kill_the_engine(scene: Scene, chance: random.Random) -> None:
    time.sleep(chance.uniform(0, 1))
    scene.server.kill()
    time.sleep(chance.uniform(0, 1))
    scene.server.start()


def kill_both(scene: Scene, chance: random.Random) -> None:
    """The engine starts while the brokers are one less."""
    node = chance.choice(scene.brokers.nodes)
    scene.brokers.kill(node)
    kill_the_engine(scene, chance)
    scene.brokers.start(node)
    scene.admin.await_replicas()


FAULTS_THERE_ARE: Final[tuple[Callable[[Scene, random.Random], None], ...]] = (
    *(kill_a_broker, kill_a_broker, pause_a_broker, move_leaders, move_leaders),
    *(kill_the_engine, kill_the_engine, kill_both),
)


# ------------------------------------------------------------------ who is there


class Administrator:
    """A stranger's, by confluent-kafka."""

    def __init__(self, brokers: Cluster) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient({"bootstrap.servers": brokers.brokers, "log_level": 0})

    def create(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import NewTopic

        def made() -> bool:
            try:
                self._admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(20)
            except Exception as error:
                return "TOPIC_ALREADY_EXISTS" in str(error)
            return True

        eventually(made, PATIENCE_S, otherwise="the brokers do not start")

    def await_replicas(self) -> None:
        """Until every replica follows again: the next fault may take away one more broker."""

        from confluent_kafka import KafkaException

        def whole() -> bool:
            try:
                topics = self._admin.list_topics(timeout=5).topics.values()
            except KafkaException:  # no broker answers yet
                return False
            return all(len(each.isrs) == len(each.replicas) for topic in topics for each in topic.partitions.values())

        eventually(whole, PATIENCE_S, otherwise="replicas do not come back")

    def elect_preferred(self) -> None:
        from confluent_kafka import ElectionType, KafkaException

        with contextlib.suppress(KafkaException):  # it may have come to the broker that controlled them
            self._admin.elect_leaders(ElectionType.PREFERRED).result(PATIENCE_S)


class Load:
    """Writes events, each key's numbered from 0, acknowledged by all replicas. State: a thread."""

    def __init__(self, address: str, topic: str) -> None:
        from confluent_kafka import Producer

        settings = {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 0, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": address, **settings})
        self._topic = topic
        self._sent = [0] * KEYS
        self.acknowledged = [0] * KEYS
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)

    def end(self) -> list[int]:
        """How many events each key has, all of them acknowledged."""
        self._over.set()
        self._thread.join(PATIENCE_S)
        assert self._producer.flush(PATIENCE_S) == 0
        assert self.acknowledged == self._sent
        return self._sent

    def _run(self) -> None:
        for key in itertools.cycle(range(KEYS)):
            if self._over.wait(0.004):
                return
            value = json.dumps({"N": self._sent[key]}).encode()
            self._producer.produce(self._topic, value, f"k{key}".encode(), on_delivery=self._note(key))
            self._sent[key] += 1
            self._producer.poll(0)

    def _note(self, key: int) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            del message
            assert error is None, str(error)
            self.acknowledged[key] += 1

        return delivered


class Committed:
    """Reads what is committed in both results, from the start. State: a thread; `found` by topic."""

    def __init__(self, address: str, service_id: str) -> None:
        from confluent_kafka import Consumer

        self.found: dict[str, list[tuple[str, Any]]] = {f"{name}-{service_id}": [] for name in ("copied", "counted")}
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "stranger",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1_000,
                "session.timeout.ms": 300_000,
                "max.poll.interval.ms": 600_000,
                "log_level": 0,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Committed:
        from confluent_kafka import TopicPartition

        partitions = {
            topic: self._consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
            for topic in self.found
        }
        self._consumer.assign([TopicPartition(topic, each, 0) for topic, ids in partitions.items() for each in ids])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)
        self._consumer.close()

    def _run(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and not message.error():
                key, value = message.key(), message.value()
                assert key is not None and value is not None
                self.found[str(message.topic())].append((key.decode(), json.loads(value)))
