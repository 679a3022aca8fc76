"""Answers about producers and transactions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from millstream.errors import LogError

from ...client import Topic, TopicPartition
from ...cores.group_messages import CheckCommit
from ...cores.patterns import InvalidPattern, NamePattern
from ...cores.transaction_records import Identity, TransactionState
from ...cores.transactions import TransactionDescription
from ...error_codes import ErrorCode
from ..kafka_service import Desk
from ..security.access import check_cluster, check_readable, check_writable, may_see
from ..security.accesses import ALTER_CLUSTER, DESCRIBE_TRANSACTION, WRITE_TRANSACTION
from ..security.peer import Peer
from ..wire.faults import code_of, coordinator_code_of
from ..wire.frames import CLIENT_ID
from ..wire.messages import Fields
from .group_requests import code_of_fault
from .offset_requests import committable, each_partition, notes_in

if TYPE_CHECKING:
    from .request_shapes import (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        DescribeProducersRequest,
        DescribeTransactionsRequest,
        EndTxnRequest,
        InitProducerIdRequest,
        ListTransactionsRequest,
        TxnOffsetCommitRequest,
        WriteTxnMarkersMarker,
        WriteTxnMarkersRequest,
    )

TIMEOUT_MS_MAX: Final = 15 * 60 * 1000
"""The longest timeout of a transaction that a producer may request; Kafka's `transaction.max.timeout.ms`."""
_STATE_NAMES: Final = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
}
_NEVER: Final = datetime.fromtimestamp(-0.001, UTC)  # -1, in milliseconds
_RAISES_FROM: Final = 5  # of EndTxn; from this version of TxnOffsetCommit on, sending offsets also announces them
_KNOWS_FENCED_FROM: Final = 4  # older clients understand only the older code


def init_producer_id(broker: Desk, request: InitProducerIdRequest, peer: Peer) -> Fields:
    """A new id, or a new epoch of the transactional id, which fences its previous holder."""
    timeout_ms = round(request.transaction_timeout.total_seconds() * 1000)
    if request.transactional_id == "":
        return _no_producer(ErrorCode.invalid_request)
    if request.transactional_id is not None and _is_others(broker, peer, request.transactional_id):
        return _no_producer(ErrorCode.transactional_id_authorization_failed)
    try:
        if request.transactional_id is None:
            new_id = broker.transactions.new_producer_id()
            return {"error_code": ErrorCode.none, "producer_id": new_id, "producer_epoch": 0}
        if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
            return _no_producer(ErrorCode.invalid_transaction_timeout)
        known_id = getattr(request, "producer_id", -1)
        known = (known_id, request.producer_epoch) if known_id >= 0 else None
        new = broker.transactions.start(request.transactional_id, timeout_ms, known)
    except LogError as error:
        code = coordinator_code_of(error)
        if code is ErrorCode.invalid_producer_epoch and request.__version__ >= _KNOWS_FENCED_FROM:
            code = ErrorCode.producer_fenced
        return _no_producer(code)
    return {"error_code": ErrorCode.none, "producer_id": new.producer_id, "producer_epoch": new.epoch}


def _no_producer(error: ErrorCode) -> Fields:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}


def add_partitions_to_txn(broker: Desk, request: AddPartitionsToTxnRequest, peer: Peer) -> Fields:
    """Adds all of them or none."""
    asked = [
        TopicPartition(topic.name, partition) for topic in request.v3_and_below_topics for partition in topic.partitions
    ]
    topics = broker.log.topics()
    who = Identity(
        request.v3_and_below_transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
    refused = {where: code for where in asked if (code := _why_not(topics.get(where.topic), where, peer)) is not None}
    if _is_others(broker, peer, who.transactional_id):
        refused, error = {}, ErrorCode.transactional_id_authorization_failed
    elif refused:
        error = ErrorCode.operation_not_attempted
    else:
        error = _code(lambda: broker.transactions.add_partitions(who, frozenset(asked)))

    def result(where: TopicPartition) -> Fields:
        return {"partition_index": where.partition, "partition_error_code": refused.get(where, error)}

    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [result(TopicPartition(topic.name, number)) for number in topic.partitions],
            }
            for topic in request.v3_and_below_topics
        ]
    }


