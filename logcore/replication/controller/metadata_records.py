"""The records of the metadata log. All that a cluster agrees on is a fold of them (`metadata_image.py`).

Fields are numbers, texts, booleans, None and tuples of these, so that a record is JSON and back without a schema.
"""

from __future__ import annotations

from typing import NamedTuple

from ..machine import NodeId

Endpoints = tuple[tuple[str, str], ...]
"""Where a node is found, by what for: `kafka`, `http` → `host:port`."""


class BrokerRegistered(NamedTuple):
    """A process of a node begins its life. The record's index is the broker's epoch; older lives are fenced off (R8).

    `clean`: it has every record that it ever acknowledged. If not, it is taken out of all ISRs and ELRs (R14).
    """

    broker: NodeId
    incarnation: int  # counted by the node, on its disk: raised at each start
    clean: bool
    endpoints: Endpoints
    rack: str | None
    disk: str = ""  # the name of its disk: incarnations are counted there
    alone: bool = False  # with what it has alone: see `partition_rules.with_life_of`


class BrokerFenced(NamedTuple):
    """No leader, no member of an ISR any more, until it is unfenced."""

    broker: NodeId
    epoch: int
    alone: bool = False  # as above


class BrokerUnfenced(NamedTuple):
    broker: NodeId
    epoch: int
    alone: bool = False  # as above


class BrokerRemoved(NamedTuple):
    """The node left the cluster for good."""

    broker: NodeId


class NodeAdded(NamedTuple):
    """A node may join, and is found at this address until it registers with another one (endpoint `node`)."""

    node: NodeId
    address: str  # host:port


class TopicCreated(NamedTuple):
    """Its partitions follow, numbered from 0, in the same `Together`."""

    topic_id: str
    name: str


class TopicDeleted(NamedTuple):
    topic_id: str


class PartitionState(NamedTuple):
    """All that is known of a partition, from now on. The first one creates it."""

    topic_id: str
    partition: int
    leader: NodeId | None
    leader_epoch: int  # raised whenever the leader changes
    partition_epoch: int  # raised with every change
    replicas: tuple[NodeId, ...]  # the first one is the preferred leader
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]  # not in sync, but known to have everything below the high watermark
    min_isr: int  # the setting `min.insync.replicas`, at most the number of replicas
    adding: tuple[NodeId, ...] = ()  # replicas that a reassignment brings
    removing: tuple[NodeId, ...] = ()  # replicas that leave when the added ones are in sync
    unclean: bool = False  # the leader may lack acknowledged records: somebody wanted it so


class ConfigChanged(NamedTuple):
    """A setting of a topic (by its id), of a broker (`broker:1`) or of all (empty text); None takes it back."""

    resource: str
    key: str
    value: str | None


class ProducerIdsReserved(NamedTuple):
    """The next free producer id of the cluster; those below it belong to a broker, or did."""

    next_id: int


class VersionRaised(NamedTuple):
    """All nodes speak this version of the cluster (`cluster_version.py`), and from now on it is used."""

    version: int


SingleRecord = (
    BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | BrokerRemoved
    | NodeAdded
    | TopicCreated
    | TopicDeleted
    | PartitionState
    | ConfigChanged
    | ProducerIdsReserved
    | VersionRaised
)


class Together(NamedTuple):
    """Records that are decided as one: all or none."""

    records: tuple[SingleRecord, ...]


MetadataRecord = SingleRecord | Together
