"""`millstream server --node`: what it refuses with a sentence, what Kafka's clients see at any node, and a process of
it from its start to its end."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import eventually
from warm_command import WarmPopen

from bench.apache_kafka import free_ports
from millstream.errors import MillstreamError
from millstream.logcore.client import TopicPartition as Place
from millstream.logcore.errors import UnsupportedDataDirectory
from millstream.logcore.log import open_log
from millstream.logcore.remote import RemoteLog
from millstream.server.client import HttpClient, connect
from millstream.server.cluster.node_service import cluster_settings, reached_at
from millstream.server.config.configuration import InvalidConfiguration, ListenAddress, load_configuration
from millstream.server.service import Service
from tests.logcore.log_records import rows, values_of

PATIENCE_S = 60.0


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def flags(tmp_path: Path, port: int) -> dict[str, Any]:
    return {
        "data": tmp_path,
        "node": 1,
        "cluster": f"1@127.0.0.1:{port}",
        "http": "127.0.0.1:0",
        "kafka": "127.0.0.1:0",
        "executor": "duckdb",
    }


def refusal(flags: dict[str, Any]) -> str:
    with pytest.raises(MillstreamError) as raised, Service(load_configuration(None, flags)):
        pass
    assert raised.value.hint or isinstance(raised.value, InvalidConfiguration)
    return raised.value.message


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"node": 4}, "node 4 is not one of the cluster's nodes, which are 1"),
        ({"cluster": "1@127.0.0.1"}, '"1@127.0.0.1" is not a node of a cluster'),
        ({"cluster": "1@a:1,1@b:1"}, '"1@b:1" is in the list of nodes twice'),
        ({"cluster": "1@a:1,2@a:1"}, '"2@a:1" is in the list of nodes twice'),
        ({"cluster": "1@a:70000"}, '"1@a:70000" is not a node of a cluster'),
        ({"cluster_name": "a/b"}, '"a/b" cannot be the name of a cluster'),
        ({"cluster_secret_file": "/nowhere"}, "cluster's secret cannot be read: no such file or directory"),
        ({"schema_registry": "127.0.0.1:0"}, "a node of a cluster has no schema registry"),
    ],
)
def test_what_no_node_can_be_is_refused(flags: dict[str, Any], changed: dict[str, Any], said: str) -> None:
    assert said in refusal({**flags, **changed})


@pytest.mark.parametrize("missing", ["node", "cluster"])
def test_a_node_needs_a_cluster_and_a_cluster_a_node(flags: dict[str, Any], missing: str) -> None:
    with pytest.raises(InvalidConfiguration, match="a node of a cluster needs both"):
        load_configuration(None, {**flags, missing: None})


def test_an_empty_secret_is_none(flags: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("\n")
    configuration = load_configuration(None, {**flags, "cluster_secret_file": tmp_path / "secret"})
    with pytest.raises(InvalidConfiguration, match="is empty"):
        cluster_settings(configuration)


@pytest.mark.parametrize("secret", ["", "  "])
def test_an_empty_secret_is_not_taken_for_one(flags: dict[str, Any], secret: str) -> None:
    with pytest.raises(InvalidConfiguration, match="cluster_secret is empty"):
        cluster_settings(load_configuration(None, {**flags, "cluster_secret": secret}))


def test_a_cluster_with_users_needs_a_secret(flags: dict[str, Any]) -> None:
    users = {"access": {"users": {"ana": {"roles": ["all"]}}, "roles": {"all": {"admin": True}}}}
    with pytest.raises(InvalidConfiguration, match="a cluster with users has no secret"):
        cluster_settings(load_configuration(None, {**flags, **users}))
    assert cluster_settings(load_configuration(None, {**flags, **users, "cluster_secret": "x"})).secret == b"x"


def test_a_port_that_is_taken_is_named(flags: dict[str, Any], port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        assert f"cannot listen at 127.0.0.1:{port}, where the other nodes look for node 1" in refusal(flags)


def test_a_directory_of_another_node_or_cluster_is_refused(flags: dict[str, Any], port: int) -> None:
    with Service(load_configuration(None, flags)):
        pass
    assert "belongs to node 1" in refusal({**flags, "node": 2, "cluster": f"1@127.0.0.1:1,2@127.0.0.1:{port}"})
    assert 'belongs to node 1 of cluster "millstream"' in refusal({**flags, "cluster_name": "other"})


def test_a_directory_of_version_0_1_is_refused_to_a_node_of_a_cluster(flags: dict[str, Any]) -> None:
    """A server on its own upgrades it first."""
    (flags["data"] / "log").mkdir()
    (flags["data"] / "log" / "meta.json").touch()
    assert "holds a log of version 0.1" in refusal(flags)


def test_a_node_that_was_alone_becomes_the_only_one_of_a_cluster_before_others_come(
    flags: dict[str, Any], port: int
) -> None:
    with open_log(flags["data"] / "log") as log:
        log.create_topic("t", 1)
        log.append("t", 0, rows(b"a"))
    others = {**flags, "cluster": f"1@127.0.0.1:{port},2@127.0.0.1:1"}
    assert "is that of a server on its own" in refusal(others)
    with Service(load_configuration(None, flags)) as service, RemoteLog(str(service.kafka_address)) as log:
        assert values_of(log, "t") == [b"a"]
        log.append("t", 0, rows(b"b"))
    with open_log(flags["data"] / "log") as log:
        assert values_of(log, "t") == [b"a", b"b"]
        log.append("t", 0, rows(b"c"))
    with Service(load_configuration(None, flags)) as service, RemoteLog(str(service.kafka_address)) as log:
        assert values_of(log, "t") == [b"a", b"b", b"c"]


def test_the_only_node_of_a_cluster_keeps_groups_and_transactions_when_it_is_alone(flags: dict[str, Any]) -> None:
    """They are in eight partitions here, and in one where a node began alone."""
    groups = [f"g{number}" for number in range(12)]
    with Service(load_configuration(None, flags)) as service, RemoteLog(str(service.kafka_address)) as log:
        log.create_topic("t", 1)
        for number, group in enumerate(groups):
            log.commit_offsets(group, {Place("t", 0): number})
        epochs = [log.transactional_producer(group).epoch for group in groups]
    with open_log(flags["data"] / "log") as log:
        assert [log.committed_offsets(group) for group in groups] == [{Place("t", 0): n} for n in range(12)]
        assert [log.transactional_producer(group).epoch for group in groups] == [epoch + 1 for epoch in epochs]


def test_a_node_that_has_others_or_may_get_them_is_not_opened_alone(flags: dict[str, Any], port: int) -> None:
    with Service(load_configuration(None, flags)) as service:
        client = HttpClient(f"http://{service.http_address}")
        client.cluster("add-node", {"node": 2, "address": "127.0.0.1:1"})
    for _ in range(2):
        with pytest.raises(UnsupportedDataDirectory, match="belongs to a node of a cluster") as refused:
            open_log(flags["data"] / "log")
        assert refused.value.hint is not None and "remove-node" in refused.value.hint
    with Service(load_configuration(None, flags)) as service:
        HttpClient(f"http://{service.http_address}").cluster("remove-node", {"node": 2})
    with open_log(flags["data"] / "log") as log:
        log.create_topic("t", 1)


def test_the_first_node_of_a_list_is_not_opened_alone_before_it_has_heard_of_the_others(
    flags: dict[str, Any], port: int
) -> None:
    with Service(load_configuration(None, {**flags, "cluster": f"1@127.0.0.1:{port},2@127.0.0.1:1"})):
        pass
    with pytest.raises(UnsupportedDataDirectory, match="belongs to a node of a cluster"):
        open_log(flags["data"] / "log")


def test_a_node_is_reached_by_its_name_in_the_list_where_it_listens_everywhere(flags: dict[str, Any]) -> None:
    settings = cluster_settings(load_configuration(None, {**flags, "cluster": "1@one.example:9093"}))
    assert str(reached_at(ListenAddress("0.0.0.0", 9092), settings)) == "one.example:9092"
    assert str(reached_at(ListenAddress("10.0.0.7", 9092), settings)) == "10.0.0.7:9092"


# Two nodes


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[Service]]:
    """Two nodes of a cluster, in this process, of which one runs the engine."""
    nodes = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(free_ports(2), 1))
    at = {"cluster": nodes, "http": "127.0.0.1:0", "kafka": "127.0.0.1:0", "executor": "duckdb"}
    with contextlib.ExitStack() as running:
        started = [
            running.enter_context(Service(load_configuration(None, {**at, "data": tmp_path / str(n), "node": n})))
            for n in (1, 2)
        ]
        eventually(lambda: httpx.get(f"http://{started[0].http_address}/info").status_code == 200)
        yield started


def test_every_node_shows_foreign_clients_the_same_rows(pair: list[Service]) -> None:
    client = connect(f"http://{pair[1].http_address}")
    client.execute("CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='arrow', partitions=2);")
    for number in range(8):
        client.execute(f"INSERT INTO s VALUES ({number}, {number * 10});")
    consumer = Consumer({"bootstrap.servers": str(pair[0].kafka_address), "group.id": "g"})
    consumer.assign([TopicPartition("s", 0, 0), TopicPartition("s", 1, 0)])
    found: list[dict[str, Any]] = []
    while len(found) < 8:
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.error() is None
        found.append(json.loads(message.value() or b""))
    consumer.close()
    assert sorted(row["V"] for row in found) == [number * 10 for number in range(8)]
    assert all(set(row) == {"V"} for row in found), "the key is the record's key"
    assert all(leads_some_of(service, "s") for service in pair), "each node has shown some of them"


def leads_some_of(service: Service, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": str(service.kafka_address)})
    partitions = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    return service.configuration.node in {partition.leader for partition in partitions.values()}


def test_a_querys_group_is_nobody_elses_at_any_node(pair: list[Service]) -> None:
    client = connect(f"http://{pair[0].http_address}")
    client.execute("CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='json', partitions=1);")
    (created,) = client.execute("CREATE STREAM d AS SELECT * FROM s;")
    for service in pair:
        code = commit_code(service, created["commandStatus"]["queryId"])
        assert code == "GROUP_AUTHORIZATION_FAILED"


def commit_code(service: Service, group: str) -> str:
    consumer = Consumer({"bootstrap.servers": str(service.kafka_address), "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition("s", 0, 1)], asynchronous=False)
    except KafkaException as error:
        return error.args[0].name()
    finally:
        consumer.close()
    return "committed"


# A process


class Process:
    """A node as a process. `http` and `kafka` are its addresses, once it has said them."""

    def __init__(self, flags: dict[str, Any], before: Callable[[], None] | None = None) -> None:
        options = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        command = [sys.executable, "-m", "millstream", "server", *options]
        pipe = subprocess.PIPE
        self.process = WarmPopen(command, preexec_fn=before, stdout=pipe, stderr=pipe, text=True)
        assert self.process.stdout is not None
        self.http, self.kafka = [self.process.stdout.readline().split()[-1] for _ in range(2)]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def start(flags: dict[str, Any]) -> Iterator[Callable[..., Process]]:
    running: list[Process] = []

    def started(before: Callable[[], None] | None = None) -> Process:
        running.append(Process(flags, before))
        return running[-1]

    yield started
    for each in running:
        each.process.kill()
        each.process.communicate()


def test_a_node_as_a_process_serves_ends_cleanly_and_has_everything_again(start: Callable[..., Process]) -> None:
    first = start()
    eventually(lambda: httpx.get(f"{first.http}/healthcheck").json()["isHealthy"] is True)
    producer = Producer({"bootstrap.servers": first.kafka})
    producer.produce("notes", b"kept")
    assert producer.flush(PATIENCE_S) == 0
    assert first.end() == 0

    second = start()
    consumer = Consumer({"bootstrap.servers": second.kafka, "group.id": "g"})
    consumer.assign([TopicPartition("notes", 0, 0)])
    message = consumer.poll(PATIENCE_S)
    assert message is not None and message.value() == b"kept"
    consumer.close()


def test_a_node_whose_disk_fails_says_so_and_ends(start: Callable[..., Process]) -> None:
    def full_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, 16_000))

    node = start(full_disk)
    admin = AdminClient({"bootstrap.servers": node.kafka, "log_level": 0})
    for number in range(200):
        if node.process.poll() is not None:
            break
        with contextlib.suppress(KafkaException):
            admin.create_topics([NewTopic(f"t{number}", 20)], request_timeout=1)[f"t{number}"].result()
    assert node.process.wait(PATIENCE_S) == 1
    _, errors = node.process.communicate()
    assert "error: this node cannot continue: " in errors