def _is_others(broker: Desk, peer: Peer, transactional_id: str) -> bool:
    """Whether the client has no right on the id. Each request is checked, because producer ids and epochs are small
    numbers that anybody can guess."""
    return broker.refuses(peer, transactional_id, WRITE_TRANSACTION)


def _why_not(topic: Topic | None, where: TopicPartition, peer: Peer) -> ErrorCode | None:
    """Why a client cannot write to this partition in a transaction."""
    try:
        check_writable(peer, where.topic)
    except LogError as error:
        return code_of(error)
    known = topic is not None and 0 <= where.partition < topic.partition_count
    return None if known else ErrorCode.unknown_topic_or_partition


def add_offsets_to_txn(broker: Desk, request: AddOffsetsToTxnRequest, peer: Peer) -> Fields:
    if _is_others(broker, peer, request.transactional_id):
        return {"error_code": ErrorCode.transactional_id_authorization_failed}
    if broker.refuses(peer, request.group_id):
        return {"error_code": ErrorCode.group_authorization_failed}
    return {"error_code": _code(lambda: broker.transactions.add_offsets(_who(request), request.group_id))}


def txn_offset_commit(broker: Desk, request: TxnOffsetCommitRequest, peer: Peer) -> Fields:
    check = CheckCommit(
        request.group_id,
        getattr(request, "generation_id", -1),
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        transactional=True,
    )
    if _is_others(broker, peer, request.transactional_id):
        return each_partition(request, ErrorCode.transactional_id_authorization_failed)
    if broker.refuses(peer, request.group_id):
        return each_partition(request, ErrorCode.group_authorization_failed)
    offsets, refused = committable(broker, peer, request)
    if refused and not offsets:
        return each_partition(request, ErrorCode.none, refused)
    announces = request.__version__ >= _RAISES_FROM
    try:
        fault = broker.transactions.commit_offsets(
            _who(request), check, offsets, notes_in(request), announces=announces
        )
    except LogError as error:
        return each_partition(request, coordinator_code_of(error), refused)
    return each_partition(request, code_of_fault(fault), refused)


def end_txn(broker: Desk, request: EndTxnRequest, peer: Peer) -> Fields:
    """Newer clients continue with another epoch."""
    if _is_others(broker, peer, request.transactional_id):
        refused = ErrorCode.transactional_id_authorization_failed
        return _no_producer(refused) if request.__version__ >= _RAISES_FROM else {"error_code": refused}
    if request.__version__ < _RAISES_FROM:
        return {"error_code": _code(lambda: broker.transactions.end(_who(request), commit=request.committed))}
    try:
        visibly = peer.client_id == CLIENT_ID  # our own clients promise this; for others it would only cost time
        raised = broker.transactions.end_and_raise(_who(request), commit=request.committed, visibly=visibly)
    except LogError as error:
        return _no_producer(coordinator_code_of(error))
    return {"error_code": ErrorCode.none, "producer_id": raised.producer_id, "producer_epoch": raised.epoch}


def _why_unknown(broker: Desk, peer: Peer, transactional_id: str) -> ErrorCode:
    """The error for an unknown id: only its coordinator knows that there is no such id."""
    try:
        coordinator = broker.layout.coordinator("transaction", transactional_id, peer.local)
    except LogError as error:
        return code_of(error)
    here = coordinator.node == broker.layout.node
    return ErrorCode.transactional_id_not_found if here else ErrorCode.not_coordinator


def _who(request: AddOffsetsToTxnRequest | TxnOffsetCommitRequest | EndTxnRequest) -> Identity:
    return Identity(request.transactional_id, request.producer_id, request.producer_epoch)


def _code(act: Callable[[], None]) -> ErrorCode:
    try:
        act()
    except LogError as error:
        return coordinator_code_of(error)
    return ErrorCode.none


def _start_of(known: TransactionDescription) -> datetime:
    return _NEVER if known.open_ms < 0 else datetime.now(UTC) - timedelta(milliseconds=known.open_ms)


# Requests of administrators


