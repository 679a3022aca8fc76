"""Markers of versions that named no batches: each says up to where its bucket had read every lane.

They count as one batch, which ends where the bucket that is furthest stands. A bucket that stands there has done it.
Plans whose rows change their task behind state had one bucket in those versions: what it has done is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .batch_records import BatchRecord
from .lanes import Positions
from .markers import NO_BATCH, BatchId, StateMarker

EARLIER = BatchId(1, "earlier")


def adopted(run: str, markers: Sequence[StateMarker]) -> tuple[BatchRecord | None, list[StateMarker]]:
    """The batch that such markers are of, None where there are none or a newer batch was done since; and the markers,
    those of buckets that have done it with its name."""
    positions = [marker.earlier for marker in markers if marker.earlier is not None]
    newest = max(marker.batch for marker in markers)
    if not positions or newest not in (NO_BATCH, EARLIER):
        return None, list(markers)
    ends: Positions = {lane: max(each.get(lane, 0) for each in positions) for each in positions for lane in each}
    done = [replace(marker, batch=EARLIER) if marker.earlier in (None, ends) else marker for marker in markers]
    return BatchRecord(EARLIER, run, ends), done
