"""Joins the rows of two streams that have equal keys and close enough times.

Every row gets a number on arrival, over both sides. A row is stored in its side's buffer, and then probes the other
side's buffer for rows with smaller numbers, so batch boundaries make no difference. Rows of outer joins that wait for
a partner are in `unmatched_rows.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.steps.stream_stream_join import StreamStreamJoin
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
    ints,
    is_null,
    joinable,
    key_names,
    key_types,
    number_within,
    take,
    value_names,
    value_types,
    with_columns,
    with_values,
)
from .joining import JoinNode, join_node, window_columns
from .stream_time import NEVER, running
from .unmatched_rows import UnmatchedRows

_DEFAULT_GRACE_MS = 24 * 60 * 60 * 1000  # how long rows are kept without a GRACE PERIOD


@dataclass(slots=True)
class Arrivals:
    """The rows of one side in a batch.

    Per row: `rank`: its position among the rows of both sides. `number`: like `rank`, but over all batches.
    `stream_time`: the stream time at the row, over both sides. `own_time`, `other_time`: the latest rowtime of this
    side's and of the other side's rows up to this row.
    """

    rows: pa.Table
    rank: Ints
    number: Ints
    time: Ints
    stream_time: Ints
    own_time: Ints
    other_time: Ints


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs of an arrived row and a row of the other side's buffer: the position of the first, and the slot, time and
    number of the second."""

    row: Ints
    slot: Ints
    time: Ints
    number: Ints


@dataclass(frozen=True, slots=True)
class Timeline:
    """Stream time by task: before and after the batch, and at each of the task's rows (`ranks` and `times`)."""

    before: dict[int, int]
    after: dict[int, int]
    ranks: dict[int, Ints]
    times: dict[int, Ints]

    def first_beyond(self, part: int, times: Ints, never: int) -> Ints:
        """The rank of the first row at which the task's stream time is greater than each of `times`, or `never`."""
        if part not in self.ranks:
            return np.full(len(times), never, dtype=np.int64)
        return np.append(self.ranks[part], never)[np.searchsorted(self.times[part], times, side="right")]


