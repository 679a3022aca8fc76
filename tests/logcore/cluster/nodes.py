"""A cluster in this process: nodes on real files and sockets, that can be started, stopped and killed."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TypeVar

from waiting import eventually

from bench.apache_kafka import free_ports
from millstream.logcore.cluster.cluster_node import ClusterNode
from millstream.logcore.cluster.serving import served
from millstream.logcore.cluster.settings import ClusterSettings
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.node.node_links import PeerAddress
from millstream.logcore.server import LogServer

PATIENCE_S = 30.0

_Found = TypeVar("_Found")


class ServedNode:
    """A node and its Kafka listener."""

    def __init__(self, settings: ClusterSettings, kafka_port: int = 0) -> None:
        self.node = ClusterNode(settings)
        self.parts = served(self.node)
        self.kafka = LogServer(self.parts.serving, port=kafka_port, creates_topics=True)
        self.kafka.start()
        self.node.start((("kafka", self.kafka.address),))

    def kill(self) -> None:
        """Nobody is told."""
        self.node.stop()
        self.kafka.stop()

    def stop(self) -> None:
        self.node.leave()
        self.kafka.stop()
        self.node.stop()


class Cluster:
    """State: which of the nodes run. Ports stay the same over restarts."""

    def __init__(self, folder: Path, count: int = 3, *, session_ms: int = 1500, secret: bytes = b"secret") -> None:
        members = {NodeId(number): PeerAddress("127.0.0.1", port) for number, port in enumerate(free_ports(count), 1)}
        self.settings = {
            node: ClusterSettings(folder / f"node{node}", node, members, secret=secret, session_ms=session_ms)
            for node in members
        }
        self.running: dict[int, ServedNode] = {}
        self._kafka_ports: dict[int, int] = dict.fromkeys(members, 0)

    @property
    def bootstrap(self) -> str:
        return ",".join(served.kafka.address for served in self.running.values())

    def start(self, *numbers: int) -> None:
        """Returns when the nodes serve."""
        for number in numbers:
            served = self.running[number] = ServedNode(self.settings[NodeId(number)], self._kafka_ports[number])
            self._kafka_ports[number] = served.kafka.port
        for number in numbers:
            assert self.running[number].node.wait_until_live(PATIENCE_S), f"node {number} does not come up"

    def kill(self, number: int) -> None:
        self.running.pop(number).kill()

    def stop(self, number: int) -> None:
        self.running.pop(number).stop()

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node that leads the partition, once one of those that run does."""
        return eventually(
            lambda: next((n for n, each in self.running.items() if each.node.leads(topic, partition)), None)
        )

    def __enter__(self) -> Cluster:
        self.start(*self.settings)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.running.values():
            node.kill()
