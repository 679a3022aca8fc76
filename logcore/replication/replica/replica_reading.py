"""What clients may read from a replica: nothing above the high watermark (R16) except markers, see `visible_offset`."""

from __future__ import annotations

from ...records.batch import EncodedBatch
from .replica_core import ReplicaCore
from .replica_messages import Problem, Read, ReadBatches, Refused


def epoch_problem(known: int, asked: int) -> Refused | None:
    """R6: refuses a client or node that knows another leader epoch. -1: it names no epoch."""
    if asked in (-1, known):
        return None
    if asked < known:
        return Refused(Problem.FENCED_LEADER_EPOCH, f"leader epoch {asked} is over: it is {known} now")
    return Refused(Problem.UNKNOWN_LEADER_EPOCH, f"leader epoch {asked} is not known here yet: it is {known}")


def read_committed_log(core: ReplicaCore, asked: Read) -> ReadBatches | Refused:
    """Whole batches below the high watermark, or below the last stable offset."""
    log = core.log
    refused = epoch_problem(core.leader_epoch, asked.leader_epoch)
    if refused is not None:
        return refused
    if asked.offset < log.log_start_offset:
        return Refused(Problem.OFFSET_OUT_OF_RANGE, f"the log begins at offset {log.log_start_offset}")
    visible = core.visible_offset
    if asked.offset > visible:
        # The offset may be committed: perhaps this replica only does not know it yet.
        return Refused(Problem.OFFSET_NOT_AVAILABLE, f"{visible} is as far as this replica knows")
    stable = core.last_stable_offset
    limit = stable if asked.committed_only else visible
    batches: tuple[EncodedBatch, ...] = ()
    if asked.offset < limit:
        batches = tuple(log.read(asked.offset, limit, asked.max_bytes))
    aborted = log.state.transactions.aborted
    return ReadBatches(batches, limit, visible, stable, log.log_start_offset, aborted)
