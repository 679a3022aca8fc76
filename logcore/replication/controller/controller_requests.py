"""Requests of operators and clients to the leading controller: topics, settings, reassignments, elections, members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, assert_never

from ...log_settings import ALL_BROKERS
from ...topic_rules import COORDINATORS
from ..cluster_version import VERSIONS
from ..machine import NodeId
from ..replica.throttle import THROTTLED_RATE
from .controller_description import quorum_described
from .controller_messages import (
    AddNode,
    AddPartitions,
    ChangeConfig,
    ChangeSettings,
    ChangeVoters,
    CreateTopic,
    DeleteTopic,
    Done,
    ElectLeader,
    NotController,
    RaiseVersion,
    Reassign,
    Refused,
    RemoveBroker,
    SetThrottle,
    Trouble,
)
from .metadata_image import ALL, TopicImage
from .metadata_records import (
    BrokerRemoved,
    ConfigChanged,
    NodeAdded,
    PartitionState,
    TopicCreated,
    TopicDeleted,
    VersionRaised,
)
from .operations_messages import DescribeQuorum, DescribeQuorumHere, QuorumDescription, QuorumHere
from .partition_rules import (
    changed,
    reassigned,
    reassignment_called_off,
    with_any_leader,
    with_isr,
    with_leader,
    with_preferred_leader,
)
from .placement import Placement, new_partition

if TYPE_CHECKING:
    from .controller import Controller

MIN_ISR: Final = "min.insync.replicas"
_PARTITIONS_MAX: Final = 10_000  # per topic

DecidedRequest = (
    CreateTopic
    | AddPartitions
    | DeleteTopic
    | ChangeConfig
    | ChangeSettings
    | Reassign
    | ElectLeader
    | AddNode
    | SetThrottle
    | RemoveBroker
    | ChangeVoters
    | RaiseVersion
)
"""Requests that are answered once they are committed."""

LeaderRequest = DecidedRequest | DescribeQuorum
"""Requests that only the leading controller answers."""

ControllerRequest = LeaderRequest | DescribeQuorumHere
LeaderAnswer = Done | Refused | QuorumDescription
ControllerAnswer = LeaderAnswer | NotController | QuorumHere


def _create_topic(controller: Controller, asked: CreateTopic) -> LeaderAnswer:
    if asked.name in controller.ahead.topic_ids:
        return Refused(Trouble.TOPIC_EXISTS, f'topic "{asked.name}" exists')
    count = len(asked.assignment) or asked.partition_count
    if not 0 < count <= _PARTITIONS_MAX:
        return Refused(Trouble.INVALID_PARTITIONS, f"a topic has 1 to {_PARTITIONS_MAX} partitions")
    topic_id = _new_topic_id(controller, asked.name)
    min_isr = min_isr_of(dict(asked.configs).get(MIN_ISR) or controller.ahead.config(ALL, MIN_ISR))
    if min_isr is None:
        return Refused(Trouble.INVALID_CONFIG, f"{MIN_ISR} is a whole number above 0")
    partitions = _new_partitions(controller, topic_id, 0, count, asked.replication_factor, asked.assignment, min_isr)
    if isinstance(partitions, Refused):
        return partitions
    configs = [ConfigChanged(topic_id, key, value) for key, value in asked.configs]
    index = controller.propose([TopicCreated(topic_id, asked.name), *partitions, *configs])
    return _done(index, topic_id)


def _new_topic_id(controller: Controller, name: str) -> str:
    """An id that no topic ever had, whatever its name (R20): the term and index of the record that creates the topic.
    Many clusters have the same name, so the id contains the name of the controller's disk instead."""
    quorum = controller.quorum
    return f"{quorum.disk or quorum.cluster}-{quorum.term}-{quorum.log.last_index + 1}"


