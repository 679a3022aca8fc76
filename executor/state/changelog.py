"""Turns state changes into records of the query's changelog topic, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from ...logcore.client import ColumnarRecords, FetchedRows, LogClient, RowRecords, TransactionalProducer
from ...logcore.failpoints import fp
from ...logcore.records.column_keys import expiry_metadata, key_metadata
from ..errors import ForeignState
from ..partitioning import split_by_partition
from .changelog_rows import changes_of, row_records
from .store import StateStore, StoreChanges

_STORE = b"millstream.store"
_NO_STORES: Mapping[str, StateStore] = MappingProxyType({})
_ROWS_MAX = 65_536  # in one batch, so that a reader's memory stays bounded


def changelog_records(
    changes: Sequence[StoreChanges], partition_count: int, *, columnar: bool = True
) -> Sequence[tuple[int, ColumnarRecords | RowRecords]]:
    """(partition, records). Each store's changes keep their order; stores do not depend on each other. In: `columnar`:
    whether the log can store columnar batches; otherwise each row is a separate record."""
    if not columnar:
        return row_records(changes, partition_count)
    records: list[tuple[int, ColumnarRecords]] = []
    for metadata, tables in _runs(changes):
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        table = table.replace_schema_metadata(metadata)
        for batch in table.combine_chunks().to_batches(max_chunksize=_ROWS_MAX):
            tasks = batch["_part"].to_numpy(zero_copy_only=False).astype(np.int32) % partition_count
            records += [(part.partition, ColumnarRecords(part.of(batch), 0)) for part in split_by_partition(tasks)]
    return records


def _runs(changes: Sequence[StoreChanges]) -> Iterator[tuple[dict[bytes, bytes], list[pa.Table]]]:
    """Consecutive changes of a store with the same columns, with the metadata for their batches."""
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


def append_changes(
    client: LogClient,
    producer: TransactionalProducer,
    topic: str,
    records: Sequence[tuple[int, ColumnarRecords | RowRecords]],
) -> dict[int, int]:
    """Appends records to their partitions. Out: by partition, the offset after them. It is exact: only this producer
    can append at the partition's end that was read before; if another one has fenced it, the append is refused."""
    ends: dict[int, int] = {}
    for partition, each in records:
        if partition not in ends:
            ends[partition] = client.offsets(topic, partition).log_end_offset
        producer.append(topic, partition, each)
        ends[partition] += each.row_count
        fp("query.appended")
    return ends


def replay(
    log: LogClient, topic: str, partition: int, offset: int, stores: Mapping[str, StateStore] = _NO_STORES
) -> Iterator[tuple[StoreChanges, int]]:
    """The committed changes from `offset` on, each with the offset up to which the changelog is applied after it.

    In: `stores`: those of the query; their columns determine how records in row form are decoded.
    """
    offset = max(offset, log.offsets(topic, partition).log_start_offset)
    while True:
        fetched = log.fetch(topic, partition, offset)
        for run in fetched.runs:
            if isinstance(run, FetchedRows):
                yield from _replayed_rows(run, stores, offset)
                continue
            name = (run.batch.schema.metadata or {}).get(_STORE)
            if name is None:
                raise ForeignState(
                    f'topic "{topic}" holds records that no query wrote, in partition {partition} from {offset} on',
                    hint="Drop the query and create it again: it then reads its input anew.",
                )
            yield StoreChanges(name.decode(), pa.Table.from_batches([run.batch])), int(run.row_offsets[-1]) + 1
        if fetched.next_offset == offset:
            return
        offset = fetched.next_offset


def _replayed_rows(
    run: FetchedRows, stores: Mapping[str, StateStore], offset: int
) -> Iterator[tuple[StoreChanges, int]]:
    """Records of several stores are interleaved, so only the last change completes the run and advances the offset."""
    changes = list(changes_of(run, stores))
    for change in changes[:-1]:
        yield change, offset
    for change in changes[-1:]:
        yield change, int(run.table["offset"][-1].as_py()) + 1
