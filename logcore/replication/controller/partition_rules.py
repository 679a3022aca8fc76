"""What may happen to a partition: members of the ISR that go and come, and who may lead (R14, R15). Pure functions.

Each takes a state and gives the next one, without epochs; `changed` raises them once for all that was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..machine import NodeId
from .metadata_records import PartitionState

IsLive = Callable[[NodeId], bool]


def changed(before: PartitionState, after: PartitionState, *, settle: bool = False) -> PartitionState | None:
    """`after` with its epochs; None where nothing changed, unless the change is to be settled by a new epoch.

    A new leader epoch begins also where a replica goes: it drops its log, and if it comes back, what it had asked
    before must not tell the leader that it has what it had (R6; Kafka raises the epoch there, too).
    """
    if before == after and not settle:
        return None
    begins = after.leader != before.leader or not set(before.replicas) <= set(after.replicas)
    return after._replace(
        leader_epoch=before.leader_epoch + begins,
        partition_epoch=before.partition_epoch + 1,
    )


def without(state: PartitionState, broker: NodeId) -> PartitionState:
    """The broker is fenced: it leaves the ISR, and stays eligible where too few are left."""
    if broker in state.isr:
        state = with_isr(state, [node for node in state.isr if node != broker])
    return _without_leader(state, broker)


def without_unclean(state: PartitionState, broker: NodeId) -> PartitionState:
    """The broker came back and may lack what it acknowledged: it is neither in sync nor eligible (R14)."""
    isr = tuple(node for node in state.isr if node != broker)
    elr = tuple(node for node in state.elr if node != broker)
    return _without_leader(state._replace(isr=isr, elr=elr), broker)


def with_isr(state: PartitionState, isr: Iterable[NodeId]) -> PartitionState:
    """Members that leave while too few are left stay eligible: from now on the high watermark stands still (R14)."""
    now = set(isr)
    left = [node for node in state.isr if node not in now]
    eligible = {*state.elr, *left} - now if len(now) < state.min_isr else set[NodeId]()
    return state._replace(isr=_ordered(state, now), elr=_ordered(state, eligible))


def with_leader(state: PartitionState, is_live: IsLive) -> PartitionState:
    """Elects where there is no leader: one in sync, else an eligible one (R15)."""
    if state.leader is not None:
        return state
    for candidates in (state.isr, state.elr):
        for node in state.replicas:
            if node in candidates and is_live(node):
                return _led_by(state, node)
    return state


def with_any_leader(state: PartitionState, is_live: IsLive) -> PartitionState:
    """Elects whoever lives where nobody eligible does. What only the others had is lost."""
    state = with_leader(state, is_live)
    if state.leader is None:
        for node in state.replicas:
            if is_live(node):
                return state._replace(leader=node, isr=(node,), elr=(), unclean=True)
    return state


def with_preferred_leader(state: PartitionState, is_live: IsLive) -> PartitionState:
    """The first replica leads, if it is in sync."""
    preferred = state.replicas[0]
    if preferred == state.leader or preferred not in state.isr or not is_live(preferred):
        return state
    return state._replace(leader=preferred, unclean=False)


def handed_over(state: PartitionState, broker: NodeId, is_live: IsLive) -> PartitionState:
    """A leader that is about to end gives way to another one in sync; where there is none, it stays."""
    if state.leader != broker:
        return state
    for node in state.replicas:
        if node != broker and node in state.isr and is_live(node):
            return state._replace(leader=node, unclean=False)
    return state


def lacks_replicas(state: PartitionState) -> bool:
    """Whether a replica is not in sync that is not just being added."""
    return not set(state.replicas) - set(state.adding) <= set(state.isr)


# Reassignments


def reassigned(state: PartitionState, target: tuple[NodeId, ...]) -> PartitionState:
    """Begins to move: the new replicas come first, the old ones go when all the new ones are in sync."""
    stay, leftover = _original(state), _leftover(state, target)
    adding = (*(node for node in target if node not in stay), *leftover)
    removing = (*(node for node in stay if node not in target), *leftover)
    return state._replace(replicas=(*target, *removing), adding=adding, removing=removing)


def _leftover(state: PartitionState, target: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """What an earlier reassignment was to bring goes at once, unless it is in sync or eligible: it may have what the
    others lack, so it goes with the old ones, and is both in `adding` and in `removing` until then (R14)."""
    members = {*state.isr, *state.elr}
    return tuple(node for node in state.adding if node not in target and node in members)


def to_come(state: PartitionState) -> tuple[NodeId, ...]:
    """The replicas that a reassignment brings, and means to keep."""
    return tuple(node for node in state.adding if node not in state.removing)


def reassignment_done(state: PartitionState, is_live: IsLive, min_isr: int) -> PartitionState:
    """The old replicas go, once all the others are in sync. As many have to be in sync then as the setting says."""
    if not state.adding and not state.removing:
        return state
    target = tuple(node for node in state.replicas if node not in state.removing)
    if not set(target) <= set(state.isr):
        return state
    leader = state.leader if state.leader in target else None
    state = state._replace(
        leader=leader,
        replicas=target,
        isr=target,
        elr=tuple(node for node in state.elr if node in target),
        adding=(),
        removing=(),
        min_isr=min(min_isr, len(target)),
    )
    return with_leader(state, is_live)


def reassignment_called_off(state: PartitionState) -> PartitionState:
    """Back to the replicas of before, those first that were to go."""
    stay = _original(state)
    gone_before = [node for node in stay if node in state.removing]
    return reassigned(state, (*gone_before, *(node for node in stay if node not in state.removing)))


def _original(state: PartitionState) -> tuple[NodeId, ...]:
    """The replicas without those that a reassignment brings."""
    return tuple(node for node in state.replicas if node not in state.adding)


def _led_by(state: PartitionState, node: NodeId) -> PartitionState:
    isr = {*state.isr, node}
    elr = set(state.elr) - isr if len(isr) < state.min_isr else set[NodeId]()
    return state._replace(leader=node, isr=_ordered(state, isr), elr=_ordered(state, elr), unclean=False)


def needs_decision(state: PartitionState) -> bool:
    """Whether who is live makes any difference to it as it is now: the others lack nothing."""
    return state.leader is None or bool(state.adding or state.removing)


# What a broker has alone


def is_alone(state: PartitionState, broker: NodeId) -> bool:
    """Whether nobody else has a replica. Then a record of the broker's life says what becomes of the partition, and
    there is none of the partition's own: a node may have ten thousand of them."""
    return state.replicas == (broker,)


def leads_alone(state: PartitionState, broker: NodeId) -> PartitionState:
    """The broker is live, and leads what it alone has. What it reported lost stays without a leader (R14)."""
    return with_leader(state, lambda node: node == broker)


def with_life_of(
    broker: NodeId, state: PartitionState, rule: Callable[[PartitionState, NodeId], PartitionState]
) -> PartitionState:
    """The partition after a change in the broker's life, as far as that has it alone.

    It gets the epochs that a record of its own would have given it: no two lives share a leader epoch, so nothing that
    was said to the one before is taken for an answer to this one (R6).
    """
    if not is_alone(state, broker):
        return state
    return changed(state, rule(state, broker)) or state


def _without_leader(state: PartitionState, broker: NodeId) -> PartitionState:
    return state._replace(leader=None) if state.leader == broker else state


def _ordered(state: PartitionState, nodes: set[NodeId]) -> tuple[NodeId, ...]:
    """In the order of the replicas."""
    return tuple(node for node in state.replicas if node in nodes)
