"""Shows columnar batches as rows to clients that do not know columns, with the same offsets, producers, transactions.

The log does not know the formats of rows: the server gets a `Transcoder` from a package that knows them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import structlog

from millstream.errors import MillstreamError

from ..client import RowRecords, Topic
from ..records.batch import COMPRESSION, HEADER_SIZE, BatchHeader, BatchProducer, Buffer, place, read_header
from ..records.codec import encode, stored_batch
from ..records.envelope import decode_columns, split_deltas
from ..records.thinning import fillers

Transcoder = Callable[[Topic, pa.RecordBatch, int], pa.Table]
"""Converts the columns of a batch to a table of records. The number is the time (ms) of rows without their own."""

_ROWS_MAX: Final = 50_000  # in one answer; for more, a client asks again
_PASSTHROUGH: Final = "arrow.passthrough"

_log = structlog.get_logger("millstream.logcore")


@dataclass(frozen=True, slots=True)
class RowView:
    """How to show one topic to such clients."""

    topic: Topic
    transcoder: Transcoder

    def of(self, records: Sequence[memoryview], offset: int) -> list[Buffer]:
        """The same batches from `offset` on, with columnar ones as rows. It may stop before the end of `records`."""
        shown: list[Buffer] = []
        left = _ROWS_MAX
        for stretch in records:
            for header, batch in _stretches(stretch):
                if header is None:
                    shown.append(batch)
                    continue
                if left <= 0:
                    return shown
                buffers, rows, complete = self._rows(header, batch, offset, left)
                shown += buffers
                left -= rows
                if not complete:
                    return shown
        return shown

    def _rows(
        self, header: BatchHeader, batch: memoryview, offset: int, rows_max: int
    ) -> tuple[list[Buffer], int, bool]:
        """The rows at or after `offset`, their number, and whether these are all."""
        try:
            columns, offsets = _columns(header, batch)
            first = int(np.searchsorted(offsets, offset))
            part = columns.slice(first, rows_max)
            table = self.transcoder(self.topic, part, header.max_timestamp_ms)
        except (MillstreamError, ValueError, pa.ArrowException) as error:
            _log.warning("columnar batch not shown as rows", topic=self.topic.name, error=str(error))
            return [batch], 1, True
        wanted = offsets[first : first + rows_max]
        producer = BatchProducer(
            header.producer_id, header.producer_epoch, max(header.base_sequence, -1), header.transactional
        )
        buffers = [
            buffer
            for start, end in _runs(wanted)
            for buffer in _placed(table.slice(start, end - start), int(wanted[start]), header, producer)
        ]
        complete = first + part.num_rows >= columns.num_rows
        if complete:  # fill the offsets at the end that compaction removed
            begin = int(wanted[-1]) + 1 if len(wanted) else offset
            for filler in fillers(max(begin, header.base_offset), header.last_offset + 1, header.leader_epoch):
                buffers += filler.buffers
        return buffers, part.num_rows, complete


def row_view(topic: Topic | None, transcoder: Transcoder | None) -> RowView | None:
    """None if the topic is shown as it is stored."""
    if topic is None or transcoder is None or topic.config.get(_PASSTHROUGH) == "true":
        return None
    return RowView(topic, transcoder)


def _stretches(records: memoryview) -> Iterator[tuple[BatchHeader | None, memoryview]]:
    """Columnar batches one by one, with their headers; the bytes between them unchanged, without a header."""
    begin = position = 0
    while position + HEADER_SIZE <= len(records):
        header = read_header(records, position)
        end = position + header.size
        if header.columnar and header.record_count:
            if begin < position:
                yield None, records[begin:position]
            yield header, records[position:end]
            begin = end
        position = end
    if begin < len(records):
        yield None, records[begin:]


def _columns(header: BatchHeader, batch: memoryview) -> tuple[pa.RecordBatch, np.ndarray]:
    """The columns and the offset of each row. Raises ValueError."""
    content = stored_batch(header, batch).buffer if header.attributes & COMPRESSION else batch[HEADER_SIZE:]
    columns, deltas = split_deltas(decode_columns(content), header.last_offset_delta + 1)
    every = np.arange(header.last_offset_delta + 1) if deltas is None else deltas
    return columns, header.base_offset + every


def _runs(offsets: np.ndarray) -> Iterable[tuple[int, int]]:
    """Runs of consecutive offsets, as start and end positions."""
    borders = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
    return [(start, end) for start, end in itertools.pairwise(borders) if start < end]


def _placed(rows: pa.Table, first_offset: int, header: BatchHeader, producer: BatchProducer) -> Iterator[Buffer]:
    for batch in encode(RowRecords(rows), producer):
        yield from place(batch, first_offset, header.leader_epoch).buffers
        first_offset += batch.header.last_offset_delta + 1
