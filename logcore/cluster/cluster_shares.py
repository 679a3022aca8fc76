"""The acquired records of share groups, for the handlers of requests. Their coordinators may be on other nodes."""

from __future__ import annotations

from typing import Final, TypeVar

from ..client import TopicPartition
from ..error_codes import ErrorCode
from ..errors import LogClosed, NotNow, UnknownTopic
from ..replication.machine import BROKER, NodeId
from ..replication.machine_messages import Answer
from ..replication.node.node_runtime import NoAnswer, NodeStopped
from ..replication.replica.replica_messages import AskOffsets, ForPartition, PartitionId, PartitionOffsets
from ..replication.shards.coordination_messages import ForGroup, place_of
from ..replication.shards.share_messages import ShareRequest
from ..topic_rules import GROUPS_TOPIC
from .cluster_node import ClusterNode
from .refusals import given

_ANSWER_S: Final = 5.0
_Wanted = TypeVar("_Wanted")


class ClusterShares:
    """`ServedShares`."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    def place(self, where: TopicPartition) -> PartitionId:
        place = self._node.partition_id(*where)
        if place is None or self._node.image.partition(place) is None:
            raise UnknownTopic(f"there is no partition {where.partition} of topic {where.topic}")
        return place

    def where(self, place: PartitionId) -> TopicPartition | None:
        topic = self._node.image.topics.get(place.topic)
        return None if topic is None else TopicPartition(topic.name, place.number)

    def ask(self, group: str, body: ShareRequest, kind: type[_Wanted]) -> _Wanted:
        """Raises `NotNow`."""
        shard = place_of(self._node.image, GROUPS_TOPIC, group)
        if shard is None:
            raise NotNow(ErrorCode.coordinator_not_available, "the topic of the coordinators is not made yet")
        return given(self._answer(ForGroup(group, body), self._leader(shard)), kind)

    def ask_here(self, group: str, body: ShareRequest, kind: type[_Wanted]) -> _Wanted:
        """Raises `NotNow`."""
        return given(self._answer(ForGroup(group, body), None), kind)

    def end_offset(self, place: PartitionId) -> int:
        """Raises `NotNow`."""
        answer = self._answer(ForPartition(place, AskOffsets()), self._leader(place))
        return given(answer, PartitionOffsets).high_watermark

    def _leader(self, place: PartitionId) -> NodeId | None:
        """The leader of a partition; None if it is this node. Raises `NotNow`."""
        state = self._node.image.partition(place)
        if state is None or state.leader is None:
            raise NotNow(ErrorCode.coordinator_not_available, "nobody leads the partition now")
        return None if state.leader == self._node.id else state.leader

    def _answer(self, body: ForGroup | ForPartition, at: NodeId | None) -> Answer:
        try:
            return self._node.answer(BROKER, body, at=at, timeout_s=_ANSWER_S)
        except (LogClosed, NodeStopped, NoAnswer) as error:
            raise NotNow(ErrorCode.coordinator_not_available, "the coordinator does not answer") from error
