"""Describes a transactional id for administrators."""

from __future__ import annotations

from typing import Final

from ...cores.transaction_records import Identity, TransactionState
from ...cores.transactions import Standing
from ..replica.replica_messages import PartitionId
from .kept_transactions import KeptTransaction
from .transaction_messages import DescribedTransaction

_STATE_NAMES: Final = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
}


def described(standing: Standing, open_ms: int, *, seen: bool = False) -> DescribedTransaction:
    """In: `seen`: all readers can see how it ended, though after a crash some markers would be written again."""
    record, ending = standing.record, standing.ending if not seen else None
    state = TransactionState.COMPLETE_COMMIT if seen and standing.committing else standing.state
    partitions = standing.partitions if standing.state is TransactionState.ONGOING else ()
    if ending is not None:
        partitions = tuple(participant.partition for participant in ending.participants)
    return DescribedTransaction(
        record.transactional_id,
        record.producer_id,
        record.epoch,
        "PrepareAbort" if ending is not None and not standing.committing else _STATE_NAMES[state],
        record.timeout_ms,
        open_ms,
        tuple(PartitionId(*partition) for partition in partitions),
    )


def with_kept(
    found: DescribedTransaction, current: Identity | None, kept: KeptTransaction | None, now_ms: int
) -> DescribedTransaction:
    """In: `current`: the holder of the id; `kept`: its open transaction without a record; `now_ms`: monotonic time."""
    if current is not None:
        found = found._replace(producer_id=current.producer_id, epoch=current.epoch)
    if kept is None or kept.who != current:
        return found
    partitions = tuple(sorted({*found.partitions, *kept.partitions}))
    return found._replace(state="Ongoing", open_ms=now_ms - kept.opened_ms, partitions=partitions)
