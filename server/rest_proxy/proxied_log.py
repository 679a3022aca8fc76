"""The log for users of the REST proxy: the rights of the Kafka port, and names that are reserved for Millstream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ...logcore.client import LogClient, Topic
from ...logcore.clients.client_groups import GroupLog
from ...logcore.clients.remote_cluster import RemoteCluster, TopicPlace
from ...logcore.clients.routed_log import RoutedLog
from ...logcore.external.external_log import ExternalLog
from ...logcore.topic_rules import is_reserved
from ...logcore.topic_settings import OF_MIRRORS
from ..cluster.engine_log import EngineLog
from ..engine.engine import Engine
from ..foreign_rows import ForeignRows, is_own_name
from ..security.rights import Need, NotPermitted, Rights
from .proxy_errors import no_partition, no_topic


class SharedLog(GroupLog, Protocol):
    """Any kind of log, with its groups and its brokers."""

    @property
    def cluster(self) -> RemoteCluster: ...


def shared_log(log: LogClient) -> SharedLog:
    """The engine's log, which is always one of our classes."""
    assert isinstance(log, RoutedLog | ExternalLog | EngineLog), "a log of a kind that has no groups"
    return log


class ProxiedLog:
    """Any thread may call any method. Each check raises `NotPermitted`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.log = shared_log(engine.log)
        self.as_rows = ForeignRows(lambda: engine.catalog)

    # Rights: the same as in `logcore/protocol/security/access.py`

    def check_seen(self, rights: Rights, topic: str) -> None:
        """The right to see that a topic exists, without reading it."""
        if not self.sees(rights, topic):
            rights.require([Need("read", topic)])

    def sees(self, rights: Rights, topic: str) -> bool:
        return any(rights.may(verb, topic) for verb in ("read", "insert", "ddl"))

    def check_read(self, rights: Rights, topic: str) -> None:
        rights.require([Need("read", topic)])

    def check_write(self, rights: Rights, topic: str) -> None:
        rights.require([Need("insert", topic)])
        self._refuse_own(topic, "write to")

    def check_change(self, rights: Rights, topic: str) -> None:
        """The right to create, change and delete a topic."""
        rights.require([Need("ddl", topic)])
        self._refuse_own(topic, "create, change or delete")

    def _refuse_own(self, topic: str, what: str) -> None:
        if is_reserved(topic, self._engine.log.capabilities.reserved):
            raise NotPermitted(f'topic "{topic}" belongs to Millstream: clients cannot {what} it')

    def check_settings(self, names: Iterable[str]) -> None:
        """Raises if settings that determine the writer of a topic are named: only mirrors set them."""
        held = set(OF_MIRRORS).intersection(names)
        if held:
            raise NotPermitted(f"{min(held)} is set by CREATE MIRROR and PROMOTE MIRROR, and by nobody else")

    def check_group(self, rights: Rights, group: str) -> None:
        rights.require([Need("group", group)])
        if self.is_own_group(group):
            raise NotPermitted(f'group "{group}" belongs to Millstream')

    def sees_group(self, rights: Rights, group: str) -> bool:
        return rights.may("group", group)

    def is_own_group(self, group: str) -> bool:
        return is_own_name(self._engine.catalog, group)

    # Topics and partitions

    def topic(self, name: str) -> Topic:
        """Raises `ProxyRefusal`."""
        found = self.log.topic(name)
        if found is None:
            raise no_topic()
        return found

    def place(self, name: str) -> TopicPlace:
        """Raises `ProxyRefusal`."""
        found = self.log.cluster.topic(name)
        if found is None:
            raise no_topic()
        return found

    def partition(self, topic: str, number: int) -> int:
        """The number, if the topic has such a partition. Raises `ProxyRefusal`."""
        if not 0 <= number < self.topic(topic).partition_count:
            raise no_partition()
        return number
