"""Kafka's command-line tools as they are released, and what of their words can be compared."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bench.apache_kafka import VERSION

from .serving import JAVA_OPTIONS, classpath, compiled
from .tool_calls import BEFORE_THE_COMMAND, Call

_TOOLS: Final = "org.apache.kafka.tools."
_ENDS_WITHIN_S: Final = 300.0
_QUIETLY: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"


class Asked(NamedTuple):
    """A broker, and what calls of it name: its files have the number of its node in them."""

    address: str
    node: int
    files: Mapping[str, Path]


class Said(NamedTuple):
    """The exit code, and the lines that were printed, in order, without what is different each time."""

    code: int
    lines: list[str]

    @property
    def end(self) -> tuple[int, set[str]]:
        """The exit code, and the errors that were named."""
        return self.code, set(_ERROR.findall("\n".join(self.lines)))


class KafkaTools:
    """State: the process in which they run."""

    def __init__(self, folder: Path) -> None:
        """Skips the test where they are missing."""
        libraries = classpath(f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
        program = compiled(Path(__file__).parent / "java" / "Tools.java", libraries, folder)
        self._java = ["java", *JAVA_OPTIONS, _QUIETLY, "-cp", program]
        self._process = subprocess.Popen(
            [*self._java, "Tools"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, call: Call, asked: Asked) -> Said:
        tool = call.tool if call.tool.startswith("kafka.") else _TOOLS + call.tool
        run = self._run_alone if call.tool in _ALONE else self._run
        code, said = run(tool, call.typed, _arguments(call, asked))
        assert "ClassNotFoundException" not in said, said
        return Said(code, _comparable(call, said, asked.node))

    def _run(self, tool: str, typed: str, arguments: list[str]) -> tuple[int, str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        encoded = base64.b64encode(typed.encode()).decode()
        self._process.stdin.write("\t".join([tool, encoded, *arguments]) + "\n")
        self._process.stdin.flush()
        _, code, text = self._process.stdout.readline().rstrip("\n").split(" ", 2)
        return int(code), base64.b64decode(text).decode()

    def _run_alone(self, tool: str, typed: str, arguments: list[str]) -> tuple[int, str]:
        command = [*self._java, tool, *arguments]
        done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=_ENDS_WITHIN_S, check=False)
        return done.returncode, done.stdout + done.stderr

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _arguments(call: Call, asked: Asked) -> list[str]:
    arguments = call.arguments.format(address=asked.address, node=asked.node, **asked.files).split()
    where = [] if "{address}" in call.arguments else ["--bootstrap-server", asked.address]
    return [*where, *arguments] if call.tool in BEFORE_THE_COMMAND else [*arguments, *where]


_DIFFERENT_EACH_TIME: Final = (
    (r"^\s+at .*$|^\s*Caused by: .*$", ""),  # where in the tool
    (r"^127\.0\.0\.1:\d+ \(id: \d+", "NODE (id: N"),
    (r"127\.0\.0\.1[: ]\d+", "ADDRESS"),
    (r"TopicId: \S{22}", "TopicId: ID"),
    (r"Cluster ID: \S+", "Cluster ID: ID"),
    (r"test-group-\d+", "test-group-N"),
    (r'"timestamp":\d+,|,"avg_throughput":[\d.]+', ""),
    (r'"size":\d+', '"size":N'),  # in as many batches as the producer made
    (r'("logDir"|"log_dirs"):\s*\[?"/[^"]*"\]?', r"\1:FOLDER"),
)
_ERROR: Final = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)")
_SAY_THE_NODE_FIRST: Final = ("TransactionsCommand", "MetadataQuorumCommand", "ClusterTool")
_ALONE: Final = ("VerifiableProducer",)
"""What these still have to do is done when Java ends."""
_MEASURED: Final = ("ProducerPerformance", "ConsumerPerformance", "EndToEndLatency")


def _comparable(call: Call, text: str, node: int) -> list[str]:
    for pattern, same in (*_DIFFERENT_EACH_TIME, *_where_it_says_the_node(call, node)):
        text = re.sub(pattern, same, text, flags=re.MULTILINE)
    if call.tool in _MEASURED:
        text = re.sub(r"\d[\d.:-]*( \d\d:[\d:]+)?", "N", text)
    return sorted(re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip())


def _where_it_says_the_node(call: Call, node: int) -> list[tuple[str, str]]:
    """Nodes have other numbers, and nothing else may be different where numbers are."""
    words = r"brokers?|node|broker-logger|Leader:|Replicas:|Isr:|brokers:|--entity-name"
    first = [(rf"^{node}(?=\s)", "N")] if call.tool in _SAY_THE_NODE_FIRST else []
    return [
        *first,
        (rf"\b({words}) {node}\b", r"\1 N"),
        (rf'"(broker|id)":\s*{node}\b', r'"\1":N'),
        (rf'"replicas":\s*\[{node}\]', '"replicas":[N]'),
        (rf"(ADDRESS|CoordinatorId|coordinator) +\({node}\)", r"\1 (N)"),
        (rf"^(tx|measuring)(\s+){node}(?=\s)", r"\1\2N"),
    ]
