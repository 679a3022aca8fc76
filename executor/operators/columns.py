"""Which columns flow between steps, and small vector operations on batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...planner.schema import Schema
from ...sql.types import SqlType
from ..batch import META, OPTIONAL_META

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

WINDOW = ("_ws", "_we")


def key_names(schema: Schema) -> tuple[str, ...]:
    return tuple(f"k{i}" for i in range(len(schema.key)))


def value_names(schema: Schema) -> tuple[str, ...]:
    return tuple(f"v{i}" for i in range(len(schema.value)))


def key_types(schema: Schema) -> dict[str, SqlType]:
    return dict(zip(key_names(schema), (column.type for column in schema.key), strict=True))


def value_types(schema: Schema) -> dict[str, SqlType]:
    return dict(zip(value_names(schema), (column.type for column in schema.value), strict=True))


def batch_schema(schema: Schema, extra: Sequence[str] = (), columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of batches with these columns. In: `columns`: the columns that remain after pruning."""
    fields = [pa.field(name, type_) for name, type_ in META.items()]
    fields += [pa.field(name, OPTIONAL_META[name]) for name in OPTIONAL_META if name in extra]
    typed = [
        *zip(key_names(schema), schema.key, strict=True),
        *zip(value_names(schema), schema.value, strict=True),
    ]
    fields += [pa.field(name, c.type.arrow) for name, c in typed if columns is None or name in columns]
    return pa.schema(fields)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly the columns of `schema`. A missing column is filled with NULLs (apart from `META`, only
    columns are missing that are not needed)."""
    if table.schema.equals(schema):
        return table
    columns = []
    places = {name: place for place, name in enumerate(table.column_names)}
    for field in schema:
        place = places.get(field.name)
        if place is None:
            columns.append(pa.chunked_array([pa.nulls(len(table), field.type)]))
            continue
        column = table.column(place)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.table(columns, schema=schema)


def flat(table: pa.Table, name: str) -> pa.Array:
    """The column as one chunk."""
    column = table.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)


def ints(table: pa.Table, name: str) -> Ints:
    return flat(table, name).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def is_null(table: pa.Table, names: Sequence[str]) -> list[Bools]:
    """Per column, where it is NULL."""
    return [table.column(name).is_null().to_numpy() for name in names]


_MANY_ROWS = 10_000
_NEARLY_ALL = 15 / 16


def where(rows: pa.Table, mask: Bools | pa.Array | pa.ChunkedArray) -> pa.Table:
    """The rows where the mask is true.

    `Table.filter` computes the places of these rows and takes them from each column, which is best if few rows are
    kept. Where nearly all are, a column copies runs of rows by itself: for ten columns, 11 ns per row in place of 20.
    """
    mask = pa.array(mask) if isinstance(mask, np.ndarray) else mask
    count = pc.sum(mask).as_py() or 0
    if count == len(rows):
        return rows
    if len(rows) < _MANY_ROWS or count < _NEARLY_ALL * len(rows):
        return rows.filter(mask)
    return pa.table([column.filter(mask) for column in rows.columns], schema=rows.schema)


def with_values(rows: pa.Table) -> pa.Table:
    """The rows that have a value."""
    return where(rows, ~flat(rows, "_null").to_numpy(zero_copy_only=False))


def with_values_and_keys(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows that have a value and no NULL in these columns: others belong to no group."""
    return without_nulls_in_keys(with_values(rows), names)


def without_null_keys(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows without those whose key columns are all NULL: in a join, such a key is equal to nothing."""
    if not names or not all(rows.column(name).null_count for name in names):
        return rows
    return where(rows, ~np.logical_and.reduce(is_null(rows, names)))


def without_nulls_in_keys(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows whose key columns all have a value: in a join by several columns, a NULL in one is equal to nothing."""
    if not any(rows.column(name).null_count for name in names):
        return rows
    return where(rows, ~np.logical_or.reduce(is_null(rows, names)))


def joinable(rows: pa.Table, names: Sequence[str], *, alone: bool) -> pa.Table:
    """The rows that matter to a join by these columns. In: `alone`: an outer join keeps rows of this side that join
    nothing. A row whose key columns are all NULL is left out all the same, as in ksqlDB."""
    return without_null_keys(rows, names) if alone else without_nulls_in_keys(rows, names)


def codes(column: pa.Array) -> tuple[Ints, int]:
    """Numbers the distinct values from 0, in order of first occurrence; NULL counts as a value. Out: the number of each
    value, and how many numbers there are."""
    try:
        encoded = column.dictionary_encode(null_encoding="encode")
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # nested types
        numbers: dict[str, int] = {}
        listed = [numbers.setdefault(repr(value), len(numbers)) for value in column.to_pylist()]
        return np.array(listed, dtype=np.int64), len(numbers)
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), len(encoded.dictionary)


