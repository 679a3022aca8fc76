"""How many bytes the records of a lane have, by samples: who plans batches must not read them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from ...logcore.client import FetchedRows, LogClient, TopicPartition
from ...logcore.errors import LogError

SAMPLE_BYTES = 16 * 1024
LANES_MAX = 8  # of which samples are taken: those in which most is waiting
_LONG = 1_000  # records; of a longer stretch more than the beginning is looked at


def bytes_per_record(
    log: LogClient, start: Mapping[TopicPartition, int], waiting: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """Of each lane in which something waits, unpacked; of those that were not looked at, as of the others. In: offsets,
    and how many follow."""
    lanes = sorted((lane for lane, count in waiting.items() if count), key=lambda lane: -waiting[lane])
    sizes = {lane: _sampled(log, lane, start[lane], waiting[lane]) for lane in lanes[:LANES_MAX]}
    others = max(sizes.values(), default=0.0)
    return {lane: sizes.get(lane, others) for lane in lanes}


def _sampled(log: LogClient, lane: TopicPartition, start: int, count: int) -> float:
    """The largest of the samples: they are small and far between."""
    places = [start] if count <= _LONG else [start, start + count // 2, start + count * 7 // 8]
    return max(_size_at(log, lane, place) for place in places)


def _size_at(log: LogClient, lane: TopicPartition, offset: int) -> float:
    with contextlib.suppress(LogError):  # whoever reads it finds out
        fetched = log.fetch(*lane, offset, max_bytes=SAMPLE_BYTES)
        tables = [run.table if isinstance(run, FetchedRows) else run.batch for run in fetched.runs]
        rows = sum(table.num_rows for table in tables)
        return sum(table.nbytes for table in tables) / max(1, rows)
    return 0.0