class StreamStreamJoiner(Joiner):
    """In: rows of two streams, with one `_seq` over both, and equal keys in equal tasks.
    Out: joined rows; each has the `_seq` of the row that caused it.
    State: the rows of each side that a later row can still join, the rows that wait for a partner, and the times.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, step: StreamStreamJoin, windowed: bool) -> None:
        self._step = step
        self._schemas = (step.left_schema, step.right_schema)
        self._keys = ["_part", *key_names(step.left_schema), *(WINDOW if windowed else ())]
        grace = _DEFAULT_GRACE_MS if step.grace_ms is None else step.grace_ms
        # As in Kafka Streams, a row that is older than both reaches and the grace period together is gone, and one as
        # old as that. But a row within grace must find partners at the border of a window that has one side or none.
        window = max(step.before_ms + step.after_ms, max(step.before_ms, step.after_ms) + 1)
        self._retention = window + grace
        self._reach = ((step.before_ms, step.after_ms), (step.after_ms, step.before_ms))  # back and ahead, per side
        self._outer = (step.kind in ("LEFT", "FULL"), step.kind in ("RIGHT", "FULL"))
        self._buffers = [
            StateStore(
                connection,
                f"{step.id}.{side}",
                {**self._key_types, "_rts": BIGINT, "_id": BIGINT},
                values,
                writes_new_keys=True,
            )
            for side, values in zip(("left", "right"), map(value_types, self._schemas), strict=True)
        ]
        self._unmatched = [
            UnmatchedRows(
                connection, f"{step.id}.unmatched.{side}", self._key_types, value_types(schema), reach[1] + grace
            )
            if step.grace_ms is not None and outer
            else None
            for side, schema, reach, outer in zip(
                ("left", "right"), self._schemas, self._reach, self._outer, strict=True
            )
        ]
        times = ("stream_time_ms", "left_ms", "right_ms", "last_id")
        self._times = StateStore(connection, f"{step.id}.time", {"_part": INTEGER}, dict.fromkeys(times, BIGINT))
        stores = [*self._buffers, self._times, *(waiting.store for waiting in self._unmatched if waiting is not None)]
        self.stores = {store.name: store for store in stores}
        self._output_schema = batch_schema(step.schema, WINDOW if windowed else ())
        self._forgotten: dict[tuple[int, int], int] = {}
        self._known: dict[int, dict[str, int]] = {}
        self._known_at = -1  # the version of `_times`

    @property
    def _key_types(self) -> dict[str, SqlType]:
        types: dict[str, SqlType] = {"_part": INTEGER, **dict.fromkeys(WINDOW, BIGINT)}
        types |= key_types(self._step.left_schema)
        return {name: types[name] for name in self._keys}

    def process(self, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch:
        tables = [
            joinable(with_values(changes.rows), key_names(schema), alone=outer)
            for changes, schema, outer in zip((left, right), self._schemas, self._outer, strict=True)
        ]
        if not any(map(len, tables)):
            return ChangeBatch(self._output_schema.empty_table())
        sides, sequence, timeline = self._number(tables)
        for side, arrived in enumerate(sides):
            self._keep(side, arrived)
        matches = [self._meet(side, arrived) for side, arrived in enumerate(sides)]
        padded: list[pa.Table] = []
        for side in (0, 1):
            if self._outer[side]:
                padded += self._padded(side, sides, matches, timeline)
        out = self._joined(sides, matches)
        if any(map(len, padded)):
            out = pa.concat_tables([out, *padded])
            out = take(out, np.lexsort([ints(out, name) for name in reversed(_ORDER)]))
        of_rank = sequence[ints(out, "_rank")]
        stamped = with_columns(out, {"_seq": pa.array(of_rank), "_sub": pa.array(number_within(of_rank))})
        self._forget(timeline)
        return ChangeBatch(conform(stamped, self._output_schema))

    # -------------------------------------------------------------- arriving

    def _number(self, tables: list[pa.Table]) -> tuple[list[Arrivals], Ints, Timeline]:
        """Both sides' rows in one order, the `_seq` by rank, and the stream time at each row; stores the times.

        Each pair must be found once, by the later of its two rows, regardless of batch boundaries. Both rows may be in
        one batch. All rows are stored before any of them probes the other side (`_keep` before `_meet`), so each would
        find the other: therefore a row joins only partners with a smaller number. Within a batch, the number is the
        position in `_seq` order (at equal `_seq` the left side is first). Across batches it continues after `last_id`,
        which is stored with the times, so that rows of earlier batches have smaller numbers, also after a restart.
        Rows are numbered before late rows are dropped, because a row that is too late to be stored may still join.

        Times are those at each row, not at the end of the batch, for the same reason: whether a row is late, or can no
        longer find a partner, is decided as if it had arrived alone. Times are per task, because another task may be
        ahead. The times must be stored before the next batch is numbered.
        """
        side = np.repeat(np.arange(2), [len(table) for table in tables])
        sequence = np.concatenate([ints(table, "_seq") for table in tables])
        order = np.lexsort((side, sequence))  # stable: rows of one `_seq` and side keep their order
        part_of = pa.array(np.concatenate([ints(table, "_part") for table in tables])[order], pa.int32())
        time = np.concatenate([ints(table, "_ts") for table in tables])
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order), dtype=np.int64)

        known = self._known_times()
        first = max((row["last_id"] for row in known.values()), default=-1) + 1
        observed: list[Ints] = []
        after: dict[str, dict[int, int]] = {}
        counted = [np.ones(len(side), dtype=np.bool_), side == 0, side == 1]
        for name, counts in zip(("stream_time_ms", "left_ms", "right_ms"), counted, strict=True):
            earlier = {part: row[name] for part, row in known.items()}
            at_rows, after[name] = running(part_of, np.where(counts, time, NEVER)[order], earlier)
            observed.append(at_rows)
        self._remember_times(after, first + len(order) - 1)

        arrivals: list[Arrivals] = []
        for number, table in enumerate(tables):
            own = rank[side == number]
            times = (observed[0][own], observed[1 + number][own], observed[2 - number][own])
            arrivals.append(Arrivals(table, own, first + own, time[side == number], *times))
        before = {part: row["stream_time_ms"] for part, row in known.items()}
        parts = part_of.to_numpy()
        ranks = {part: np.flatnonzero(parts == part) for part in np.unique(parts).tolist()}
        times_of = {part: observed[0][of_part] for part, of_part in ranks.items()}
        return arrivals, sequence[order], Timeline(before, after["stream_time_ms"], ranks, times_of)

    def _known_times(self) -> dict[int, dict[str, int]]:
        if self._known_at != self._times.version:
            self._known = {row["_part"]: row for row in self._times.rows().to_pylist()}
            self._known_at = self._times.version
        return self._known

    def _remember_times(self, after: dict[str, dict[int, int]], last: int) -> None:
        parts = list(after["stream_time_ms"])
        listed = {name: [times.get(part, NEVER) for part in parts] for name, times in after.items()}
        listed["last_id"] = [last] * len(parts)
        columns = {name: pa.array(times, pa.int64()) for name, times in listed.items()}
        self._times.write(pa.table({"_part": pa.array(parts, pa.int32()), **columns}))
        self._known = {part: {name: times[i] for name, times in listed.items()} for i, part in enumerate(parts)}
        self._known_at = self._times.version

    def _keep(self, side: int, arrived: Arrivals) -> None:
        """Stores the rows in the side's buffer, except those that are too late for it or have a NULL in the key."""
        if not len(arrived.rows):
            return
        in_time: Bools = arrived.time > arrived.own_time - self._retention
        self.late_rows += int(np.count_nonzero(~in_time))
        without_key: Bools = np.logical_or.reduce(is_null(arrived.rows, key_names(self._schemas[side])))
        kept = np.flatnonzero(in_time & ~without_key)
        columns = {"_rts": pa.array(arrived.time), "_id": pa.array(arrived.number)}
        self._buffers[side].write(take(with_columns(arrived.rows, columns), kept))

    def _forget(self, timeline: Timeline) -> None:
        """Drops rows that no later row can join. It runs rarely enough to cost nothing."""
        for part, time in timeline.after.items():
            for side, name in enumerate(("left_ms", "right_ms")):
                if time - self._forgotten.get((part, side), NEVER) >= max(1, self._retention // 4):
                    self._forgotten[part, side] = time
                    known = self._known_times()[part][name]
                    self._buffers[side].expire(part, "_rts", known - self._retention + 1)

    # -------------------------------------------------------------- meeting

    def _meet(self, side: int, arrived: Arrivals) -> Matches:
        back, ahead = self._reach[side]
        low = np.maximum(arrived.time - back, arrived.other_time - self._retention + 1)
        bounds = {"_low": pa.array(low), "_high": pa.array(arrived.time + ahead)}
        store = self._buffers[1 - side]
        row, slot = store.locate_between(with_columns(arrived.rows, bounds), self._keys, "_rts")
        time, number = (column.to_numpy(zero_copy_only=False) for column in store.values_at(slot, ["_rts", "_id"]))
        earlier = number < arrived.number[row]
        if not earlier.all():
            row, slot, time, number = row[earlier], slot[earlier], time[earlier], number[earlier]
        return Matches(row, slot, time, number)

    def _joined(self, sides: list[Arrivals], matches: list[Matches]) -> pa.Table:
        """The pairs, in order. A stored row that has many partners is read only once."""
        rank = np.concatenate([arrived.rank[own.row] for arrived, own in zip(sides, matches, strict=True)])
        other = np.concatenate([own.time for own in matches])
        number = np.concatenate([own.number for own in matches])
        order = np.lexsort((number, other, rank))
        counts = [len(arrived.rows) for arrived in sides]
        keys = pa.concat_tables([arrived.rows.select(self._keys) for arrived in sides])
        pairs = take(keys, np.concatenate([matches[0].row, matches[1].row + counts[0]])[order])
        columns: dict[str, pa.Array | pa.ChunkedArray] = {name: pairs.column(name) for name in self._keys}
        offset = 0
        for side, schema in enumerate(self._schemas):
            names = list(value_names(schema))
            stored, place = _distinct(matches[1 - side].slot)
            pool = sides[side].rows.select(names)
            if len(stored):
                kept = pa.table(self._buffers[side].values_at(stored, names), schema=pool.schema)
                pool = pa.concat_tables([pool, kept]) if len(matches[side].row) else kept
            place += counts[side] if len(matches[side].row) else 0
            chosen = [matches[side].row, place] if side == 0 else [place, matches[side].row]
            values = take(pool, np.concatenate(chosen)[order])
            columns |= {f"v{offset + i}": values.column(name) for i, name in enumerate(names)}
            offset += len(names)
        own = np.concatenate([arrived.time[match.row] for arrived, match in zip(sides, matches, strict=True)])
        columns["_ts"] = pa.array(np.maximum(own, other)[order])
        ordering = {"_rank": rank[order], "_phase": 1, "_rts": other[order], "_id": number[order]}
        return self._with_order(columns, len(order), ordering)

    def _padded(self, side: int, sides: list[Arrivals], matches: list[Matches], timeline: Timeline) -> list[pa.Table]:
        """The rows of an outer side that have no partner. Without a GRACE PERIOD they are emitted at once; with one,
        they are emitted when no partner can come any more."""
        arrived, waiting = sides[side], self._unmatched[side]
        alone = np.ones(len(arrived.rows), dtype=np.bool_)
        alone[matches[side].row] = False
        if waiting is None:
            return [self._alone(side, arrived, np.flatnonzero(alone))]
        hopeless = arrived.time + self._reach[side][1] < arrived.stream_time
        other = matches[1 - side]
        named = self._buffers[side].values_at(other.slot, ["_part", "_rts", "_id"])
        waiting.met(pa.table(named, names=["_part", "_rts", "_id"]), sides[1 - side].rank[other.row])
        waiting.add(arrived.rows, arrived.number, arrived.time, np.flatnonzero(alone & ~hopeless))
        closed = waiting.close(timeline)
        order = {name: ints(closed, name) for name in ("_rank", "_rts", "_id", "_order")}
        ordering = {"_phase": 0, "_side": 1 - side, **order}
        emitted = self._rows(side, closed, ints(closed, "_rts"), ordering)
        return [self._alone(side, arrived, np.flatnonzero(alone & hopeless)), emitted]

    def _alone(self, side: int, arrived: Arrivals, rows: Ints) -> pa.Table:
        mine = take(arrived.rows, rows)
        return self._rows(side, mine, arrived.time[rows], {"_rank": arrived.rank[rows], "_phase": 1})

    def _rows(self, side: int, mine: pa.Table, times: Ints, ordering: Mapping[str, Ints | int]) -> pa.Table:
        """Rows of a side without a partner, with the columns that order them. The other side's values are NULL."""
        columns: dict[str, pa.Array | pa.ChunkedArray] = {name: mine.column(name) for name in self._keys}
        offset = len(self._schemas[0].value)
        for of_side, start in ((0, 0), (1, offset)):
            for i, column in enumerate(self._schemas[of_side].value):
                own = of_side == side
                columns[f"v{start + i}"] = mine.column(f"v{i}") if own else pa.nulls(len(mine), column.type.arrow)
        columns["_ts"] = pa.array(times)
        return self._with_order(columns, len(mine), ordering)

    def _with_order(
        self, columns: Mapping[str, pa.Array | pa.ChunkedArray], size: int, ordering: Mapping[str, Ints | int]
    ) -> pa.Table:
        meta = {
            "_weight": pa.array(np.ones(size, dtype=np.int8)),
            "_null": pa.array(np.zeros(size, dtype=np.bool_)),
        }
        orders = {name: np.broadcast_to(ordering.get(name, 0), size).astype(np.int64) for name in _ORDER}
        return conform(
            pa.table({**columns, **meta, **{name: pa.array(order) for name, order in orders.items()}}),
            pa.schema([*self._output_schema, *((name, pa.int64()) for name in _ORDER)]),
        )


_ORDER = ("_rank", "_phase", "_rts", "_side", "_order", "_id")


def _distinct(slots: Ints) -> tuple[Ints, Ints]:
    """The distinct slots, and for each of `slots` its position among them."""
    if int(slots.max(initial=0)) > 8 * len(slots):  # an array of all slots would cost more than the batch
        return np.unique(slots, return_inverse=True)
    place = np.full(int(slots.max(initial=-1)) + 1, -1, np.int64)
    place[slots] = 0
    stored = np.flatnonzero(place == 0)
    place[stored] = np.arange(len(stored))
    return stored, place[slots]


@builds(StreamStreamJoin)
def build(step: StreamStreamJoin, building: Building) -> JoinNode:
    left, right = building.node(step.left), building.node(step.right)
    window = window_columns(left, right)
    joiner = StreamStreamJoiner(building.connection, step, bool(window))
    return join_node(building, step, joiner, left, right, extra=window)
