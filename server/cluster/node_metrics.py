"""Metrics of a node of a cluster for GET /metrics: partitions that it leads, lagging followers, the controller, counts.

Each node reports the partitions that it leads and, while it is the controller, the cluster. So in a sum over all nodes,
everything counts once. Only `millstream_topic_…`, from the metrics of the log, is per replica.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millstream.errors import LogError

from ...logcore.cluster.watch import MetadataWatch
from ...logcore.replication.controller.metadata_image import MetadataImage
from ...logcore.replication.controller.operations_messages import (
    DescribeQuorum,
    DescribeQuorumHere,
    DescribeReplicas,
    QuorumDescription,
    QuorumHere,
    ReplicasDescribed,
)
from ...logcore.replication.controller.partition_rules import lacks_replicas
from ...logcore.replication.machine import BROKER, CONTROLLER, NodeId
from ...logcore.replication.node.node_links import LinkTraffic
from ...logcore.replication.replica.throttle import throttled_rate

T = TypeVar("T")

Question = DescribeQuorum | DescribeQuorumHere | DescribeReplicas

_ANSWER_S: Final = 2.0

_NOTICED: Final = {
    "elections": "Elections that made this node leader of a partition.",
    "unclean_elections": "… that were unclean: records may be lost, because no complete replica was up.",
    "isr_shrinks": "Replicas that left the in-sync set of a partition that this node leads.",
    "isr_expands": "Replicas that joined it.",
    "brokers_fenced": "Fenced nodes of the cluster: down, cut off or shutting down. Each node counts all.",
}


class Replicas(Protocol):
    """The logs of the replicas on this node."""

    @property
    def without_room(self) -> int: ...


class MeasuredNode(Protocol):
    """The node of a cluster that runs in this process."""

    @property
    def id(self) -> NodeId: ...

    @property
    def watch(self) -> MetadataWatch: ...

    @property
    def logs(self) -> Replicas: ...

    @property
    def traffic(self) -> Mapping[NodeId, LinkTraffic]: ...

    def ask(self, machine: str, body: Question, /) -> Future[Any]: ...


class ClusterMetrics(Collector):
    """Asks the node's state machines at each scrape; answers that do not arrive in time are left out.

    In: `of_log`: the metrics of its log, which are collected, too.
    """

    def __init__(self, node: MeasuredNode, of_log: Collector | None = None) -> None:
        self._node = node
        self._of_log = of_log

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        image = self._node.watch.image
        decides = self._asked(CONTROLLER, DescribeQuorum(), QuorumDescription)
        yield from self._partitions(image, decides is not None)
        yield from self._followers(self._asked(BROKER, DescribeReplicas(), ReplicasDescribed))
        yield from self._quorum(self._asked(CONTROLLER, DescribeQuorumHere(), QuorumHere), decides)
        yield from self._noticed()
        yield from self._links()
        if self._of_log is not None:
            yield from self._of_log.collect()

    def _asked(self, machine: str, body: Question, wanted: type[T]) -> T | None:
        """None if the node is not up, hangs, or gives a different answer because another node is the controller."""
        try:
            answer = self._node.ask(machine, body).result(_ANSWER_S)
        except (LogError, RuntimeError, TimeoutError):
            return None
        return answer if isinstance(answer, wanted) else None

    def _partitions(self, image: MetadataImage, decides: bool) -> Iterator[Metric]:
        states = list(image.partitions())
        led = [state for state in states if state.leader == self._node.id]
        figures = {
            "leaders": ("Partitions that this node leads.", len(led)),
            "replicas": ("Replicas on this node.", sum(self._node.id in state.replicas for state in states)),
            "replicas_without_room": (
                "… that accept no records, because the disk of this node is full.", self._node.logs.without_room,
            ),
            "under_replicated_partitions": (
                "Partitions that this node leads, and of which not all replicas are in sync.",
                sum(map(lacks_replicas, led)),
            ),
            "under_min_isr_partitions": (
                "… that this node leads, and that refuse acks=all.",
                sum(len(state.isr) < state.min_isr for state in led),
            ),
            "reassigning_partitions": (
                "… that this node leads, and that are being reassigned.",
                sum(bool(state.adding or state.removing) for state in led),
            ),
            "offline_partitions": (
                "Partitions without a leader; reported by the controller, 0 elsewhere.",
                sum(state.leader is None for state in states) if decides else 0,
            ),
            "throttled_bytes_per_second": (
                "Bandwidth limit of replicas that catch up; 0: none.", throttled_rate(image) or 0,
            ),
        }  # fmt: skip
        for name, (doc, value) in figures.items():
            yield GaugeMetricFamily(f"millstream_replication_{name}", doc, value=value)

    def _followers(self, described: ReplicasDescribed | None) -> Iterator[Metric]:
        """The lag of each follower over all partitions that this node leads: missing records, and the longest time."""
        missing: Counter[NodeId] = Counter()
        behind_ms: defaultdict[NodeId, int] = defaultdict(int)
        for led in described.led if described is not None else ():
            for follower in led.followers:
                missing[follower.node] += max(0, led.end_offset - max(follower.offset, led.log_start_offset))
                behind_ms[follower.node] = max(behind_ms[follower.node], follower.behind_ms)
        records = GaugeMetricFamily(
            "millstream_replication_follower_lag_records", "Records that a follower lacks.", labels=["follower"]
        )
        seconds = GaugeMetricFamily(
            "millstream_replication_follower_lag_seconds", "How long a follower has been lagging.", labels=["follower"]
        )
        for node in sorted(behind_ms):
            records.add_metric([str(node)], missing[node])
            seconds.add_metric([str(node)], behind_ms[node] / 1000)
        yield from (records, seconds)

    def _quorum(self, here: QuorumHere | None, decides: QuorumDescription | None) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "millstream_controller_active", "1 while this node is the controller.", value=int(bool(decides))
        )
        if here is not None:
            yield GaugeMetricFamily(
                "millstream_quorum_term", "The term; each election of a controller raises it.", value=here.term
            )
            yield GaugeMetricFamily(
                "millstream_quorum_commit_index", "The committed index of the metadata log.", value=here.commit
            )
            yield GaugeMetricFamily("millstream_quorum_leader", "The controller; 0: unknown.", value=here.leader or 0)
        lags = GaugeMetricFamily(
            "millstream_quorum_lag_records",
            "Metadata records that a node lacks; reported by the controller.",
            labels=["node"],
        )
        for member in decides.members if decides else ():
            lags.add_metric([str(member.node)], decides.last_index - member.index if decides else 0)
        yield lags

    def _noticed(self) -> Iterator[Metric]:
        for name, doc in _NOTICED.items():
            yield CounterMetricFamily(
                f"millstream_replication_{name}", doc, value=getattr(self._node.watch.noticed, name)
            )

    def _links(self) -> Iterator[Metric]:
        sent = CounterMetricFamily("millstream_node_sent_bytes", "Bytes sent to another node.", labels=["peer"])
        received = CounterMetricFamily(
            "millstream_node_received_bytes", "Bytes received from another node.", labels=["peer"]
        )
        connected = GaugeMetricFamily("millstream_node_connected", "1 while it is connected.", labels=["peer"])
        for peer, traffic in sorted(self._node.traffic.items()):
            sent.add_metric([str(peer)], traffic.sent_bytes)
            received.add_metric([str(peer)], traffic.received_bytes)
            connected.add_metric([str(peer)], int(traffic.connected))
        yield from (sent, received, connected)
