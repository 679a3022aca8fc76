"""The records of the metadata log. Everything that a cluster agrees on is a fold of them (`metadata_image.py`).

Fields are numbers, texts, booleans, None and tuples of these, so records convert to JSON and back without a schema.
"""

from __future__ import annotations

from typing import NamedTuple

from ..machine import NodeId

Endpoints = tuple[tuple[str, str], ...]
"""The addresses of a node by purpose: `kafka`, `http` → `host:port`."""


class BrokerRegistered(NamedTuple):
    """A process of a node starts. The record's index is the broker's epoch; earlier incarnations are fenced (R8).

    `clean`: it has every record that it ever acknowledged. If not, it is removed from all ISRs and ELRs (R14).
    """

    broker: NodeId
    incarnation: int  # counted by the node, on its disk: raised at each start
    clean: bool
    endpoints: Endpoints
    rack: str | None
    disk: str = ""  # the name of the disk that counts the incarnations
    alone: bool = False  # it also changes partitions with no other replica: see `partition_rules.with_life_of`


class BrokerFenced(NamedTuple):
    """Until it is unfenced, the broker leads nothing and is in no ISR."""

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
    """A node may join. It has this address until it registers with another one (endpoint `node`)."""

    node: NodeId
    address: str  # host:port


class TopicCreated(NamedTuple):
    """Its partitions follow in the same `Together`, numbered from 0."""

    topic_id: str
    name: str


class TopicDeleted(NamedTuple):
    topic_id: str


class PartitionState(NamedTuple):
    """The whole state of a partition from now on. The first such record creates it."""

    topic_id: str
    partition: int
    leader: NodeId | None
    leader_epoch: int  # raised whenever the leader changes
    partition_epoch: int  # raised with every change
    replicas: tuple[NodeId, ...]  # the first one is the preferred leader
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]  # eligible: not in sync, but known to have everything below the high watermark
    min_isr: int  # the setting `min.insync.replicas`, at most the number of replicas
    adding: tuple[NodeId, ...] = ()  # replicas that a reassignment adds
    removing: tuple[NodeId, ...] = ()  # replicas that leave when the added ones are in sync
    unclean: bool = False  # the leader may lack acknowledged records, after an unclean election


class ConfigChanged(NamedTuple):
    """A setting of a topic (by its id), of all topics (empty text), or of another resource, such as a broker
    (`broker:1`, see `log_settings.py`); None removes it."""

    resource: str
    key: str
    value: str | None


class ProducerIdsReserved(NamedTuple):
    """The next free producer id of the cluster; each lower id belongs to a broker, or did."""

    next_id: int


class VersionRaised(NamedTuple):
    """The cluster uses this version from now on (`cluster_version.py`); all nodes speak it."""

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
    """Records that are decided together, all or none."""

    records: tuple[SingleRecord, ...]


MetadataRecord = SingleRecord | Together
