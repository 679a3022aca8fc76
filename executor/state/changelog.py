"""State changes as records of the query's changelog topic, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ...logcore.client import ColumnarRecords, FetchedColumns, LogClient
from ...logcore.records.column_keys import expiry_metadata, key_metadata
from ..errors import ForeignState
from ..partitioning import split_by_partition
from .store import StoreChanges

_STORE = b"millstream.store"
_ROWS_MAX = 65_536  # in one batch, so that a reader's memory stays bounded


def changelog_records(changes: Sequence[StoreChanges], partition_count: int) -> list[tuple[int, ColumnarRecords]]:
    """(partition, records), where each store's changes keep their order. Stores do not depend on each other."""
    records: list[tuple[int, ColumnarRecords]] = []
    for metadata, tables in _runs(changes):
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        table = table.replace_schema_metadata(metadata)
        for batch in table.combine_chunks().to_batches(max_chunksize=_ROWS_MAX):
            tasks = batch["_part"].to_numpy(zero_copy_only=False).astype(np.int32) % partition_count
            for partition, chosen in split_by_partition(tasks):
                records.append((partition, ColumnarRecords(batch if chosen is None else batch.take(chosen), 0)))
    return records


def _runs(changes: Sequence[StoreChanges]) -> Iterator[tuple[dict[bytes, bytes], list[pa.Table]]]:
    """Rows of one shape that follow each other in their store, and what a batch of them says about itself."""
    by_store: dict[str, list[StoreChanges]] = {}
    for change in changes:
        if change.rows.num_rows:
            by_store.setdefault(change.store, []).append(change)
    for store, own in by_store.items():
        for (key, expired), run in itertools.groupby(own, lambda change: (change.key, change.expired_column)):
            tables = [change.rows for change in run]
            if expired is not None:
                metadata = expiry_metadata(store, "_part", expired)
            else:
                metadata = key_metadata(list(key), deleted="_deleted", family=store)
            yield {**(tables[0].schema.metadata or {}), _STORE: store.encode(), **metadata}, tables


def replay(log: LogClient, topic: str, partition: int, offset: int) -> Iterator[tuple[StoreChanges, int]]:
    """The committed changes from `offset` on, each with the offset after it."""
    offset = max(offset, log.offsets(topic, partition).log_start_offset)
    while True:
        fetched = log.fetch(topic, partition, offset)
        for run in fetched.runs:
            name = (run.batch.schema.metadata or {}).get(_STORE) if isinstance(run, FetchedColumns) else None
            if name is None or not isinstance(run, FetchedColumns):
                raise ForeignState(
                    f'topic "{topic}" holds records that no query wrote, in partition {partition} from {offset} on',
                    hint="Drop the query and create it again: it then reads its input anew.",
                )
            yield StoreChanges(name.decode(), pa.Table.from_batches([run.batch])), int(run.row_offsets[-1]) + 1
        if fetched.next_offset == offset:
            return
        offset = fetched.next_offset