def describe_producers(broker: Desk, request: DescribeProducersRequest, peer: Peer) -> Fields:
    """The producers that have written to a partition with a producer id."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _producers_of(broker, peer, TopicPartition(topic.name, n)) for n in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


def _producers_of(broker: Desk, peer: Peer, where: TopicPartition) -> Fields:
    try:
        check_readable(peer, where.topic)
        found = broker.log.partition(*where).active_producers()
    except LogError as error:
        return {"partition_index": where.partition, "error_code": code_of(error), "active_producers": []}
    return {
        "partition_index": where.partition,
        "error_code": ErrorCode.none,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.seen_ms,
                "coordinator_epoch": 0,
                "current_txn_start_offset": producer.transaction_offset,
            }
            for producer in found
        ],
    }


def write_txn_markers(broker: Desk, request: WriteTxnMarkersRequest, peer: Peer) -> Fields:
    """For administrators: ends a transaction that no coordinator will end, directly in the partitions."""

    def result(marker: WriteTxnMarkersMarker, topic: str, number: int) -> Fields:
        def write() -> None:
            check_cluster(peer, ALTER_CLUSTER)
            where = TopicPartition(topic, number)
            broker.layout.check_leads(where)
            commits = marker.transaction_result
            broker.transactions.end_hanging(where, marker.producer_id, marker.producer_epoch, commit=commits)

        return {"partition_index": number, "error_code": _code(write)}

    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [result(marker, topic.name, number) for number in topic.partition_indexes],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.markers
        ]
    }


def list_transactions(broker: Desk, request: ListTransactionsRequest, peer: Peer) -> Fields:
    try:
        described = broker.log.transactions()
    except LogError as error:  # a coordinator is not ready, so the list would be incomplete
        return {"error_code": code_of(error), "unknown_state_filters": [], "transaction_states": []}
    pattern = getattr(request, "transactional_id_pattern", None)
    try:
        fits = NamePattern(pattern).fits if pattern else None
    except InvalidPattern:
        refused = ErrorCode.invalid_regular_expression
        return {"error_code": refused, "unknown_state_filters": [], "transaction_states": []}
    longer_than_ms = getattr(request, "duration_filter", -1)
    names = {str(name) for name in _STATE_NAMES.values()}
    producers = set(request.producer_id_filters)
    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": [name for name in request.state_filters if name not in names],
        "transaction_states": [
            {
                "transactional_id": known.identity.transactional_id,
                "producer_id": known.identity.producer_id,
                "transaction_state": _STATE_NAMES[known.state],
            }
            for known in described
            if (not request.state_filters or _STATE_NAMES[known.state] in request.state_filters)
            and (not producers or known.identity.producer_id in producers)
            and (longer_than_ms < 0 or known.open_ms > longer_than_ms)
            and (fits is None or fits(known.identity.transactional_id))
            and peer.may(DESCRIBE_TRANSACTION, known.identity.transactional_id)
        ],
    }


def describe_transactions(broker: Desk, request: DescribeTransactionsRequest, peer: Peer) -> Fields:
    try:
        known = {found.identity.transactional_id: found for found in broker.log.transactions()}
    except LogError as error:
        return {"transaction_states": [_not_described(id, code_of(error)) for id in request.transactional_ids]}
    return {"transaction_states": [_transaction(broker, peer, id, known.get(id)) for id in request.transactional_ids]}


def _not_described(transactional_id: str, error: ErrorCode) -> Fields:
    return {"transactional_id": transactional_id, "error_code": error, "transaction_start_time": _NEVER}


def _transaction(broker: Desk, peer: Peer, transactional_id: str, known: TransactionDescription | None) -> Fields:
    allowed = peer.may(DESCRIBE_TRANSACTION, transactional_id)
    if known is None or not allowed:
        refused = ErrorCode.transactional_id_authorization_failed
        return _not_described(transactional_id, _why_unknown(broker, peer, transactional_id) if allowed else refused)
    partitions: dict[str, list[int]] = {}
    for topic, partition in known.partitions:
        if may_see(peer, topic):
            partitions.setdefault(topic, []).append(partition)
    return {
        "error_code": ErrorCode.none,
        "transactional_id": transactional_id,
        "transaction_state": _STATE_NAMES[known.state],
        "transaction_start_time": _start_of(known),
        "transaction_timeout": timedelta(milliseconds=known.timeout_ms),
        "producer_id": known.identity.producer_id,
        "producer_epoch": known.identity.epoch,
        "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in partitions.items()],
    }