def group(table: pa.Table, names: Sequence[str], more: Sequence[Ints] = ()) -> tuple[Ints, Ints]:
    """Numbers the groups of rows with equal values. Out: each row's group, and each group's first row.

    In: `names`, `more`: the columns that define a group.
    """
    columns = [flat(table, name) for name in names] + [pa.array(values) for values in more]
    combined, size = codes(columns[0])
    for column in columns[1:]:
        next_codes, next_size = codes(column)
        if size == 1:
            combined, size = next_codes, next_size
        elif next_size > 1:
            combined, size = codes(pa.array(combined * next_size + next_codes))
    first = np.empty(size, dtype=np.int64)
    first[combined[::-1]] = np.arange(len(combined) - 1, -1, -1, dtype=np.int64)
    return combined, first


def last_of_group(groups: Ints, size: int) -> Ints:
    """The last position of each group; 0 for a group without rows."""
    last = np.zeros(size, dtype=np.int64)
    last[groups] = np.arange(len(groups), dtype=np.int64)
    return last


def previous_in_group(groups: Ints) -> Ints:
    """For each position the previous one in its group, or -1."""
    order = np.argsort(groups, kind="stable")
    arranged = groups[order]
    before = np.full(len(groups), -1, dtype=np.int64)
    same = arranged[1:] == arranged[:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def latest_in_group(groups: Ints, chosen: Bools) -> Ints:
    """For each position the last chosen one before it in its group, or -1."""
    order = np.argsort(groups, kind="stable")
    position = np.arange(len(order), dtype=np.int64)
    arranged = groups[order]
    starts = np.ones(len(order), dtype=np.bool_)
    starts[1:] = arranged[1:] != arranged[:-1]
    start = np.maximum.accumulate(np.where(starts, position, 0))
    seen = np.maximum.accumulate(np.where(chosen[order], position, -1))
    earlier = np.full(len(order), -1, dtype=np.int64)
    earlier[1:] = seen[:-1]
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.where(earlier >= start, order[np.maximum(earlier, 0)], -1)
    return found


def number_within(sequence: Ints) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Counts from 0 within each run of equal numbers: `_sub` for the rows of each `_seq`."""
    n = len(sequence)
    starts = np.ones(n, dtype=np.bool_)
    starts[1:] = sequence[1:] != sequence[:-1]
    if starts.all():
        return np.zeros(n, dtype=np.int32)
    positions = np.arange(n, dtype=np.int64)
    return (positions - np.maximum.accumulate(np.where(starts, positions, 0))).astype(np.int32)


def take(table: pa.Table, rows: Ints) -> pa.Table:
    """The rows at these positions; -1 gives a row of NULLs. If they are all rows in order, it returns the table itself,
    without a copy."""
    if len(rows) == len(table) and _is_range(rows):
        return table
    if len(rows) and rows.min() < 0:
        return table.take(pa.array(rows, mask=rows < 0))
    return table.take(pa.array(rows))


def _is_range(rows: Ints) -> bool:
    """Whether these are 0, 1, 2, …"""
    count = len(rows)
    if count and (rows[0] != 0 or rows[-1] != count - 1):
        return False
    return bool((rows == np.arange(count)).all())


def with_columns(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Replaces columns, or appends them."""
    for name, column in columns.items():
        position = table.schema.get_field_index(name)
        table = table.append_column(name, column) if position < 0 else table.set_column(position, name, column)
    return table


def orders(rows: pa.Table) -> list[Ints]:
    """Sort keys for the rows by their columns, last column first, as `np.lexsort` expects them."""
    ranks: list[Ints] = []
    for name in reversed(rows.column_names):
        try:
            ranks.append(pc.rank(flat(rows, name), tiebreaker="min").to_numpy().astype(np.int64))
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # nested types have no order
            ranks.append(np.zeros(len(rows), dtype=np.int64))
    return ranks


def without_repeats(rows: pa.Table) -> pa.Table:
    """The changes without the pairs of -1 and +1 that replace a row with an equal one."""
    weight, sequence = ints(rows, "_weight"), ints(rows, "_seq")
    minus = np.flatnonzero((weight[:-1] < 0) & (weight[1:] > 0) & (sequence[:-1] == sequence[1:]))
    if not len(minus):
        return rows
    same = np.ones(len(minus), dtype=np.bool_)
    for name in rows.column_names:
        if name[0] in "kv" or name in ("_part", "_ws", "_we"):
            same &= equal(flat(rows, name).take(pa.array(minus)), flat(rows, name).take(pa.array(minus + 1)))
    repeated = np.zeros(len(weight), dtype=np.bool_)
    repeated[minus[same]] = repeated[minus[same] + 1] = True
    return where(rows, ~repeated)


def equal(left: pa.Array, right: pa.Array) -> Bools:
    """Where the values are equal; NULL equals NULL. Doubles are compared by their bits: 0.0 and -0.0 differ, NaN equals
    itself. Values of a type that Arrow cannot compare count as different."""
    if pa.types.is_float64(left.type):
        left, right = left.view(pa.int64()), right.view(pa.int64())
    if pa.types.is_integer(left.type) and not left.null_count and not right.null_count:
        return left.to_numpy() == right.to_numpy()
    try:
        found = pc.equal(left, right)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # nested types
        return np.zeros(len(left), dtype=np.bool_)
    both_null = pc.and_(left.is_null(), right.is_null())
    return pc.or_(pc.fill_null(found, False), both_null).to_numpy(zero_copy_only=False)
