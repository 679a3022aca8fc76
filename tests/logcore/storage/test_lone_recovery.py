"""Opening the log of a node that is alone where records are lost: no offset that somebody has seen is given again."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.logcore.replication.disk.disk_recovery import recover_replica
from millstream.logcore.storage.durable_point import DurablePoint, Extent
from millstream.logcore.storage.open_files import OpenFiles

from .batches import batch, write_segment
from .partitions import NOW_MS, extent, lost


@pytest.mark.parametrize(
    ("known", "end", "missing"),
    [
        (Extent(3, 0, 6), 6, [(1, 6)]),
        (Extent(6, 0, 3), 6, [(1, 6)]),
        (Extent(3, 0, 0), 3, [(1, 3)]),
        (Extent(1, 0, 6), 1, []),  # the markers are written again, at the same offsets
    ],
)
def test_the_offsets_of_markers_that_were_seen_go_with_lost_records(
    tmp_path: Path, known: Extent, end: int, missing: list[tuple[int, int]]
) -> None:
    write_segment(tmp_path, 0, [batch(0)])
    DurablePoint(tmp_path).note(*known)
    found = recover_replica(tmp_path, OpenFiles(8), NOW_MS, DurablePoint(tmp_path), durable=False, alone=True)
    assert (extent(found.recovered), lost(found.recovered)) == ((0, end), missing)
    assert found.clean == (not missing)
