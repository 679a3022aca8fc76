"""Producers and transactions of clients: passes requests on to the leader of the coordinator's shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..client import TopicPartition
from ..cores.group_messages import NO_NOTE, CheckCommit, CommitNote, GroupFault
from ..cores.transaction_records import Identity, TransactionState
from ..cores.transactions import TransactionDescription
from ..error_codes import ErrorCode
from ..errors import LogClosed, NotNow
from ..replication.broker.broker import BrokerRequest
from ..replication.machine import BROKER, NodeId
from ..replication.machine_messages import Answer
from ..replication.node.node_runtime import NoAnswer, NodeStopped
from ..replication.replica.replica_messages import EndHanging, PartitionId, Refused
from ..replication.shards.coordination_messages import ForEveryShard, ForTransaction, place_of
from ..replication.shards.transaction_messages import (
    AskProducerId,
    AwaitEnd,
    CheckProducer,
    DescribedTransaction,
    EndTransaction,
    ForgetProducer,
    GroupRefused,
    IncludeGroup,
    IncludePartitions,
    InitProducer,
    ListTransactions,
    OffsetRow,
    ProducerGiven,
    SendOffsets,
    SentOffsets,
    TransactionRequest,
)
from ..topic_rules import TRANSACTIONS_TOPIC
from .cluster_log import ClusterLog
from .refusals import given, listed, refused

_ANSWER_S: Final = 3.0  # clients have only one such request at a time, and retry after its answer
_STATES: Final = {
    "Empty": TransactionState.EMPTY,
    "Ongoing": TransactionState.ONGOING,
    "PrepareCommit": TransactionState.PREPARE_COMMIT,
    "PrepareAbort": TransactionState.PREPARE_ABORT,
}


class ClusterTransactions:
    """`ServedTransactions`."""

    def __init__(self, log: ClusterLog) -> None:
        self._log = log
        self._node = log.node

    def new_producer_id(self) -> int:
        return given(self._asked(AskProducerId(), None), ProducerGiven).producer_id

    def start(self, transactional_id: str, timeout_ms: int, known: tuple[int, int] | None) -> Identity:
        return self._given(transactional_id, InitProducer(timeout_ms, *(known or ())))

    def add_partitions(self, who: Identity, partitions: frozenset[TopicPartition]) -> None:
        for where in partitions:
            self._log.check_own(where.topic)
        ids: tuple[PartitionId, ...] = tuple(sorted(map(self._log.id_of, partitions)))
        self._ask(who.transactional_id, IncludePartitions(who.producer_id, who.epoch, ids))

    def add_offsets(self, who: Identity, group: str) -> None:
        """Our own clients open a transaction by naming a group that equals their id. This does not make the group a
        participant; only offsets for it do."""
        opens = group == who.transactional_id
        include = IncludePartitions(*who[1:], ()) if opens else IncludeGroup(*who[1:], group)
        self._ask(who.transactional_id, include)

    def commit_offsets(
        self,
        who: Identity,
        check: CheckCommit,
        offsets: Mapping[TopicPartition, int],
        notes: Mapping[TopicPartition, CommitNote],
        *,
        announces: bool,
    ) -> GroupFault:
        """Asks the group's coordinator, to which clients send this request."""
        rows = tuple(OffsetRow(*where, offset, *notes.get(where, NO_NOTE)) for where, offset in offsets.items())
        asked = SendOffsets(
            who.producer_id,
            who.epoch,
            check.group,
            rows,
            check.generation,
            check.member_id,
            check.instance_id,
            announces,
        )
        answer = self._ask(who.transactional_id, asked)
        if isinstance(answer, GroupRefused):
            raise NotNow(answer.code, "the group refuses the offsets")
        return GroupFault.NONE

    def end(self, who: Identity, *, commit: bool) -> None:
        self._given(who.transactional_id, EndTransaction(who.producer_id, who.epoch, commit))

    def end_and_raise(self, who: Identity, *, commit: bool, visibly: bool = False) -> Identity:
        raised = self._given(who.transactional_id, EndTransaction(who.producer_id, who.epoch, commit, True))
        if visibly:
            self._ask(who.transactional_id, AwaitEnd())
        return raised

    def commit_at_once(self, who: Identity, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> Identity:
        """Like `end_and_raise`, and visible on return. In: `offsets`: by group; see `EndTransaction`. The
        transaction's records are already committed."""
        sent = tuple(
            SentOffsets(group, tuple(OffsetRow(*where, offset) for where, offset in each.items()))
            for group, each in offsets.items()
        )
        return self._given(who.transactional_id, EndTransaction(who.producer_id, who.epoch, True, True, sent))

    def forget(self, who: Identity) -> None:
        """Removes everything about the id. Raises `NotNow` if another producer now has it."""
        self._ask(who.transactional_id, ForgetProducer(who.producer_id, who.epoch))

    def check_current(self, who: Identity) -> None:
        """Raises `NotNow` if another producer now has the id."""
        asked = ForTransaction(who.transactional_id, CheckProducer(who.producer_id, who.epoch))
        if self._coordinator_of(who.transactional_id) == self._node.id:
            self._given_by(lambda: self._node.answer_now(asked, _ANSWER_S))
        else:
            self._ask(*asked)

    def end_hanging(self, where: TopicPartition, producer_id: int, epoch: int, *, commit: bool) -> None:
        self._log.check_own(where.topic)
        now_ms = self._node.now_ms()
        asked = EndHanging(producer_id, epoch, commit, now_ms)
        answer = self._node.partition_answer(self._log.id_of(where), asked, _ANSWER_S)
        if isinstance(answer, Refused):
            raise refused(answer)

    def end_overdue(self) -> None:
        """Does nothing, since the shards do this themselves."""

    def described(self) -> list[TransactionDescription]:
        """All transactions that this node coordinates."""
        answer = self._asked(ForEveryShard(TRANSACTIONS_TOPIC, ListTransactions()), None)
        return [self._description(found) for found in listed(answer, DescribedTransaction)]

    def _description(self, found: DescribedTransaction) -> TransactionDescription:
        image = self._node.image
        places = [
            TopicPartition(image.topics[each.topic].name, each.number)
            for each in found.partitions
            if each.topic in image.topics
        ]
        who = Identity(found.transactional_id, found.producer_id, found.epoch)
        state = _STATES.get(found.state, TransactionState.COMPLETE_COMMIT)
        return TransactionDescription(who, state, tuple(places), found.open_ms, found.timeout_ms)

    def _given(self, transactional_id: str, body: InitProducer | EndTransaction) -> Identity:
        now = given(self._ask(transactional_id, body), ProducerGiven)
        return Identity(transactional_id, now.producer_id, now.epoch)

    def _ask(self, transactional_id: str, body: TransactionRequest) -> Answer:
        return self._asked(ForTransaction(transactional_id, body), self._coordinator_of(transactional_id))

    def _coordinator_of(self, transactional_id: str) -> NodeId | None:
        image = self._node.image
        place = place_of(image, TRANSACTIONS_TOPIC, transactional_id)
        state = image.partition(place) if place is not None else None
        if state is None or state.leader is None:
            raise NotNow(ErrorCode.coordinator_not_available, "the coordinator of transactions has no leader now")
        return state.leader

    def _asked(self, body: BrokerRequest, at: NodeId | None) -> Answer:
        return self._given_by(lambda: self._node.answer(BROKER, body, at=at, timeout_s=_ANSWER_S))

    def _given_by(self, ask: Callable[[], Answer]) -> Answer:
        try:
            answer = ask()
        except (LogClosed, NodeStopped) as error:
            # Not LEADER_NOT_AVAILABLE, which is a fatal error for librdkafka if it comes from a coordinator.
            raise NotNow(ErrorCode.coordinator_not_available, "this node has ended") from error
        except NoAnswer as error:
            raise NotNow(ErrorCode.coordinator_not_available, "the coordinator does not answer") from error
        if isinstance(answer, Refused):
            raise refused(answer)
        return answer
