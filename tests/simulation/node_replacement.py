"""What an operator does about a node whose disk was lost: it is taken out of everything, and let in again as a new one.

its partitions move away -> it leaves the voters -> it is removed -> it registers anew -> it votes -> they move back
"""

from __future__ import annotations

from typing import Any

from millstream.logcore.replication.controller.controller import Controller
from millstream.logcore.replication.controller.controller_messages import ChangeVoters, Reassign, RemoveBroker
from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.replica.replica_messages import PartitionId


class NodeReplacement:
    """Asks for one step after the other, by what the metadata say: each may have to be asked for again."""

    def __init__(self, node: NodeId, lost_disk: str, replicas: int) -> None:
        """`lost_disk`: its name. `replicas`: how many a partition has when all is done."""
        self._node = node
        self._lost_disk = lost_disk
        self._replicas = replicas
        self.done = False

    def next_request(self, active: Controller) -> Any:
        """None: there is something to be waited for."""
        broker = active.image.brokers.get(self._node)
        if broker is not None and broker.disk == self._lost_disk:
            return self._take_out(active)
        return self._let_in(active) if active.image.is_live(self._node) else None

    def _take_out(self, active: Controller) -> Any:
        node, voters = self._node, active.quorum.log.voters
        if active.image.is_live(node):
            return None
        for state in active.image.partitions():
            left = tuple(other for other in state.replicas if other != node and other not in state.removing)
            if node in state.replicas and node not in state.removing:
                return Reassign(_id_of(state), left)
        if node in voters.voters:
            return ChangeVoters(voters._replace(voters=tuple(other for other in voters.voters if other != node)))
        return RemoveBroker(node)

    def _let_in(self, active: Controller) -> Any:
        node, voters = self._node, active.quorum.log.voters
        if node not in voters.voters:
            learners = tuple(other for other in voters.learners if other != node)
            return ChangeVoters(voters._replace(voters=(*voters.voters, node), learners=learners))
        for state in active.image.partitions():
            if len(state.replicas) < self._replicas and node not in state.replicas:
                return Reassign(_id_of(state), (*state.replicas, node))
        self.done = all(node in state.isr for state in active.image.partitions() if node in state.replicas)
        return None


def _id_of(state: PartitionState) -> PartitionId:
    return PartitionId(state.topic_id, state.partition)
