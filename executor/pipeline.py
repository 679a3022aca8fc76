"""A physical plan as operators: batches of its sources go in, the rows for its sink come out.

What reads topics, commits, and writes to them is the runtime's business; a pipeline only computes, inside the
transaction that its caller opened on the connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa

from ..planner.physical import (
    Aggregate,
    Explode,
    Filter,
    ForeignKeyJoin,
    Join,
    PhysicalPlan,
    Project,
    Rekey,
    Sink,
    Source,
    SqlExpression,
    Step,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    inputs_of,
    walk,
)
from ..planner.schema import Schema
from ..sql.functions.catalog import register_udfs
from .batch import ChangeBatch
from .operators.aggregate import Aggregator, Emit
from .operators.columns import batch_schema, conform, ints, key_names, with_columns
from .operators.foreign_key_join import ForeignKeyJoiner
from .operators.session import SessionAggregator
from .operators.stateless import Partitioner, Stateless, StatelessStep
from .operators.stream_stream_join import StreamStreamJoiner
from .operators.stream_table_join import StreamTableJoiner
from .operators.stream_time import SourceTime
from .operators.table_source import TableSource, without_null_keys
from .operators.table_table_join import TableTableJoiner
from .state import StateStore, StoreChanges

__all__ = ["Partitioner", "Pipeline"]


class _Operator(Protocol):
    def process(self, batch: ChangeBatch) -> ChangeBatch: ...


class _Joiner(Protocol):
    stores: dict[str, StateStore]

    def process(self, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch: ...


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
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        connection: duckdb.DuckDBPyConnection,
        *,
        emit: Emit = "every",
        partitioner: Partitioner | None = None,
        repartitioned: frozenset[str] = frozenset(),
    ) -> None:
        self.plan = plan
        register_udfs(connection, sorted({udf for step in walk(plan.root) for udf in _udfs(step)}))
        builder = _Builder(connection, plan, emit, partitioner, repartitioned)
        root = plan.root.input if isinstance(plan.root, Sink) else plan.root
        self._root = builder.build(root)
        self._sources = frozenset(source.id for source in plan.sources())
        self.stores: Mapping[str, StateStore] = builder.stores

    @property
    def output_schema(self) -> pa.Schema:
        """The columns that `process` gives."""
        return batch_schema(self._root.schema, self._root.extra, self._root.columns)

    def process(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        """Compute a batch. In: batches by source step id, a source without records may be absent; `_seq` orders the
        rows of all of them. Out: the sink's input."""
        assert self._sources.issuperset(inputs), f"not sources of the plan: {set(inputs) - self._sources}"
        return self._root.evaluate(inputs)

    def take_changes(self) -> list[StoreChanges]:
        """What the stores changed since the last call, each store's changes in order."""
        return [changes for store in self.stores.values() for changes in store.take_changes()]

    def restore(self, store_id: str, rows: pa.Table) -> None:
        """Apply recorded changes of a store."""
        self.stores[store_id].restore(rows)


@dataclass(slots=True)
class _SourceNode:
    source: Source
    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None
    operators: Sequence[_Operator]

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        given = [name for name in self.extra if name != "_st"]
        schema = batch_schema(self.schema, given, self.columns)
        batch = inputs.get(self.source.id)
        batch = ChangeBatch(schema.empty_table()) if batch is None else replace(batch, rows=conform(batch.rows, schema))
        for operator in self.operators:
            batch = operator.process(batch)
        if self.source.kind == "TABLE" and not self.source.materialized:
            batch = replace(batch, rows=_as_changes(batch.rows))
        return batch


@dataclass(slots=True)
class _ChainNode:
    """One input, one operator."""

    input: _Node
    operator: _Operator
    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        return self.operator.process(self.input.evaluate(inputs))


