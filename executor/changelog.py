"""State changes as records of the query's changelog topic, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ..logcore.client import ColumnarRecords, FetchedColumns, LogClient
from .errors import ForeignState
from .partitioning import split_by_partition
from .state import StoreChanges

_STORE = b"millstream.store"
_ROWS_MAX = 65_536  # in one batch, so that a reader's memory stays bounded


def changelog_records(changes: Sequence[StoreChanges], partition_count: int) -> list[tuple[int, ColumnarRecords]]:
    """(partition, records), where each store's changes keep their order. Stores do not depend on each other."""
    by_store: dict[str, list[pa.Table]] = {}
    for change in changes:
        if change.rows.num_rows:
            by_store.setdefault(change.store, []).append(change.rows)
    records: list[tuple[int, ColumnarRecords]] = []
    for store, tables in by_store.items():
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        table = table.replace_schema_metadata({_STORE: store.encode()})
        for batch in table.combine_chunks().to_batches(max_chunksize=_ROWS_MAX):
            tasks = batch["_part"].to_numpy(zero_copy_only=False).astype(np.int32) % partition_count
            for partition, chosen in split_by_partition(tasks):
                records.append((partition, ColumnarRecords(batch if chosen is None else batch.take(chosen), 0)))
    return records


def replay(log: LogClient, topic: str, partition: int, offset: int) -> Iterator[tuple[StoreChanges, int]]:
    """The committed changes from `offset` on, each with the offset after it."""
    while True:
        fetched = log.fetch(topic, partition, offset)
        for run in fetched.runs:
            name = (run.batch.schema.metadata or {}).get(_STORE) if isinstance(run, FetchedColumns) else None
            if name is None or not isinstance(run, FetchedColumns):
                raise ForeignState(
                    f'topic "{topic}" holds records that no query wrote, in partition {partition} from {offset} on',
                    hint="Drop the query and create it again: it then reads its input anew.",
                )
            yield StoreChanges(name.decode(), pa.Table.from_batches([run.batch])), run.base_offset + run.batch.num_rows
        if fetched.next_offset == offset:
            return
        offset = fetched.next_offset
