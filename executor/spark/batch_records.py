"""Batch records: each defines a batch by its topics and the offsets up to which lanes are read. There is one record for
all buckets, in the last partition of the marker topic.

The record is durable before any bucket does the batch. So a run that finds a marker of the batch also finds its record,
and knows what the other buckets have to do. A fenced run may still write a record; no marker names its batch, so no run
reads it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...logcore.client import LogClient
from ..state.lost_state import state_lost
from .lanes import Positions, positions_from_json, positions_to_json
from .markers import NO_BATCH, BatchId, StateMarker, json_record, last_value

EARLIER = BatchId(1, "earlier")


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """`run`: the run that planned the batch. `ends`: for each lane with something to read. `topics`: the digests of the
    ids of their topics (`known_topics.py`); records of earlier versions have none."""

    id: BatchId
    run: str
    ends: Positions
    topics: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def following(last: BatchId, run: str, start: Positions, ends: Positions, topics: Mapping[str, int]) -> BatchRecord:
        changed = {lane: end for lane, end in ends.items() if end != start.get(lane)}
        read = {lane.topic for lane in changed}
        of_batch = {topic: id for topic, id in topics.items() if topic in read}
        return BatchRecord(BatchId(last.number + 1, uuid.uuid4().hex), run, changed, of_batch)

    def write(self, log: LogClient, topic: str, partition: int) -> None:
        """Writes the record; it is durable on return. The key is the run, so compaction keeps the last record of each
        run."""
        ends = positions_to_json(self.ends)
        value = {"number": self.id.number, "name": self.id.name, "run": self.run, "ends": ends, "topics": self.topics}
        log.append(topic, partition, json_record(self.run.encode(), value))


def forget_batches(log: LogClient, topic: str, partition: int, run: str) -> None:
    """Deletes the record of an earlier run. Call it after a marker names a batch of a later run."""
    log.append(topic, partition, json_record(run.encode(), None))


def read_batch(log: LogClient, query_id: str, topic: str, partition: int, id_: BatchId) -> BatchRecord:
    """The record of the batch. Raises `StateLost` if the log has lost it."""
    found = last_value(log, topic, partition, id_.name)
    if found is None:
        raise state_lost(query_id, f'batch {id_.number} is done in part, and topic "{topic}" does not say what it is')
    return BatchRecord(id_, found["run"], positions_from_json(found["ends"]), found.get("topics", {}))


def adopted(run: str, markers: Sequence[StateMarker]) -> tuple[BatchRecord | None, list[StateMarker]]:
    """Converts markers of versions that named no batches. Out: the batch to which they belong (None if there are no
    such markers, or a newer batch was done since); and the markers, where those of buckets that have done the batch
    name it.

    Such a marker contains the offset up to which its bucket had read each lane. Together they count as one batch, which
    ends at the position of the most advanced bucket; the buckets at that position have done it. In those versions a
    plan whose rows change their task after a stateful step had only one bucket. Its work is complete, so the buckets
    without such a marker count as done.
    """
    positions = [marker.earlier for marker in markers if marker.earlier is not None]
    newest = max(marker.batch for marker in markers)
    if not positions or newest not in (NO_BATCH, EARLIER):
        return None, list(markers)
    ends: Positions = {lane: max(each.get(lane, 0) for each in positions) for each in positions for lane in each}
    done = [replace(marker, batch=EARLIER) if marker.earlier in (None, ends) else marker for marker in markers]
    return BatchRecord(EARLIER, run, ends), done
