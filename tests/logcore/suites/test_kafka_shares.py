"""Share groups, asked for by Kafka's own client: what Apache Kafka promises holds here, and what is asked there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from waiting import eventually

from bench.apache_kafka import VERSION, ApacheKafka
from bench.maven import Unavailable
from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.wire.apis import Api

from ..clients import outside
from .serving import JAVA_OPTIONS, Product, ProductCluster, classpath, compiled

_QUIETLY: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
_BROKER: Final = 4
_GROUP: Final = 32
_SHORT_LOCKS: Final = {"group.share.min.record.lock.duration.ms": "1000"}
_THEIR_SETTINGS: Final = {
    **_SHORT_LOCKS,
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

Shares = Callable[[str, str], list[str]]
"""Runs a part of the program with these brokers. Gives what it says has failed."""


@pytest.fixture
def shares(tmp_path: Path) -> Shares:
    libraries = classpath(f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
    program = compiled(Path(__file__).parent / "java" / "Shares.java", libraries, tmp_path / "classes")

    def run(address: str, part: str) -> list[str]:
        command = ["java", *JAVA_OPTIONS, _QUIETLY, "-cp", program, "Shares", address, part]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        lines = done.stdout.splitlines()
        assert any(line.startswith("ok ") for line in lines) or done.returncode, done.stderr[-2000:]
        failed = [line for line in lines if not line.startswith("ok ")]
        assert bool(failed) == bool(done.returncode), done.stderr[-2000:]
        return failed

    return run


def begin_at_the_earliest(product: Product, group: str) -> None:
    _configure(product, _GROUP, group, {"share.auto.offset.reset": "earliest"})


def _configure(product: Product, kind: int, name: str, settings: Mapping[str, str]) -> None:
    changes = [{"name": each, "config_operation": 0, "value": value} for each, value in settings.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": changes}
    channels = Channels(Address("127.0.0.1", product.port))
    assert channels.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]}).responses[0].error_code == 0
    channels.close()


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    with Product(tmp_path / "data") as running:
        _configure(running, _BROKER, "", _SHORT_LOCKS)
        yield running
        assert "Traceback" not in running.said


@pytest.mark.timeout(600)
def test_the_share_consumer_finds_what_it_is_promised(shares: Shares, product: Product) -> None:
    assert shares(product.address, "explicit,lock,leaving,record-limit") == []


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_worker_pool_of_the_documentation_does_each_job_once(tmp_path: Path, product: Product) -> None:
    page = Path(__file__).parents[3] / "docs" / "share-groups.md"
    source = tmp_path / "JobWorker.java"
    source.write_text(page.read_text().split("```java\n")[1].split("```")[0])
    libraries = classpath(f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
    program = compiled(source, libraries, tmp_path / "worker")
    outside.create_topic(product.address, "jobs", 2)
    begin_at_the_earliest(product, "workers")
    for number in range(40):
        outside.append(product.address, "jobs", number % 2, b"%d" % number)
    output = tmp_path / "done.txt"
    with output.open("w") as file:
        command = ["java", *JAVA_OPTIONS, _QUIETLY, "-cp", program, "JobWorker", product.address]
        workers = [subprocess.Popen(command, stdout=file) for _ in range(3)]
    try:
        eventually(lambda: len(output.read_text().splitlines()) >= 40 or None, 120)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert sorted(output.read_text().splitlines()) == sorted(f"done {number}" for number in range(40))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_case_holds_on_one_node(shares: Shares, product: Product) -> None:
    assert shares(product.address, "cases") == []


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_what_was_decided_outlives_a_kill(shares: Shares, product: Product) -> None:
    assert shares(product.address, "before") == []
    product.end()
    product.start()
    product.wait_until_started()
    assert shares(product.address, "after") == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_case_holds_on_three_nodes_and_after_a_kill(shares: Shares, tmp_path: Path) -> None:
    with ProductCluster(tmp_path) as cluster:
        _configure(cluster.nodes[0], _BROKER, "", _SHORT_LOCKS)
        assert shares(cluster.address, "cases") == []
        assert shares(cluster.address, "before") == []
        cluster.nodes[0].end()
        assert shares(cluster.address, "after-fail-over") == []
        assert "Traceback" not in cluster.said


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_case_holds_on_apache_kafka(shares: Shares, tmp_path: Path) -> None:
    try:
        kafka = ApacheKafka(tmp_path / "kafka", settings=_THEIR_SETTINGS)
    except Unavailable as reason:
        pytest.skip(f"Apache Kafka: {reason}")
    with kafka:
        assert shares(kafka.address, "cases") == []
        assert shares(kafka.address, "before") == []
        kafka.kill()
        kafka.start_again()
        assert shares(kafka.address, "after") == []
