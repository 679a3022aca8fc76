"""A node that is out of touch with the controller does not answer reads as a leader: its clients ask elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import eventually

from millstream.logcore.client import TopicPartition
from millstream.logcore.cluster.cluster_layout import ClusterLayout
from millstream.logcore.cluster.cluster_log import ClusterLog
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.errors import NotNow
from millstream.logcore.protocol.layout import ANY_EPOCH
from millstream.logcore.remote import RemoteLog
from millstream.logcore.replication.broker.leader_lease import LeaderLease

from ..log_records import rows
from .nodes import PATIENCE_S, Cluster

WHERE = TopicPartition("orders", 0)


def test_a_leader_out_of_touch_refuses_what_may_be_old(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(PATIENCE_S)
    node = cluster.running[cluster.leader_of("orders")].node
    layout = ClusterLayout(ClusterLog(node))
    reads: tuple[Callable[[], Any], ...] = (
        lambda: layout.offsets(WHERE),
        lambda: layout.epoch_end(WHERE, 0),
        lambda: layout.check_reads(WHERE, ANY_EPOCH, 0, ""),
    )
    assert eventually(lambda: node.leads_for_certain)
    for read in reads:
        read()
    monkeypatch.setattr(LeaderLease, "holds", lambda self, now_ms: False)
    for read in reads:
        with pytest.raises(NotNow, match="out of touch with the controller") as refused:
            read()
        assert refused.value.problem == ErrorCode.not_leader_or_follower
    layout.check_leads(WHERE)  # writes are safe: all in sync have what is acknowledged


def test_what_was_read_while_the_lease_ended_is_not_sent(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the process is stopped in between."""
    check, checks = ClusterLayout.check_reads, 0

    def ends_meanwhile(layout: ClusterLayout, *asked: Any) -> int:
        nonlocal checks
        checks += 1
        if checks == 2:
            raise NotNow(ErrorCode.not_leader_or_follower, "another node may lead by now")
        return check(layout, *asked)

    with RemoteLog(f"{cluster.running[1].kafka.log.secret}@{cluster.bootstrap}", patience_s=PATIENCE_S) as log:
        log.create_topic("orders", 1)
        log.append("orders", 0, rows(b"a"))
        monkeypatch.setattr(ClusterLayout, "check_reads", ends_meanwhile)
        log.fetch("orders", 0, 0)
    assert checks > 2, "it was read once, and sent all the same"
