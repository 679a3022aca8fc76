"""Settings of a coordinator of transactions, and answers that it gives in several places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...client import TopicPartition
from ...cores.group_messages import CommittedOffset
from ...cores.transaction_records import UNWRITTEN, Identity, Participant
from ...errors import InvalidTransactionState, ProducerFenced
from ..replica.replica_messages import PartitionId, Problem, Refused
from .led_log import OUT_OF_TOUCH, LedLog
from .transaction_messages import OffsetRow, TakenRequest, TransactionAnswer

Answer = Callable[[TransactionAnswer], None]


class Waiting(NamedTuple):
    """A request that has to wait: for the end of a transaction, or for producer ids."""

    body: TakenRequest
    answer: Answer
    until_ms: int


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Times in milliseconds. `again_ms`: when to ask again without an answer; `wait_ms`: how long a request waits for
    the end of the id's last transaction; `group_wait_ms`: how long for a group; `expire_ms`: when an unused id is
    forgotten (transactional.id.expiration.ms)."""

    again_ms: int = 500
    wait_ms: int = 1_000
    group_wait_ms: int = 10_000
    timeout_ms_max: int = 15 * 60 * 1_000
    expire_ms: int = 7 * 24 * 60 * 60 * 1_000
    look_for_expired_ms: int = 60_000
    waiting_per_id: int = 20
    bytes_max: int = 12 * 1024 * 1024  # for the record of a transaction


def fenced(identity: Identity) -> ProducerFenced:
    return ProducerFenced(f'another producer has the transactional id "{identity.transactional_id}"')


def participants(partitions: Sequence[PartitionId]) -> tuple[Participant, ...]:
    return tuple(Participant(TopicPartition(*partition), partition.topic, UNWRITTEN) for partition in partitions)


def offsets_in(rows: Sequence[OffsetRow]) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(row.topic, row.partition): CommittedOffset(row.offset, row.metadata, row.leader_epoch)
        for row in rows
    }


def too_large(transactional_id: str, bytes_max: int) -> InvalidTransactionState:
    return InvalidTransactionState(
        f'the transaction of "{transactional_id[:100]}" would take more than {bytes_max} bytes',
        hint="Commit more often, with offsets of fewer partitions.",
    )


def concurrent() -> Refused:
    return Refused(Problem.CONCURRENT_TRANSACTIONS, "the last transaction of the producer is not ended yet; ask again")


def ended_otherwise() -> Refused:
    return Refused(Problem.INVALID_TXN_STATE, "the transaction has ended the other way")


_FINAL: Final = (Problem.PRODUCER_FENCED, Problem.INVALID_TXN_STATE, Problem.INVALID_PRODUCER_ID_MAPPING)


def for_certain(log: LedLog, response: TransactionAnswer) -> TransactionAnswer:
    """A producer gives up for good when it is told that it is fenced or unknown, or that its transaction is over. A
    coordinator that may have been replaced does not know that."""
    if isinstance(response, Refused) and response.problem in _FINAL and not log.leads_for_certain:
        return Refused(Problem.NOT_COORDINATOR, OUT_OF_TOUCH)
    return response
