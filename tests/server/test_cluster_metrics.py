"""/metrics of the nodes of a cluster: added up over all nodes, everything counts once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from prometheus_client import CollectorRegistry
from repository import REPOSITORY

from millstream.logcore.cluster.operations import Operations
from millstream.logcore.cluster.watch import MetadataWatch
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.node.node_links import LinkTraffic
from millstream.logcore.replication.replica.replica_messages import PartitionId
from millstream.server.cluster.node_metrics import ClusterMetrics
from tests.logcore.cluster.hand_cluster import HandCluster


class NoLogs:
    without_room = 0


class HandMeasured:
    """`MeasuredNode`: one of a cluster in this thread."""

    def __init__(self, cluster: HandCluster, node: NodeId) -> None:
        self._cluster = cluster
        self.id = node
        self.logs = NoLogs()

    @property
    def watch(self) -> MetadataWatch:
        return self._cluster.nodes[self.id].watch

    @property
    def traffic(self) -> Mapping[NodeId, LinkTraffic]:
        return {NodeId(9): LinkTraffic(10, 20, True)}

    def ask(self, machine: str, body: Any) -> Future[Any]:
        return self._cluster.ask(self.id, machine, body)


def figures(cluster: HandCluster) -> Mapping[NodeId, CollectorRegistry]:
    found: dict[NodeId, CollectorRegistry] = {}
    for node in cluster.nodes:
        found[node] = CollectorRegistry()
        found[node].register(ClusterMetrics(HandMeasured(cluster, node)))
    return found


def total(cluster: HandCluster, name: str, **labels: str) -> float:
    return sum(registry.get_sample_value(f"millstream_{name}", labels) or 0 for registry in figures(cluster).values())


def test_a_cluster_that_is_well() -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks", 4)
    cluster.pass_time(1_000)
    assert total(cluster, "controller_active") == 1
    assert total(cluster, "replication_leaders") == 4
    assert total(cluster, "replication_replicas") == 12
    for trouble in ("under_replicated", "under_min_isr", "offline", "reassigning"):
        assert total(cluster, f"replication_{trouble}_partitions") == 0
    assert {total(cluster, "quorum_lag_records", node=str(node)) for node in cluster.nodes} == {0}
    assert total(cluster, "node_connected", peer="9") == 3
    assert total(cluster, "node_sent_bytes_total", peer="9") == 30


def test_a_node_that_died_is_seen_in_the_figures_of_the_others() -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks", 3, configs={"min.insync.replicas": "2"})
    gone = next(node for node in cluster.nodes if not cluster.nodes[node].controller.active)
    cluster.stop(gone)
    cluster.until(lambda: not cluster.image.is_live(gone))
    cluster.produce("clicks", count=5)
    cluster.pass_time(1_000)
    assert total(cluster, "replication_under_replicated_partitions") == 3
    assert total(cluster, "replication_under_min_isr_partitions") == 0
    assert total(cluster, "replication_follower_lag_records", follower=str(gone)) >= 5
    assert total(cluster, "replication_follower_lag_seconds", follower=str(gone)) >= 1
    assert total(cluster, "replication_isr_shrinks_total") == 3
    assert total(cluster, "replication_brokers_fenced_total") == 2


def test_what_nobody_leads_is_told_by_the_controller_alone() -> None:
    cluster = HandCluster(5)
    cluster.create_topic("clicks", 1, 1)
    state = cluster.image.partition(PartitionId(cluster.image.topic_ids["clicks"], 0))
    assert state is not None
    assert state.leader is not None
    cluster.stop(state.leader)
    cluster.until(lambda: total(cluster, "replication_offline_partitions") == 1)


def test_a_throttle_is_told_by_every_node() -> None:
    cluster = HandCluster()
    Operations(cluster.port(), "test").throttle(5_000)
    cluster.pass_time(200)
    assert total(cluster, "replication_throttled_bytes_per_second") == 15_000


def test_replicas_that_a_full_disk_refuses_are_counted() -> None:
    measured = HandMeasured(HandCluster(), NodeId(1))
    measured.logs.without_room = 2
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(measured))
    assert registry.get_sample_value("millstream_replication_replicas_without_room") == 2


def test_the_table_in_the_documentation_names_all_of_them() -> None:
    page = (REPOSITORY / "docs/cluster.md").read_text(encoding="utf-8").partition("## Figures")[2]
    first_cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    told = {name for cell in first_cells for name in re.findall(r"`(\w+_\w+)`", cell)}
    cluster = HandCluster()
    metrics = ClusterMetrics(HandMeasured(cluster, NodeId(1))).collect()
    families = [(family.name, family.type) for family in metrics]
    suffixes = {"counter": "_total", "gauge": ""}
    assert told == {name.removeprefix("millstream_") + suffixes[kind] for name, kind in families}
