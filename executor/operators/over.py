"""Functions OVER partitions, such as ROW_NUMBER and RANK. For each touched partition, DuckDB computes the results
before and after the batch. The difference is the output.

The store has only rows, no results: a row that comes first changes the numbers of all later rows, and writing those
numbers would cost as much as computing them.

With a GRACE PERIOD, a new row is at most that much behind stream time T. It changes results only in rows that are less
than grace + after behind T (`Lateness`). The frames of those rows begin `before` ms earlier. Rows older than that are
dropped. Rows in between are read, but their own frames may be incomplete, so their results are not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.specs import SqlExpression
from ...planner.steps.over import Lateness, Over
from ...planner.steps.over_calls import OverCall
from ...sql.types import BIGINT, DATE, DOUBLE, TIME, TIMESTAMP, Decimal
from ..batch import ChangeBatch
from ..building import Building, ChainNode, Operator, builds
from ..state.store import StateStore
from .columns import (
    Bools,
    Ints,
    batch_schema,
    conform,
    flat,
    group,
    ints,
    last_of_group,
    number_within,
    take,
    with_columns,
    with_values,
)
from .expiry import TaskTime
from .ranks.arrival_numbers import ARRIVAL, ArrivalNumbers
from .ranks.partition_columns import PartitionColumns
from .statement import BatchStatement

_US_PER_DAY = 86_400_000_000
_SUMMED_DIGITS = 28  # DuckDB adds 10**10 such DECIMALs before a sum can fail
_FAR = 1 << 61  # times are clipped to this, so that sums with them do not overflow


class OverOperator(Operator):
    """In:    rows keyed by their partition: a stream's, or a table's changes with their old rows.
    Out:   see the step `Over`; a row's time is its own.
    State: the rows of each partition with their arrival number in the task, and the largest such number.

    This number identifies a stream's row. In a table, all rows with the same identity are versions of one row.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        step: Over,
        schema: Schema,
        extra: Sequence[str],
        columns: Sequence[str] | None,
        task_count: int,
    ) -> None:
        self._step = step
        self._task_count = task_count
        partitioned = PartitionColumns(schema, extra, columns)
        self._input_schema = partitioned.input
        self._late = None if step.lateness is None else _Late(connection, step.id, step.lateness, extra)
        self._keys = list(partitioned.key)
        self._ids = [f"i{i}" for i in range(len(step.identity))]
        key = dict(partitioned.key)
        key |= dict(zip(self._ids, (each.type for each in step.identity), strict=True)) or {ARRIVAL: BIGINT}
        kept = dict(partitioned.values)
        kept |= {ARRIVAL: BIGINT} if self._ids else {}
        if self._late is not None:  # rows expire by `_ts`, so it must be a part of their key
            key["_ts"] = BIGINT
        else:
            kept["_ts"] = BIGINT
        self._rows = StateStore(connection, step.id, key, kept)
        self._arrivals = ArrivalNumbers(connection, step.id)
        self.stores = {store.name: store for store in (self._rows, self._arrivals.store)}
        self.stores |= {} if self._late is None else self._late.stores
        self.schema, self.extra = step.schema, ()
        first = len(schema.value)
        self._results = [f"v{first + i}" for i in range(len(step.calls))]
        self._number = f"v{first + len(step.calls)}" if step.gives_number else None
        made = [*self._results, *([self._number] if self._number else [])]
        self.columns = partitioned.out(made)
        self._output_schema = batch_schema(step.schema, (), self.columns)
        self._pool_schema = pa.schema(
            [(name, type_.arrow) for name, type_ in {**key, **kept}.items()]
            + [("_i", pa.int64()), ("_group", pa.int64()), *((name, pa.bool_()) for name in ("_was", "_is", "_open"))]
        )
        self._identify = self._identity_statement(connection)
        self._compute = BatchStatement(connection, _difference_sql(step), {"pool": self._pool_schema})

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = conform(batch.rows, self._input_schema)
        if self._late is None:
            return replace(batch, rows=self._changes(with_values(rows)))
        rows, open_from = self._late.admit(batch, rows)
        self.late_rows += self._late.take_dropped()
        changes = self._changes(rows, open_from)
        self._late.forget(self._rows)
        return replace(batch, rows=changes)

    def _changes(self, rows: pa.Table, open_from: Mapping[int, int] | None = None) -> pa.Table:
        """The changes of results that these rows cause. In: rows that all have values; `open_from`: per task, the time
        from which on results may change."""
        if not len(rows):
            return self._output_schema.empty_table()
        rows = self._arrivals.number(rows if self._identify is None else self._identify.run(input=rows))
        groups, first = group(rows, self._keys)
        found = self._rows.read(take(rows.select(self._keys), first), by=self._keys)
        pool, written = self._pool(rows, groups, found)
        pool = pool.append_column("_open", pa.array(_open_rows(pool, open_from)))
        changed = self._compute.run(pool=pool)
        self._remember(pool, written, changed)
        sequence = np.zeros(len(first), dtype=np.int64)
        np.maximum.at(sequence, groups, ints(rows, "_seq"))
        if self._ids:  # a table's row may move to another partition: with one `_seq`, its -1 comes before its +1
            sequence[:] = sequence.max()
        return self._output(pool, changed, sequence)

    # -------------------------------------------------------------- the rows of the touched partitions

    def _identity_statement(self, connection: duckdb.DuckDBPyConnection) -> BatchStatement | None:
        if not self._ids:
            return None
        made = [f"{_cast(each)} AS {name}" for name, each in zip(self._ids, self._step.identity, strict=True)]
        return BatchStatement(connection, f"SELECT *, {', '.join(made)} FROM {{input}}", {"input": self._input_schema})

    def _pool(self, rows: pa.Table, groups: Ints, found: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The stored and the new rows of the partitions, each with `_was` and `_is`: whether it existed before the
        batch, and exists after it. And the last version of each row that the batch wrote, with `_deleted`."""
        written = rows
        stays = np.ones(len(found), dtype=np.bool_)
        if self._ids:
            identity = pa.concat_tables([conform(table, self._rows.key_schema) for table in (rows, found)])
            same, _ = group(identity, [*self._keys, *self._ids])
            touched = np.unique(same[: len(rows)])
            last = np.sort(last_of_group(same[: len(rows)], int(same.max()) + 1)[touched])
            stays = ~np.isin(same[len(rows) :], touched)
            written, groups = take(rows, last), groups[last]
        gone = ints(written, "_weight") < 0
        written = written.append_column("_deleted", pa.array(gone))
        new = take(written, np.flatnonzero(~gone))
        schema = pa.schema(list(self._pool_schema)[:-5])
        both = pa.concat_tables([conform(found, schema), conform(new, schema)])
        was = np.concatenate([np.ones(len(found), np.bool_), np.zeros(len(new), np.bool_)])
        is_there = np.concatenate([stays, np.ones(len(new), np.bool_)])
        of_rows = np.concatenate([ints(found, "_index"), groups[~gone]])
        pool = with_columns(
            both,
            {
                "_i": pa.array(np.arange(len(both), dtype=np.int64)),
                "_group": pa.array(of_rows),
                "_was": pa.array(was),
                "_is": pa.array(is_there),
            },
        )
        return pool, written

    def _remember(self, pool: pa.Table, written: pa.Table, changed: pa.Table) -> None:
        """Stores the rows that the batch wrote, except those beyond the bound."""
        if self._step.bound is None:
            self._rows.change(written.select([*self._rows.key, *self._rows.value, "_deleted"]))
            return
        beyond = np.zeros(len(pool), dtype=np.bool_)
        beyond[ints(changed, "_i")] = flat(changed, "_beyond").to_numpy(zero_copy_only=False)
        was = flat(pool, "_was").to_numpy(zero_copy_only=False)
        chosen = np.flatnonzero(was == beyond)  # stored rows that leave, and new rows that stay
        rows = take(pool, chosen).append_column("_deleted", pa.array(beyond[chosen]))
        self._rows.change(rows.select([*self._rows.key, *self._rows.value, "_deleted"]))

    # -------------------------------------------------------------- results

    def _output(self, pool: pa.Table, changed: pa.Table, sequence: Ints) -> pa.Table:
        """For each `_seq`, first all rows at -1, then all rows at +1."""
        index = ints(changed, "_i")
        beyond = _bools(changed, "_beyond")
        sides = [(-1, "o", _bools(changed, "_was")), (1, "n", _bools(changed, "_is") & ~beyond)]
        parts = [self._side(pool, changed, chosen, weight, prefix, index) for weight, prefix, chosen in sides]
        out = pa.concat_tables(parts)
        groups = ints(out, "_group")
        order = np.lexsort((ints(out, ARRIVAL), groups, ints(out, "_weight"), sequence[groups]))
        out, ordered = take(out, order), sequence[groups][order]
        meta = {
            "_seq": pa.array(ordered),
            "_sub": pa.array(number_within(ordered)),
            "_null": pa.array(np.zeros(len(out), dtype=np.bool_)),
        }
        if self._number is not None:
            meta[self._number] = pa.array(ints(out, ARRIVAL) * self._task_count + ints(out, "_part"))
        return conform(with_columns(out, meta), self._output_schema)

    def _side(
        self, pool: pa.Table, changed: pa.Table, chosen: Bools, weight: int, prefix: str, index: Ints
    ) -> pa.Table:
        rows = take(pool, index[chosen])
        results = changed.filter(pa.array(chosen))
        columns = {name: results.column(f"{prefix}{i}") for i, name in enumerate(self._results)}
        columns["_weight"] = pa.array(np.full(len(rows), weight, dtype=np.int8))
        return with_columns(rows, columns)


class _Late:
    """Decides which rows are too late, and which stored rows are no longer read. State: stream time."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, name: str, lateness: Lateness, extra: Sequence[str]
    ) -> None:
        self._lateness = lateness
        self._time = TaskTime(connection, f"{name}.stream_time", extra)
        self._now: dict[int, int] = {}
        self._forgotten: dict[int, int] = {}  # per task: the first time that may be stored; absent while unknown
        self._dropped = 0
        self.stores = self._time.stores

    def admit(self, batch: ChangeBatch, rows: pa.Table) -> tuple[pa.Table, dict[int, int]]:
        """The rows that have values and are not too late, and per task the time from which on they change results."""
        at_rows, self._now = self._time.advance(batch, rows)
        at_rows = np.clip(at_rows, -_FAR, _FAR)
        there = ~_bools(rows, "_null")
        in_time = np.clip(ints(rows, "_ts"), -_FAR, _FAR) >= at_rows - self._lateness.grace_ms
        self._dropped += int((there & ~in_time).sum())
        open_from: dict[int, int] = {}
        parts = ints(rows, "_part")
        for part in np.unique(parts).tolist():
            open_from[part] = int(at_rows[parts == part].min()) - self._lateness.final_after_ms
        return rows.filter(pa.array(there & in_time)), open_from

    def take_dropped(self) -> int:
        dropped, self._dropped = self._dropped, 0
        return dropped

    def forget(self, rows: StateStore) -> None:
        """Drops rows that are no longer read. Doing it later changes no result, so it runs only now and then."""
        kept_ms = self._lateness.kept_ms
        spare = 1 + kept_ms // 4
        for task, time in self._now.items():
            below = max(min(time, _FAR), -_FAR) - kept_ms
            if below >= self._forgotten.get(task, below - spare) + spare:
                rows.expire(task, "_ts", below)
                self._forgotten[task] = below


