"""Joins rows that have equal values in some columns, and updates the pairs when either side changes.

Every row that exists at some time during a batch is a version with a lifetime: from the change that adds it to the
change that removes it. A pair lives while both of its rows live: its start is a +1 in the output, its end a -1. Pairs
that live through the whole batch are never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.steps.row_join import RowJoin
from ...sql.types import BIGINT, INTEGER, SqlType
from ..batch import ChangeBatch
from ..building import Building, Emit, Joiner, builds
from ..state.store import StateStore
from .absences import Lives, absences
from .columns import (
    Bools,
    Ints,
    batch_schema,
    conform,
    group,
    ints,
    key_names,
    key_types,
    last_of_group,
    number_within,
    orders,
    take,
    value_names,
    value_types,
    with_values_and_keys,
    without_repeats,
)
from .joining import JoinNode, join_node
from .stream_time import NEVER

_BEFORE = -1  # born before the batch


@dataclass(frozen=True, slots=True)
class _Versions:
    """The versions of a side's rows. Per version: its `position` in `rows`, its `group` of equal keys, and the changes
    of the batch at which it is `born` and at which it `died`. If it still exists after the batch, `died` is the number
    of changes."""

    rows: pa.Table
    position: Ints
    group: Ints
    born: Ints
    died: Ints

    def changed(self, change_count: int) -> Bools:
        return (self.born > _BEFORE) | (self.died < change_count)


@dataclass(frozen=True, slots=True)
class _Pairs:
    left: Ints  # numbers of versions
    right: Ints


class RowJoiner(Joiner):
    """In: changes of both sides, keyed by the join columns, with one `_seq` over both, and equal keys in equal tasks.
    Rows with a NULL among the join columns join nothing.
    Out: changes of the pairs, in the order of the changes that cause them. Changes with one cause are ordered by the
    columns that identify rows. With emit `last`: the net changes of the batch under one `_seq`, so that only the last
    row of each key is emitted.
    If the join is `outer`, a left row without a partner is emitted alone.
    State: the rows of both sides.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, step: RowJoin, emit: Emit = "every") -> None:
        self._emit_every = emit == "every"
        self._outer = step.outer
        self._schemas = (step.left_schema, step.right_schema)
        self._keys = ["_part", *key_names(step.left_schema)]
        types: dict[str, SqlType] = {"_part": INTEGER}
        types |= key_types(step.left_schema)
        self._own = [[f"v{position}" for position in positions] for positions in (step.left_key, step.right_key)]
        self._stores = [
            _store(connection, f"{step.id}.{side}", types, schema, own)
            for side, schema, own in zip(("left", "right"), self._schemas, self._own, strict=True)
        ]
        self.stores = {store.name: store for store in self._stores}
        self._output_schema = batch_schema(step.schema)

    def process(self, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch:
        sides = [self._joinable(left.rows, any_key=self._outer), self._joinable(right.rows, any_key=False)]
        key_schema = pa.schema([self._stores[0].key_schema.field(name) for name in self._keys])
        keys = pa.concat_tables([conform(rows.select(self._keys), key_schema) for rows in sides])
        if not len(keys):
            return ChangeBatch(self._output_schema.empty_table())
        groups, first = group(keys, self._keys)
        sequence, times, places = _in_order(sides)
        of_side = np.split(groups, [len(sides[0])])
        distinct = take(keys, first)
        asked = (of_side[1], groups if self._outer else of_side[0])
        versions = [
            self._versions(side, sides[side], of_side[side], places[side], asked[side], distinct, len(sequence))
            for side in (0, 1)
        ]
        if self._outer:
            versions[1] = _with_absences(versions[1], len(first), sequence)
        for side in (0, 1):
            self._remember(side, sides[side])
        pairs = _pairs(versions[0], versions[1], len(sequence))
        return ChangeBatch(self._output(versions, pairs, sequence, times, distinct))

    def _joinable(self, rows: pa.Table, *, any_key: bool) -> pa.Table:
        return without_repeats(with_values_and_keys(rows, () if any_key else self._keys[1:]))

    def _versions(
        self,
        side: int,
        rows: pa.Table,
        groups: Ints,
        places: Ints,
        met_groups: Ints,
        distinct: pa.Table,
        change_count: int,
    ) -> _Versions:
        """The versions of this side: its changes, the stored rows of the groups `met_groups`, and the stored rows that
        this side's changes end."""
        store = self._stores[side]
        asked = np.unique(met_groups)
        met = store.read(take(distinct, asked), by=self._keys)
        gone = ints(rows, "_weight") < 0
        ended, groups_ended = self._ended(side, rows, groups, gone & ~np.isin(groups, asked))
        schema = pa.schema(list(store.change_schema)[:-1])
        pool = pa.concat_tables([conform(table, schema) for table in (rows, met, ended)])
        stored = len(met) + len(ended)
        place = np.concatenate([places, np.full(stored, _BEFORE, dtype=np.int64)])
        group_of = np.concatenate([groups, asked[ints(met, "_index")], groups_ended])
        alive = np.concatenate([~gone, np.ones(stored, dtype=np.bool_)])
        died = np.full(len(pool), change_count, dtype=np.int64)
        if len(pool):
            entity, _ = group(pool, list(store.key))
            order = np.lexsort((place, entity))
            before = order[:-1][entity[order][1:] == entity[order][:-1]]
            after = order[1:][entity[order][1:] == entity[order][:-1]]
            died[before] = place[after]
        position = np.flatnonzero(alive)
        return _Versions(pool, position, group_of[position], place[position], died[position])

    def _ended(self, side: int, rows: pa.Table, groups: Ints, chosen: Bools) -> tuple[pa.Table, Ints]:
        """The stored rows that the chosen changes retract, and their groups."""
        store = self._stores[side]
        taken = np.flatnonzero(chosen)
        if not len(taken):
            return store.read(store.key_schema.empty_table()), taken
        keys = take(rows.select(list(store.key)), taken)
        _, first = group(keys, list(store.key))
        found = store.read(take(keys, first))
        return found, groups[taken[first[ints(found, "_index")]]]

    def _remember(self, side: int, rows: pa.Table) -> None:
        if not len(rows):
            return
        store = self._stores[side]
        groups, first = group(rows, list(store.key))
        last = np.sort(last_of_group(groups, len(first)))
        changes = take(conform(rows, pa.schema(list(store.change_schema)[:-1])), last)
        store.change(changes.append_column("_deleted", pa.array(ints(rows, "_weight")[last] < 0)))

    def _output(
        self, versions: Sequence[_Versions], pairs: _Pairs, sequence: Ints, times: Ints, distinct: pa.Table
    ) -> pa.Table:
        left, right = versions
        born = np.maximum(left.born[pairs.left], right.born[pairs.right])
        died = np.minimum(left.died[pairs.left], right.died[pairs.right])
        is_new, is_gone = born > _BEFORE, died < len(sequence)
        lives = (born < died) if self._emit_every else ~(is_new & is_gone)
        begins, ends = np.flatnonzero(lives & is_new), np.flatnonzero(lives & is_gone)
        pair = np.concatenate([ends, begins])
        is_old = np.concatenate([np.ones(len(ends), np.bool_), np.zeros(len(begins), np.bool_)])
        change = np.concatenate([died[ends], born[begins]])
        rows = [
            take(side.rows, side.position[of_side[pair]])
            for side, of_side in zip(versions, (pairs.left, pairs.right), strict=True)
        ]
        named = take(distinct, left.group[pairs.left[pair]])
        columns = {name: named.column(name) for name in self._keys}
        offset = 0
        for schema, values in zip(self._schemas, rows, strict=True):
            columns |= {f"v{offset + i}": values.column(name) for i, name in enumerate(value_names(schema))}
            offset += len(schema.value)
        number = sequence[change] if self._emit_every else np.full(len(change), sequence[-1])
        columns["_seq"] = pa.array(number)
        both = np.maximum(ints(rows[0], "_ts"), ints(rows[1], "_ts"))
        columns["_ts"] = pa.array(np.where(is_old, np.maximum(both, times[change]), both))
        columns["_weight"] = pa.array(np.where(is_old, -1, 1).astype(np.int8))
        columns["_null"] = pa.array(np.zeros(len(pair), dtype=np.bool_))
        out = conform(pa.table(columns), self._output_schema)
        identities = [values.select(own) for values, own in zip(rows, self._own, strict=True)]
        order = np.lexsort((*orders(identities[1]), *orders(identities[0]), ~is_old, change))
        if not self._emit_every:
            order = _without_what_comes_back(out, is_old)
        stamped = pa.array(number_within(number[order]))
        return take(out, order).set_column(out.schema.get_field_index("_sub"), "_sub", stamped)


def _with_absences(versions: _Versions, group_count: int, sequence: Ints) -> _Versions:
    """Adds a version of NULLs for each time during which a group has no row."""
    found = absences(Lives(versions.group, versions.born, versions.died), group_count, sequence)
    blank = conform(pa.table({"_ts": pa.array([NEVER], pa.int64())}), versions.rows.schema)
    return _Versions(
        pa.concat_tables([versions.rows, blank]),
        np.concatenate([versions.position, np.full(len(found.group), len(versions.rows), dtype=np.int64)]),
        np.concatenate([versions.group, found.group]),
        np.concatenate([versions.born, found.born]),
        np.concatenate([versions.died, found.died]),
    )


def _without_what_comes_back(rows: pa.Table, is_old: Bools) -> Ints:
    """The rows at -1, then the rows at +1, without the rows that occur in both."""
    values = [name for name in rows.column_names if name[0] in "kv"]
    row, _ = group(rows, ["_part", *values])
    both = np.intersect1d(row[is_old], row[~is_old])
    left = ~np.isin(row, both)
    return np.concatenate([np.flatnonzero(left & is_old), np.flatnonzero(left & ~is_old)])


def _store(
    connection: duckdb.DuckDBPyConnection, name: str, common: dict[str, SqlType], schema: Schema, own: Sequence[str]
) -> StateStore:
    types = value_types(schema)
    key = {**common, **{column: types[column] for column in own}}
    return StateStore(connection, name, key, {c: t for c, t in types.items() if c not in own} | {"_ts": BIGINT})


def _in_order(sides: Sequence[pa.Table]) -> tuple[Ints, Ints, list[Ints]]:
    """Brings the changes of both sides into one order. Out: their `_seq` and time in this order, and the places of each
    side's rows in it."""
    side = np.repeat(np.arange(2), [len(rows) for rows in sides])
    sequence = np.concatenate([ints(rows, "_seq") for rows in sides])
    order = np.lexsort((side, sequence))  # stable: a row's -1 stays before its +1
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order), dtype=np.int64)
    times = np.concatenate([ints(rows, "_ts") for rows in sides])
    return sequence[order], times[order], np.split(places, [len(sides[0])])


