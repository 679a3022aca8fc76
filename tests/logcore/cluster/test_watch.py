"""What a node notices: counted where it belongs, logged so that somebody looks, and nothing of earlier lives."""

from __future__ import annotations

from structlog.testing import capture_logs

from millstream.logcore.cluster.operations import Operations
from millstream.logcore.cluster.watch import Noticed
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.replica.replica_messages import PartitionId
from tests.logcore.cluster.hand_cluster import HandCluster


def leader(cluster: HandCluster) -> NodeId | None:
    state = cluster.image.partition(PartitionId(cluster.image.topic_ids["clicks"], 0))
    assert state is not None
    return state.leader


def noticed(cluster: HandCluster) -> list[Noticed]:
    return [node.watch.noticed for node in cluster.nodes.values()]


def test_an_election_and_a_change_of_the_isr_count_at_the_node_that_leads_and_a_fenced_one_is_logged_by_all() -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks")
    gone = leader(cluster)
    assert gone is not None
    with capture_logs() as logs:
        cluster.stop(gone)
        cluster.until(lambda: leader(cluster) not in (None, gone))
        cluster.pass_time(500)
    assert sum(each.elections for each in noticed(cluster)) == 1
    assert sum(each.isr_shrinks for each in noticed(cluster)) == 1
    assert [each.brokers_fenced for each in noticed(cluster)] == [1, 1]
    assert [(log["log_level"], log["node"]) for log in logs if "was fenced" in log["event"]] == [("warning", gone)] * 2
    cluster.start(gone)
    cluster.until(lambda: sum(each.isr_expands for each in noticed(cluster)) == 1)


def test_an_unclean_election_is_an_error_in_the_log_of_every_node_and_of_none_that_starts_later() -> None:
    cluster = HandCluster(5)
    cluster.create_topic("clicks", 1, 2)
    first = leader(cluster)
    assert first is not None
    state = cluster.image.partition(PartitionId(cluster.image.topic_ids["clicks"], 0))
    assert state is not None
    other = next(node for node in state.replicas if node != first)
    cluster.stop(other)
    cluster.until(lambda: not cluster.image.is_live(other))
    cluster.produce("clicks")
    cluster.stop(first)
    cluster.start(other)
    cluster.until(lambda: cluster.image.is_live(other) and leader(cluster) is None)
    with capture_logs() as logs:
        Operations(cluster.port(min(cluster.nodes)), "test").elect("clicks", 0, unclean=True)
        cluster.pass_time(500)
    told = [log for log in logs if "unclean" in log["event"]]
    assert [(log["log_level"], log["topic"], log["partition"], log["leader"]) for log in told] == [
        ("error", "clicks", 0, other)
    ] * len(cluster.nodes)
    with capture_logs() as logs:
        cluster.start(first)
        cluster.until(lambda: cluster.image.is_live(first))
    assert [log for log in logs if "unclean" in log["event"]] == []


def test_a_node_that_no_controller_answers_says_so_once_and_says_when_one_answers_again() -> None:
    cluster = HandCluster()
    first, second, third = cluster.nodes
    with capture_logs() as logs:
        cluster.stop(first)
        cluster.until(lambda: not cluster.image.is_live(first))
        cluster.pass_time(30_000)
    assert not [log for log in logs if "controller" in log["event"]], "the others elected one in time"
    with capture_logs() as logs:
        cluster.stop(second)
        cluster.pass_time(60_000)
    told = [log for log in logs if "controller" in log["event"]]
    assert [log["log_level"] for log in told] == ["warning"]
    assert "until a majority of the voters is up" in told[0]["event"]
    watch = cluster.nodes[third].watch
    assert watch.cut_off
    with capture_logs() as logs:
        cluster.start(second)
        cluster.pass_time(30_000)
    told = [log for log in logs if "controller" in log["event"]]
    assert [(log["log_level"], log["event"]) for log in told] == [("info", "a controller answers this node again")]
    assert not watch.cut_off


def test_a_node_that_no_cluster_takes_after_its_start_says_so_once_and_says_when_one_does() -> None:
    cluster = HandCluster()
    nodes = list(cluster.nodes)
    for node in nodes:
        cluster.stop(node)
    with capture_logs() as logs:
        cluster.start(nodes[0])
        cluster.pass_time(60_000)
    told = [log for log in logs if "taken this node" in log["event"]]
    assert [log["log_level"] for log in told] == ["warning"]
    with capture_logs() as logs:
        cluster.start(nodes[1])
        cluster.pass_time(30_000)
    told = [log for log in logs if "taken this node" in log["event"]]
    assert [(log["log_level"], log["event"]) for log in told] == [("info", "the cluster has taken this node")]
