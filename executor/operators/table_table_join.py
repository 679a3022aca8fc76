"""Two tables with the same primary key: a change of either changes the result for its key.

One stable sort by key, over the changes of both sides, finds the row that a change meets at its time, as in
`stream_table_join.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.steps.step import store_id
from ...planner.steps.table_table_join import TableTableJoin
from ...sql.types import BIGINT, INTEGER, SqlType
from ..batch import ChangeBatch
from ..building import Building, Joiner, builds
from ..state.store import StateStore
from .columns import (
    WINDOW,
    Bools,
    Ints,
    batch_schema,
    conform,
    group,
    ints,
    joinable,
    key_names,
    key_types,
    last_of_group,
    latest_in_group,
    number_within,
    take,
    value_names,
    value_types,
)
from .joining import JoinNode, join_node, window_columns

_NONE = -1


@dataclass(frozen=True, slots=True)
class _Events:
    """The changes of both sides in one order. `before`, `after`: each side's row before and after the change, as a
    position among the side's changes of the batch followed by its stored rows, or -1."""

    group: Ints
    sequence: Ints
    time: Ints
    side: Ints
    before: tuple[Ints, Ints]
    after: tuple[Ints, Ints]

    @property
    def ended(self) -> Bools:
        """Where the change removes a row that its side did not have."""
        mine_before = np.where(self.side == 0, *self.before)
        mine_after = np.where(self.side == 0, *self.after)
        return (mine_before < 0) & (mine_after < 0)

    @property
    def other_exists(self) -> Bools:
        return np.where(self.side == 0, self.after[1], self.after[0]) >= 0


class TableTableJoiner(Joiner):
    """In: changes of two tables, with one `_seq` over both, and equal keys in equal tasks. A key with a NULL joins
    nothing, and its row stays alone in an outer join, unless all of it is NULL. In a FULL join, two such rows of equal
    keys are one: the result has one row for each key.
    Out: changes of the result. Without `emit_old`, there is also a deletion if one side deletes a row that it did not
    have while the other side has its row, as in Kafka Streams.
    State: the row of each key, per side.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, step: TableTableJoin, windowed: bool) -> None:
        self._step = step
        self._schemas = (step.left_schema, step.right_schema)
        self._keys = ["_part", *key_names(step.left_schema), *(WINDOW if windowed else ())]
        types: dict[str, SqlType] = {"_part": INTEGER, **dict.fromkeys(WINDOW, BIGINT)}
        types |= key_types(step.left_schema)
        key = {name: types[name] for name in self._keys}
        self._stores = [
            StateStore(connection, f"{store_id(step)}.{side}", key, value_types(schema) | {"_ts": BIGINT})
            for side, schema in zip(("left", "right"), self._schemas, strict=True)
        ]
        self.stores = {store.name: store for store in self._stores}
        self._output_schema = batch_schema(step.schema, WINDOW if windowed else ())

    def process(self, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch:
        names = key_names(self._step.left_schema)
        stays_alone = (self._step.kind in ("LEFT", "FULL"), self._step.kind in ("RIGHT", "FULL"))
        sides = tuple(
            joinable(rows, names, alone=alone) for rows, alone in zip((left.rows, right.rows), stays_alone, strict=True)
        )
        key_schema = self._stores[0].key_schema
        keys = pa.concat_tables([conform(rows.select(self._keys), key_schema) for rows in sides])
        if not len(keys):
            return ChangeBatch(self._output_schema.empty_table())
        groups, first = group(keys, self._keys)
        distinct = take(keys, first)
        found = [store.read(distinct) for store in self._stores]
        pools = [self._pool(side, sides[side], found[side]) for side in (0, 1)]
        events = _events(sides, groups, [_stored(found[i], len(first), len(sides[i])) for i in (0, 1)])
        self._remember(sides, groups)
        return ChangeBatch(self._result(events, pools, distinct))

    def _pool(self, side: int, rows: pa.Table, found: pa.Table) -> pa.Table:
        """A side's rows, first those of the batch and then the stored ones: the values and `_ts`."""
        schema = pa.schema([(name, type_.arrow) for name, type_ in self._stores[side].value.items()])
        return pa.concat_tables([conform(rows, schema), conform(found, schema)])

    def _remember(self, sides: tuple[pa.Table, pa.Table], groups: Ints) -> None:
        start = 0
        for rows, store in zip(sides, self._stores, strict=True):
            if len(rows):
                own = groups[start : start + len(rows)]
                last = np.unique(last_of_group(own, int(own.max()) + 1)[own])
                changes = take(conform(rows, pa.schema(list(store.change_schema)[:-1])), last)
                store.change(changes.append_column("_deleted", pa.array(ints(rows, "_weight")[last] < 0)))
            start += len(rows)

    def _result(self, events: _Events, pools: list[pa.Table], keys: pa.Table) -> pa.Table:
        was, is_now = self._exists(*events.before), self._exists(*events.after)
        if self._step.emit_old:
            takes_back = was
        else:
            takes_back = was & ~is_now
            takes_back |= ~was & ~is_now & events.ended & events.other_exists
        shown = np.stack([takes_back, is_now], axis=1).reshape(-1)
        event = np.repeat(np.arange(len(was)), 2)[shown]
        is_old = np.tile(np.array([True, False]), len(was))[shown]
        rows = [
            np.where(is_old, before[event], after[event])
            for before, after in zip(events.before, events.after, strict=True)
        ]
        return self._table(events, event, is_old, rows, pools, keys)

    def _exists(self, left: Ints, right: Ints) -> Bools:
        match self._step.kind:
            case "INNER":
                return (left >= 0) & (right >= 0)
            case "LEFT":
                return left >= 0
            case "RIGHT":
                return right >= 0
            case "FULL":
                return (left >= 0) | (right >= 0)

    def _table(
        self, events: _Events, event: Ints, is_old: Bools, rows: list[Ints], pools: list[pa.Table], keys: pa.Table
    ) -> pa.Table:
        """The result rows. The time of a result is the later one of the change and the other side's row."""
        other = [_times(pool, after) for pool, after in zip(pools, events.after, strict=True)]
        time = np.maximum(events.time, np.where(events.side == 0, other[1], other[0]))[event]
        named = take(keys, events.group[event])
        columns = {name: named.column(name) for name in self._keys}
        offset = 0
        for side, schema in enumerate(self._schemas):
            values = take(pools[side], rows[side])
            columns |= {f"v{offset + i}": values.column(name) for i, name in enumerate(value_names(schema))}
            offset += len(schema.value)
        sequence = events.sequence[event]
        nothing = (rows[0] < 0) & (rows[1] < 0)
        columns["_seq"] = pa.array(sequence)
        columns["_sub"] = pa.array(number_within(sequence))
        columns["_ts"] = pa.array(time)
        columns["_weight"] = pa.array(np.where(is_old, -1, 1).astype(np.int8))
        columns["_null"] = pa.array(nothing | (is_old & ~self._exists(*rows)))
        return conform(pa.table(columns), self._output_schema)


