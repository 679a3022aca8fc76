"""Messages of brokers and operators to the controller (machine `CONTROLLER` of any node), and the answers.

A broker sends to the controller of its own node, which forwards to the leading one what it cannot decide itself. Any
message may be lost; the broker repeats it. `AlterPartition` and `AlterRefused` are in `replica_messages.py`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ..machine import NodeId
from ..raft.quorum_messages import VotersChanged
from ..replica.replica_messages import AlterPartition, PartitionId
from .metadata_records import Endpoints

# Brokers


class RegisterBroker(NamedTuple):
    """A process of the broker starts. Repeated with the same incarnation until it is answered.

    `clean`: every record that this node ever acknowledged is in its logs (R14, R17). `disk`: the name of the disk that
    counts the incarnations; counts of different disks cannot be compared.
    """

    cluster: str
    broker: NodeId
    incarnation: int
    clean: bool
    endpoints: Endpoints
    rack: str | None
    disk: str = ""


class BrokerAccepted(NamedTuple):
    """The registration is committed. Its index is the broker epoch; partition metadata below it do not count (R7).

    Only the process that asked may take it, no later one: a new disk counts its starts from 1 again.
    """

    cluster: str
    incarnation: int
    epoch: int
    disk: str = ""


class BrokerRefused(NamedTuple):
    """A later incarnation has registered (R8), so this process must end. Or the node's disk was replaced: then the node
    must first be removed."""

    cluster: str
    incarnation: int
    reason: str
    disk: str = ""


class BrokerHeartbeat(NamedTuple):
    """The broker is alive, and has applied the metadata up to `applied_index`. `number` increases, so that old copies
    are recognized and ignored."""

    cluster: str
    broker: NodeId
    epoch: int
    number: int
    applied_index: int
    leaving: bool = False  # it is about to end: move the partitions that it leads, then fence it
    newest_version: int = 1  # the newest version of the cluster that this node speaks


class HeartbeatAnswer(NamedTuple):
    """`known` False: the epoch is no longer the broker's; it must register again (R8).

    `index`: the metadata index that was committed at that time. `session_ms`: how long a silent broker may still lead.
    """

    cluster: str
    epoch: int
    number: int
    known: bool
    fenced: bool
    index: int = 0
    session_ms: int = 0


class ReserveProducerIds(NamedTuple):
    cluster: str
    broker: NodeId
    epoch: int
    number: int  # increases; identifies the request
    count: int


class ProducerIds(NamedTuple):
    """`count` ids from `first` on, which belong to the broker. A lost answer wastes ids; there are enough."""

    cluster: str
    epoch: int
    number: int
    first: int
    count: int


ControllerMessage = RegisterBroker | BrokerHeartbeat | AlterPartition | ReserveProducerIds
"""Messages from brokers."""

StandingMessage = BrokerAccepted | BrokerRefused | HeartbeatAnswer | ProducerIds
"""Answers to a broker itself. `AlterRefused` is for one of its replicas."""


# Operators and clients: bodies of `Asked`; each is answered with `Done`, `Refused` or `NotController`


class CreateTopic(NamedTuple):
    name: str
    partition_count: int
    replication_factor: int
    assignment: tuple[tuple[NodeId, ...], ...] = ()  # replicas by partition, instead of the two counts
    configs: tuple[tuple[str, str], ...] = ()


class DeleteTopic(NamedTuple):
    name: str


class AddPartitions(NamedTuple):
    name: str
    partition_count: int  # the new total
    assignment: tuple[tuple[NodeId, ...], ...] = ()  # replicas of the new partitions; as many as existing ones have


class ChangeConfig(NamedTuple):
    """`topic` None: for all topics."""

    topic: str | None
    key: str
    value: str | None


class ChangeSettings(NamedTuple):
    """Changes settings of a broker, a group, a client or a user (`log_settings.py`) as one; None removes a setting."""

    resource: str
    changes: tuple[tuple[str, str | None], ...]


class Reassign(NamedTuple):
    """Moves the partition to these replicas, the preferred one first; None cancels the reassignment."""

    partition: PartitionId
    replicas: tuple[NodeId, ...] | None


class ElectLeader(NamedTuple):
    """Elects the preferred replica if it is in sync. With `unclean`: elects any live replica if the partition has no
    leader; records may be lost."""

    partition: PartitionId
    unclean: bool = False


class AddNode(NamedTuple):
    """Lets the node join as a learner, at `address` (host:port)."""

    node: NodeId
    address: str


class SetThrottle(NamedTuple):
    """Limits how fast replicas that are not in sync catch up, per node; None: no limit."""

    bytes_per_second: int | None


class RemoveBroker(NamedTuple):
    """Removes the broker for good. It must be fenced and have no replicas."""

    broker: NodeId


class ChangeVoters(NamedTuple):
    wanted: VotersChanged


class RaiseVersion(NamedTuple):
    """Raises the cluster to this version, if all its nodes speak it; see `cluster_version.py`."""

    version: int


class Trouble(Enum):
    """Why a request was refused. The values are the error codes of Kafka's protocol."""

    UNKNOWN_TOPIC_OR_PARTITION = 3
    TOPIC_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    BUSY = 7  # clients retry after it


class Done(NamedTuple):
    """The request is committed at `index`, or was already done before."""

    index: int
    topic_id: str | None = None


class Refused(NamedTuple):
    trouble: Trouble
    message: str


class NotController(NamedTuple):
    """Ask `leader`, if it is known. The request may have been carried out, or still may be."""

    leader: NodeId | None
