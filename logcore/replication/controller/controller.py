"""The controller: a member of the metadata quorum, the image of what it has committed, and, on the leader, decisions.

A decision is a record that is proposed; its answer goes out when it is committed (R5). The leader decides on `ahead`,
the image with all that is in its log. What only this life knows (who gave a sign of life, and when) is not in records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from ..cluster_version import VERSIONS
from ..machine import (
    BROKER,
    CONTROLLER,
    Asked,
    Committed,
    Effect,
    Input,
    NodeId,
    Persisted,
    Received,
    Reply,
    RequestId,
    Send,
    Tick,
)
from ..raft.quorum import Quorum
from ..raft.quorum_messages import LogRecord, QuorumMessage
from ..replica.replica_messages import AlterPartition, AlterRefused
from .broker_registry import BrokerRegistry
from .controller_description import quorum_here
from .controller_messages import (
    BrokerHeartbeat,
    ControllerMessage,
    Done,
    NotController,
    ProducerIds,
    Refused,
    RegisterBroker,
    ReserveProducerIds,
    Trouble,
)
from .controller_requests import MIN_ISR, LeaderRequest, answered, min_isr_of
from .metadata_image import MetadataImage, fold, folded
from .metadata_records import PartitionState, ProducerIdsReserved, SingleRecord, Together, VersionRaised
from .operations_messages import DescribeQuorumHere
from .partition_rows import PartitionRow
from .partition_rules import (
    IsLive,
    changed,
    needs_decision,
    reassignment_done,
    with_any_leader,
    with_isr,
    with_leader,
    with_preferred_leader,
)

if TYPE_CHECKING:
    from ..machine_messages import Message, Request

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


class ControllerSettings(NamedTuple):
    session_ms: int = 3_000  # a broker that is silent for so long is fenced
    balance_ms: int = 300_000  # how often preferred replicas get back what they lead; 0: never
    snapshot_every: int = 2_000  # records, those that are decided together counted one by one: a start reads them


class _Waiting(NamedTuple):
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    effect: Effect


def _weight(record: LogRecord) -> int:
    return len(record.records) if isinstance(record, Together) else 1


class Controller:
    """One per node. `image` is what is committed, on every node; `ahead` and what is below it is the leader's."""

    def __init__(self, quorum: Quorum, settings: ControllerSettings | None = None) -> None:
        self.quorum = quorum
        self.settings = settings or ControllerSettings()
        self.image = MetadataImage()
        self.ahead = self.image
        self.now_ms = 0
        self.active_term: int | None = None  # while this node decides
        self.brokers = BrokerRegistry(self)
        self._waiting: deque[_Waiting] = deque()  # answers, in the order of their indexes
        self._balance_at_ms = 0
        self._tried = 0
        self._since_snapshot = 0  # records that are committed and in no snapshot yet
        self._out: list[Effect] = []

    def step(self, given: Input) -> list[Effect]:
        match given:
            case Received(sender, message):
                self._receive(sender, message)
            case Tick(now_ms):
                self._go_on(now_ms)
            case Persisted(operation, failed):
                self.quorum.persisted(operation, failed)
            case Asked(request, body):
                self._asked(request, body)
            case Committed():
                pass  # that is an effect of this machine itself
            case _:
                assert_never(given)
        self._take_from_quorum()
        out, self._out = self._out, []
        return out

    @property
    def active(self) -> bool:
        """Whether this node decides."""
        return self.active_term is not None and self.active_term == self.quorum.term and self._may_decide()

    # From the quorum

    def _take_from_quorum(self) -> None:
        """Carries out what the quorum says, until it says no more: a decision may come of what is committed."""
        while (effects := self.quorum.drain()) or self._is_news_who_decides():
            for effect in effects:
                if isinstance(effect, Committed):
                    self._apply(effect)
                else:
                    self._out.append(effect)

    def _is_news_who_decides(self) -> bool:
        """Begins or ends this node's time as the one that decides."""
        before = self.active_term
        if self.active_term is not None and not self.active:
            self._resign()
        if self.active_term is None and self._may_decide():
            self._begin()
        return self.active_term != before

    def _may_decide(self) -> bool:
        """Only who has committed a record of its own term knows what others have committed before (R3)."""
        return self.quorum.leads

    def _apply(self, committed: Committed) -> None:
        last = committed.first_index + len(committed.records) - 1
        if self.active and self.ahead.index == last:
            self.image = self.ahead
        else:
            self.image = folded(self.image, committed)
        self._out.append(committed._replace(folded=self.image))
        while self._waiting and self._waiting[0].index <= self.image.index:
            self._out.append(self._waiting.popleft().effect)
        before = 0 if committed.image is not None else self._since_snapshot
        self._since_snapshot = before + sum(map(_weight, committed.records))
        if self.image.index == self.quorum.commit and self._snapshot_is_due():
            if self.image.index > self.quorum.log.snapshot.index:  # else the leader's snapshot of this index has come
                self.quorum.compact(self.image.index, self.image)
            self._since_snapshot = 0

    def _snapshot_is_due(self) -> bool:
        """A snapshot of many partitions waits for as many records: else to make them all would take time that grows
        with the square of their number."""
        if self._since_snapshot < self.settings.snapshot_every:
            return False
        return self._since_snapshot >= sum(len(topic.partitions) for topic in self.image.topics.values())

    def _begin(self) -> None:
        """This node decides from now on. What was begun and not finished is looked for."""
        self.active_term = self.quorum.term
        self.ahead = self.image
        first = self.image.index + 1
        for index, entry in enumerate(self.quorum.log.after(self.image.index, self.quorum.log.last_index), first):
            self.ahead = fold(self.ahead, index, entry.record)
        self.brokers.begin()
        self._balance_at_ms = self.now_ms + self.settings.balance_ms
        if self._has_no_older_node() and self.ahead.version < VERSIONS.newest:
            self.propose([VersionRaised(VERSIONS.newest)])
        self.propose(self.elections())

    def _has_no_older_node(self) -> bool:
        """Of a cluster that begins, and of a node that is its only one: they have the newest version at once."""
        return not self.ahead.brokers or self.quorum.log.voters.members() == (self.quorum.id,)

    def _resign(self) -> None:
        """Somebody else decides, or nobody: those who wait ask again."""
        self.active_term = None
        for waiting in self._waiting:
            if isinstance(waiting.effect, Reply):
                self._out.append(Reply(waiting.effect.request, NotController(self.quorum.leader)))
        self._waiting.clear()

    # Decisions

    def propose(self, records: Iterable[SingleRecord]) -> int | None:
        """Decides these records as one. Gives the index that has to be committed; None: not now."""
        together = tuple(records)
        if not together:
            return self.ahead.index
        record = together[0] if len(together) == 1 else Together(together)
        index = self.quorum.propose(record)
        if index is not None:
            self.ahead = fold(self.ahead, index, record)
        return index

    def once_committed(self, index: int, effect: Effect) -> None:
        """The effect, when all records up to `index` are committed."""
        if index <= self.image.index:
            self._out.append(effect)
        else:
            self._waiting.append(_Waiting(index, effect))

    def emit(self, effect: Effect) -> None:
        self._out.append(effect)

    def elections(self) -> list[PartitionState]:
        """Leaders for partitions without a live one, where somebody may lead."""
        return self.changes(lambda state: self.elected(state, self.is_live), needs_decision)

    def elected(self, state: PartitionState, is_live: IsLive) -> PartitionState:
        """The partition with a leader, if it needs one and may have one. Unclean where a setting says so (T-L12).

        Where that puts all in sync that a reassignment is to leave, it ends: a leader alone has no ISR to ask for.
        """
        elects = with_any_leader if self.ahead.config(state.topic_id, UNCLEAN_ELECTION) == "true" else with_leader
        return self.moved(elects(state, is_live), is_live)

    def moved(self, state: PartitionState, is_live: IsLive) -> PartitionState:
        """Ends a reassignment, where it has come to its end."""
        return reassignment_done(state, is_live, self.min_isr_wanted(state.topic_id))

    def min_isr_wanted(self, topic_id: str) -> int:
        """The setting, also where a partition has fewer replicas."""
        return min_isr_of(self.ahead.config(topic_id, MIN_ISR)) or 1

    def changes(
        self,
        rule: Callable[[PartitionState], PartitionState],
        concerns: Callable[[PartitionState], bool] = lambda state: True,
    ) -> list[PartitionState]:
        """What the rule makes of all partitions that it concerns, as records. It does not depend on their numbers."""
        records: list[PartitionState] = []
        for row in self.ahead.rows():
            if concerns(row.first) and (after := changed(row.first, rule(row.first))) is not None:
                records += PartitionRow(after, row.of).states()
        return records

    @property
    def is_live(self) -> IsLive:
        return self.ahead.is_live

    def _go_on(self, now_ms: int) -> None:
        self.now_ms = max(self.now_ms, now_ms)
        self.quorum.tick(now_ms)
        self._take_from_quorum()
        if not self.active:
            return
        self.brokers.tick()
        if self.settings.balance_ms and self.now_ms >= self._balance_at_ms:
            self._balance_at_ms = self.now_ms + self.settings.balance_ms
            self.propose(self.changes(lambda state: with_preferred_leader(state, self.is_live)))

    # What is said

    def _receive(self, sender: NodeId, message: Message) -> None:
        """What is not for this machine says nothing."""
        if isinstance(message, QuorumMessage):
            self.quorum.receive(sender, message)
        elif isinstance(message, ControllerMessage) and self._is_of_this_cluster(message):
            if self.active:
                self._decide(sender, message)
            elif sender == self.quorum.id:
                self._pass_on(message)

    def _decide(self, sender: NodeId, message: ControllerMessage) -> None:
        match message:
            case RegisterBroker():
                self.brokers.register(sender, message)
            case BrokerHeartbeat():
                self.brokers.heartbeat(sender, message)
            case AlterPartition():
                self._alter_partition(sender, message)
            case ReserveProducerIds():
                self._reserve_producer_ids(sender, message)
            case _:
                assert_never(message)

    def _pass_on(self, message: ControllerMessage) -> None:
        """To the leader; a node that has heard of none (it may be new) tries one voter after the other."""
        leader = self.quorum.leader
        if leader is None:
            voters = self.quorum.log.voters.voters
            self._tried += 1
            leader = voters[self._tried % len(voters)]
        if leader != self.quorum.id:
            self._out.append(Send(leader, message, CONTROLLER))

    def admit(self, node: NodeId) -> None:
        """Whoever has replicas gets the metadata: a node that is no member yet becomes a learner."""
        voters = self.quorum.log.voters
        if node not in voters.members():
            self.quorum.change_voters(voters._replace(learners=(*voters.learners, node)))

    def _is_of_this_cluster(self, message: ControllerMessage) -> bool:
        """R20; partitions are named by ids that no other cluster gives."""
        return isinstance(message, AlterPartition) or message.cluster == self.quorum.cluster

    def _alter_partition(self, sender: NodeId, asked: AlterPartition) -> None:
        """A leader wants another ISR (R5, R8). Done, the metadata says so; no answer is needed."""
        state = self.ahead.partition(asked.partition)
        if state is None or not self._may_alter(state, asked):
            refused = AlterRefused(asked.partition, asked.leader_epoch, asked.partition_epoch)
            self._out.append(Send(asked.leader, refused, BROKER))
            return
        after = with_isr(state, [member.node for member in asked.in_sync])
        record = changed(state, self.moved(after, self.is_live), settle=True)
        if record is not None:
            self.propose([record])

    def _may_alter(self, state: PartitionState, asked: AlterPartition) -> bool:
        return (
            self._is_current(state, asked)
            and self._is_current_life(asked.leader, asked.broker_epoch)
            and asked.leader in [member.node for member in asked.in_sync]
            and all(
                member.node in state.isr
                or (member.node in state.replicas and self._is_current_life(member.node, member.broker_epoch))
                for member in asked.in_sync
            )
        )

    def _is_current(self, state: PartitionState, asked: AlterPartition) -> bool:
        """Whether the leader speaks of the partition as it is now (R5)."""
        return (state.leader, state.leader_epoch, state.partition_epoch) == (
            asked.leader,
            asked.leader_epoch,
            asked.partition_epoch,
        )

    def _is_current_life(self, node: NodeId, epoch: int) -> bool:
        """Whether the broker still lives the life in which it was heard (R8; T-L6)."""
        broker = self.ahead.brokers.get(node)
        return broker is not None and broker.epoch == epoch and not broker.fenced

    def _reserve_producer_ids(self, sender: NodeId, asked: ReserveProducerIds) -> None:
        broker = self.ahead.brokers.get(asked.broker)
        if broker is None or broker.epoch != asked.epoch or not 0 < asked.count <= 1_000_000:
            return
        first = self.ahead.next_producer_id
        index = self.propose([ProducerIdsReserved(first + asked.count)])
        if index is not None:
            answer = ProducerIds(asked.cluster, asked.epoch, asked.number, first, asked.count)
            self.once_committed(index, Send(asked.broker, answer, BROKER))

    def _asked(self, request: RequestId, body: Request) -> None:
        """A client's or an operator's request."""
        if isinstance(body, DescribeQuorumHere):
            self._out.append(Reply(request, quorum_here(self)))
            return
        if not self.active:
            self._out.append(Reply(request, NotController(self.quorum.leader)))
            return
        if not isinstance(body, LeaderRequest):
            refused = Refused(Trouble.INVALID_REQUEST, "not a request to the controller")
            self._out.append(Reply(request, refused))
            return
        answer = answered(self, body)
        if isinstance(answer, Done):
            self.once_committed(answer.index, Reply(request, answer))
        else:
            self._out.append(Reply(request, answer))
