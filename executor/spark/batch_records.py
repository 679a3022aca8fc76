"""What a batch is: up to where its lanes are read, of which topics. One record for all buckets, in the last partition
of the markers.

It is durable before any bucket does the batch, so whoever finds a marker of the batch finds its record, and knows what
the other buckets have to do. Of a run that is over a record may still arrive: nobody looks for it, since no marker
names its batch.
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
    """`run`: that planned it. `ends`: of the lanes in which there is something to read. `topics`: what the ids of their
    topics come to (`known_topics.py`); earlier versions noted none."""

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
        """Durable on return. Its key is the run, so compaction keeps the last one of each."""
        ends = positions_to_json(self.ends)
        value = {"number": self.id.number, "name": self.id.name, "run": self.run, "ends": ends, "topics": self.topics}
        log.append(topic, partition, json_record(self.run.encode(), value))


def forget_batches(log: LogClient, topic: str, partition: int, run: str) -> None:
    """Those of an earlier run, once a marker names a batch of a later one."""
    log.append(topic, partition, json_record(run.encode(), None))


def read_batch(log: LogClient, query_id: str, topic: str, partition: int, id_: BatchId) -> BatchRecord:
    """Raises `StateLost` where the log has lost it."""
    found = last_value(log, topic, partition, id_.name)
    if found is None:
        raise state_lost(query_id, f'batch {id_.number} is done in part, and topic "{topic}" does not say what it is')
    return BatchRecord(id_, found["run"], positions_from_json(found["ends"]), found.get("topics", {}))


def adopted(run: str, markers: Sequence[StateMarker]) -> tuple[BatchRecord | None, list[StateMarker]]:
    """The batch that markers of versions that named no batches are of, None where there are none or a newer batch was
    done since; and the markers, those of buckets that have done it with its name.

    Each said up to where its bucket had read every lane. They count as one batch, which ends where the bucket that is
    furthest stands: one that stands there has done it. Plans whose rows change their task behind state had one bucket
    in those versions: what it has done is done.
    """
    positions = [marker.earlier for marker in markers if marker.earlier is not None]
    newest = max(marker.batch for marker in markers)
    if not positions or newest not in (NO_BATCH, EARLIER):
        return None, list(markers)
    ends: Positions = {lane: max(each.get(lane, 0) for each in positions) for each in positions for lane in each}
    done = [replace(marker, batch=EARLIER) if marker.earlier in (None, ends) else marker for marker in markers]
    return BatchRecord(EARLIER, run, ends), done
