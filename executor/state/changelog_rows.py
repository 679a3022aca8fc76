"""A changelog that any broker can store and compact: one record per row, for logs without columnar batches.

    key    = the store's name, a zero byte, the fingerprint of the key columns, their row (`row_codec.py`)
    value  = the fingerprint of the value columns, their row; NULL deletes the key

So the broker's own compaction keeps the latest row of each key, and a tombstone deletes it. Rows that expire in a store
are deleted key by key (`StateStore.names_expired`), because a broker cannot apply a bound that expires many rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...logcore.client import FetchedRows, RowRecords
from ..errors import ForeignState
from ..operators.columns import flat
from ..partitioning import split_by_partition
from .row_codec import MalformedRow, decode_rows, encode_rows, fingerprint
from .store import StateStore, StoreChanges

_END = b"\0"
_DELETED = "_deleted"


def row_records(changes: Sequence[StoreChanges], partition_count: int) -> list[tuple[int, RowRecords]]:
    """Pairs of (partition, records). The changes of each store keep their order."""
    by_store: dict[str, list[StoreChanges]] = {}
    for change in changes:
        if change.rows.num_rows:
            by_store.setdefault(change.store, []).append(change)
    records: list[tuple[int, RowRecords]] = []
    for store, own in by_store.items():
        table = pa.concat_tables([change.rows.replace_schema_metadata() for change in own])
        encoded = _encoded(store, own[0].key, table)
        tasks = flat(table, "_part").to_numpy(zero_copy_only=False).astype(np.int32) % partition_count
        records += [(part.partition, RowRecords(part.of(encoded))) for part in split_by_partition(tasks)]
    return records


def _encoded(store: str, key: Sequence[str], table: pa.Table) -> pa.Table:
    assert _DELETED in table.column_names, "rows that have expired are named one by one on this log"
    rest = [name for name in table.column_names if name not in key and name != _DELETED]
    keys, values = table.select(list(key)), table.select(rest)
    now_ms = int(time.time() * 1000)
    return pa.table(
        {
            "timestamp": pa.array(np.full(len(table), now_ms)),
            "key": _with_prefix(_key_prefix(store, keys.schema), _rows_of(keys, keys=True)),
            "value": pc.if_else(
                flat(table, _DELETED),
                pa.scalar(None, pa.binary()),
                _with_prefix(fingerprint(values.schema), _rows_of(values, keys=False)),
            ),
        }
    )


def _rows_of(table: pa.Table, *, keys: bool) -> pa.BinaryArray:
    return encode_rows([flat(table, name) for name in table.column_names], len(table), keys=keys)


def _key_prefix(store: str, schema: pa.Schema) -> bytes:
    return store.encode() + _END + fingerprint(schema)


def _with_prefix(prefix: bytes, rows: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(pa.scalar(prefix, pa.binary()), rows, b"")


def changes_of(run: FetchedRows, stores: Mapping[str, StateStore]) -> Iterator[StoreChanges]:
    """The changes of these stores in the records, in order for each store; ignores records of other stores. Raises
    `ForeignState` if a record was not written by a query."""
    keys, values = flat(run.table, "key"), flat(run.table, "value")
    if pc.any(pc.less_equal(pc.find_substring(keys, _END), 0).fill_null(True)).as_py():
        raise _foreign("a record whose key names no store of a query")
    for name, store in stores.items():
        chosen = pc.starts_with(keys, name.encode() + _END)
        if pc.any(chosen).as_py():
            yield StoreChanges(name, _decoded(store, keys.filter(chosen), values.filter(chosen)), tuple(store.key))


def _decoded(store: StateStore, keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.Table:
    rest = pa.schema([field for field in store.change_schema if field.name not in (*store.key, _DELETED)])
    columns = _columns(keys, _key_prefix(store.name, store.key_schema), store.key_schema)
    present = values.drop_null()
    deleted = values.is_null()
    there = pc.invert(deleted).to_numpy(zero_copy_only=False)
    place = pa.array(np.cumsum(there) - 1, mask=~there)
    found = _columns(present, fingerprint(rest), rest)
    columns |= {name: column.take(place) for name, column in found.items()}
    return pa.table({**columns, _DELETED: deleted})


def _columns(encoded: pa.BinaryArray, prefix: bytes, schema: pa.Schema) -> dict[str, pa.Array]:
    if not pc.all(pc.starts_with(encoded, prefix)).as_py() and len(encoded):
        raise _foreign("rows of other columns than the query's state has")
    try:
        return dict(zip(schema.names, decode_rows(encoded, schema.types, len(prefix)), strict=True))
    except MalformedRow as error:
        raise _foreign(str(error)) from error


def _foreign(what: str) -> ForeignState:
    return ForeignState(f"the query's changelog holds {what}", hint="Rebuild the query from its sources with RESET.")
