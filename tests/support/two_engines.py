"""Two servers that take turns in running one engine, on one log: the cluster's metadata are what a test says."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log
from millstream.logcore.protocol.admission import ConnectionLimits
from millstream.logcore.protocol.security.users import NoUsers
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.replication.controller.metadata_image import BrokerImage, MetadataImage, TopicImage
from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.controller.partition_rows import PartitionRows
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.server import LogServer
from millstream.server.catalog.command_topic import COMMAND_TOPIC
from millstream.server.cluster.engine_host import EngineHost
from millstream.server.cluster.node_engine import start_engine_on_cluster
from millstream.server.config.configuration import Configuration, ListenAddress
from millstream.server.http.listener import HttpListener
from millstream.server.security.access import Authenticator
from millstream.server.security.tls import TlsSettings

_TOPIC_ID = "00"
_ANYWHERE = ListenAddress("127.0.0.1", 0)
COMMANDS = TopicPartition(COMMAND_TOPIC, 0)


class Access(NamedTuple):
    """Who may connect to each of the servers, and how."""

    limits: ConnectionLimits = ConnectionLimits()
    tls: TlsSettings | None = None
    users: Authenticator | None = None


class StandInNode:
    """What a test says that a node knows."""

    def __init__(self, number: int) -> None:
        self.id = NodeId(number)
        self.image = MetadataImage()
        self.serving = True
        self.cut_off = False


class Server:
    """One of them. State: its node's image."""

    def __init__(
        self, number: int, folder: Path, kafka: LogServer, access: Access, hosts: tuple[str, ...] = ()
    ) -> None:
        self.node = StandInNode(number)
        self._folder = folder
        self._kafka = kafka
        self._access = access
        self._hosts = hosts
        self._listener = HttpListener(_ANYWHERE, limits=access.limits, tls=access.tls)
        self.address = self._listener.address
        self.parts = contextlib.ExitStack()
        self.host: EngineHost | None = None

    @property
    def url(self) -> str:
        return f"{'http' if self._access.tls is None else 'https'}://{self.address}"

    def start(self) -> None:
        self.host = start_engine_on_cluster(
            self.node,
            open_log=lambda: RemoteLog(trusted_address(self._kafka.log, self._kafka.address), patience_s=60.0),
            secret=self._kafka.log.secret,
            cluster_id="c",
            configuration=Configuration(
                data=self._folder, executor="duckdb", tls=self._access.tls, http_hosts=self._hosts
            ),
            listener=self._listener,
            users=self._access.users,
            parts=self.parts,
        )


def image_led_by(number: int | None, brokers: Mapping[NodeId, BrokerImage] | None = None) -> MetadataImage:
    """Metadata in which this node leads the command topic."""
    leader = None if number is None else NodeId(number)
    state = PartitionState(_TOPIC_ID, 0, leader, 0, 0, (), (), (), 1)
    topics = {_TOPIC_ID: TopicImage(_TOPIC_ID, COMMAND_TOPIC, PartitionRows.of((state,)))}
    return MetadataImage(1, brokers or {}, topics=topics, topic_ids={COMMAND_TOPIC: _TOPIC_ID})


class TwoEngines:
    """Servers 1 and 2. A context manager. In: `hosts`: names of their own, by their numbers."""

    def __init__(
        self,
        log: Log,
        folder: Path,
        access: Access = Access(),  # noqa: B008 (a constant)
        hosts: Mapping[int, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        self._log = log
        self._kafka = LogServer(log, port=0, users=NoUsers())
        self._kafka.start()
        self.servers = [
            Server(number, folder / str(number), self._kafka, access, hosts.get(number, ())) for number in (1, 2)
        ]
        self.lead(None)
        for server in self.servers:
            server.start()

    def lead(self, number: int | None, *, known_to: tuple[int, ...] = (1, 2)) -> None:
        """Server `number` leads the command topic, as far as those know who are told."""
        brokers = {
            server.node.id: BrokerImage(
                server.node.id, 1, 1, (("http", str(server.address)), ("kafka", self._kafka.address)), None, False
            )
            for server in self.servers
        }
        image = image_led_by(number, brokers)
        for server in self.servers:
            if server.node.id in known_to:
                server.node.image = image

    def runs(self, number: int) -> bool:
        """Whether the engine runs at this server, and only there."""
        return [server.host is not None and server.host.running is not None for server in self.servers] == [
            server.node.id == number for server in self.servers
        ]

    def __enter__(self) -> TwoEngines:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.parts.close()
        self._kafka.stop()