def _add_partitions(controller: Controller, asked: AddPartitions) -> LeaderAnswer:
    topic = _topic(controller, asked.name)
    if topic is None:
        return _unknown(asked.name)
    if topic.name in COORDINATORS:
        why = f'the partitions of "{topic.name}" are the coordinators: with more of them each key would get another one'
        return Refused(Trouble.INVALID_PARTITIONS, why)
    now = len(topic.partitions)
    if not now < asked.partition_count <= _PARTITIONS_MAX:
        return Refused(Trouble.INVALID_PARTITIONS, f'topic "{asked.name}" has {now} partitions, and can only get more')
    like = topic.partitions[0]
    factor = len(like.replicas) - len(like.adding)
    count, min_isr = asked.partition_count - now, controller.min_isr_wanted(topic.id)
    if asked.assignment and [len(replicas) for replicas in asked.assignment] != [factor] * count:
        why = f"{count} new partitions of {factor} replicas cannot be {[tuple(each) for each in asked.assignment]}"
        return Refused(Trouble.INVALID_REPLICA_ASSIGNMENT, why)
    added = _new_partitions(controller, topic.id, now, count, factor, asked.assignment, min_isr)
    return added if isinstance(added, Refused) else _done(controller.propose(added), topic.id)


def _new_partitions(
    controller: Controller,
    topic_id: str,
    first: int,
    count: int,
    factor: int,
    assignment: tuple[tuple[NodeId, ...], ...],
    min_isr: int,
) -> list[PartitionState] | Refused:
    placement = Placement(controller.ahead)
    if not assignment and not 0 < factor <= placement.broker_count:
        what = f"replication factor {factor}, and the cluster has {placement.broker_count} brokers"
        return Refused(Trouble.INVALID_REPLICATION_FACTOR, what)
    partitions: list[PartitionState] = []
    for number in range(count):
        replicas = assignment[number] if assignment else placement.choose(factor)
        live = tuple(node for node in replicas if controller.is_live(node))
        if len(set(replicas)) != len(replicas) or not live or not all(n in controller.ahead.brokers for n in replicas):
            return Refused(
                Trouble.INVALID_REPLICA_ASSIGNMENT, f"replicas {replicas} are not distinct brokers, one of them up"
            )
        partitions.append(new_partition(topic_id, first + number, replicas, live, min_isr))
    return partitions


def _delete_topic(controller: Controller, asked: DeleteTopic) -> LeaderAnswer:
    topic = _topic(controller, asked.name)
    if topic is None:
        return _unknown(asked.name)
    return _done(controller.propose([TopicDeleted(topic.id)]), topic.id)


def _change_config(controller: Controller, asked: ChangeConfig) -> LeaderAnswer:
    topic = _topic(controller, asked.topic) if asked.topic is not None else None
    if asked.topic is not None and topic is None:
        return _unknown(asked.topic)
    if asked.key == MIN_ISR and asked.value is not None and min_isr_of(asked.value) is None:
        return Refused(Trouble.INVALID_CONFIG, f"{MIN_ISR} is a whole number above 0")
    record = ConfigChanged(topic.id if topic else ALL, asked.key, asked.value)
    after: list[PartitionState] = []
    if asked.key == MIN_ISR:
        after = _with_min_isr(controller, topic, asked.value)
    index = controller.propose([record, *after])
    if index is not None:
        controller.propose(controller.elections())  # the change may allow unclean elections
    return _done(index)


def _change_settings(controller: Controller, asked: ChangeSettings) -> LeaderAnswer:
    if ":" not in asked.resource:
        return Refused(Trouble.INVALID_REQUEST, f'"{asked.resource}" names no broker, group, client or user')
    return _done(controller.propose([ConfigChanged(asked.resource, key, value) for key, value in asked.changes]))


