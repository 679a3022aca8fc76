"""A physical plan as operators: batches of its sources go in, the rows for its sink come out.

What reads topics, commits, and writes to them is the runtime's business; a pipeline only computes, inside the
transaction that its caller opened on the connection.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa

from ..planner.physical import (
    Aggregate,
    Expire,
    Explode,
    Filter,
    ForeignKeyJoin,
    Join,
    KeyWindow,
    Over,
    PhysicalPlan,
    Project,
    Rekey,
    RowJoin,
    Sink,
    Source,
    SqlExpression,
    Step,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    Union,
    inputs_of,
    walk,
)
from ..planner.schema import Schema
from ..sql.functions.catalog import register_udfs
from ..sql.functions.failures import collecting
from ..sql.functions.udf import failures_of
from .batch import ChangeBatch
from .figures import Meter, Meters
from .operators.aggregate import Aggregator, Emit
from .operators.columns import batch_schema, conform, ints, with_columns
from .operators.expiring_aggregate import ExpiringAggregator
from .operators.expiry import Expiry
from .operators.foreign_key_join import ForeignKeyJoiner
from .operators.over import OverOperator, over_expressions
from .operators.row_join import RowJoiner
from .operators.session import SessionAggregator
from .operators.stateless import Partitioner, Stateless, StatelessStep
from .operators.stream_stream_join import StreamStreamJoiner
from .operators.stream_table_join import StreamTableJoiner
from .operators.stream_time import SourceTime
from .operators.table_source import TableSource
from .operators.table_table_join import TableTableJoiner
from .operators.union import united
from .record_error import RecordError, of_functions
from .source_reader import empty_rows
from .state import StateStore, StoreChanges
from .tasks import task_count
from .window_times import window_ends

__all__ = ["Partitioner", "Pipeline"]


class _Operator(Protocol):
    def process(self, batch: ChangeBatch) -> ChangeBatch: ...


class _Joiner(Protocol):
    stores: dict[str, StateStore]

    def process(self, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch: ...


class _DropsLate(Protocol):
    """Counts the rows that came too late for it; who reads the number sets it back."""

    late_rows: int


class _Node(Protocol):
    """A part of the pipeline. `schema`, `extra`, `columns` describe its batches (see `batch_schema`)."""

    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch: ...


class Pipeline:
    """The operators between the sources and the sink of a plan.

    `emit`: every change of a table, or a key's last one per batch. `partitioner` gives the partitions of a `Rekey`
    with more than one; the runtime has it, for it knows how keys become bytes. `repartitioned`: sources whose rows have
    come through a Rekey elsewhere: only the rows themselves move stream time there.

    An error leaves the stores undefined: roll back the transaction, and make a new pipeline on the same connection.
    `write_behind`: DuckDB's tables get what was written with `settle` only; without it, at the end of each `process`.
    `meters` count what the operators do.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        connection: duckdb.DuckDBPyConnection,
        *,
        emit: Emit = "every",
        partitioner: Partitioner | None = None,
        repartitioned: frozenset[str] = frozenset(),
        write_behind: bool = False,
        meters: Meters | None = None,
    ) -> None:
        self.plan = plan
        self._write_behind = write_behind
        register_udfs(connection, sorted({udf for step in walk(plan.root) for udf in _udfs(step)}))
        self._failures = failures_of(connection)
        builder = _Builder(connection, plan, emit, partitioner, repartitioned, meters or Meters())
        root = plan.root.input if isinstance(plan.root, Sink) else plan.root
        self._root = builder.build(root)
        self._sources = frozenset(source.id for source in plan.sources())
        self.stores: Mapping[str, StateStore] = builder.stores
        self._windowed = builder.windowed
        self._late = builder.late

    @property
    def output_schema(self) -> pa.Schema:
        """The columns that `process` gives."""
        return batch_schema(self._root.schema, self._root.extra, self._root.columns)

    def process(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        """Compute a batch. In: batches by source step id, a source without records may be absent; `_seq` orders the
        rows of all of them. Out: the sink's input."""
        assert self._sources.issuperset(inputs), f"not sources of the plan: {set(inputs) - self._sources}"
        with collecting(self._failures):
            result = self._root.evaluate(inputs)
        self._failures.check()
        for meter, operator in self._late:
            meter.late_rows, operator.late_rows = meter.late_rows + operator.late_rows, 0
        if not self._write_behind:
            self.settle()
        return result

    def of_nothing(self) -> ChangeBatch:
        """What an aggregation, and what stands above it, gives of no rows at all; nothing where there is none."""
        above: list[_ChainNode] = []
        node = self._root
        while isinstance(node, _ChainNode) and not isinstance(node.operator, Aggregator):
            above.insert(0, node)
            node = node.input
        if not isinstance(node, _ChainNode) or not isinstance(node.operator, Aggregator):
            return ChangeBatch(self.output_schema.empty_table())
        batch = node.operator.of_nothing()
        for each in above:
            batch = each.operator.process(batch)
        return batch

    def process_idle(self, elapsed_ms: int) -> ChangeBatch:
        """Compute that the sources brought nothing for so long: stream time moves on, and windows close."""
        return self.process(
            {source.id: ChangeBatch(empty_rows(source), elapsed_ms=elapsed_ms) for source in self.plan.sources()}
        )

    @property
    def waits_for_time(self) -> bool:
        """Whether results are held back until stream time has moved on."""
        return any(operator.waits_for_time for operator in self._windowed)

    def settle(self) -> None:
        """Brings the stores' tables to what was written."""
        for store in self.stores.values():
            store.settle()

    def take_failures(self) -> list[RecordError]:
        """Where users' functions failed since the last call, and where functions met their bounds; the rows had NULL
        there."""
        return of_functions(self._failures.take())

    def take_changes(self) -> list[StoreChanges]:
        """What the stores changed since the last call, each store's changes in order."""
        return [changes for store in self.stores.values() for changes in store.take_changes()]

    def restore(self, store_id: str, rows: pa.Table) -> None:
        """Apply recorded changes of a store. A plan that CREATE OR REPLACE replaced may have had one more: they say
        nothing now."""
        store = self.stores.get(store_id)
        if store is not None:
            store.restore(rows)


@dataclass(slots=True)
class _SourceNode:
    source: Source
    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None
    operators: Sequence[_Operator]
    meter: Meter

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        since = time.perf_counter_ns()
        given = [name for name in self.extra if name != "_st"]
        schema = batch_schema(self.schema, given, self.columns)
        batch = inputs.get(self.source.id)
        count = 0 if batch is None else batch.rows.num_rows
        batch = ChangeBatch(schema.empty_table()) if batch is None else replace(batch, rows=conform(batch.rows, schema))
        for operator in self.operators:
            batch = operator.process(batch)
        if self.source.kind == "TABLE" and not self.source.materialized:
            batch = replace(batch, rows=_as_changes(batch.rows))
        self.meter.add(count, batch.rows, since)
        return batch


@dataclass(slots=True)
class _ChainNode:
    """One input, one operator."""

    input: _Node
    operator: _Operator
    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None
    meter: Meter

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        batch = self.input.evaluate(inputs)
        since = time.perf_counter_ns()
        out = self.operator.process(batch)
        self.meter.add(batch.rows.num_rows, out.rows, since)
        return out


@dataclass(slots=True)
class _JoinNode:
    """`window`: of the left side's keys, where it is one of time; right windows that begin with it count as equal."""

    left: _Node
    right: _Node
    joiner: _Joiner
    window: KeyWindow | None
    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None
    meter: Meter

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        left, right = self.left.evaluate(inputs), self.right.evaluate(inputs)
        since = time.perf_counter_ns()
        if self.window is not None and self.window.size_ms is not None and len(right.rows):
            starts = ints(right.rows, "_ws")
            ends = {"_we": pa.array(window_ends(starts, self.window.size_ms, self.window.timezone))}
            right = replace(right, rows=with_columns(right.rows, ends))
        joined = self.joiner.process(left, right)
        rows = conform(joined.rows, batch_schema(self.schema, self.extra, self.columns))
        self.meter.add(left.rows.num_rows + right.rows.num_rows, rows, since)
        return ChangeBatch(rows, joined.stream_time_ms, left.elapsed_ms)


@dataclass(slots=True)
class _UnionNode:
    left: _Node
    right: _Node
    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None
    meter: Meter

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        schema = batch_schema(self.schema, self.extra, self.columns)
        left, right = self.left.evaluate(inputs), self.right.evaluate(inputs)
        since = time.perf_counter_ns()
        out = united(left, right, schema)
        self.meter.add(left.rows.num_rows + right.rows.num_rows, out.rows, since)
        return out


def _as_changes(rows: pa.Table) -> pa.Table:
    """A tombstone of a table takes the row away: weight -1."""
    gone = rows.column("_null")
    if not gone.to_numpy().any():
        return rows
    weights = np.where(gone.to_numpy(), np.int8(-1), rows.column("_weight").to_numpy())
    return rows.set_column(rows.schema.get_field_index("_weight"), "_weight", pa.array(weights, pa.int8()))


class _Builder:
    """Makes the nodes, leaves first; chains of stateless steps become one."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        plan: PhysicalPlan,
        emit: Emit,
        partitioner: Partitioner | None,
        repartitioned: frozenset[str],
        meters: Meters,
    ) -> None:
        self.stores: dict[str, StateStore] = {}
        self.windowed: list[Aggregator | SessionAggregator] = []
        self.late: list[tuple[Meter, _DropsLate]] = []
        self._meters = meters
        self._connection = connection
        self._plan = plan
        self._emit: Emit = emit
        self._partitioner = partitioner
        texts = [expression.sql for step in walk(plan.root) for expression in _expressions(step)]
        self._pseudo = tuple(name for name in ("_rowpartition", "_offset") if any(name in text for text in texts))
        self._timed = timed_sources(plan.root) - repartitioned

    def build(self, step: Step) -> _Node:
        match step:
            case Source():
                return self._source(step)
            case Filter() | Project() | Explode() | Rekey():
                return self._stateless(step)
            case Aggregate():
                return self._aggregate(step)
            case Over():
                return self._over(step)
            case Expire():
                return self._expire(step)
            case StreamTableJoin() | StreamStreamJoin() | TableTableJoin() | ForeignKeyJoin() | RowJoin():
                return self._join(step)
            case Union():
                return self._union(step)
            case _:
                raise AssertionError(f"no operator for {type(step).__name__}")

    def _source(self, step: Source) -> _Node:
        window = ("_ws", "_we") if step.key_window is not None else ()
        operators: list[_Operator] = []
        extra = (*window, *self._pseudo)
        if step.id in self._timed:
            source_time = SourceTime(self._connection, f"{step.id}.stream_time")
            self.stores |= source_time.stores
            operators.append(source_time)
            extra = (*extra, "_st")
        if step.kind == "TABLE" and step.ttl_ms is not None:
            expiry = Expiry(self._connection, f"{step.id}.ttl", step.schema, extra, step.columns, step.ttl_ms)
            self.stores |= expiry.stores
            operators.append(expiry)
        if step.kind == "TABLE" and step.materialized:
            table = TableSource(self._connection, step.id, step.schema, bool(window), step.columns)
            self.stores |= table.stores
            operators.append(table)
        return _SourceNode(step, step.schema, extra, step.columns, operators, self._meters.of((step.id,)))

    def _stateless(self, step: StatelessStep) -> _Node:
        chain: list[StatelessStep] = [step]
        below = step.input
        while isinstance(below, Filter | Project | Explode):
            chain.insert(0, below)
            below = below.input
        node = self.build(below)
        operator = Stateless(self._connection, chain, node.schema, node.extra, node.columns, self._partitioner)
        meter = self._meters.of(tuple(each.id for each in chain))
        return _ChainNode(node, operator, operator.schema, operator.extra, operator.columns, meter)

    def _aggregate(self, step: Aggregate) -> _Node:
        node = self.build(step.input)
        is_session = step.window is not None and step.window.kind == "SESSION"
        plain = Aggregator if step.ttl_ms is None else ExpiringAggregator
        operator = (SessionAggregator if is_session else plain)(
            self._connection, step, node.schema, node.extra, node.columns, self._plan.properties, self._emit
        )
        self.stores |= operator.stores
        meter = self._meters.of((step.id,))
        if isinstance(operator, Aggregator | SessionAggregator):
            self.windowed.append(operator)
            self.late.append((meter, operator))
        return _ChainNode(node, operator, operator.schema, operator.extra, None, meter)

    def _expire(self, step: Expire) -> _Node:
        node = self.build(step.input)
        operator = Expiry(self._connection, step.id, step.schema, node.extra, node.columns, step.ttl_ms)
        self.stores |= operator.stores
        meter = self._meters.of((step.id,))
        return _ChainNode(node, operator, operator.schema, operator.extra, operator.columns, meter)

    def _over(self, step: Over) -> _Node:
        node = self.build(step.input)
        operator = OverOperator(self._connection, step, node.schema, node.extra, node.columns, task_count(step.input))
        self.stores |= operator.stores
        meter = self._meters.of((step.id,))
        return _ChainNode(node, operator, operator.schema, operator.extra, operator.columns, meter)

    def _join(self, step: Join) -> _Node:
        left, right = self.build(step.left), self.build(step.right)
        windowed = "_ws" in left.extra and "_ws" in right.extra and not isinstance(step, RowJoin)
        extra = left.extra if isinstance(step, StreamTableJoin) else ("_ws", "_we") if windowed else ()
        joiner = self._joiner(step, windowed)
        self.stores |= joiner.stores
        meter = self._meters.of((step.id,))
        if isinstance(joiner, StreamStreamJoiner):
            self.late.append((meter, joiner))
        window = _key_window(step) if windowed else None
        return _JoinNode(left, right, joiner, window, step.schema, extra, None, meter)

    def _union(self, step: Union) -> _Node:
        left, right = self.build(step.left), self.build(step.right)
        extra = tuple(name for name in left.extra if name in right.extra)
        return _UnionNode(left, right, step.schema, extra, left.columns, self._meters.of((step.id,)))

    def _joiner(self, step: Join, windowed: bool) -> _Joiner:
        match step:
            case StreamTableJoin():
                return StreamTableJoiner(self._connection, step, windowed)
            case StreamStreamJoin():
                return StreamStreamJoiner(self._connection, step, windowed)
            case TableTableJoin():
                return TableTableJoiner(self._connection, step, windowed)
            case ForeignKeyJoin():
                return ForeignKeyJoiner(self._connection, step)
            case RowJoin():
                return RowJoiner(self._connection, step, self._emit)


def _key_window(step: Step) -> KeyWindow | None:
    """The window in the keys of the leftmost source or aggregate."""
    while not isinstance(step, Source):
        if isinstance(step, Aggregate) and step.window is not None:
            return step.window.of_keys
        step = inputs_of(step)[0]
    return step.key_window


def timed_sources(root: Step) -> set[str]:
    """The sources whose stream time is asked for: by a windowed aggregate or one with a TTL, for all of its input that
    comes without a repartition between; by a TTL of their own."""
    timed: set[str] = set()
    for step in walk(root):
        if isinstance(step, Aggregate) and (step.window is not None or step.ttl_ms is not None):
            below: Step = step.input
            while not isinstance(below, Source | Rekey | Aggregate | StreamStreamJoin):
                below = inputs_of(below)[0]
            if isinstance(below, Source):
                timed.add(below.id)
        if isinstance(step, Source) and step.ttl_ms is not None:
            timed.add(step.id)
    return timed


def _expressions(step: Step) -> tuple[SqlExpression, ...]:
    match step:
        case Filter():
            return (step.predicate,)
        case Project():
            return (*step.values, *(step.key or ()))
        case Rekey():
            return step.key
        case Explode():
            return step.arrays
        case Aggregate():
            filters = (call.filter for call in step.calls if call.filter is not None)
            return (*(argument for call in step.calls for argument in call.arguments), *filters)
        case Over():
            return (*step.identity, *(each for call in step.calls for each in over_expressions(call)))
        case _:
            return ()


def _udfs(step: Step) -> tuple[str, ...]:
    return tuple(udf for expression in _expressions(step) for udf in expression.udfs)
