"""The state of the replicas that a broker leads: for operators, for metrics, and to choose a near replica to read."""

from __future__ import annotations

from collections.abc import Mapping

from ..controller.operations_messages import FollowerLag, LedPartition, ReplicasDescribed
from ..machine import NodeId
from .replica import Replica
from .replica_leader import Leader
from .replica_messages import PartitionId


def described(replicas: Mapping[PartitionId, Replica], unopened: Mapping[PartitionId, str]) -> ReplicasDescribed:
    led = (_led(replica, replica.leader) for replica in replicas.values() if replica.leader is not None)
    return ReplicasDescribed(tuple(led), tuple(unopened.items()))


def _led(replica: Replica, leader: Leader) -> LedPartition:
    core = replica.core
    view = core.view
    assert view is not None
    return LedPartition(
        core.partition,
        core.leader_epoch,
        core.log.log_start_offset,
        core.high_watermark,
        core.log.end_offset,
        core.log.size_bytes,
        tuple(_follower(leader, node, core.now_ms) for node in view.replicas if node != core.node),
    )


def _follower(leader: Leader, node: NodeId, now_ms: int) -> FollowerLag:
    behind_ms = max(0, now_ms - leader.caught_up_ms(node))
    offset = leader.in_sync.acknowledged(node)
    return FollowerLag(node, offset, 0 if offset >= leader.end_offset else behind_ms)
