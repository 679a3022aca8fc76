"""`open_log` opens the log in a directory, in this process. The log is the only node of a cluster: one voter, one
replica of each partition, no links. It writes the same files as a node of a larger cluster. The interface is
`client.LogClient`."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

from millstream.errors import LogError

from .client import Offsets, Topic, TopicConfig, TopicPartition
from .clients.remote_admin import OF_THE_BROKER
from .clients.remote_producer import RemoteTransactionalProducer
from .cluster.alone_again import become_alone
from .cluster.cluster_log import ClusterLog
from .cluster.cluster_node import ClusterNode
from .cluster.node_log import NodeLog
from .cluster.refusals import check_done, listed
from .cluster.serving import ServedNode, served
from .cluster.settings import CLUSTER_NAME, NOWHERE, ClusterSettings
from .cluster.upgrade import upgrade_directory
from .cores.expiry import DEFAULT, ExpiryTimes
from .cores.group_messages import CheckCommit, GroupFault
from .errors import CorruptLog, LogUnavailable, LogWriteFailed, NotNow, UnknownTopic
from .failpoints import fp
from .protocol.kafka_service import Serving
from .protocol.layout import TopicCreation
from .protocol.retries import RETRIABLE
from .protocol.wire.faults import code_of, error_of
from .records.batch import BatchProducer
from .replication.controller.controller_messages import ElectLeader
from .replication.machine import BROKER, NodeId
from .replication.replica.replica_messages import PartitionId, Problem, Refused
from .replication.shards.coordination_messages import ForEveryShard
from .replication.shards.transaction_messages import DescribedTransaction, ListTransactions
from .replication.topic_ids import id_bytes
from .topic_rules import GROUPS_TOPIC, TRANSACTIONS_TOPIC

_NODE: Final = NodeId(1)
_SESSION_MS: Final = 24 * 60 * 60 * 1000  # nobody takes over, however long the process was stopped
_SERVES_S: Final = 60.0
_ENDS_S: Final = 1.0
_LOOK_S: Final = 0.001


class Log(NodeLog):
    """A `LogClient`, plus calls that only the process that opened the log can make. After `close` another process can
    open the log."""

    def __init__(self, parts: ServedNode) -> None:
        self.node, self.parts = parts.node, parts
        super().__init__(parts)

    @property
    def served(self) -> ClusterLog:
        """The log as the handlers of Kafka requests see it."""
        return self.parts.log

    def serving(self, advertised: tuple[str, int] | None = None) -> Serving:
        """What a `LogServer` needs. In: `advertised`: the address that clients are told; None: the one they used."""
        return self.parts.at(advertised)

    # This node has all metadata itself, so these methods send no request.

    def topics(self) -> Mapping[str, Topic]:
        return self._known().topics()

    def topic(self, name: str) -> Topic | None:
        return self._known().topic(name)

    def topic_id(self, name: str) -> uuid.UUID | None:
        known = self._known().node.image.topic_ids.get(name)
        return None if known is None else uuid.UUID(bytes=id_bytes(known))

    def partition_count(self, topic: str) -> int:
        found = self._known().topic(topic)
        if found is None:
            raise UnknownTopic(f'topic "{topic}" does not exist')
        return found.partition_count

    def create_topic(self, name: str, partition_count: int, config: TopicConfig = None, replicas: int = 0) -> None:
        served = self._known()
        asked = TopicCreation(name, partition_count, dict(config or {}), replicas or OF_THE_BROKER)
        try:
            self.parts.serving.layout.create_topic(asked)
        except NotNow:
            if served.topic(name) is None:
                super().create_topic(name, partition_count, config, replicas)

    def _known(self) -> ClusterLog:
        """Raises `LogClosed`."""
        self._own.line()
        return self.parts.log

    def _new_producer(self) -> BatchProducer:
        self._known()
        try:
            return BatchProducer(self.parts.serving.transactions.new_producer_id(), 0, 0)
        except NotNow:
            return super()._new_producer()

    # These methods raise errors that name the damage or the full disk. The protocol's error codes do not.

    def offsets(self, topic: str, partition: int) -> Offsets:
        """Reads the log directly, because queries call this often. The log end offset counts records that are written
        but not yet durable."""
        served = self._known()
        log = served.led_if_open(topic, partition)
        if log is None:  # the partition's files may not be open
            with suppress(LogError):
                served.replica(TopicPartition(topic, partition))
            log = served.led_if_open(topic, partition)
        if log is None:
            with self._explained(topic, partition):
                super().offsets(topic, partition)  # opens the partition, or raises the reason why it cannot
            log = served.partition(topic, partition)
        return log.offsets()

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        with self._explained(GROUPS_TOPIC):
            settled = self._settled_offsets(group)
            return super().committed_offsets(group) if settled is None else settled

    def _settled_offsets(self, group: str) -> Mapping[TopicPartition, int] | None:
        """None if an open transaction may still commit offsets, or if they are unknown: then a request to the
        coordinator finds the reason."""
        served = self._known()
        try:
            found = served.groups.commits(group) if self._own.coordinates("group", group) else None
        except NotNow:
            return None
        if found is None or found.unsettled:
            return None
        return {where: committed.offset for where, committed in found.offsets.items() if committed.offset >= 0}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._explained(GROUPS_TOPIC):
            if not self._commits_here(group, offsets):
                super().commit_offsets(group, offsets)

    def _commits_here(self, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """False if a request to the coordinator has to find out why the commit is not possible here."""
        served = self._known()
        for topic, partition in offsets:
            known = served.topic(topic)
            if known is None or not 0 <= partition < known.partition_count:
                return False
        try:
            return self._own.coordinates("group", group) and (
                served.groups.commit(CheckCommit(group), offsets, {}) is GroupFault.NONE
            )
        except NotNow as error:
            code = code_of(error)
            if code in RETRIABLE:
                return False
            raise error_of(code, None, f'commit the offsets of group "{group}"') from error

    def forget_group(self, group: str) -> None:
        with self._explained(GROUPS_TOPIC):
            super().forget_group(group)

    def transactional_producer(self, transactional_id: str) -> RemoteTransactionalProducer:
        with self._explained(TRANSACTIONS_TOPIC):
            return super().transactional_producer(transactional_id)

    @contextmanager
    def _explained(self, topic: str, partition: int = 0) -> Generator[None]:
        """Raises the precise error for damage or a full disk. In: the partition that may be damaged: coordinators of a
        single node have one partition, 0."""
        try:
            yield
        except CorruptLog as error:
            id = self.node.partition_id(topic, partition)
            raise (self.node.damage(id) if id is not None else None) or error from error
        except LogWriteFailed as error:
            raise self._own.full() or error from error

    def expire_offsets_of(self, expires: Callable[[str], bool]) -> None:
        """From now on, offsets of groups for which `expires` is true expire. Before this call, no offsets expire.
        `expires` may be called on any thread."""
        self.node.expires = expires

    def close(self) -> None:
        fp("log.close")
        super().close()
        self.node.stop()


def _lead_what_is_left(node: ClusterNode) -> None:
    """After damage the controller waits for a replica that has all acknowledged records. Here there is no other
    replica, so each partition continues with what is left of it; `problems` reports the loss."""
    for row in node.image.rows():
        for state in row.states() if row.first.leader is None else ():
            check_done(node.decide(ElectLeader(PartitionId(state.topic_id, state.partition), unclean=True)))


def _end_what_was_decided(node: ClusterNode) -> None:
    """Waits until decided transactions are visible. A commit is acknowledged when its decision is durable; its markers
    and offsets may not be yet. Usually they are written here, before the log is used. A full disk delays them until
    there is space; until then nothing else is appended to their partitions (`Settling.owes`). So the long wait is only
    for coordinators that are still reading their topic."""
    until = time.monotonic() + _SERVES_S
    while time.monotonic() < until:
        answer = node.answer(BROKER, ForEveryShard(TRANSACTIONS_TOPIC, ListTransactions()))
        if not isinstance(answer, Refused):
            if not any(map(_is_ending, listed(answer, DescribedTransaction))):
                return
            until = min(until, time.monotonic() + _ENDS_S)
        elif answer.problem is not Problem.COORDINATOR_LOADING:
            return
        time.sleep(_LOOK_S)


def _is_ending(transaction: DescribedTransaction) -> bool:
    return transaction.state.startswith("Prepare")


def open_log(
    path: str | os.PathLike[str],
    *,
    clock: Callable[[], float] = time.time,
    sync: Literal["always", "never"] = "always",
    expiry: ExpiryTimes = DEFAULT,
    panicked: Callable[[str], None] = lambda reason: None,
) -> Log:
    """Opens the log in this directory, and creates the directory if it does not exist. In: `clock`: the time of day, in
    seconds; `panicked`: called once, on any thread, with the reason why the log cannot continue (a sync failed, R17).
    After that every call raises `LogClosed`; opening the directory again recovers all acknowledged records.

    With `sync="never"` an append does not wait for the disk: records survive a crash of the process, but not of the
    machine. Raises `LogError`; `LogLocked` if the log is already open.
    """
    upgrade_directory(Path(path), _NODE, CLUSTER_NAME)
    become_alone(Path(path), _NODE, CLUSTER_NAME)
    alone, durable = {_NODE: NOWHERE}, sync == "always"
    settings = ClusterSettings(Path(path), _NODE, alone, session_ms=_SESSION_MS, expiry=expiry, durable=durable)
    node = ClusterNode(settings, panicked, clock=clock)
    try:
        node.expires = lambda group: False
        parts = served(node)
        node.start(())
        if not node.wait_until_serving(_SERVES_S):
            raise LogUnavailable(
                f"the log in {path} does not begin: {node.failure or 'its disk is slow'}",
                hint="Look at the log lines above.",
            )
        _lead_what_is_left(node)
        _end_what_was_decided(node)
    except BaseException:
        node.stop()
        raise
    return Log(parts)
