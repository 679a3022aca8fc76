"""Which columns flow between steps, and small vector operations on batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...planner.schema import Schema
from ..batch import META, OPTIONAL_META

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

WINDOW = ("_ws", "_we")


def key_names(schema: Schema) -> tuple[str, ...]:
    return tuple(f"k{i}" for i in range(len(schema.key)))


def value_names(schema: Schema) -> tuple[str, ...]:
    return tuple(f"v{i}" for i in range(len(schema.value)))


def batch_schema(schema: Schema, extra: Sequence[str] = (), columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of batches with these columns; `columns` are the ones that are left after pruning."""
    fields = [pa.field(name, type_) for name, type_ in META.items()]
    fields += [pa.field(name, OPTIONAL_META[name]) for name in OPTIONAL_META if name in extra]
    typed = [
        *zip(key_names(schema), schema.key, strict=True),
        *zip(value_names(schema), schema.value, strict=True),
    ]
    fields += [pa.field(name, c.type.arrow) for name, c in typed if columns is None or name in columns]
    return pa.schema(fields)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly these columns; a missing one is NULL (what META says nothing about is not needed)."""
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
    """The column in one piece."""
    column = table.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)


def ints(table: pa.Table, name: str) -> Ints:
    return flat(table, name).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def any_true(table: pa.Table, name: str) -> bool:
    return bool(pc.any(table.column(name)).as_py())


def is_null(table: pa.Table, names: Sequence[str]) -> list[Bools]:
    """Per column, where it is NULL."""
    return [table.column(name).is_null().to_numpy() for name in names]


def with_values(rows: pa.Table) -> pa.Table:
    """The rows that have a value."""
    missing = flat(rows, "_null").to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(~missing)) if missing.any() else rows


def without_null_keys(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows without those whose key is NULL as a whole: in a join it is equal to nothing."""
    if not names or not all(rows.column(name).null_count for name in names):
        return rows
    return rows.filter(pa.array(~np.logical_and.reduce(is_null(rows, names))))


def codes(column: pa.Array) -> tuple[Ints, int]:
    """Equal values get equal numbers from 0, in the order in which they first come; NULL is a value. And how many."""
    try:
        encoded = column.dictionary_encode(null_encoding="encode")
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # nested types
        numbers: dict[str, int] = {}
        listed = [numbers.setdefault(repr(value), len(numbers)) for value in column.to_pylist()]
        return np.array(listed, dtype=np.int64), len(numbers)
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), len(encoded.dictionary)


def group(table: pa.Table, names: Sequence[str], more: Sequence[Ints] = ()) -> tuple[Ints, Ints]:
    """Number the groups of rows with equal values. Out: each row's group, and each group's first row.

    `more` are further columns that belong to the group.
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
    """The last position of each group; each has one."""
    last = np.zeros(size, dtype=np.int64)
    last[groups] = np.arange(len(groups), dtype=np.int64)
    return last


def previous_in_group(groups: Ints) -> Ints:
    """For each position the one before it in its group, or -1."""
    order = np.argsort(groups, kind="stable")
    arranged = groups[order]
    before = np.full(len(groups), -1, dtype=np.int64)
    same = arranged[1:] == arranged[:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def latest_in_group(groups: Ints, chosen: Bools) -> Ints:
    """For each position the latest chosen one before it in its group, or -1."""
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
    """Count from 0 within each run of equal numbers: `_sub` for the rows of each `_seq`."""
    n = len(sequence)
    starts = np.ones(n, dtype=np.bool_)
    starts[1:] = sequence[1:] != sequence[:-1]
    if starts.all():
        return np.zeros(n, dtype=np.int32)
    positions = np.arange(n, dtype=np.int64)
    return (positions - np.maximum.accumulate(np.where(starts, positions, 0))).astype(np.int32)


def take(table: pa.Table, rows: Ints) -> pa.Table:
    """The rows; -1 gives a row of NULLs. All of them in their order are the table itself, without a copy."""
    if len(rows) == len(table) and _is_range(rows):
        return table
    if len(rows) and rows.min() < 0:
        return table.take(pa.array(rows, mask=rows < 0))
    return table.take(pa.array(rows))


def _is_range(rows: Ints) -> bool:
    """Whether it counts from 0."""
    count = len(rows)
    if count and (rows[0] != 0 or rows[-1] != count - 1):
        return False
    return bool((rows == np.arange(count)).all())


def with_columns(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Replace columns, or add them at the end."""
    for name, column in columns.items():
        position = table.schema.get_field_index(name)
        table = table.append_column(name, column) if position < 0 else table.set_column(position, name, column)
    return table


def orders(rows: pa.Table) -> list[Ints]:
    """What sorts the rows by their columns, the last column first, as `np.lexsort` wants it."""
    ranks: list[Ints] = []
    for name in reversed(rows.column_names):
        try:
            ranks.append(pc.rank(flat(rows, name), tiebreaker="min").to_numpy().astype(np.int64))
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # nested types have no order
            ranks.append(np.zeros(len(rows), dtype=np.int64))
    return ranks


def without_repeats(rows: pa.Table) -> pa.Table:
    """The changes without those that replace a row by an equal one."""
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
    return rows.filter(pa.array(~repeated)) if same.any() else rows


def equal(left: pa.Array, right: pa.Array) -> Bools:
    """Where the values are equal; NULL is a value. Doubles go by their bits: 0.0 and -0.0 are two, NaN is one. What
    cannot be compared is not."""
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
