"""Kafka's command-line tools: what they print of us, beside what they print of Apache Kafka."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from bench.apache_kafka import VERSION, ApacheKafka
from bench.maven import Unavailable

from ..clients import outside
from .serving import JAVA_OPTIONS, Product, classpath, compiled

_TOOLS: Final = "org.apache.kafka.tools."


class Call(NamedTuple):
    """`same`: what they print is the same, but for names of nodes, ids, times and addresses; else only that the tool
    ends well on both, or badly on both."""

    tool: str
    arguments: str
    same: bool = True


_TOPICS, _GROUPS, _TRANSACTIONS = "TopicCommand", "consumer.group.ConsumerGroupCommand", "TransactionsCommand"
_CONFIGS: Final = "kafka.admin.ConfigCommand"

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

_BOOTSTRAP: Final = {"ClusterTool": "--bootstrap-server", "LeaderElectionCommand": "--bootstrap-server"}
_BEFORE_THE_COMMAND: Final = (_TRANSACTIONS, "MetadataQuorumCommand")


class Tools:
    """State: the process in which they run."""

    def __init__(self, program: str) -> None:
        command = ["java", *JAVA_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", program, "Tools"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, call: Call, address: str, node: int) -> tuple[int, list[str]]:
        """The exit code, and the lines it has printed, in order, without what is different each time."""
        where = ["--bootstrap-server", address]
        arguments = call.arguments.format(node=node).split(" ")
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
    text = re.sub(rf"\b(broker|node) {node}\b", "node N", text)
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
    differences: list[str] = []
    with Product(tmp_path / "data") as product:
        for address in (product.address, kafka.address):
            outside.create_topic(address, "first")
            outside.append(address, "first", 0, b"a")
        for call in CALLS:
            ours, theirs = tools.run(call, product.address, 0), tools.run(call, kafka.address, 1)
            if ours[0] != theirs[0] or (call.same and ours[1] != theirs[1]):
                differences.append(_told(call, ours, theirs))
        assert "Traceback" not in product.said
    assert not differences, "\n\n".join(differences)


def _told(call: Call, ours: tuple[int, Sequence[str]], theirs: tuple[int, Sequence[str]]) -> str:
    lines = [f"{call.tool} {call.arguments}", f"  ours:   {ours[0]}", *(f"    {line}" for line in ours[1])]
    return "\n".join([*lines, f"  theirs: {theirs[0]}", *(f"    {line}" for line in theirs[1])])
