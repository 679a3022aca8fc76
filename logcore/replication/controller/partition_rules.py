"""Rules for changes of a partition: which members leave or join the ISR, and which may lead (R14, R15).

Each rule is a pure function from a state to the next, and leaves epochs alone; `changed` raises them once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..machine import NodeId
from .metadata_records import PartitionState

IsLive = Callable[[NodeId], bool]


def changed(before: PartitionState, after: PartitionState, *, settle: bool = False) -> PartitionState | None:
    """`after` with its epochs; None if nothing changed. With `settle`, the partition epoch rises in any case.

    A new leader epoch also begins when a replica leaves. It deletes its log; if it comes back, its earlier fetches
    must not tell the leader that it has records which it no longer has (R6; Kafka raises the epoch there, too).
    """
    if before == after and not settle:
        return None
    begins = after.leader != before.leader or not set(before.replicas) <= set(after.replicas)
    return after._replace(
        leader_epoch=before.leader_epoch + begins,
        partition_epoch=before.partition_epoch + 1,
    )


def without(state: PartitionState, broker: NodeId) -> PartitionState:
    """The broker is fenced: it leaves the ISR, and stays eligible if too few remain."""
    if broker in state.isr:
        state = with_isr(state, [node for node in state.isr if node != broker])
    return _without_leader(state, broker)


def without_unclean(state: PartitionState, broker: NodeId) -> PartitionState:
    """The broker came back and may lack acknowledged records: it is neither in sync nor eligible (R14)."""
    isr = tuple(node for node in state.isr if node != broker)
    elr = tuple(node for node in state.elr if node != broker)
    return _without_leader(state._replace(isr=isr, elr=elr), broker)


def with_isr(state: PartitionState, isr: Iterable[NodeId]) -> PartitionState:
    """Members that leave while too few remain stay eligible, because the high watermark no longer moves (R14)."""
    now = set(isr)
    left = [node for node in state.isr if node not in now]
    eligible = {*state.elr, *left} - now if len(now) < state.min_isr else set[NodeId]()
    return state._replace(isr=_ordered(state, now), elr=_ordered(state, eligible))


def with_leader(state: PartitionState, is_live: IsLive) -> PartitionState:
    """Elects a leader if there is none: a replica in sync, otherwise an eligible one (R15)."""
    if state.leader is not None:
        return state
    for candidates in (state.isr, state.elr):
        for node in state.replicas:
            if node in candidates and is_live(node):
                return _led_by(state, node)
    return state


def with_any_leader(state: PartitionState, is_live: IsLive) -> PartitionState:
    """Elects any live replica if no eligible one is live. Records that only other replicas had are lost."""
    state = with_leader(state, is_live)
    if state.leader is None:
        for node in state.replicas:
            if is_live(node):
                return state._replace(leader=node, isr=(node,), elr=(), unclean=True)
    return state


def with_preferred_leader(state: PartitionState, is_live: IsLive) -> PartitionState:
    """Makes the first replica the leader, if it is live and in sync."""
    preferred = state.replicas[0]
    if preferred == state.leader or preferred not in state.isr or not is_live(preferred):
        return state
    return state._replace(leader=preferred, unclean=False)


def handed_over(state: PartitionState, broker: NodeId, is_live: IsLive) -> PartitionState:
    """Moves leadership away from a broker that is leaving, to another live replica in sync. If there is none, the
    broker stays the leader."""
    if state.leader != broker:
        return state
    for node in state.replicas:
        if node != broker and node in state.isr and is_live(node):
            return state._replace(leader=node, unclean=False)
    return state


def given_up(state: PartitionState, leader: NodeId, is_live: IsLive) -> PartitionState:
    """The leader takes no records (its disk is full), so it leaves the ISR, and another replica in sync leads. If too
    few would remain to acknowledge records, it stays: nothing would be gained."""
    after = with_leader(without(state, leader), is_live)
    return after if len(after.isr) >= state.min_isr and after.leader is not None else state


def lacks_replicas(state: PartitionState) -> bool:
    """Whether a replica that is not being added is out of sync."""
    return not set(state.replicas) - set(state.adding) <= set(state.isr)


# Reassignments


def reassigned(state: PartitionState, target: tuple[NodeId, ...]) -> PartitionState:
    """Begins a reassignment: new replicas are added first; old ones leave when all new ones are in sync."""
    stay, leftover = _original(state), _leftover(state, target)
    adding = (*(node for node in target if node not in stay), *leftover)
    removing = (*(node for node in stay if node not in target), *leftover)
    return state._replace(replicas=(*target, *removing), adding=adding, removing=removing)


def _leftover(state: PartitionState, target: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """Replicas that an earlier reassignment was adding, and that are in sync or eligible. They may have what the others
    lack, so they leave only with the old ones, and are in both `adding` and `removing` until then (R14). Others leave
    immediately."""
    members = {*state.isr, *state.elr}
    return tuple(node for node in state.adding if node not in target and node in members)


def to_come(state: PartitionState) -> tuple[NodeId, ...]:
    """The replicas that a reassignment adds and will keep."""
    return tuple(node for node in state.adding if node not in state.removing)


def reassignment_done(state: PartitionState, is_live: IsLive, min_isr: int) -> PartitionState:
    """Removes the old replicas if all others are in sync. The partition then gets `min_isr`, at most its replicas."""
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
        elr=(),
        adding=(),
        removing=(),
        min_isr=min(min_isr, len(target)),
    )
    return with_leader(state, is_live)


def reassignment_called_off(state: PartitionState) -> PartitionState:
    """Returns to the previous replicas; those that were being removed come first."""
    stay = _original(state)
    gone_before = [node for node in stay if node in state.removing]
    return reassigned(state, (*gone_before, *(node for node in stay if node not in state.removing)))


def _original(state: PartitionState) -> tuple[NodeId, ...]:
    """The replicas without those that a reassignment adds."""
    return tuple(node for node in state.replicas if node not in state.adding)


def _led_by(state: PartitionState, node: NodeId) -> PartitionState:
    isr = {*state.isr, node}
    elr = set(state.elr) - isr if len(isr) < state.min_isr else set[NodeId]()
    return state._replace(leader=node, isr=_ordered(state, isr), elr=_ordered(state, elr), unclean=False)


def needs_decision(state: PartitionState) -> bool:
    """Whether a change of live brokers can change this partition. Partitions with a leader and without a reassignment
    need nothing."""
    return state.leader is None or bool(state.adding or state.removing)


# Partitions with one replica


def is_alone(state: PartitionState, broker: NodeId) -> bool:
    """Whether the broker has the only replica. Then the records about the broker also determine the partition's state,
    without records of its own: a node may have ten thousand such partitions."""
    return state.replicas == (broker,)


def leads_alone(state: PartitionState, broker: NodeId) -> PartitionState:
    """The broker is live, and leads the partitions of which it has the only replica. A partition of which it reported
    lost records stays without a leader (R14)."""
    return with_leader(state, lambda node: node == broker)


def with_life_of(
    broker: NodeId, state: PartitionState, rule: Callable[[PartitionState, NodeId], PartitionState]
) -> PartitionState:
    """The partition after a record about the broker, which changes it if the broker has the only replica.

    It gets the epochs that a record of its own would have given it. So two incarnations of the broker never share a
    leader epoch, and an answer to the earlier one is never taken for an answer to the later one (R6).
    """
    if not is_alone(state, broker):
        return state
    return changed(state, rule(state, broker)) or state


def _without_leader(state: PartitionState, broker: NodeId) -> PartitionState:
    return state._replace(leader=None) if state.leader == broker else state


def _ordered(state: PartitionState, nodes: set[NodeId]) -> tuple[NodeId, ...]:
    """The nodes in the order of the replicas."""
    return tuple(node for node in state.replicas if node in nodes)