def _open_rows(pool: pa.Table, open_from: Mapping[int, int] | None) -> Bools:
    """For each row, whether its results may change."""
    if open_from is None:
        return np.ones(len(pool), dtype=np.bool_)
    parts, times = ints(pool, "_part"), ints(pool, "_ts")
    is_open = np.zeros(len(pool), dtype=np.bool_)
    for part, time in open_from.items():
        is_open |= (parts == part) & (times >= time)
    return is_open


def _bools(table: pa.Table, name: str) -> Bools:
    return flat(table, name).to_numpy(zero_copy_only=False)


def _cast(expression: SqlExpression) -> str:
    return f"({expression.sql})::{expression.type.duckdb}"


def _difference_sql(step: Over) -> str:
    """SQL that gives, for every row whose results the batch changes: the results before (`o…`) and after (`n…`),
    whether the row existed before and exists after, and whether it is beyond the bound."""
    texts: dict[str, str] = {}  # expression → its column
    calls = ", ".join(f"{_call_sql(call, texts)} AS r{i}" for i, call in enumerate(step.calls))
    arguments = [f"{text} AS {name}" for text, name in texts.items()]
    arrival = ARRIVAL if step.arrival is None else f"{_cast(step.arrival)} AS {ARRIVAL}"
    rows = f"SELECT {', '.join(['_i', '_group', '_was', '_is', '_open', arrival, *arguments])} FROM {{pool}}"
    results = [f"r{i}" for i in range(len(step.calls))]
    shown = [f"{side}.{name} AS {side[0]}{i}" for side in ("old", "now") for i, name in enumerate(results)]
    differ = " OR ".join(f"now.{name} IS DISTINCT FROM old.{name}" for name in results)
    beyond = "false" if step.bound is None else f"coalesce(now.r{step.bound[0]} > {int(step.bound[1])}, false)"
    return (
        f"WITH pool AS MATERIALIZED ({rows}), "
        f"old AS (SELECT _i, {calls} FROM pool WHERE _was), "
        f"now AS (SELECT _i, _open, {calls} FROM pool WHERE _is) "
        "SELECT coalesce(now._i, old._i) AS _i, old._i IS NOT NULL AS _was, now._i IS NOT NULL AS _is, "
        f"{beyond} AS _beyond, {', '.join(shown)} FROM now FULL JOIN old ON now._i = old._i "
        f"WHERE now._i IS NULL OR old._i IS NULL OR (now._open AND ({differ}))"
    )


