"""How rows are cut into batches, and what the decoders read: shared by the plain and the compiled codec."""

from __future__ import annotations

from typing import Final, NamedTuple

ROWS_MAX: Final = 4000
STORED_BYTES_MAX: Final = 1024 * 1024 - 1024
"""A batch is closed before it grows past either bound; a larger record is a batch of its own. With its header it is
below `max.message.bytes` as brokers have it by default."""


class StoredBatch(NamedTuple):
    """A batch of rows as it lies in memory: its records, uncompressed, are `buffer[start:end]`."""

    buffer: memoryview
    start: int
    end: int
    record_count: int
    base_offset: int
    base_timestamp_ms: int
    fixed_timestamp_ms: int | None  # the timestamp of all records, where the log set it on append
