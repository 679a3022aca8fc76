"""Operators' actions on a cluster, from any of its nodes: show its status, move replicas, elect leaders, add and remove

nodes. All of them block until the controller has decided, at most some seconds, so they are for threads that may wait.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from millstream.errors import LogError

from ..errors import NotNow
from ..replication.cluster_version import VERSIONS
from ..replication.controller.controller_messages import (
    AddNode,
    ChangeConfig,
    ChangeVoters,
    Done,
    ElectLeader,
    RaiseVersion,
    Reassign,
    Refused,
    RemoveBroker,
    SetThrottle,
    Trouble,
)
from ..replication.controller.controller_requests import MIN_ISR, DecidedRequest, LeaderAnswer, LeaderRequest
from ..replication.controller.metadata_image import MetadataImage
from ..replication.controller.operations_messages import (
    DescribeQuorum,
    DescribeQuorumHere,
    DescribeReplicas,
    QuorumDescription,
    QuorumHere,
    ReplicasDescribed,
)
from ..replication.machine import BROKER, CONTROLLER, NodeId
from ..replication.machine_messages import Answer, Request
from ..replication.node.node_runtime import NoAnswer, NodeStopped
from ..replication.raft.quorum_messages import VotersChanged
from ..replication.replica.replica_messages import PartitionId
from .moves import CannotPlan, Move, balanced, emptied, replicated
from .status import ClusterStatus, nodes_of, status_of

_SAFE_FACTOR: Final = 3
_DECIDES_S: Final = 10.0  # for the answer of the controller, which may change meanwhile
_ANSWERS_S: Final = 2.0  # for one node
_PAUSE_S: Final = 0.1
_CHANGES_S: Final = 20.0  # for a change of members, since another one may be in progress
_NO_ROOM_HINT: Final = (
    "Start another node, or give the topics fewer replicas: millstream cluster replication --factor NUMBER"
)
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


class OperationRefused(LogError):
    """An operator's request cannot be carried out in the current state."""

    code = "OPERATION_REFUSED"


class NoController(LogError):
    """There is no controller, or it cannot be reached from here: most voters are down or disconnected."""

    code = "NO_CONTROLLER"


class ClusterPort(Protocol):
    """The node of a cluster that runs in this process."""

    @property
    def id(self) -> NodeId: ...

    @property
    def image(self) -> MetadataImage:
        """All that this node knows to be committed."""
        ...

    def ask(self, machine: str, body: Request, *, at: NodeId | None = None) -> Future[Answer]:
        """The answer, or an error if the node does not answer in time. In: `at`: another node."""
        ...

    def ask_controller(self, body: LeaderRequest, timeout_s: float) -> LeaderAnswer:
        """Raises `NotNow` if the controller has not answered by then."""
        ...