def _call_sql(call: OverCall, texts: dict[str, str]) -> str:
    """The call as SQL over columns. `texts` maps each expression to its column; new expressions are added to it."""

    def column(text: str) -> str:
        return texts.setdefault(text, f"e{len(texts)}")

    summed = call.arguments[0].type if call.function in ("SUM", "AVG") else None
    exact = isinstance(summed, Decimal) and summed.precision > _SUMMED_DIGITS
    names = [column(_in_digits(each) if exact else _cast(each)) for each in call.arguments]
    if call.function == "NTILE":  # DuckDB's NTILE fails if the number of parts is not positive
        names = [f"CASE WHEN {name} > 0 THEN {name} END" for name in names]
    arguments = ", ".join(names) or ("*" if call.function == "COUNT" else "")
    condition = "" if call.filter is None else f" FILTER (WHERE {column(_cast(call.filter))})"
    order = [
        f"{column(_in_units(key.expression) if call.measured else _cast(key.expression))} "
        f"{'DESC' if key.descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        for key in call.order
    ]
    ties = [f"{column(_cast(each))} ASC NULLS LAST" for each in call.ties] or [ARRIVAL]
    if call.breaks_ties and call.ranged:  # the frame has all equal rows, so the ties are ordered among its values
        arguments += f" ORDER BY {', '.join([*order, *ties])}"
    elif call.breaks_ties:
        order += ties
    ordered = f" ORDER BY {', '.join(order)}" if order else ""
    window = f"PARTITION BY _group{ordered} {call.frame}".rstrip()

    def over(function: str) -> str:
        return f"{function}({'DISTINCT ' if call.distinct else ''}{arguments}){condition} OVER ({window})"

    if not (exact and isinstance(summed, Decimal)):
        text = over(call.function)
    elif call.function == "SUM":
        text = _with_point(f"{over('SUM')}::VARCHAR", summed.scale)
    else:
        text = f"{over('SUM')}::VARCHAR::DOUBLE / {over('COUNT')} / 1e{summed.scale}"
    return f"TRY_CAST({text} AS {call.type.duckdb})"


