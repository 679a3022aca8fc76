"""Finds out how a transaction ended whose marker a partition has lost, from the records of its coordinator's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from millstream.errors import LogError

from ...client import TopicPartition
from ...coordination.transaction_log import decode_entry
from ...cores.transaction_records import TransactionRecord, TransactionState
from ...cores.transactions import EPOCH_MAX, Coordinator, Standing
from ...records.control import NUMBER_MAX
from ...storage.producer_state import is_reached
from ..replica.replica_messages import EndMarker, EndOrphan
from .kept_transactions import KeptTransaction
from .led_log import LedLog
from .transaction_messages import (
    AskOutcome,
    EndTransaction,
    InitProducer,
    TakenRequest,
    TransactionGoesOn,
    WriteMarker,
)

_DECIDED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def history_of(log: LedLog, key: str) -> Iterator[TransactionRecord]:
    """All records of this id, as far as the log can be read."""
    with suppress(LogError, OSError):
        for record in log.history():
            entry = decode_entry(record.key, record.value)
            if isinstance(entry, TransactionRecord) and entry.transactional_id == key:
                yield entry


def may_need_id(core: Coordinator, key: str, body: TakenRequest) -> bool:
    """Whether the request may take a new producer id."""
    if not isinstance(body, InitProducer | EndTransaction):
        return False
    standing = core.standing(key)
    return standing is None or standing.record.epoch >= EPOCH_MAX


def has_had(standing: Standing, producer_id: int) -> bool:
    ended = standing.record.ended
    return standing.record.producer_id == producer_id or (ended is not None and ended.producer_id == producer_id)


def is_about(asked: EndTransaction, standing: Standing, ending: TransactionRecord) -> bool:
    """Whether the request repeats the end that is under way, or comes from an earlier producer."""
    ended = ending.ended if standing.committing else standing.record.ended
    if ended is not None:
        of_then = asked.producer_id == ended.producer_id and asked.epoch <= ended.epoch
        return of_then or not asked.raises_epoch
    # The id was acquired again, which aborted the transaction: a request of the new holder is about the next one, and
    # requests of others must proceed, to be refused.
    return not asked.raises_epoch or asked[:2] != (standing.record.producer_id, standing.record.epoch)


def ends_as_asked(standing: Standing, committed: bool) -> bool | None:
    """For a client that retries with the same epoch: whether the transaction ended as requested; None if none of its
    transactions has ended."""
    if standing.ending is not None:
        return standing.committing == committed
    if standing.state is TransactionState.COMPLETE_COMMIT:
        return committed
    return None


def what_is_known(
    standing: Standing, kept: KeptTransaction | None, asked: AskOutcome, now_ms: int
) -> TransactionGoesOn | EndOrphan | None:
    """The answer that needs no reading of the log; None if there is none."""
    is_kept = kept is not None and kept.has(asked.sender, asked.producer_id, asked.epoch)
    if is_kept or goes_on(standing, asked):
        return TransactionGoesOn(asked.sender, asked.leader_epoch, asked.producer_id)
    marker = orphans_end(standing, asked, now_ms) if asked.whole else None
    return EndOrphan(asked.sender, asked.leader_epoch, marker) if marker is not None else None


def goes_on(standing: Standing, asked: AskOutcome) -> bool:
    """Whether the transaction that is open in the partition is certainly the producer's open one.

    For producers that get a new epoch with each transaction, the epoch tells. For others it is certain if the partition
    has the end of the previous transaction.
    """
    record = standing.record
    if not _includes(standing, asked) or record.epoch != asked.epoch:
        return False
    return record.ended is not None or record.number in (0, asked.ended)


def lost_end(log: LedLog, standing: Standing, asked: AskOutcome) -> WriteMarker | None:
    """What the records of the id say about the end that the partition lacks."""
    if asked.whole:
        return None
    key = standing.record.transactional_id
    marker = lost_marker(history_of(log, key), standing, asked, log.wall_ms)
    return WriteMarker(asked.sender, log.partition, log.epoch, key, marker) if marker is not None else None


def lost_marker(
    history: Iterable[TransactionRecord], standing: Standing, asked: AskOutcome, now_ms: int
) -> EndMarker | None:
    """The marker that the partition lacks; None if that is unknown, or the transaction may continue.

    In: `history`: the coordinator's records of the id, in order, as far as compaction has left them.
    """
    decided: dict[int, TransactionRecord] = {}
    for record in history:
        ended = record.ended
        if ended is not None and (ended.producer_id, ended.epoch) == (asked.producer_id, asked.epoch):
            epoch = max(record.epoch, asked.epoch) if record.producer_id == asked.producer_id else asked.epoch
            return EndMarker(asked.producer_id, epoch, ended.committed, now_ms, record.number)
        if record.producer_id == asked.producer_id and record.state in _DECIDED:
            decided[record.number] = record
    return _first_behind(decided, standing, asked, now_ms)


def _first_behind(
    decided: dict[int, TransactionRecord], standing: Standing, asked: AskOutcome, now_ms: int
) -> EndMarker | None:
    """The marker of the first transaction with this partition after the last end that the partition has. All decisions
    in between must be known, because any of them may be that one; the transaction that is ending now is included."""
    number, where = max(asked.ended, 0), TopicPartition(*asked.sender)
    last = (standing.ending or standing.record).number
    while number != last:
        number = (number + 1) & NUMBER_MAX
        record = decided.get(number)
        if record is None:
            return None
        if any(participant.partition == where for participant in record.participants):
            committed = record.state is TransactionState.PREPARE_COMMIT
            return EndMarker(asked.producer_id, max(record.epoch, asked.epoch), committed, now_ms, number)
    if _includes(standing, asked):
        return None
    # No later transaction of the producer has this partition, so nothing will decide about it: it is aborted.
    return EndMarker(asked.producer_id, asked.epoch, False, now_ms, (max(asked.ended, 0) + 1) & NUMBER_MAX)


def orphans_end(standing: Standing, asked: AskOutcome, now_ms: int) -> EndMarker | None:
    """The marker for a transaction that a crash has left open in an intact log, and that no coordinator knows; None if
    the transaction continues, or its end is under way.

    It can never be committed, because its producer was in the process that ended (`kept_transactions.py`). The marker
    has the epoch of the current holder of the producer id and the number of the last end, so it fences no current
    producer, and the next end still counts. It need not be durable, because it would be written again.
    """
    record, ending, where = standing.record, standing.ending, TopicPartition(*asked.sender)
    if _includes(standing, asked):
        return None
    comes = ending is not None and any(each.partition == where for each in ending.participants)
    if ending is not None and comes and (asked.ended < 0 or not is_reached(asked.ended, ending.number)):
        return None
    last = asked.ended if asked.ended >= 0 and is_reached(asked.ended, record.number) else record.number
    epoch = max(record.epoch, asked.epoch) if record.producer_id == asked.producer_id else asked.epoch
    return EndMarker(asked.producer_id, epoch, False, now_ms, last)


def _includes(standing: Standing, asked: AskOutcome) -> bool:
    ongoing = standing.state is TransactionState.ONGOING and standing.record.producer_id == asked.producer_id
    return ongoing and TopicPartition(*asked.sender) in standing.partitions
