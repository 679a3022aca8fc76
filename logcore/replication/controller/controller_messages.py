"""What brokers and operators say to the controller (machine `CONTROLLER` of any node), and what they hear.

A broker talks to the controller of its own node, which passes on what it cannot decide to the one that leads. All of it
may be lost: the broker says it again. `AlterPartition` and `AlterRefused` are in `replica_messages.py`.
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
    """A life begins. Said again until it is answered, with the same incarnation.

    `clean`: every record that this node ever acknowledged is in its logs (R14, R17). `disk`: the name of the disk that
    counts the incarnations: those of an exchanged one say nothing, however many they are.
    """

    cluster: str
    broker: NodeId
    incarnation: int
    clean: bool
    endpoints: Endpoints
    rack: str | None
    disk: str = ""


class BrokerAccepted(NamedTuple):
    """The registration is committed; its index is the epoch, and below it no partition metadata counts (R7).

    It is for the process that has asked, and for no later one: a new disk counts its starts from 1 again.
    """

    cluster: str
    incarnation: int
    epoch: int
    disk: str = ""


class BrokerRefused(NamedTuple):
    """There was a later life (R8): this process must end; or the node's disk was exchanged: remove it first."""

    cluster: str
    incarnation: int
    reason: str
    disk: str = ""


class BrokerHeartbeat(NamedTuple):
    """I live, and have applied the metadata up to `applied_index`. `number` rises: an old copy says nothing."""

    cluster: str
    broker: NodeId
    epoch: int
    number: int
    applied_index: int
    leaving: bool = False  # about to end: hand over what it leads, and fence it
    newest_version: int = 1  # of the cluster, that this node speaks


class HeartbeatAnswer(NamedTuple):
    """`known` False: the epoch is not the broker's any more, it has to register anew (R8).

    `index`: of the metadata that were committed then; `session_ms`: so long the broker may be silent and still lead.
    """

    cluster: str
    epoch: int
    number: int
    known: bool
    fenced: bool
    index: int = 0  # pyright: ignore[reportIncompatibleMethodOverride]
    session_ms: int = 0


class ReserveProducerIds(NamedTuple):
    cluster: str
    broker: NodeId
    epoch: int
    number: int  # rises; names the request
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]


class ProducerIds(NamedTuple):
    """The broker's own, from `first` on. An answer that is lost loses ids, which there are enough of."""

    cluster: str
    epoch: int
    number: int
    first: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]


ControllerMessage = RegisterBroker | BrokerHeartbeat | AlterPartition | ReserveProducerIds
"""What brokers say."""

StandingMessage = BrokerAccepted | BrokerRefused | HeartbeatAnswer | ProducerIds
"""What a broker hears of its standing. `AlterRefused` is for one of its replicas."""


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
    partition_count: int  # in all
    assignment: tuple[tuple[NodeId, ...], ...] = ()  # replicas of those that are new; as many as the others have


class ChangeConfig(NamedTuple):
    """`topic` None: for all topics."""

    topic: str | None
    key: str
    value: str | None


class ChangeSettings(NamedTuple):
    """Of a broker, a group, a client or a user (`log_settings.py`), all at once; None takes a setting back."""

    resource: str
    changes: tuple[tuple[str, str | None], ...]


class Reassign(NamedTuple):
    """The partition moves to these replicas, the first one preferred; None calls a reassignment off."""

    partition: PartitionId
    replicas: tuple[NodeId, ...] | None


class ElectLeader(NamedTuple):
    """The preferred replica, if it is in sync; with `unclean` any live one, where nobody leads: records may be lost."""

    partition: PartitionId
    unclean: bool = False


class AddNode(NamedTuple):
    """The node may join as a learner; it is found at `address` (host:port)."""

    node: NodeId
    address: str


class SetThrottle(NamedTuple):
    """How fast replicas that are not in sync catch up, per node; None: as fast as it goes."""

    bytes_per_second: int | None


class RemoveBroker(NamedTuple):
    """For good; it must be fenced and have no replicas."""

    broker: NodeId


class ChangeVoters(NamedTuple):
    wanted: VotersChanged


class RaiseVersion(NamedTuple):
    """The cluster uses this version from now on, if all its nodes speak it; see `cluster_version.py`."""

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
    BUSY = 7  # what a client reads as: try again


class Done(NamedTuple):
    """It is committed at `index`, or was so before."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    topic_id: str | None = None


class Refused(NamedTuple):
    trouble: Trouble
    message: str


class NotController(NamedTuple):
    """Ask `leader`, if anybody. What was asked may have happened, or may yet."""

    leader: NodeId | None
