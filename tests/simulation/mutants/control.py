"""Planted bugs of the controller and of the rules for partitions."""

from __future__ import annotations

from typing import Any, Final

from millstream.logcore.replication.broker.registration import Registration
from millstream.logcore.replication.controller import controller, metadata_image, partition_rules
from millstream.logcore.replication.controller.broker_registry import BrokerRegistry
from millstream.logcore.replication.controller.controller import Controller
from millstream.logcore.replication.controller.controller_messages import AlterPartition
from millstream.logcore.replication.controller.metadata_image import MetadataImage
from millstream.logcore.replication.controller.metadata_records import (
    BrokerRegistered,
    PartitionState,
    ProducerIdsReserved,
)
from millstream.logcore.replication.controller.partition_rules import IsLive
from millstream.logcore.replication.machine import Effect, NodeId

from .base import Mutant


def _yes(*_: Any, **__: Any) -> bool:
    return True


def _no(*_: Any, **__: Any) -> bool:
    return False


def _answers_at_once(self: Controller, index: int, effect: Effect) -> None:
    self.emit(effect)


def _decides_on_what_is_committed(self: Controller, *records: Any) -> Any:
    index = _PROPOSE(self, *records)
    self.ahead = self.image
    return index


def _as_asked(self: Controller, state: PartitionState, asked: AlterPartition) -> PartitionState:
    return partition_rules.with_isr(state, [member.node for member in asked.in_sync])


def _any_leader(state: PartitionState, is_live: IsLive) -> PartitionState:
    return partition_rules.with_any_leader(_WITH_LEADER(state, is_live), is_live) if state.leader is None else state


def _first_leads(state: PartitionState, is_live: IsLive) -> PartitionState:
    """A leader that was eligible, up or not."""
    return _WITH_LEADER(state, lambda node: True)


def _no_elr(state: PartitionState, isr: Any) -> PartitionState:
    return _WITH_ISR(state, isr)._replace(elr=())


def _elr_for_ever(state: PartitionState, isr: Any) -> PartitionState:
    after = _WITH_ISR(state, isr)
    left = {*state.elr, *state.isr} - {*after.isr}
    return after._replace(elr=tuple(node for node in after.replicas if node in left))


def _leaves_clean(self: BrokerRegistry) -> Any:
    return partition_rules.without


def _same_epochs(before: PartitionState, after: PartitionState, *, settle: bool = False) -> PartitionState | None:
    changed = _CHANGED(before, after, settle=settle)
    return changed and changed._replace(leader_epoch=before.leader_epoch)


def _same_partition_epoch(
    before: PartitionState, after: PartitionState, *, settle: bool = False
) -> PartitionState | None:
    changed = _CHANGED(before, after, settle=settle)
    return changed and changed._replace(partition_epoch=before.partition_epoch)


def _same_epoch_alone(broker: NodeId, state: PartitionState, rule: Any) -> PartitionState:
    return _WITH_LIFE_OF(broker, state, rule)._replace(leader_epoch=state.leader_epoch)


def _done_when_begun(state: PartitionState, is_live: IsLive, min_isr: int) -> PartitionState:
    target = tuple(node for node in state.replicas if node not in state.removing)
    return _DONE(state._replace(isr=target), is_live, min_isr)


def _registered_unfenced(image: MetadataImage, index: int, record: BrokerRegistered) -> MetadataImage:
    image = _REGISTERED(image, index, record)
    broker = image.brokers[record.broker]
    return metadata_image.replace(image, brokers={**image.brokers, record.broker: broker._replace(fenced=False)})


def _epoch_stays(image: MetadataImage, index: int, record: BrokerRegistered) -> MetadataImage:
    before = image.brokers.get(record.broker)
    image = _REGISTERED(image, index, record)
    if before is None:
        return image
    broker = image.brokers[record.broker]._replace(epoch=before.epoch)
    return metadata_image.replace(image, brokers={**image.brokers, record.broker: broker})


def _ids_stay(image: MetadataImage, record: ProducerIdsReserved) -> MetadataImage:
    return image


def _never_silent(self: BrokerRegistry) -> None:
    return None


def _deaf_to_ends(self: BrokerRegistry, node: NodeId, leaves: Any) -> list[PartitionState]:
    return []


def _nobody(state: PartitionState, target: Any) -> tuple[Any, ...]:
    return ()


def _same_incarnation(self: Registration, answer: Any) -> bool:
    return answer.incarnation == self._identity.incarnation


_PROPOSE: Final = Controller.propose
_WITH_LEADER: Final = partition_rules.with_leader
_WITH_ISR: Final = partition_rules.with_isr
_CHANGED: Final = partition_rules.changed
_DONE: Final = partition_rules.reassignment_done
_WITH_LIFE_OF: Final = partition_rules.with_life_of
_REGISTERED: Final = metadata_image._registered