def _stored(found: pa.Table, size: int, offset: int) -> Ints:
    """Per key, the position of its stored row, after the `offset` rows of the batch, or -1."""
    stored = np.full(size, _NONE, dtype=np.int64)
    stored[ints(found, "_index")] = np.arange(len(found), dtype=np.int64) + offset
    return stored


def _events(sides: tuple[pa.Table, pa.Table], groups: Ints, stored: list[Ints]) -> _Events:
    """One event per key, side and `_seq`: only the last of several changes counts."""
    size = [len(rows) for rows in sides]
    side = np.repeat(np.arange(2), size)
    row = np.concatenate([np.arange(n, dtype=np.int64) for n in size])
    sequence = np.concatenate([ints(rows, "_seq") for rows in sides])
    gone = np.concatenate([ints(rows, "_weight") < 0 for rows in sides])
    time = np.concatenate([ints(rows, "_ts") for rows in sides])

    order = np.lexsort((side, sequence, groups))
    last = np.ones(len(order), dtype=np.bool_)
    same = (side[order][1:] == side[order][:-1]) & (sequence[order][1:] == sequence[order][:-1])
    last[:-1] = ~(same & (groups[order][1:] == groups[order][:-1]))
    order = order[last]
    # In the order of the batch, so that one row's changes to several keys stay together:
    order = order[np.lexsort((side[order], sequence[order]))]
    side, groups, sequence, time = side[order], groups[order], sequence[order], time[order]
    current = np.where(gone[order], _NONE, row[order])

    before: list[Ints] = []
    after: list[Ints] = []
    for number in (0, 1):
        own = side == number
        at = latest_in_group(groups, own)
        previous = np.where(at >= 0, current[np.maximum(at, 0)], stored[number][groups])
        before.append(previous)
        after.append(np.where(own, current, previous))
    return _Events(groups, sequence, time, side, (before[0], before[1]), (after[0], after[1]))


def _times(pool: pa.Table, rows: Ints) -> Ints:
    """The rowtimes of these rows; for a missing row (-1) the smallest possible time."""
    times = np.append(ints(pool, "_ts"), np.iinfo(np.int64).min)
    return times[rows]  # -1 is the last


@builds(TableTableJoin)
def build(step: TableTableJoin, building: Building) -> JoinNode:
    left, right = building.node(step.left), building.node(step.right)
    window = window_columns(left, right)
    joiner = TableTableJoiner(building.connection, step, bool(window))
    return join_node(building, step, joiner, left, right, extra=window)
