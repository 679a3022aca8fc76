"""Kafka's command-line tools: what they print of us, beside what they print of Apache Kafka."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pytest

from bench.apache_kafka import VERSION, ApacheKafka
from bench.maven import Unavailable

from ..clients import outside
from .serving import JAVA_OPTIONS, Product, classpath, compiled

confluent_kafka = pytest.importorskip("confluent_kafka")

_OURS, _THEIRS = 0, 1  # the numbers of the nodes
_TOOLS: Final = "org.apache.kafka.tools."


class Call(NamedTuple):
    """`same`: what they print is the same, but for names of nodes, ids, times and addresses; else only that the tool
    ends well on both, or badly on both."""

    tool: str
    arguments: str
    same: bool = True


_TOPICS, _GROUPS, _TRANSACTIONS = "TopicCommand", "consumer.group.ConsumerGroupCommand", "TransactionsCommand"
_CONFIGS: Final = "kafka.admin.ConfigCommand"
_REASSIGN: Final = "reassign.ReassignPartitionsCommand"

CALLS: Final = (
    Call(_TOPICS, "--create --topic orders --partitions 2 --config retention.ms=1000000"),
    Call(_TOPICS, "--create --topic orders --partitions 2", same=False),
    Call(_TOPICS, "--create --topic odd --config no.such.setting=1", same=False),
    Call(_TOPICS, "--list --exclude-internal", same=False),
    Call(_TOPICS, "--describe --topic orders", same=False),
    Call(_TOPICS, "--describe --topic missing"),
    Call(_TOPICS, "--alter --topic orders --partitions 3"),
    Call(_TOPICS, "--alter --topic orders --partitions 1", same=False),
    Call(_CONFIGS, "--describe --entity-type topics --entity-name orders", same=False),
    Call(_CONFIGS, "--alter --entity-type topics --entity-name orders --add-config cleanup.policy=compact"),
    Call(_CONFIGS, "--alter --entity-type topics --entity-name orders --delete-config cleanup.policy"),
    Call(_CONFIGS, "--alter --entity-type topics --entity-name orders --add-config no.such.setting=1", same=False),
    Call(_CONFIGS, "--describe --entity-type brokers --entity-name {node}", same=False),
    Call(_CONFIGS, "--alter --entity-type brokers --entity-name {node} --add-config"
         " leader.replication.throttled.rate=1000000"),
    Call(_CONFIGS, "--alter --entity-type brokers --entity-name {node} --delete-config"
         " leader.replication.throttled.rate"),
    Call(_CONFIGS, "--alter --entity-type groups --entity-name readers --add-config"
         " consumer.session.timeout.ms=50000"),
    Call(_CONFIGS, "--describe --entity-type groups --entity-name readers", same=False),
    Call(_CONFIGS, "--alter --entity-type clients --entity-name importer --add-config producer_byte_rate=1000000"),
    Call(_CONFIGS, "--describe --entity-type clients --entity-name importer"),
    Call(_CONFIGS, "--alter --entity-type users --entity-name ana --add-config SCRAM-SHA-256=[password=sesame]"),
    Call(_CONFIGS, "--describe --entity-type users --entity-name ana"),
    Call(_CONFIGS, "--alter --entity-type users --entity-name ana --delete-config SCRAM-SHA-256"),
    Call("GetOffsetShell", "--topic orders"),
    Call("GetOffsetShell", "--topic orders --time earliest"),
    Call(_GROUPS, "--list", same=False),
    Call(_GROUPS, "--describe --group nobody", same=False),
    Call(_GROUPS, "--reset-offsets --group later --topic orders --to-earliest --execute", same=False),
    Call(_GROUPS, "--describe --group later", same=False),
    Call(_GROUPS, "--delete --group later"),
    Call(_TRANSACTIONS, "list"),
    Call(_TRANSACTIONS, "list --duration-filter 1000"),
    Call(_TRANSACTIONS, "find-hanging --broker-id {node}"),
    Call(_TRANSACTIONS, "describe-producers --topic orders --partition 0"),
    Call("MetadataQuorumCommand", "describe --status", same=False),
    Call("MetadataQuorumCommand", "describe --replication", same=False),
    Call("LogDirsCommand", "--describe", same=False),
    Call("ClusterTool", "cluster-id", same=False),
    Call("LeaderElectionCommand", "--election-type preferred --topic orders --partition 0", same=False),
    Call(_TOPICS, "--delete --topic orders"),
)  # fmt: skip

REASSIGNMENTS: Final = (
    Call(_REASSIGN, "--list"),
    Call(_REASSIGN, "--verify --reassignment-json-file {plan}"),
    Call(_REASSIGN, "--execute --throttle 5000000 --reassignment-json-file {plan}", same=False),
    Call(_CONFIGS, "--describe --entity-type brokers --entity-name {node}", same=False),
    Call(_REASSIGN, "--list"),
    Call(_REASSIGN, "--cancel --reassignment-json-file {plan}"),
    Call(_REASSIGN, "--execute --reassignment-json-file {plan}", same=False),
    Call(_REASSIGN, "--verify --reassignment-json-file {plan}"),
    Call(_CONFIGS, "--describe --entity-type brokers --entity-name {node}", same=False),
)

ABORT: Final = Call(_TRANSACTIONS, "abort --topic hanging --partition 0 --start-offset 0")

_BEFORE_THE_COMMAND: Final = (_TRANSACTIONS, "MetadataQuorumCommand")


class Tools:
    """State: the process in which they run."""

    def __init__(self, program: str) -> None:
        command = ["java", *JAVA_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", program, "Tools"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, call: Call, address: str, node: int, plan: Path | None = None) -> tuple[int, list[str]]:
        """The exit code, and the lines it has printed, in order, without what is different each time."""
        where = ["--bootstrap-server", address]
        arguments = call.arguments.format(node=node, plan=plan).split(" ")
        ordered = [*where, *arguments] if call.tool in _BEFORE_THE_COMMAND else [*arguments, *where]
        tool = call.tool if call.tool.startswith("kafka.") else _TOOLS + call.tool
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\t".join([tool, *ordered]) + "\n")
        self._process.stdin.flush()
        _, code, text = self._process.stdout.readline().rstrip("\n").split(" ", 2)
        said = base64.b64decode(text).decode()
        assert "ClassNotFoundException" not in said, said
        return int(code), _comparable(said, node)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _comparable(text: str, node: int) -> list[str]:
    text = re.sub(rf"\b(brokers?|node) {node}\b", "node N", text)
    text = re.sub(r"^\s+at .*$", "", text, flags=re.MULTILINE)  # where in the tool
    return sorted(re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip())


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[Tools]:
    libraries = classpath(f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
    program = compiled(Path(__file__).parent / "java" / "Tools.java", libraries, tmp_path / "classes")
    running = Tools(program)
    yield running
    running.close()


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    try:
        running = ApacheKafka(tmp_path / "kafka")
    except Unavailable as reason:
        pytest.skip(f"Apache Kafka: {reason}")
    with running:
        yield running


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_tools_say_of_us_what_they_say_of_apache_kafka(tmp_path: Path, tools: Tools, kafka: ApacheKafka) -> None:
    with Product(tmp_path / "data") as product:
        for address in (product.address, kafka.address):
            outside.create_topic(address, "first")
            outside.append(address, "first", 0, b"a")
        found = list(_differences(CALLS, tools, product, kafka))
        assert "Traceback" not in product.said
    assert not found, "\n\n".join(found)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_tools_move_replicas_with_a_throttle_and_end_a_hanging_transaction(
    tmp_path: Path, tools: Tools, kafka: ApacheKafka
) -> None:
    plans: dict[int, Path] = {}
    for node in (_OURS, _THEIRS):
        plans[node] = tmp_path / f"plan-{node}.json"
        moved = {"topic": "first", "partition": 0, "replicas": [node]}
        plans[node].write_text(json.dumps({"version": 1, "partitions": [moved]}))
    with Product(tmp_path / "data") as product:
        hanging: list[Any] = []  # kept: where a producer goes, its transaction ends
        for address in (product.address, kafka.address):
            outside.create_topic(address, "first")
            outside.create_topic(address, "hanging")
            hanging.append(_open_transaction(address))
        found = list(_differences((*REASSIGNMENTS, ABORT), tools, product, kafka, plans))
        for address in (product.address, kafka.address):
            outside.append(address, "hanging", 0, b"after")
            assert outside.values(address, "hanging") == [b"after"]
        assert "Traceback" not in product.said
    assert not found, "\n\n".join(found)


def _open_transaction(address: str) -> Any:
    """Its producer. It has one record, at offset 0."""
    settings = {"bootstrap.servers": address, "transactional.id": "tx", "transaction.timeout.ms": 800_000}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("hanging", b"hanging", partition=0)
    assert producer.flush(60) == 0
    return producer


def _differences(
    calls: Sequence[Call],
    tools: Tools,
    product: Product,
    kafka: ApacheKafka,
    plans: Mapping[int, Path] = MappingProxyType({}),
) -> Iterator[str]:
    for call in calls:
        ours = tools.run(call, product.address, _OURS, plans.get(_OURS))
        theirs = tools.run(call, kafka.address, _THEIRS, plans.get(_THEIRS))
        if ours[0] != theirs[0] or (call.same and ours[1] != theirs[1]):
            yield _told(call, ours, theirs)


def _told(call: Call, ours: tuple[int, Sequence[str]], theirs: tuple[int, Sequence[str]]) -> str:
    lines = [f"{call.tool} {call.arguments}", f"  ours:   {ours[0]}", *(f"    {line}" for line in ours[1])]
    return "\n".join([*lines, f"  theirs: {theirs[0]}", *(f"    {line}" for line in theirs[1])])