MUTANTS: Final = [
    Mutant(
        "answers_before_commit",
        "R5",
        "tells a client before the record is committed",
        ((Controller, "once_committed", _answers_at_once),),
        "control",
        0,
    ),
    Mutant(
        "decides_on_old_state",
        "R5",
        "decides without what it has decided a moment ago",
        ((Controller, "propose", _decides_on_what_is_committed),),
        "control",
        0,
    ),
    Mutant(
        "drops_what_was_added",
        "R14",
        "drops a replica that is in sync at once, when another reassignment replaces the one that brought it",
        ((partition_rules, "_leftover", _nobody),),
        "control",
        "a_reassignment_that_replaces_another_keeps_what_others_may_lack",
    ),
    Mutant(
        "answers_of_another_disk",
        "R8",
        "takes an answer to the process of before, on another disk, for its own",
        ((Registration, "_is_ours", _same_incarnation),),
        "control",
        "test_an_answer_for_the_disk_of_before_is_not_taken_for_ones_own",
    ),
    Mutant(
        "stale_partition_epoch",
        "R5",
        "takes an ISR that was asked for at another epoch",
        ((Controller, "_is_current", _yes),),
        "control",
        0,
    ),
    Mutant(
        "any_broker_epoch",
        "R8, T-L6",
        "takes a follower into the ISR that was heard in an earlier life",
        ((Controller, "_is_current_life", _yes),),
        "control",
        1,
    ),
    Mutant(
        "old_incarnation",
        "R8",
        "registers an earlier life after a later one",
        ((BrokerRegistry, "_is_outlived", _no),),
        "control",
        "an_earlier_life_does_not_register_again",
    ),
    Mutant(
        "copy_takes_over",
        "R8",
        "registers a process on a copy of a disk while the one on the disk lives",
        ((BrokerRegistry, "_is_still_alive", _no),),
        "control",
        "a_copy_of_a_disk_does_not_take_the_place_of_a_process_that_lives",
    ),
    Mutant(
        "any_disk",
        "R8",
        "registers an empty disk that was started as often as the one before",
        ((BrokerRegistry, "_is_on_another_disk", _no),),
        "control",
        "a_new_disk_does_not_become_an_old_one_by_being_started_as_often",
    ),
    Mutant(
        "old_epoch_lives",
        "R8",
        "believes signs of an earlier life",
        ((BrokerRegistry, "_is_this_life", _yes),),
        "control",
        "an_old_sign_of_life_unfences_nobody",
    ),
    Mutant(
        "unfenced_too_early",
        "R7, T-L11",
        "unfences a broker that has not read its own registration",
        ((BrokerRegistry, "_has_caught_up", _yes),),
        "control",
        "a_broker_that_is_behind_stays_fenced",
    ),
    Mutant(
        "unclean_by_default",
        "R15, T-L12",
        "elects whoever lives, unasked",
        ((controller, "with_leader", _any_leader),),
        "control",
        100,
    ),
    Mutant(
        "leader_need_not_live",
        "R15",
        "elects a fenced broker",
        ((controller, "with_leader", _first_leads),),
        "control",
        1,
    ),
    Mutant(
        "no_elr",
        "R14, T-L7",
        "forgets who is eligible when the last one leaves the ISR",
        ((partition_rules, "with_isr", _no_elr), (controller, "with_isr", _no_elr)),
        "control",
        "a_shrunk_isr_names_who_is_eligible",
    ),
    Mutant(
        "elr_for_ever",
        "R14",
        "keeps the ELR though the ISR is large enough again",
        ((partition_rules, "with_isr", _elr_for_ever), (controller, "with_isr", _elr_for_ever)),
        "control",
        1,
    ),
    Mutant(
        "unclean_stays_eligible",
        "R14, R17",
        "keeps a broker eligible that says it lost records",
        ((BrokerRegistry, "_leaves_for_good", _leaves_clean),),
        "control",
        "who_lost_records_leads_nothing",
    ),
    Mutant(
        "leader_epoch_stays",
        "R6, T-L4",
        "elects a leader without a new epoch",
        ((controller, "changed", _same_epochs),),
        "control",
        0,
    ),
    Mutant(
        "partition_epoch_stays",
        "R5, R12",
        "changes a partition without a new epoch",
        ((controller, "changed", _same_partition_epoch),),
        "control",
        0,
    ),
    Mutant(
        "reassigned_too_early",
        "R13",
        "ends a reassignment before the new replicas are in sync",
        ((controller, "reassignment_done", _done_when_begun),),
        "control",
        0,
    ),
    Mutant(
        "registration_unfences",
        "R7, R8",
        "takes a registered broker for a live one",
        ((metadata_image, "_registered", _registered_unfenced),),
        "control",
        "a_broker_that_is_behind_stays_fenced",
    ),
    Mutant(
        "full_leader_stays",
        "R5, R8",
        "lets a leader without room leave the ISR and lead on",
        ((Controller, "_altered", _as_asked),),
        "control",
        "a_leader_without_room_gives_way",
    ),
    Mutant(
        "broker_epoch_stays",
        "R8",
        "gives a new life the epoch of the old one",
        ((metadata_image, "_registered", _epoch_stays),),
        "control",
        "a_broker_that_is_behind_stays_fenced",
    ),
    Mutant(
        "producer_ids_twice",
        "R19",
        "gives out producer ids without noting them",
        ((metadata_image, "_producer_ids", _ids_stay),),
        "control",
        0,
    ),
    Mutant(
        "registration_moves_nothing",
        "R8",
        "lets a broker that begins a new life keep what it led",
        ((BrokerRegistry, "_without", _deaf_to_ends),),
        "control",
        1,
    ),
    Mutant(
        "lives_share_an_epoch",
        "R6, R8",
        "lets a broker's next life lead what it alone has in the leader epoch of the one before",
        ((metadata_image, "with_life_of", _same_epoch_alone),),
        "control",
        1,
    ),
    Mutant(
        "silence_is_life",
        "T-L4",
        "never fences a broker that is silent",
        ((BrokerRegistry, "tick", _never_silent),),
        "control",
        "a_silent_leader_is_replaced",
    ),
]