def _in_digits(expression: SqlExpression) -> str:
    """A DECIMAL without its point, as a number of any length: DuckDB's sums of DECIMALs fail beyond 38 digits."""
    return f"replace({_cast(expression)}::VARCHAR, '.', '')::HUGEINT::BIGNUM"


def _with_point(digits: str, scale: int) -> str:
    """The text of a whole number with a point before its last `scale` digits."""
    if not scale:
        return digits
    long_enough = f"regexp_replace({digits}, '[0-9]', '{'0' * scale}\\0')"
    return f"regexp_replace({long_enough}, '[0-9]{{{scale}}}$', '.\\0')"


def _in_units(expression: SqlExpression) -> str:
    """The expression in the unit of a RANGE frame's distances, as a number that no distance can overflow."""
    text = _cast(expression)
    match expression.type:
        case Decimal():
            return f"replace({text}::VARCHAR, '.', '')::HUGEINT"
        case t if t in (TIMESTAMP, TIME):
            return f"epoch_us({text})::HUGEINT"
        case t if t == DATE:
            return f"({text} - DATE '1970-01-01')::HUGEINT * {_US_PER_DAY}"
        case t if t == DOUBLE:
            return text
        case _:
            return f"{text}::HUGEINT"


@builds(Over)
def build(step: Over, building: Building) -> ChainNode:
    below = building.node(step.input)
    operator = OverOperator(building.connection, step, below.schema, below.extra, below.columns, step.input.task_count)
    return building.chain(below, operator, step)