def _with_min_isr(controller: Controller, topic: TopicImage | None, value: str | None) -> list[PartitionState]:
    """The partitions with the new setting. They contain it so that all nodes switch to it at the same record."""
    ahead = controller.ahead

    def rule(state: PartitionState) -> PartitionState:
        if topic is not None and state.topic_id != topic.id:
            return state
        own = ahead.configs.get(state.topic_id, {}).get(MIN_ISR)
        above = ahead.configs.get(ALL, {}).get(MIN_ISR)
        wanted = (value or above) if topic is not None else (own or value)
        state = state._replace(min_isr=min(min_isr_of(wanted) or 1, len(state.replicas) - len(state.adding)))
        return with_isr(state, state.isr)

    return controller.changes(rule)


def _reassign(controller: Controller, asked: Reassign) -> LeaderAnswer:
    state = controller.ahead.partition(asked.partition)
    if state is None:
        return Refused(Trouble.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    if asked.replicas is None:
        if not state.adding and not state.removing:
            return Refused(Trouble.NO_REASSIGNMENT_IN_PROGRESS, "this partition is not being reassigned")
        after = reassignment_called_off(state)
    else:
        wrong = _wrong_replicas(controller, asked.replicas)
        if wrong is not None:
            return Refused(Trouble.INVALID_REPLICA_ASSIGNMENT, wrong)
        after = reassigned(state, asked.replicas)
    after = with_leader(controller.moved(after, controller.is_live), controller.is_live)
    record = changed(state, after)
    return _done(controller.propose([record] if record else []))


def _wrong_replicas(controller: Controller, replicas: Sequence[NodeId]) -> str | None:
    """Why a partition cannot have these replicas; None if it can."""
    if not replicas:
        return "a partition needs a replica"
    known = sorted(controller.ahead.brokers)
    unknown = next((node for node in replicas if node not in known), None)
    if unknown is not None:
        return f"there is no node {unknown} in this cluster: its nodes are {', '.join(map(str, known))}"
    twice = next((node for node in replicas if replicas.count(node) > 1), None)
    return None if twice is None else f"node {twice} is named twice: a node has at most one replica of a partition"


def _elect(controller: Controller, asked: ElectLeader) -> LeaderAnswer:
    state = controller.ahead.partition(asked.partition)
    if state is None:
        return Refused(Trouble.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    if asked.unclean:
        if state.leader is not None:
            return Refused(Trouble.ELECTION_NOT_NEEDED, f"broker {state.leader} leads this partition")
        after = controller.moved(with_any_leader(state, controller.is_live), controller.is_live)
    else:
        if state.leader == state.replicas[0]:
            return Refused(Trouble.ELECTION_NOT_NEEDED, "the preferred replica leads")
        after = with_preferred_leader(state, controller.is_live)
    record = changed(state, after)
    if record is None:
        trouble = Trouble.ELIGIBLE_LEADERS_NOT_AVAILABLE if asked.unclean else Trouble.PREFERRED_LEADER_NOT_AVAILABLE
        return Refused(trouble, "no replica that may lead is up")
    return _done(controller.propose([record]))


def _add_node(controller: Controller, asked: AddNode) -> LeaderAnswer:
    addresses = controller.ahead.addresses
    if asked.node < 1:
        return Refused(Trouble.INVALID_REQUEST, f"{asked.node} is no number of a node: nodes are numbered from 1")
    taken = next((node for node, address in addresses.items() if address == asked.address and node != asked.node), None)
    if taken is not None:
        return Refused(Trouble.INVALID_REQUEST, f"{asked.address} is the address of node {taken}")
    if controller.is_live(asked.node) and addresses.get(asked.node) != asked.address:
        at = addresses.get(asked.node, "another address")
        return Refused(Trouble.INVALID_REQUEST, f"node {asked.node} is up, at {at}: give the new node another number")
    index = controller.propose([NodeAdded(asked.node, asked.address)])
    controller.admit(asked.node)
    return _done(index)


def _set_throttle(controller: Controller, asked: SetThrottle) -> LeaderAnswer:
    rate = asked.bytes_per_second
    if rate is not None and rate < 1:
        return Refused(Trouble.INVALID_CONFIG, "the throttle is a number of bytes per second above 0, or none")
    value = None if rate is None else str(rate)
    return _done(controller.propose([ConfigChanged(ALL_BROKERS, THROTTLED_RATE, value)]))


def _remove_broker(controller: Controller, asked: RemoveBroker) -> LeaderAnswer:
    if controller.is_live(asked.broker):
        return Refused(Trouble.INVALID_REQUEST, f"broker {asked.broker} is up: stop it first")
    if any(asked.broker in state.replicas for state in controller.ahead.partitions()):
        return Refused(Trouble.INVALID_REQUEST, f"broker {asked.broker} has replicas: reassign them first")
    voters = controller.quorum.log.voters
    if asked.broker in voters.voters:
        return Refused(Trouble.INVALID_REQUEST, f"node {asked.broker} is a voter: take it out of the voters first")
    learners = tuple(node for node in voters.learners if node != asked.broker)
    refused = controller.quorum.change_voters(voters._replace(learners=learners))
    if refused is not None:
        return Refused(Trouble.BUSY, refused)
    return _done(controller.propose([BrokerRemoved(asked.broker)]))


def _change_voters(controller: Controller, asked: ChangeVoters) -> LeaderAnswer:
    refused = controller.quorum.change_voters(asked.wanted)
    if refused is not None:
        return Refused(Trouble.INVALID_REQUEST, refused)
    return Done(controller.quorum.log.last_index)


def _raise_version(controller: Controller, asked: RaiseVersion) -> LeaderAnswer:
    now = controller.ahead.version
    if asked.version <= now:
        return Done(controller.ahead.index)
    if asked.version > VERSIONS.newest:
        what = f"version {asked.version} is of a later release: this one knows {VERSIONS}"
        return Refused(Trouble.INVALID_REQUEST, what)
    older = controller.brokers.without_version(asked.version)
    if older:
        nodes = f"node {older[0]}" if len(older) == 1 else f"nodes {', '.join(map(str, older))}"
        does = "does" if len(older) == 1 else "do"
        why = f"{nodes} {does} not say to speak version {asked.version}: start each of them with the new release first"
        return Refused(Trouble.INVALID_REQUEST, why)
    return _done(controller.propose([VersionRaised(asked.version)]))


def _topic(controller: Controller, name: str) -> TopicImage | None:
    return controller.ahead.topics.get(controller.ahead.topic_ids.get(name, ""))


def _unknown(name: str) -> Refused:
    return Refused(Trouble.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic "{name}"')


def _done(index: int | None, topic_id: str | None = None) -> LeaderAnswer:
    if index is None:
        return Refused(Trouble.BUSY, "too many changes of the metadata are under way")
    return Done(index, topic_id)


def min_isr_of(value: str | None) -> int | None:
    """The value of the setting: 1 if it is not set; None if it is not a whole number above 0."""
    if value is None:
        return 1
    return int(value) if value.isdecimal() and int(value) > 0 else None


def answered(controller: Controller, asked: LeaderRequest) -> LeaderAnswer:
    """In: `controller`: the leading one. A `Done` is true only once its index is committed."""
    match asked:
        case CreateTopic():
            return _create_topic(controller, asked)
        case AddPartitions():
            return _add_partitions(controller, asked)
        case DeleteTopic():
            return _delete_topic(controller, asked)
        case ChangeConfig():
            return _change_config(controller, asked)
        case ChangeSettings():
            return _change_settings(controller, asked)
        case Reassign():
            return _reassign(controller, asked)
        case ElectLeader():
            return _elect(controller, asked)
        case AddNode():
            return _add_node(controller, asked)
        case SetThrottle():
            return _set_throttle(controller, asked)
        case DescribeQuorum():
            return quorum_described(controller)
        case RemoveBroker():
            return _remove_broker(controller, asked)
        case ChangeVoters():
            return _change_voters(controller, asked)
        case RaiseVersion():
            return _raise_version(controller, asked)
        case _:
            assert_never(asked)