class Operations:
    """Has no state of its own: everything is in the cluster."""

    def __init__(self, port: ClusterPort, cluster: str) -> None:
        """In: `cluster`: its name."""
        self._port = port
        self._cluster = cluster

    # Looking

    def status(self) -> ClusterStatus:
        """The status of the cluster; without a controller the last one that this node knows, so that operators see what
        is left."""
        port = self._port
        try:
            quorum = self.quorum()
        except NoController:
            here = port.ask(CONTROLLER, DescribeQuorumHere()).result(_ANSWERS_S)
            assert isinstance(here, QuorumHere)
            return status_of(self._cluster, here, port.image, None, self._described(port.image))
        return status_of(self._cluster, quorum, quorum.image, quorum.voters, self._described(quorum.image))

    def quorum(self) -> QuorumDescription:
        """Raises `NoController`."""
        found = self._answered(DescribeQuorum(), _ANSWERS_S)
        assert isinstance(found, QuorumDescription)
        return found

    def _described(self, image: MetadataImage) -> dict[NodeId, ReplicasDescribed]:
        """The replicas of all live nodes, which are asked in parallel. Nodes that do not answer are left out."""
        asked = {
            node: self._port.ask(BROKER, DescribeReplicas(), at=None if node == self._port.id else node)
            for node in image.brokers
            if image.is_live(node)
        }
        deadline = time.monotonic() + _ANSWERS_S
        found: dict[NodeId, ReplicasDescribed] = {}
        for node, future in asked.items():
            try:
                answer = future.result(max(0.0, deadline - time.monotonic()))
            except (NoAnswer, NodeStopped, TimeoutError):
                continue
            if isinstance(answer, ReplicasDescribed):
                found[node] = answer
        return found

    # Replicas

    def plan_to_empty(self, node: NodeId) -> list[Move]:
        """Raises `OperationRefused` if no nodes can take the replicas, and `NoController`."""
        image = self.quorum().image
        if node not in image.brokers:
            raise self._unknown_node(node, image)
        return self._planned(lambda: emptied(image, self._sizes(image), node))

    def plan_to_balance(self) -> list[Move]:
        image = self.quorum().image
        return self._planned(lambda: balanced(image, self._sizes(image)))

    def plan_to_replicate(self, factor: int, topic: str | None = None) -> list[Move]:
        """The moves after which all partitions (or those of a topic) have this number of replicas. Raises
        `OperationRefused`."""
        if topic is not None:
            self._partition_numbers(topic)
        if factor < 1:
            raise OperationRefused(f"a partition cannot have {factor} replicas")
        image = self.quorum().image
        return self._planned(lambda: replicated(image, self._sizes(image), factor, topic))

    def replicate(self, factor: int, topic: str | None = None) -> list[Move]:
        """Begins the planned moves. With three or more replicas, two must have each record from then on, unless a
        setting says otherwise; new topics have the same default. Raises the errors of `plan_to_replicate`."""
        moves = self.plan_to_replicate(factor, topic)
        image = self.quorum().image
        if factor >= _SAFE_FACTOR and image.config("", MIN_ISR) is None:
            for name in sorted({move.topic for move in moves}):
                if image.configs.get(image.topic_ids[name], {}).get(MIN_ISR) is None:
                    self._do(ChangeConfig(name, MIN_ISR, "2"))
        for move in moves:
            self.reassign(move.topic, move.partition, move.after)
        return moves

    def reassign(self, topic: str, partition: int, replicas: Sequence[NodeId] | None) -> None:
        """Begins to move a partition; None cancels a move in progress. Raises `OperationRefused` and `NoController`."""
        self._do(Reassign(self._partition(topic, partition), None if replicas is None else tuple(replicas)))

    def call_off_all(self) -> int:
        """Cancels all reassignments, and returns their number."""
        image = self.quorum().image
        moving = [state for state in image.partitions() if state.adding or state.removing]
        for state in moving:
            self._do(Reassign(PartitionId(state.topic_id, state.partition), None))
        return len(moving)

    def throttle(self, bytes_per_second: int | None) -> None:
        """Sets how fast replicas that are not in sync catch up, per node."""
        self._do(SetThrottle(bytes_per_second))

    # Leaders

    def elect(self, topic: str, partition: int | None, *, unclean: bool = False) -> list[int]:
        """Elects leaders, and returns the partitions of the topic (or the one) that got another leader.

        The preferred replica is elected; with `unclean` any live replica of a partition without a leader. Raises
        `OperationRefused` if the only partition named cannot get one, and `NoController`.
        """
        numbers = self._partition_numbers(topic) if partition is None else [partition]
        elected: list[int] = []
        for number in numbers:
            answer = self._decided(ElectLeader(self._partition(topic, number), unclean))
            if isinstance(answer, Done):
                elected.append(number)
            elif answer.trouble is not Trouble.ELECTION_NOT_NEEDED and partition is not None:
                raise OperationRefused(f"{topic}-{number}: {answer.message}")
        return elected

    # Nodes

    def add_node(self, node: NodeId, address: str) -> None:
        """From now on the node may join, and gets all metadata. Raises `OperationRefused` and `NoController`."""
        found = _ADDRESS.fullmatch(address)
        if found is None or not 0 < int(found[2]) < 65536:
            raise OperationRefused(f'"{address}" is no address of a node', hint="Write HOST:PORT, as 10.0.0.4:9093.")
        self._do(AddNode(node, address))

    def promote(self, node: NodeId) -> None:
        """Makes a learner a voter once it has caught up. Raises `OperationRefused` and `NoController`."""

        def change(quorum: QuorumDescription) -> VotersChanged | None:
            voters = quorum.voters
            if node in voters.voters:
                return None
            if node not in voters.learners:
                raise self._unknown_node(node, quorum.image)
            learners = tuple(other for other in voters.learners if other != node)
            return VotersChanged((*voters.voters, node), learners)

        self._change_voters(change)

    def demote(self, node: NodeId) -> None:
        """Makes a voter a learner. Raises `OperationRefused`, also for the last voter, and `NoController`."""

        def change(quorum: QuorumDescription) -> VotersChanged | None:
            voters = quorum.voters
            if node not in voters.voters:
                return None
            if voters.voters == (node,):
                raise OperationRefused(
                    f"node {node} is the only voter: without it nothing could be decided",
                    hint="Make another node a voter first: millstream cluster add-node NODE@HOST:PORT --voter",
                )
            return VotersChanged(_without(voters.voters, node), (*voters.learners, node))

        self._change_voters(change)

    def remove_node(self, node: NodeId) -> None:
        """Removes a node permanently. It must be stopped and have no replicas. Raises `OperationRefused` and
        `NoController`."""
        self._check_removable(node, self.quorum().image)

        def change(quorum: QuorumDescription) -> VotersChanged | None:
            voters = quorum.voters
            if node not in voters.members():
                return None
            return VotersChanged(_without(voters.voters, node), _without(voters.learners, node))

        self._change_voters(change)
        self._do(RemoveBroker(node))

    def raise_version(self) -> int:
        """Makes the cluster use the newest version that this release supports; every node must already support it.
        Raises `OperationRefused` and `NoController`."""
        self._do(RaiseVersion(VERSIONS.newest))
        return VERSIONS.newest

    def _check_removable(self, node: NodeId, image: MetadataImage) -> None:
        if node not in nodes_of(image):
            raise self._unknown_node(node, image)
        held = sum(node in state.replicas for state in image.partitions())
        if held:
            raise OperationRefused(
                f"node {node} has replicas of {held} partitions",
                hint=f"Move them first: millstream cluster reassign --empty {node}",
            )
        if image.is_live(node):
            raise OperationRefused(f"node {node} is up", hint="Stop its process first, and keep it stopped.")

    def _change_voters(self, change: Callable[[QuorumDescription], VotersChanged | None]) -> None:
        """Changes the voters. Only one change is possible at a time, so it may wait for another one, and for a new
        voter to catch up."""
        deadline = time.monotonic() + _CHANGES_S
        while (wanted := change(self.quorum())) is not None:
            answer = self._decided(ChangeVoters(wanted))
            if isinstance(answer, Done):
                return
            if time.monotonic() > deadline:
                raise OperationRefused(f"the voters cannot be changed now: {answer.message}")
            time.sleep(_PAUSE_S)

    # Asking

    def _do(self, body: DecidedRequest) -> None:
        answer = self._decided(body)
        if isinstance(answer, Refused):
            raise OperationRefused(answer.message)

    def _decided(self, body: DecidedRequest) -> Done | Refused:
        answer = self._answered(body, _DECIDES_S)
        assert not isinstance(answer, QuorumDescription), "nothing was to be described"
        return answer

    def _answered(self, body: LeaderRequest, seconds: float) -> LeaderAnswer:
        """The controller's answer; it may be another node by then. Raises `NoController`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                answer = self._port.ask_controller(body, max(_PAUSE_S, deadline - time.monotonic()))
            except NotNow:
                raise NoController(
                    "no node decides, or none that is reached from here",
                    hint="A majority of the voters has to be up and to reach each other.",
                ) from None
            busy = isinstance(answer, Refused) and answer.trouble is Trouble.BUSY
            if not busy or time.monotonic() > deadline:
                return answer
            time.sleep(_PAUSE_S)

    # What is there

    def _partition(self, topic: str, number: int) -> PartitionId:
        numbers = self._partition_numbers(topic)
        if number not in numbers:
            raise OperationRefused(f'topic "{topic}" has no partition {number}: it has {len(numbers)}')
        return PartitionId(self._port.image.topic_ids[topic], number)

    def _partition_numbers(self, topic: str) -> list[int]:
        image = self._port.image
        found = image.topics.get(image.topic_ids.get(topic, ""))
        if found is None:
            raise OperationRefused(f'there is no topic "{topic}"', hint="`millstream cluster status` lists them.")
        return list(range(len(found.partitions)))

    def _sizes(self, image: MetadataImage) -> dict[PartitionId, int]:
        return {led.partition: led.bytes for answer in self._described(image).values() for led in answer.led}

    def _planned(self, plan: Callable[[], list[Move]]) -> list[Move]:
        try:
            return plan()
        except CannotPlan as error:
            raise OperationRefused(str(error), hint=_NO_ROOM_HINT) from None

    def _unknown_node(self, node: NodeId, image: MetadataImage) -> OperationRefused:
        known = ", ".join(map(str, nodes_of(image)))
        return OperationRefused(f"there is no node {node} in this cluster", hint=f"Its nodes are {known}.")


def _without(nodes: Iterable[NodeId], gone: NodeId) -> tuple[NodeId, ...]:
    return tuple(node for node in nodes if node != gone)
