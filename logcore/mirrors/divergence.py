"""Whether the copy still equals the source. The last records are compared, rather than remembered epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..client import Fetched, FetchedRows, LogClient, TopicPartition
from ..errors import OffsetOutOfRange
from .mirror_errors import DivergedMirror
from .mirror_source import MirrorSource, PartitionEnds

_OFFSETS: Final = 100
_BYTES: Final = 256 * 1024
_ANEW: Final = "DROP MIRROR, delete the topic here, and copy it anew."


def check_same(
    log: LogClient, source: MirrorSource, where: TopicPartition, end_offset: int, ends: PartitionEnds
) -> None:
    """Checks that the last records are equal. In: `end_offset`: that of the copy; `ends`: those of the source. Records
    that are compacted in one of the two are ignored. Raises `DivergedMirror`."""
    if end_offset > ends.high_watermark:
        raise DivergedMirror(
            f"the source ends at offset {ends.high_watermark}, but the copy at {end_offset}: it has lost records",
            hint="Its brokers elected an unclean leader, or a backup was restored. " + _ANEW,
        )
    first = max(end_offset - _OFFSETS, ends.log_start_offset, log.offsets(*where).log_start_offset)
    if first >= end_offset:
        return
    here = _rows(log.fetch(*where, first, max_bytes=_BYTES), end_offset)
    try:
        there = _rows(source.rows(where, first, _BYTES), end_offset)
    except OffsetOutOfRange:  # retention has removed the records: there is nothing left to compare
        return
    for offset in sorted(here.keys() & there.keys(), reverse=True):
        if here[offset] != there[offset]:
            raise DivergedMirror(
                f"the record at offset {offset} is another one at the source than here: the source's log was cut and"
                " written anew, or somebody else wrote here",
                hint=_ANEW,
            )


def _rows(fetched: Fetched, end_offset: int) -> Mapping[int, Any]:
    """The rows by offset; a columnar batch has one entry, at its first row."""
    found: dict[int, Any] = {}
    for run in fetched.runs:
        if isinstance(run, FetchedRows):
            for row in run.table.to_pylist():
                found[row["offset"]] = row["timestamp"], row["key"], row["value"]
        else:
            for offset, row in zip(run.row_offsets.tolist(), run.batch.to_pylist(), strict=True):
                found[offset] = row
    return {offset: row for offset, row in found.items() if offset < end_offset}