def _pairs(left: _Versions, right: _Versions, change_count: int) -> _Pairs:
    """All pairs of versions in one group of which at least one is born or dies in the batch."""
    new_left, new_right = left.changed(change_count), right.changed(change_count)
    everything = np.ones(len(new_right), dtype=np.bool_)
    first = _matches(left.group, right.group, np.flatnonzero(new_left), np.flatnonzero(everything))
    second = _matches(left.group, right.group, np.flatnonzero(~new_left), np.flatnonzero(new_right))
    return _Pairs(np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]]))


def _matches(left_group: Ints, right_group: Ints, left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """All pairs of a chosen left and a chosen right version of the same group."""
    by_group = right[np.argsort(right_group[right], kind="stable")]
    arranged = right_group[by_group]
    begin = np.searchsorted(arranged, left_group[left], side="left")
    count = np.searchsorted(arranged, left_group[left], side="right") - begin
    ends = np.cumsum(count)
    within = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64) - np.repeat(ends - count, count)
    return np.repeat(left, count), by_group[np.repeat(begin, count) + within]


@builds(RowJoin)
def build(step: RowJoin, building: Building) -> JoinNode:
    left, right = building.node(step.left), building.node(step.right)
    joiner = RowJoiner(building.connection, step, building.emit)
    return join_node(building, step, joiner, left, right, extra=())
