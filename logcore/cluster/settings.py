"""The settings with which a node of a cluster starts."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.errors import LogError

from ..cores.expiry import DEFAULT, ExpiryTimes
from ..replication.broker.broker import ReplicaBrokerSettings
from ..replication.controller.controller import ControllerSettings
from ..replication.machine import NodeId
from ..replication.node.node_links import PeerAddress
from ..replication.raft.quorum_state import QuorumSettings
from ..replication.replica.replica_core import ReplicaSettings

SESSION_MS: Final = 3_000
SESSION_MS_MIN: Final = 300
NOWHERE: Final = PeerAddress("", 0)
"""The address of a node that is alone; no other node knows it."""
_SNAPSHOT_EVERY_ALONE: Final = 100
_BEAT_MS_MIN: Final = 50  # also used for a single member: it disturbs no other node, and the node serves sooner
_MEMBER: Final = re.compile(r"\s*(\d+)@(.+):(\d+)\s*")
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")
_REPLICATION_MAX: Final = 3
CLUSTER_NAME: Final = "millstream"  # the default
_LIST_HINT: Final = "Write NUMBER@HOST:PORT for each node, separated by commas: 1@10.0.0.1:9093,2@10.0.0.2:9093."


class InvalidCluster(LogError):
    """A node, a list of nodes or a name that no cluster can have."""

    code = "INVALID_CLUSTER"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """`members`: all nodes with which the cluster begins, including this one, and their addresses for each other.

    `secret`: known to all nodes, and to nobody else. `replication`: the default for topics; None: 3, or the number of
    nodes if that is lower. `session_ms`: a node that is silent for this long leads nothing any more. `joins`: this node
    joins an existing cluster. `addresses_listed`: the addresses in `members` take precedence over those that nodes
    report. `durable`: whether a record waits for the disk; otherwise it survives the end of the process, but not of the
    machine.
    """

    folder: Path
    node: NodeId
    members: Mapping[NodeId, PeerAddress]
    name: str = CLUSTER_NAME
    secret: bytes = b""
    rack: str | None = None
    session_ms: int = SESSION_MS
    replication: int | None = None
    joins: bool = False
    addresses_listed: bool = False
    serving: ssl.SSLContext | None = None
    connecting: ssl.SSLContext | None = None
    expiry: ExpiryTimes = DEFAULT
    durable: bool = True

    @property
    def alone(self) -> bool:
        """Whether no other node could ever reach this one."""
        return self.members == {self.node: NOWHERE}

    def __post_init__(self) -> None:
        if self.node not in self.members:
            known = ", ".join(map(str, sorted(self.members)))
            raise InvalidCluster(
                f"node {self.node} is not one of the cluster's nodes, which are {known}",
                hint="Add it to the list of nodes with its address, or start it with the number that it has there.",
            )
        if not _NAME.fullmatch(self.name):
            raise InvalidCluster(
                f'"{self.name}" cannot be the name of a cluster',
                hint="A name has up to 64 letters, digits, '.', '_' and '-', and begins with a letter or a digit.",
            )
        if self.session_ms < SESSION_MS_MIN:
            raise InvalidCluster(
                f"a session of {self.session_ms} ms is too short", hint=f"It is at least {SESSION_MS_MIN} ms."
            )

    @property
    def voters(self) -> tuple[NodeId, ...]:
        """The voters with which the cluster begins."""
        return tuple(node for node in sorted(self.members) if not (self.joins and node == self.node))

    def default_replication(self, brokers: int) -> int:
        """In: `brokers`: how many nodes have registered; when a cluster begins, that may be fewer than its members."""
        return self.replication or min(_REPLICATION_MAX, max(brokers, len(self.members)))

    # Times follow from the session: an election ends, and a failed leader is replaced, within about one more session.

    @property
    def of_quorum(self) -> QuorumSettings:
        election_ms = self.session_ms // 3
        return QuorumSettings(election_ms=election_ms, heartbeat_ms=election_ms // 6)

    @property
    def of_controller(self) -> ControllerSettings:
        """A node that is alone makes a snapshot about every thirty starts. Each start decides three records, and
        reading those of earlier starts was most of the time to open a directory that had been opened often."""
        settings = ControllerSettings(session_ms=self.session_ms)
        return settings._replace(snapshot_every=_SNAPSHOT_EVERY_ALONE) if self.alone else settings

    @property
    def of_broker(self) -> ReplicaBrokerSettings:
        beat_ms = max(_BEAT_MS_MIN, self.session_ms // 6) if len(self.members) > 1 else _BEAT_MS_MIN
        beat_ms = 1 if self.alone else beat_ms
        return ReplicaBrokerSettings(heartbeat_ms=beat_ms, register_ms=beat_ms, replica=self._of_replicas)

    @property
    def _of_replicas(self) -> ReplicaSettings:
        wait_ms = min(500, self.session_ms // 4)
        lag_ms = 2 * self.session_ms  # how long a follower that is cut off only from its leader delays acks=all
        return ReplicaSettings(lag_ms=lag_ms, fetch_wait_ms=wait_ms, fetch_timeout_ms=2 * wait_ms + 500)


def parse_members(text: str) -> dict[NodeId, PeerAddress]:
    """`1@host:9093,2@host:9094`. Raises `InvalidCluster`.

    >>> parse_members("1@a:9093, 2@[::1]:9093")
    {1: PeerAddress(host='a', port=9093), 2: PeerAddress(host='::1', port=9093)}
    """
    members: dict[NodeId, PeerAddress] = {}
    for part in text.split(","):
        found = _MEMBER.fullmatch(part)
        if found is None or not 0 < int(found[3]) <= 65535 or not 0 < int(found[1]) < 1 << 31:
            raise InvalidCluster(f'"{part.strip()}" is not a node of a cluster', hint=_LIST_HINT)
        node, address = NodeId(int(found[1])), PeerAddress(found[2].removeprefix("[").removesuffix("]"), int(found[3]))
        if node in members or address in members.values():
            raise InvalidCluster(f'"{part.strip()}" is in the list of nodes twice', hint=_LIST_HINT)
        members[node] = address
    return members
