"""How a transaction ended of which a partition has lost the marker: from the records of its coordinator's log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...client import TopicPartition
from ...cores.transaction_records import TransactionRecord, TransactionState
from ...cores.transactions import Standing
from ...records.control import NUMBER_MAX
from ..replica.replica_messages import EndMarker
from .transaction_messages import AskOutcome

_DECIDED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def goes_on(standing: Standing, asked: AskOutcome) -> bool:
    """Whether what is open in the partition is, for certain, the transaction that the producer has open.

    With a producer that gets a new epoch for each transaction the epoch says so. Of others it is certain where the
    partition has the end of the last one.
    """
    record = standing.record
    if not _includes(standing, asked) or record.epoch != asked.epoch:
        return False
    return record.ended is not None or record.number in (0, asked.ended)


def lost_marker(
    history: Iterable[TransactionRecord], standing: Standing, asked: AskOutcome, now_ms: int
) -> EndMarker | None:
    """The marker that the partition lacks; None where that is not known, or the transaction may yet go on.

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
    """The first transaction behind the last end in the partition that the partition belongs to. All in between must be
    known: one of them may be the one. The one that is ending now is among them."""
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
    # No transaction of the producer has ever had this partition since: nobody will decide about it.
    return EndMarker(asked.producer_id, asked.epoch, False, now_ms, (max(asked.ended, 0) + 1) & NUMBER_MAX)


def _includes(standing: Standing, asked: AskOutcome) -> bool:
    ongoing = standing.state is TransactionState.ONGOING and standing.record.producer_id == asked.producer_id
    return ongoing and TopicPartition(*asked.sender) in standing.partitions
