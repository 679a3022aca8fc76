"""Decodes the record batches of a Fetch answer to runs of rows and columnar batches, with the log's own reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...client import Fetched, Offsets
from ...errors import CorruptLog
from ...records.batch import HEADER_SIZE, BatchHeader, read_header
from ...records.control import marker_commits
from ...storage.disk import LogFile
from ...storage.read_view import ReadableFile, ReadView
from ...storage.reader import read
from ...storage.segment import Segment
from ...storage.transaction_index import AbortedRange, AbortedRanges
from .fetch_messages import AbortedTransaction, FetchedPartition

_NO_LIMIT = 1 << 62


def decode(fetched: FetchedPartition, offset: int) -> Fetched:
    """Raises `CorruptLog`."""
    records = memoryview(b"".join(fetched.records)) if len(fetched.records) != 1 else memoryview(fetched.records[0])
    received = _Received(records, str(fetched.partition))
    headers, end = _whole_batches(records)
    # To the reader, the received bytes are a file that may be read to its end.
    file = ReadableFile(cast(Segment, received), cast(LogFile, received), 0, end, offset)
    offsets = Offsets(
        fetched.log_start_offset, fetched.last_stable_offset, fetched.high_watermark, fetched.high_watermark
    )
    view = ReadView([file], _NO_LIMIT, _aborted_ranges(fetched.aborted, headers, records), offsets, gapless=False)
    return read(view, offset, len(records))


class _Received:
    """Bytes in memory that can be read like a segment."""

    def __init__(self, records: memoryview, name: str) -> None:
        self._records = records
        self._name = name

    def read_into(self, buffer: memoryview, position: int) -> int:
        count = min(len(buffer), len(self._records) - position)
        buffer[:count] = self._records[position : position + count]
        return count

    def corrupt(self, position: int, reason: str) -> CorruptLog:
        return CorruptLog(
            f"{self._name}: what the server sent is damaged at position {position}: {reason}",
            hint="Fetch again; if it stays so, the server's files are damaged.",
        )


def _whole_batches(records: memoryview) -> tuple[list[tuple[int, BatchHeader]], int]:
    """The position and header of each batch, and the end of the last whole one: other servers may cut off a batch."""
    headers: list[tuple[int, BatchHeader]] = []
    position = 0
    while position + HEADER_SIZE <= len(records):
        header = read_header(records, position)
        if header.plausible and position + header.size > len(records):
            break
        headers.append((position, header))
        if not header.plausible:
            return headers, len(records)  # the reader will report what is wrong
        position += header.size
    return headers, position


def _aborted_ranges(
    aborted: Sequence[AbortedTransaction], headers: Sequence[tuple[int, BatchHeader]], records: memoryview
) -> AbortedRanges:
    """Each aborted transaction ends at its producer's next marker, or after what was received."""
    ranges: dict[int, list[AbortedRange]] = {}
    if aborted:
        markers = [
            header
            for position, header in headers
            if header.control and marker_commits(records[position : position + header.size]) is False
        ]
        for producer_id, first_offset in sorted(aborted, key=lambda transaction: transaction.first_offset):
            ends = (
                marker.base_offset
                for marker in markers
                if marker.producer_id == producer_id and marker.base_offset >= first_offset
            )
            ranges.setdefault(producer_id, []).append(AbortedRange(first_offset, next(ends, _NO_LIMIT)))
    return AbortedRanges({producer_id: tuple(found) for producer_id, found in ranges.items()})
