"""The controller: a member of the metadata quorum, the image of the committed records and, on the leader, decisions.

A decision is a proposed record; the request is answered when the record is committed (R5). The leader decides on
`ahead`, the image of everything in its log. Records do not contain when each broker was last heard: only the leading
process knows that.
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
    given_up,
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
    session_ms: int = 3_000  # a broker that is silent for this long is fenced
    balance_ms: int = 300_000  # how often leadership goes back to preferred replicas; 0: never
    snapshot_every: int = 2_000  # records, counting each one in a `Together`: a starting node reads all of them


class _Waiting(NamedTuple):
    index: int
    effect: Effect


def _weight(record: LogRecord) -> int:
    return len(record.records) if isinstance(record, Together) else 1


class Controller:
    """One per node. `image` has what is committed, on every node. `ahead` and the decisions are the leader's."""

    def __init__(self, quorum: Quorum, settings: ControllerSettings | None = None) -> None:
        self.quorum = quorum
        self.settings = settings or ControllerSettings()
        self.image = MetadataImage()
        self.ahead = self.image
        self.now_ms = 0
        self.active_term: int | None = None  # set while this node decides
        self.brokers = BrokerRegistry(self)
        self._waiting: deque[_Waiting] = deque()  # answers, in the order of their indexes
        self._balance_at_ms = 0
        self._tried = 0
        self._since_snapshot = 0  # committed records that are not in a snapshot yet
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
                pass  # this machine's own effect
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
        """Takes the quorum's effects until there are no more: committed records may lead to new decisions."""
        while (effects := self.quorum.drain()) or self._is_news_who_decides():
            for effect in effects:
                if isinstance(effect, Committed):
                    self._apply(effect)
                else:
                    self._out.append(effect)

    def _is_news_who_decides(self) -> bool:
        """Begins or ends this node's time as the deciding controller; whether that changed."""
        before = self.active_term
        if self.active_term is not None and not self.active:
            self._resign()
        if self.active_term is None and self._may_decide():
            self._begin()
        return self.active_term != before

    def _may_decide(self) -> bool:
        """Only a leader that has committed a record of its own term knows what earlier leaders committed (R3)."""
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
            if self.image.index > self.quorum.log.snapshot.index:  # else the leader sent its snapshot of it
                self.quorum.compact(self.image.index, self.image)
            self._since_snapshot = 0

    def _snapshot_is_due(self) -> bool:
        """A snapshot of many partitions waits for as many records. Otherwise the time for the snapshots while many
        partitions are created would grow with the square of their number."""
        if self._since_snapshot < self.settings.snapshot_every:
            return False
        return self._since_snapshot >= sum(topic.partitions.size for topic in self.image.topics.values())

    def _begin(self) -> None:
        """This node decides from now on. It includes uncommitted entries of its log, and elects missing leaders."""
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
        """Whether the cluster is new, or this is its only node. Then it uses the newest version immediately."""
        return not self.ahead.brokers or self.quorum.log.voters.members() == (self.quorum.id,)

    def _resign(self) -> None:
        """Another node decides, or none does: waiting clients have to ask again."""
        self.active_term = None
        for waiting in self._waiting:
            if isinstance(waiting.effect, Reply):
                self._out.append(Reply(waiting.effect.request, NotController(self.quorum.leader)))
        self._waiting.clear()

    # Decisions

    def propose(self, records: Iterable[SingleRecord]) -> int | None:
        """Decides these records as one. Returns the index that has to be committed; None: not possible now."""
        together = tuple(records)
        if not together:
            return self.ahead.index
        record = together[0] if len(together) == 1 else Together(together)
        index = self.quorum.propose(record)
        if index is not None:
            self.ahead = fold(self.ahead, index, record)
        return index

    def once_committed(self, index: int, effect: Effect) -> None:
        """Emits the effect once all records up to `index` are committed."""
        if index <= self.image.index:
            self._out.append(effect)
        else:
            self._waiting.append(_Waiting(index, effect))

    def emit(self, effect: Effect) -> None:
        self._out.append(effect)

    def elections(self) -> list[PartitionState]:
        """New states of the partitions that have no leader and can get one, or whose reassignment can end."""
        return self.changes(lambda state: self.elected(state, self.is_live), needs_decision)

    def elected(self, state: PartitionState, is_live: IsLive) -> PartitionState:
        """The partition with a leader, if it needs one and can get one. A setting allows unclean elections (T-L12).

        If all replicas that a reassignment keeps are then in sync, the reassignment ends here: a leader that is the
        only replica never asks for another ISR.
        """
        elects = with_any_leader if self.ahead.config(state.topic_id, UNCLEAN_ELECTION) == "true" else with_leader
        return self.moved(elects(state, is_live), is_live)

    def moved(self, state: PartitionState, is_live: IsLive) -> PartitionState:
        """Ends the reassignment if it is complete."""
        return reassignment_done(state, is_live, self.min_isr_wanted(state.topic_id))

    def min_isr_wanted(self, topic_id: str) -> int:
        """The setting itself, even if a partition has fewer replicas."""
        return min_isr_of(self.ahead.config(topic_id, MIN_ISR)) or 1

    def changes(
        self,
        rule: Callable[[PartitionState], PartitionState],
        concerns: Callable[[PartitionState], bool] = lambda state: True,
    ) -> list[PartitionState]:
        """Applies the rule to all partitions that it concerns; returns those that change. In: `rule`: independent of
        partition numbers."""
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

    # Messages and requests

    def _receive(self, sender: NodeId, message: Message) -> None:
        """Ignores messages for other machines."""
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
        """Forwards it to the leader. A node that knows no leader (it may be new) tries one voter after the other."""
        leader = self.quorum.leader
        if leader is None:
            voters = self.quorum.log.voters.voters
            self._tried += 1
            leader = voters[self._tried % len(voters)]
        if leader != self.quorum.id:
            self._out.append(Send(leader, message, CONTROLLER))

    def admit(self, node: NodeId) -> None:
        """Every broker gets the metadata log: a node that is not a member yet becomes a learner."""
        voters = self.quorum.log.voters
        if node not in voters.members():
            self.quorum.change_voters(voters._replace(learners=(*voters.learners, node)))

    def _is_of_this_cluster(self, message: ControllerMessage) -> bool:
        """R20. `AlterPartition` names its partition by a topic id that no other cluster uses."""
        return isinstance(message, AlterPartition) or message.cluster == self.quorum.cluster

    def _alter_partition(self, sender: NodeId, asked: AlterPartition) -> None:
        """A leader asks for another ISR (R5, R8). If it gets it, the metadata show that; no answer is needed."""
        state = self.ahead.partition(asked.partition)
        after = self._altered(state, asked) if state is not None and self._may_alter(state, asked) else None
        if state is None or after is None:
            refused = AlterRefused(asked.partition, asked.leader_epoch, asked.partition_epoch)
            self._out.append(Send(asked.leader, refused, BROKER))
            return
        record = changed(state, self.moved(after, self.is_live), settle=True)
        if record is not None:
            self.propose([record])

    def _altered(self, state: PartitionState, asked: AlterPartition) -> PartitionState | None:
        """None if a leader that leaves the ISR has to stay."""
        members = [member.node for member in asked.in_sync]
        if asked.leader in members:
            return with_isr(state, members)
        after = given_up(state, asked.leader, self.is_live)
        return after if after != state else None

    def _may_alter(self, state: PartitionState, asked: AlterPartition) -> bool:
        return (
            self._is_current(state, asked)
            and self._is_current_life(asked.leader, asked.broker_epoch)
            and all(
                member.node in state.isr
                or (member.node in state.replicas and self._is_current_life(member.node, member.broker_epoch))
                for member in asked.in_sync
            )
        )

    def _is_current(self, state: PartitionState, asked: AlterPartition) -> bool:
        """Whether the request is based on the current state of the partition (R5)."""
        return (state.leader, state.leader_epoch, state.partition_epoch) == (
            asked.leader,
            asked.leader_epoch,
            asked.partition_epoch,
        )

    def _is_current_life(self, node: NodeId, epoch: int) -> bool:
        """Whether this is the epoch of the broker's current incarnation, and it is not fenced (R8; T-L6)."""
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
        """Takes a request of a client or an operator."""
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
