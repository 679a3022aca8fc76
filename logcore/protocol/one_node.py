"""The layout of a log of one node: it has everything, and is asked for everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from ..client import TopicPartition
from ..errors import InvalidReplicationFactor, InvalidTopic, NotNow, TopicExists
from ..topic_rules import check_topic
from .layout import (
    ANY_EPOCH,
    NOBODY,
    EpochAnswer,
    KeyKind,
    LeaderOffsets,
    NodeAddress,
    PartitionLayout,
    QuorumLayout,
    QuorumMember,
    TopicCreation,
)

if TYPE_CHECKING:
    from ..log import Log

NODE_ID: Final = 0
LEADER_EPOCH: Final = 0
_NOWHERE: Final = EpochAnswer(-1, -1)
_ALONE: Final = PartitionLayout(NODE_ID, LEADER_EPOCH, (NODE_ID,), (NODE_ID,))


class OneNode:
    """`LogLayout`. `address_for`: where a client that found us at some address should come again."""

    def __init__(self, log: Log, address_for: Callable[[tuple[str, int]], tuple[str, int]]) -> None:
        self._log = log
        self._address_for = address_for

    @property
    def node(self) -> int:
        return NODE_ID

    @property
    def controller(self) -> int:
        return NODE_ID

    def nodes(self, local: tuple[str, int]) -> Sequence[NodeAddress]:
        return (NodeAddress(NODE_ID, *self._address_for(local)),)

    def quorum(self) -> QuorumLayout:
        """There is no metadata log: what has happened is in files."""
        return QuorumLayout(NODE_ID, LEADER_EPOCH, 0, (QuorumMember(NODE_ID, 0),))

    def partition(self, topic: str, partition: int) -> PartitionLayout:
        return _ALONE

    def coordinator(self, kind: KeyKind, key: str, local: tuple[str, int]) -> NodeAddress:
        return NodeAddress(NODE_ID, *self._address_for(local))

    def check_leads(self, where: TopicPartition, leader_epoch: int = ANY_EPOCH) -> None:
        if leader_epoch > LEADER_EPOCH:
            raise NotNow(ErrorCode.unknown_leader_epoch, f"leader epoch {leader_epoch} is not known here")

    def check_reads(self, where: TopicPartition, leader_epoch: int, offset: int, rack: str) -> int:
        self.check_leads(where, leader_epoch)
        return NOBODY

    def offsets(self, where: TopicPartition, leader_epoch: int = ANY_EPOCH) -> LeaderOffsets:
        return LeaderOffsets(self._log.partition(*where).offsets(), LEADER_EPOCH)

    def epoch_end(self, where: TopicPartition, epoch: int, leader_epoch: int = ANY_EPOCH) -> EpochAnswer:
        """There has been one leader only: its epoch ends where the log does."""
        end_offset = self._log.partition(*where).offsets().high_watermark
        self.check_leads(where, leader_epoch)
        return EpochAnswer(LEADER_EPOCH, end_offset) if epoch == LEADER_EPOCH else _NOWHERE

    def delete_records(self, where: TopicPartition, offset: int) -> int:
        return self._log.delete_records(*where, offset)

    def default_replication(self) -> int:
        return 1

    def create_topic(self, topic: TopicCreation, *, only_check: bool = False) -> None:
        if topic.assignment:
            if any(tuple(replicas) != (NODE_ID,) for replicas in topic.assignment):
                raise InvalidTopic(
                    f'topic "{topic.name}" cannot be placed as asked: there is one node, number {NODE_ID}'
                )
        elif topic.replication_factor not in (-1, 1):
            raise InvalidReplicationFactor(
                f'topic "{topic.name}" cannot have {topic.replication_factor} replicas: there is one node'
            )
        check_topic(topic.name, topic.partition_count, topic.config)
        if not only_check:
            self._log.create_topic(topic.name, topic.partition_count, topic.config)
        elif topic.name in self._log.topics():
            raise TopicExists(f'topic "{topic.name}" exists already')

    def add_partitions(
        self, topic: str, partition_count: int, assignment: Sequence[Sequence[int]] = (), *, only_check: bool = False
    ) -> None:
        known = self._log.topic(topic)
        added = partition_count - known.partition_count if known is not None else 0
        if assignment and added > 0 and [tuple(replicas) for replicas in assignment] != [(NODE_ID,)] * added:
            raise NotNow(
                ErrorCode.invalid_replica_assignment,
                f'{added} new partitions of "{topic}" cannot be placed as asked: there is one node, number {NODE_ID}',
            )
        self._log.add_partitions(topic, partition_count, only_check=only_check)

    def elect(self, where: TopicPartition, *, unclean: bool) -> None:
        self._log.partition(*where)
        raise NotNow(ErrorCode.election_not_needed, "the leader is the only replica")

    def reassign(self, where: TopicPartition, replicas: Sequence[int] | None) -> None:
        self._log.partition(*where)
        if replicas is None:
            raise NotNow(ErrorCode.no_reassignment_in_progress, "nothing is being moved")
        if list(replicas) != [NODE_ID]:
            raise NotNow(ErrorCode.invalid_replica_assignment, f"there is one node, number {NODE_ID}")
