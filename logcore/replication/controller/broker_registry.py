"""How the leading controller tracks brokers: registration, heartbeats, fencing, controlled shutdown (R7, R8, R14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..cluster_version import VERSIONS
from ..machine import BROKER, NodeId, Send
from .controller_messages import BrokerAccepted, BrokerHeartbeat, BrokerRefused, HeartbeatAnswer, RegisterBroker
from .metadata_image import BrokerImage, LifeRule
from .metadata_records import BrokerFenced, BrokerRegistered, BrokerUnfenced, PartitionState, SingleRecord
from .partition_rules import handed_over, is_alone, needs_decision, without, without_unclean

if TYPE_CHECKING:
    from .controller import Controller

_LIVES: Final = 3
"""A process has shown in this part of a session that it lives: that is two heartbeats."""


@dataclass(slots=True)
class _Life:
    """What this leader has heard from a broker. It is not in the metadata, so a new leader first waits a session."""

    epoch: int
    heard_ms: int
    number: int = -1
    leaving: bool = False
    newest_version: int = VERSIONS.oldest


class BrokerRegistry:
    """A part of `Controller`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._lives: dict[NodeId, _Life] = {}

    def begin(self) -> None:
        """This node leads from now on: every broker gets a whole session to send a heartbeat."""
        now_ms = self._controller.now_ms
        self._lives = {broker.id: _Life(broker.epoch, now_ms) for broker in self._controller.ahead.brokers.values()}

    def seen(self) -> list[tuple[NodeId, int, bool, int]]:
        """Each broker: when it was last heard, whether it is leaving, and the newest version that it speaks."""
        return [(node, life.heard_ms, life.leaving, life.newest_version) for node, life in sorted(self._lives.items())]

    def without_version(self, version: int) -> list[NodeId]:
        """The members of the cluster that have not told this controller that they speak the version."""
        controller = self._controller
        members = {*controller.ahead.brokers, *controller.quorum.log.voters.members()}
        speak = {node for node, life in self._lives.items() if life.newest_version >= version}
        return sorted(members - speak)

    # Registration

    def register(self, sender: NodeId, asked: RegisterBroker) -> None:
        """A new incarnation fences the old one, once that is silent; a repeated registration is answered again."""
        controller = self._controller
        known = controller.ahead.brokers.get(asked.broker)
        if known is not None and (refused := self._refusal(asked, known)) is not None:
            answer = BrokerRefused(asked.cluster, asked.incarnation, refused, asked.disk)
            controller.emit(Send(asked.broker, answer, BROKER))
            return
        epoch: int | None
        if known is not None and asked.incarnation == known.incarnation:
            epoch = known.epoch
        elif self._is_still_alive(asked.broker):
            return  # it asks again
        else:
            epoch = controller.propose(self._registration(asked))
        controller.admit(asked.broker)
        if epoch is not None:
            self._lives[asked.broker] = _Life(epoch, controller.now_ms)
            accepted = BrokerAccepted(asked.cluster, asked.incarnation, epoch, asked.disk)
            controller.once_committed(epoch, Send(asked.broker, accepted, BROKER))

    def _refusal(self, asked: RegisterBroker, known: BrokerImage) -> str | None:
        """Why this cannot be the next incarnation of the broker; None if it can."""
        if self._is_on_another_disk(asked, known):
            return f"the disk of node {asked.broker} was exchanged: remove the node from the cluster first"
        if self._is_outlived(asked, known):
            return f"broker {asked.broker} was started {known.incarnation} times, and this is start {asked.incarnation}"
        return None

    def _is_on_another_disk(self, asked: RegisterBroker, known: BrokerImage) -> bool:
        """Start counts of different disks mean nothing to each other: a new disk may have as many starts or more, but
        it has none of the records."""
        return asked.disk != known.disk

    def _is_outlived(self, asked: RegisterBroker, known: BrokerImage) -> bool:
        """Whether a later incarnation of this broker has registered (R8)."""
        return asked.incarnation < known.incarnation

    def _is_still_alive(self, broker: NodeId) -> bool:
        """Whether the registered process sends heartbeats. One that was ended sends none by the time at which the next
        one registers. If it does, the new one runs on a copy of its disk, which has nothing that was written since."""
        life = self._lives.get(broker)
        if life is None or life.number < 0:
            return False  # no heartbeat of it was heard by this leader
        return self._controller.now_ms - life.heard_ms < self._controller.settings.session_ms // _LIVES

    def _registration(self, asked: RegisterBroker) -> list[SingleRecord]:
        """The record, and the changed partitions: those that had the broker as a leader or in sync."""
        broker = asked.broker
        leaves = without if asked.clean else self._leaves_for_good()
        record = BrokerRegistered(
            broker, asked.incarnation, asked.clean, asked.endpoints, asked.rack, asked.disk, alone=True
        )
        return [record, *self._without(broker, leaves)]

    def _leaves_for_good(self) -> LifeRule:
        """The rule for a broker that may lack acknowledged records: it is neither in sync nor eligible (R14)."""
        return without_unclean

    # Fencing

    def heartbeat(self, sender: NodeId, beat: BrokerHeartbeat) -> None:
        controller = self._controller
        known = controller.ahead.brokers.get(beat.broker)
        life = self._lives.get(beat.broker)
        if known is None or life is None or not self._is_this_life(beat, known):
            self._answer(beat, known=False, fenced=True)
            return
        if beat.number <= life.number:
            return  # an old copy
        controller.admit(beat.broker)
        life.number, life.heard_ms, life.leaving = beat.number, controller.now_ms, beat.leaving
        life.newest_version = beat.newest_version
        if beat.leaving and not known.fenced:
            self._let_go(beat.broker)
        elif known.fenced and not beat.leaving and self._has_caught_up(beat, known):
            self._unfence(known)
        self._answer(beat, known=True, fenced=not controller.image.is_live(beat.broker))

    def tick(self) -> None:
        """Fences brokers that were silent for a session."""
        controller = self._controller
        since_ms = controller.now_ms - controller.settings.session_ms
        for node, broker in sorted(controller.ahead.brokers.items()):
            life = self._lives.get(node)
            if not broker.fenced and (life is None or life.heard_ms < since_ms):
                self._fence(broker)

    def _is_this_life(self, beat: BrokerHeartbeat, known: BrokerImage) -> bool:
        return beat.epoch == known.epoch

    def _has_caught_up(self, beat: BrokerHeartbeat, known: BrokerImage) -> bool:
        """A broker leads nothing before it has read the metadata up to its registration (R7)."""
        return beat.applied_index >= known.epoch

    def _fence(self, broker: BrokerImage) -> None:
        fenced = BrokerFenced(broker.id, broker.epoch, alone=True)
        self._controller.propose([fenced, *self._without(broker.id, without)])

    def _without(self, node: NodeId, leaves: LifeRule) -> list[PartitionState]:
        """The partitions that change when the broker is no longer live, except those with no other replica."""
        controller = self._controller
        now_live = controller.is_live

        def is_live(other: NodeId) -> bool:
            return other != node and now_live(other)

        return controller.changes(
            lambda state: controller.elected(leaves(state, node), is_live), lambda state: not is_alone(state, node)
        )

    def _unfence(self, broker: BrokerImage) -> None:
        """Unfences the broker. It may then lead partitions that have no leader."""
        controller = self._controller
        now_live = controller.is_live

        def is_live(other: NodeId) -> bool:
            return other == broker.id or now_live(other)

        def leads(state: PartitionState) -> bool:
            """Whether the record `BrokerUnfenced` alone makes it the leader."""
            return is_alone(state, broker.id) and bool(state.isr or state.elr)

        elected = controller.changes(
            lambda state: controller.elected(state, is_live), lambda state: needs_decision(state) and not leads(state)
        )
        controller.propose([BrokerUnfenced(broker.id, broker.epoch, alone=True), *elected])

    def _let_go(self, node: NodeId) -> None:
        """Moves the leadership of the broker's partitions to brokers that stay; fences it when nothing more can move.

        Brokers that leave are no targets: if all left at once, they would hand partitions to each other forever.
        """
        controller = self._controller
        moved = controller.changes(lambda state: handed_over(state, node, self._stays))
        if moved:
            controller.propose(moved)
        elif controller.image.index >= controller.ahead.index:
            self._fence(controller.ahead.brokers[node])

    def _stays(self, node: NodeId) -> bool:
        life = self._lives.get(node)
        return self._controller.is_live(node) and not (life is not None and life.leaving)

    def _answer(self, beat: BrokerHeartbeat, *, known: bool, fenced: bool) -> None:
        index, session_ms = self._controller.image.index, self._controller.settings.session_ms
        answer = HeartbeatAnswer(beat.cluster, beat.epoch, beat.number, known, fenced, index, session_ms)
        self._controller.emit(Send(beat.broker, answer, BROKER))
