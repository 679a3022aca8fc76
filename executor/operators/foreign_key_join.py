"""Joins a table's rows with the rows of another table that they reference. A change of a referenced row changes every
row that references it.

Left rows are stored under their foreign key, in the task of the row that they reference. A row whose foreign key
changes leaves one task (-1) and enters another (+1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.steps.foreign_key_join import ForeignKeyJoin
from ...planner.steps.step import store_id
from ...sql.types import BIGINT, INTEGER, SqlType
from ..batch import ChangeBatch
from ..building import Building, Joiner, builds
from ..state.store import StateStore
from .columns import (
    Bools,
    Ints,
    batch_schema,
    conform,
    group,
    ints,
    last_of_group,
    latest_in_group,
    number_within,
    orders,
    take,
    value_names,
    value_types,
    without_null_keys,
)
from .joining import JoinNode, join_node, window_columns

_FOREIGN = ("_part", "k0")


@dataclass(frozen=True, slots=True)
class _Changes:
    """The changes of both sides in one order.

    `row`: the position among the side's changes. `right_before`, `right_after`: the right table's row of the key, as a
    position among its changes followed by its stored rows, or -1.
    """

    side: Ints
    row: Ints
    group: Ints
    sequence: Ints
    time: Ints
    right_before: Ints
    right_after: Ints


@dataclass(frozen=True, slots=True)
class _Output:
    """Rows to emit: the change that caused each, its left and right row, and whether it is a retraction."""

    change: Ints
    left: Ints
    right: Ints
    is_old: Bools
    time: Ints


class ForeignKeyJoiner(Joiner):
    """In: the left table's changes with their old rows and the foreign key as key; the right table's changes. One
    `_seq` over both, and equal keys in equal tasks.
    Out: changes of the result. Those that one change of the right table causes are in the order of the left table's
    keys. Without `emit_old`, removing a left row gives a -1 even if the row had no partner, as in Kafka Streams;
    another result of the same record then replaces it.
    State: the rows of both sides.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, step: ForeignKeyJoin) -> None:
        self._step = step
        self._left_values = value_names(step.left_schema)
        self._right_values = value_names(step.right_schema)
        self._left_key = [self._left_values[i] for i in step.left_key]
        foreign: dict[str, SqlType] = {"_part": INTEGER, "k0": step.left_schema.key[0].type}
        left = value_types(step.left_schema)
        right = value_types(step.right_schema)
        self._left = StateStore(
            connection,
            f"{store_id(step)}.left",
            {**foreign, **{name: left[name] for name in self._left_key}},
            {name: type_ for name, type_ in left.items() if name not in self._left_key} | {"_ts": BIGINT},
        )
        self._right = StateStore(connection, f"{store_id(step)}.right", foreign, {**right, "_ts": BIGINT})
        self.stores = {self._left.name: self._left, self._right.name: self._right}
        self._left_schema = pa.schema(list(self._left.change_schema)[:-1])
        self._right_schema = pa.schema(list(self._right.change_schema)[:-1])
        self._output_schema = batch_schema(step.schema)

    def process(self, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch:
        right = replace(right, rows=without_null_keys(right.rows, _FOREIGN[1:]))
        sides = (left.rows, right.rows)
        keys = pa.concat_tables([conform(rows.select(_FOREIGN), self._right.key_schema) for rows in sides])
        if not len(keys):
            return ChangeBatch(self._output_schema.empty_table())
        groups, first = group(keys, _FOREIGN)
        distinct = take(keys, first)
        stored_right = self._right.read(distinct)
        changes = _in_order(sides, groups, stored_right, len(first))
        touched = np.unique(changes.group[changes.side == 1])
        stored_left = self._left.read(take(distinct, touched), by=_FOREIGN)

        left_rows = pa.concat_tables([conform(table, self._left_schema) for table in (left.rows, stored_left)])
        right_rows = pa.concat_tables([conform(table, self._right_schema) for table in (right.rows, stored_right)])
        versions = self._versions(changes, left.rows, left_rows, touched[ints(stored_left, "_index")])
        outputs = [self._by_left(changes, left.rows, right_rows), self._by_right(changes, versions, left_rows)]
        self._remember(left.rows, right.rows)
        return ChangeBatch(self._table(outputs, changes, left_rows, right_rows))

    # -------------------------------------------------------------- what a change of the left table gives

    def _by_left(self, changes: _Changes, rows: pa.Table, right_rows: pa.Table) -> _Output:
        own = np.flatnonzero(changes.side == 0)
        row, partner = changes.row[own], changes.right_before[own]
        is_old = ints(rows, "_weight")[row] < 0
        exists = self._exists(partner)
        shown = exists if self._step.emit_old else exists | is_old
        times = np.append(ints(right_rows, "_ts"), np.iinfo(np.int64).min)[partner]
        time = np.maximum(changes.time[own], times)
        return _Output(own[shown], row[shown], partner[shown], is_old[shown], time[shown])

    # -------------------------------------------------------------- what a change of the right table gives

    def _versions(
        self, changes: _Changes, rows: pa.Table, left_rows: pa.Table, stored_group: Ints
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """The left rows that exist at some time during the batch: their positions and groups, and the changes at which
        they begin and end."""
        place = np.full(len(left_rows), -1, dtype=np.int64)
        own = changes.side == 0
        place[changes.row[own]] = np.flatnonzero(own)
        groups = np.concatenate([np.zeros(len(rows), dtype=np.int64), stored_group])
        groups[changes.row[own]] = changes.group[own]
        if not len(left_rows):
            return place, groups, place, place
        entity, _ = group(left_rows, [*_FOREIGN, *self._left_key])
        order = np.lexsort((place, entity))
        end = np.full(len(order), len(changes.side), dtype=np.int64)
        same = entity[order][1:] == entity[order][:-1]
        end[order[:-1][same]] = place[order[1:][same]]
        alive = np.flatnonzero(np.concatenate([ints(rows, "_weight") > 0, np.ones(len(stored_group), np.bool_)]))
        return alive, groups[alive], place[alive], end[alive]

    def _by_right(self, changes: _Changes, versions: tuple[Ints, Ints, Ints, Ints], left_rows: pa.Table) -> _Output:
        position, groups, start, end = versions
        change, version = _pairs(np.flatnonzero(changes.side == 1), changes.group, groups)
        there = (start[version] < change) & (change <= end[version])
        change, row = change[there], position[version[there]]
        order = np.lexsort((*orders(take(left_rows.select(self._left_key), row)), change))
        change, row = change[order], row[order]

        before, after = changes.right_before[change], changes.right_after[change]
        is_now = self._exists(after)
        takes_back = self._exists(before) if self._step.emit_old else ~is_now
        shown = np.stack([takes_back, is_now], axis=1).reshape(-1)
        pair = np.repeat(np.arange(len(change)), 2)[shown]
        is_old = np.tile(np.array([True, False]), len(change))[shown]
        time = np.maximum(changes.time[change], ints(left_rows, "_ts")[row])[pair]
        return _Output(change[pair], row[pair], np.where(is_old, before[pair], after[pair]), is_old, time)

    def _exists(self, right: Ints) -> Bools:
        return right >= 0 if self._step.kind == "INNER" else np.ones(len(right), dtype=np.bool_)

    # -------------------------------------------------------------- state and output

    def _remember(self, left: pa.Table, right: pa.Table) -> None:
        for rows, store in ((left, self._left), (right, self._right)):
            if len(rows):
                groups, first = group(rows, list(store.key))
                last = last_of_group(groups, len(first))
                changes = take(conform(rows, pa.schema(list(store.change_schema)[:-1])), last)
                store.change(changes.append_column("_deleted", pa.array(ints(rows, "_weight")[last] < 0)))

    def _table(
        self, outputs: Sequence[_Output], changes: _Changes, left_rows: pa.Table, right_rows: pa.Table
    ) -> pa.Table:
        change = np.concatenate([output.change for output in outputs])
        order = np.argsort(change, kind="stable")
        left = np.concatenate([output.left for output in outputs])[order]
        right = np.concatenate([output.right for output in outputs])[order]
        is_old = np.concatenate([output.is_old for output in outputs])[order]
        mine, theirs = take(left_rows, left), take(right_rows, right)
        sequence = changes.sequence[change[order]]
        columns = {name: mine.column(name) for name in (*_FOREIGN, *self._left_values)}
        offset = len(self._left_values)
        columns |= {f"v{offset + i}": theirs.column(name) for i, name in enumerate(self._right_values)}
        columns["_seq"] = pa.array(sequence)
        columns["_sub"] = pa.array(number_within(sequence))
        columns["_ts"] = pa.array(np.concatenate([output.time for output in outputs])[order])
        columns["_weight"] = pa.array(np.where(is_old, -1, 1).astype(np.int8))
        columns["_null"] = pa.array(np.zeros(len(order), dtype=np.bool_))
        return conform(pa.table(columns), self._output_schema)


def _in_order(sides: tuple[pa.Table, pa.Table], groups: Ints, stored: pa.Table, size: int) -> _Changes:
    counts = [len(rows) for rows in sides]
    side = np.repeat(np.arange(2), counts)
    sequence = np.concatenate([ints(rows, "_seq") for rows in sides])
    order = np.lexsort((side, sequence))  # stable: a left row's -1 stays before its +1
    row = np.concatenate([np.arange(count, dtype=np.int64) for count in counts])[order]
    time = np.concatenate([ints(rows, "_ts") for rows in sides])[order]
    gone = np.concatenate([ints(rows, "_weight") < 0 for rows in sides])[order]
    side, groups = side[order], groups[order]
    known = np.full(size, -1, dtype=np.int64)
    known[ints(stored, "_index")] = np.arange(len(stored), dtype=np.int64) + counts[1]
    own = side == 1
    current = np.where(gone, -1, row)
    at = latest_in_group(groups, own)
    before = np.where(at >= 0, current[np.maximum(at, 0)], known[groups])
    return _Changes(side, row, groups, sequence[order], time, before, np.where(own, current, before))


def _pairs(change: Ints, group_of_change: Ints, group_of_version: Ints) -> tuple[Ints, Ints]:
    """All pairs of a change and a version of the same group."""
    by_group = np.argsort(group_of_version, kind="stable")
    arranged = group_of_version[by_group]
    first = np.searchsorted(arranged, group_of_change[change], side="left")
    count = np.searchsorted(arranged, group_of_change[change], side="right") - first
    ends = np.cumsum(count)
    within = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64) - np.repeat(ends - count, count)
    return np.repeat(change, count), by_group[np.repeat(first, count) + within]


@builds(ForeignKeyJoin)
def build(step: ForeignKeyJoin, building: Building) -> JoinNode:
    left, right = building.node(step.left), building.node(step.right)
    joiner = ForeignKeyJoiner(building.connection, step)
    return join_node(building, step, joiner, left, right, extra=window_columns(left, right))
