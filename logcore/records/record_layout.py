"""The size limits of batches, and the input of the decoders: shared by the plain and the compiled codec."""

from __future__ import annotations

from typing import Final, NamedTuple

ROWS_MAX: Final = 4000
STORED_BYTES_MAX: Final = 1024 * 1024 - 1024
"""A batch is closed before it exceeds either limit; a larger record is a batch of its own. With its header a batch is
smaller than the default `max.message.bytes` of brokers."""


class StoredBatch(NamedTuple):
    """A batch of rows in memory: its uncompressed records are `buffer[start:end]`."""

    buffer: memoryview
    start: int
    end: int
    record_count: int
    base_offset: int
    base_timestamp_ms: int
    fixed_timestamp_ms: int | None  # the timestamp of all records, if the log set it on append