@dataclass(slots=True)
class _JoinNode:
    """`window_ms`: the size of the left side's windows of time; right windows that begin with them count as equal."""

    left: _Node
    right: _Node
    joiner: _Joiner
    window_ms: int | None
    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        left, right = self.left.evaluate(inputs), self.right.evaluate(inputs)
        if self.window_ms is not None and len(right.rows):
            ends = {"_we": pa.array(ints(right.rows, "_ws") + self.window_ms)}
            right = replace(right, rows=with_columns(right.rows, ends))
        joined = self.joiner.process(left, right)
        rows = conform(joined.rows, batch_schema(self.schema, self.extra, self.columns))
        return ChangeBatch(rows, joined.stream_time_ms)


class _NullKeyFilter:
    """Rows of a table without a key; before they move stream time or state."""

    def __init__(self, schema: Schema) -> None:
        self._names = key_names(schema)

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        return replace(batch, rows=without_null_keys(batch.rows, self._names))


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
    ) -> None:
        self.stores: dict[str, StateStore] = {}
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
            case StreamTableJoin() | StreamStreamJoin() | TableTableJoin() | ForeignKeyJoin():
                return self._join(step)
            case _:
                raise AssertionError(f"no operator for {type(step).__name__}")

    def _source(self, step: Source) -> _Node:
        window = ("_ws", "_we") if step.key_window is not None else ()
        operators: list[_Operator] = []
        if step.kind == "TABLE":
            operators.append(_NullKeyFilter(step.schema))
        extra = (*window, *self._pseudo)
        if step.id in self._timed:
            source_time = SourceTime(self._connection, f"{step.id}.stream_time")
            self.stores |= source_time.stores
            operators.append(source_time)
            extra = (*extra, "_st")
        if step.kind == "TABLE" and step.materialized:
            table = TableSource(self._connection, step.id, step.schema, bool(window), step.columns)
            self.stores |= table.stores
            operators.append(table)
        return _SourceNode(step, step.schema, extra, step.columns, operators)

    def _stateless(self, step: StatelessStep) -> _Node:
        chain: list[StatelessStep] = [step]
        below = step.input
        while isinstance(below, Filter | Project | Explode):
            chain.insert(0, below)
            below = below.input
        node = self.build(below)
        operator = Stateless(self._connection, chain, node.schema, node.extra, node.columns, self._partitioner)
        return _ChainNode(node, operator, operator.schema, operator.extra, operator.columns)

    def _aggregate(self, step: Aggregate) -> _Node:
        node = self.build(step.input)
        is_session = step.window is not None and step.window.kind == "SESSION"
        operator = (SessionAggregator if is_session else Aggregator)(
            self._connection, step, node.schema, node.extra, node.columns, self._plan.properties, self._emit
        )
        self.stores |= operator.stores
        return _ChainNode(node, operator, operator.schema, operator.extra, None)

    def _join(self, step: Join) -> _Node:
        left, right = self.build(step.left), self.build(step.right)
        windowed = "_ws" in left.extra and "_ws" in right.extra
        extra = left.extra if isinstance(step, StreamTableJoin) else ("_ws", "_we") if windowed else ()
        joiner = self._joiner(step, windowed)
        self.stores |= joiner.stores
        return _JoinNode(left, right, joiner, _window_ms(step) if windowed else None, step.schema, extra, None)

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


def _window_ms(step: Step) -> int | None:
    """The size of the windows in the keys of the leftmost source; sessions have none."""
    while not isinstance(step, Source):
        step = inputs_of(step)[0]
    return None if step.key_window is None else step.key_window.size_ms


def timed_sources(root: Step) -> set[str]:
    """The sources whose stream time a windowed aggregate sees: those below it without a repartition between."""
    timed: set[str] = set()
    for step in walk(root):
        if isinstance(step, Aggregate) and step.window is not None:
            below: Step = step.input
            while not isinstance(below, Source | Rekey | Aggregate | StreamStreamJoin):
                below = inputs_of(below)[0]
            if isinstance(below, Source):
                timed.add(below.id)
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
            return tuple(argument for call in step.calls for argument in call.arguments)
        case _:
            return ()


def _udfs(step: Step) -> tuple[str, ...]:
    return tuple(udf for expression in _expressions(step) for udf in expression.udfs)
