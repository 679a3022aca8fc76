"""Steps without state: a chain of them is one SELECT.

Row order is DuckDB's insertion order, which plain projections, filters and UNNEST preserve. Since the result for a row
depends on that row only, the rows of a large batch are divided, and computed side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.specs import SqlExpression
from ...planner.steps.explode import Explode
from ...planner.steps.filter import Filter
from ...planner.steps.project import Project
from ...planner.steps.repartition import Rekey
from ...sql.functions.udf import failures_of
from ...sql.types import DOUBLE
from ..batch import ChangeBatch
from ..building import Building, ChainNode, Operator, Partitioner, builds
from ..state.connection import SideConnections
from ..value_sizes import without_large_values
from ..work_pool import slices, work_pool
from .columns import batch_schema, conform, ints, is_null, key_names, number_within, value_names, with_columns
from .statement import BatchStatement

StatelessStep = Filter | Project | Explode | Rekey


class Stateless(Operator):
    """Runs a chain of steps as one statement; only the last one may be a `Rekey`.

    `schema`, `extra`, `columns`: of the input (see `batch_schema`). A Rekey ends the stream time of its input: after
    it only the rows that arrive in the new task count.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        steps: Sequence[StatelessStep],
        schema: Schema,
        extra: Sequence[str],
        columns: Sequence[str] | None,
        partitioner: Partitioner | None = None,
        side: SideConnections | None = None,
    ) -> None:
        self._input_schema = batch_schema(schema, extra, columns)
        self._explodes = any(isinstance(step, Explode) for step in steps)
        last = steps[-1]
        self._rekey = last if isinstance(last, Rekey) else None
        self._partitioner = partitioner
        if self._rekey is not None and self._rekey.partition_count > 1:
            assert partitioner is not None, "a repartition needs a partitioner"
        names = self._input_schema.names
        self._renamed = renamed(steps, self._input_schema)
        sql = f"SELECT {', '.join(names)} FROM {{input}}"
        for step in steps:
            sql, names, schema = _render(step, sql, names, schema)
        self.extra = tuple(name for name in extra if name in names)
        pruned = [name for name in names if name[0] in "kv"]
        self.columns = None if len(pruned) == len(schema.columns) else pruned
        self.schema = schema
        self._output_schema = batch_schema(schema, self.extra, self.columns)
        self._failures = failures_of(connection)
        self._sql, self._side = sql, side
        self._statements = [BatchStatement(connection, sql, {"input": self._input_schema})]

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        if not len(batch.rows):
            rows = self._output_schema.empty_table()
        elif self._renamed is not None:
            rows = self._only_renamed(conform(batch.rows, self._input_schema), self._renamed)
        else:
            rows = self._run(conform(batch.rows, self._input_schema))
            rows = without_large_values(conform(rows, self._output_schema), self._failures)
        if self._explodes:
            rows = with_columns(rows, {"_sub": pa.array(number_within(ints(rows, "_seq")))})
        if self._rekey is None:
            return batch.with_rows(rows)
        return ChangeBatch(self._repartition(self._rekey, rows), elapsed_ms=batch.elapsed_ms)

    def _run(self, rows: pa.Table) -> pa.Table:
        parts = slices(len(rows)) if self._side is not None else []
        if len(parts) < 2:
            return self._statements[0].run(input=rows)
        assert self._side is not None
        for connection in self._side.first(len(parts) - 1)[len(self._statements) - 1 :]:
            self._statements.append(BatchStatement(connection, self._sql, {"input": self._input_schema}))
        calls = [
            partial(statement.run, input=rows.slice(begin, end - begin))
            for statement, (begin, end) in zip(self._statements, parts, strict=False)
        ]
        return pa.concat_tables(work_pool().side_by_side(calls))

    def _only_renamed(self, rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
        listed = [rows.column(names[field.name]) for field in self._output_schema]
        rows = pa.table(listed, schema=self._output_schema)
        if self._rekey is not None and self._rekey.drop_null_key:
            missing = np.logical_and.reduce(is_null(rows, key_names(self.schema)))
            rows = rows.filter(pa.array(~missing)) if missing.any() else rows
        return rows

    def _repartition(self, step: Rekey, rows: pa.Table) -> pa.Table:
        partitions = np.zeros(len(rows), dtype=np.int32)
        if step.partition_count > 1 and self._partitioner is not None and len(rows):
            calls = [
                partial(self._partitioner, step, rows.slice(begin, end - begin)) for begin, end in slices(len(rows))
            ]
            partitions = np.concatenate(work_pool().side_by_side(calls)).astype(np.int32, copy=False)
            if step.key and not step.drop_null_key:
                without_key = np.logical_and.reduce(is_null(rows, key_names(step.schema)))
                partitions = np.where(without_key, np.int32(0), partitions)
        return with_columns(rows, {"_part": pa.array(partitions)})


def renamed(steps: Sequence[StatelessStep], schema: pa.Schema) -> dict[str, str] | None:
    """Output column → input column where the chain does nothing but name and leave out columns: then no SELECT is
    needed, which would copy every one of them. GROUP BY of a column of the stream is such a chain."""
    names = {name: name for name in schema.names}
    for step in steps:
        if isinstance(step, Filter | Explode):
            return None
        keys = step.key or ()
        values = step.values if isinstance(step, Project) else ()
        chosen = dict(zip((f"k{i}" for i in range(len(keys))), keys, strict=True))
        chosen |= dict(zip((f"v{i}" for i in range(len(values))), values, strict=True))
        kept = [name for name in names if name[0] == "_" or (name not in chosen and _stays(step, name))]
        following = {name: names[name] for name in kept if not (name == "_st" and isinstance(step, Rekey))}
        for name, expression in chosen.items():
            source = names.get(expression.sql.strip('"'))
            same = source is not None and schema.field(source).type.equals(expression.type.arrow)
            if source is None or not same or (expression.type == DOUBLE and isinstance(step, Rekey)):
                return None
            following[name] = source
        names = following
    return names


def _stays(step: Project | Rekey, name: str) -> bool:
    """Whether the step passes on a key or value column of this name as it is."""
    return name[0] == "v" if isinstance(step, Rekey) else name[0] == "k" and step.key is None


def _render(step: StatelessStep, source: str, names: Sequence[str], schema: Schema) -> tuple[str, list[str], Schema]:
    """The step as SQL over `source`, the columns it gives, and their schema."""
    match step:
        case Filter():
            return _filter(step, source, names), list(names), schema
        case Project():
            keys = key_names(schema) if step.key is None else key_names(step.schema)
            columns = {name: name for name in names if name.startswith("_")}
            columns |= {name: name for name in keys} if step.key is None else _typed(keys, step.key)
            columns |= _value_columns(value_names(step.schema), step.values)
            return _select(columns, source), list(columns), step.schema
        case Explode():
            values = value_names(step.schema)
            exploded = values[len(values) - len(step.arrays) :]
            columns = {name: name for name in names}
            columns |= {name: f"unnest({_cast(array)})" for name, array in zip(exploded, step.arrays, strict=True)}
            return f"{_select(columns, source)} WHERE NOT _null", list(columns), step.schema
        case Rekey():
            keys = _typed(key_names(step.schema), step.key)
            keys |= {f"k{i}": _as_key(keys[f"k{i}"]) for i, key in enumerate(step.key) if key.type == DOUBLE}
            kept = [name for name in names if name.startswith("_") and name != "_st"]
            columns = {name: name for name in kept} | keys
            columns |= {name: name for name in names if name[0] == "v"}
            sql = _select(columns, source)
            if step.drop_null_key:
                sql = f"SELECT * FROM ({sql}) WHERE {' OR '.join(f'{key} IS NOT NULL' for key in keys)}"
            return sql, list(columns), step.schema


def _filter(step: Filter, source: str, names: Sequence[str]) -> str:
    if not step.retract_failed:
        # A stream's row without value fails, whatever is asked of it; a table's deletion goes on.
        return f"SELECT * FROM ({source}) WHERE ({step.predicate.sql}) AND NOT (_null AND _weight > 0)"
    # A table's row that fails, and a deletion, which has no values to fail with, delete what was passed on before.
    columns = {name: name for name in names}
    columns["_weight"] = "(CASE WHEN _passes THEN _weight ELSE -1 END)::TINYINT"
    columns["_null"] = "NOT _passes"
    columns |= {name: f"CASE WHEN _passes THEN {name} END" for name in names if name[0] == "v"}
    judged = f"SELECT *, coalesce(_weight > 0 AND ({step.predicate.sql}), false) AS _passes FROM ({source})"
    return _select(columns, judged)


def _value_columns(names: Sequence[str], expressions: Sequence[SqlExpression]) -> dict[str, str]:
    """Expressions over a row without value are NULL; a bare column is NULL there already."""
    return {
        name: sql if _is_column(expression) else f"CASE WHEN NOT _null THEN {sql} END"
        for name, expression, sql in zip(names, expressions, map(_cast, expressions), strict=True)
    }


def _is_column(expression: SqlExpression) -> bool:
    return expression.sql.strip('"').replace("_", "").isalnum() and not expression.sql[0].isdigit()


def _typed(names: Sequence[str], expressions: Sequence[SqlExpression]) -> dict[str, str]:
    return {name: _cast(expression) for name, expression in zip(names, expressions, strict=True)}


def _as_key(number: str) -> str:
    """-0.0 becomes 0.0: DuckDB joins them as equal but groups them apart, so as keys they must be the same."""
    return f"({number} + 0.0::DOUBLE)"


def _cast(expression: SqlExpression) -> str:
    return f"({expression.sql})::{expression.type.duckdb}"


def _select(columns: dict[str, str], source: str) -> str:
    listed = ", ".join(name if sql == name else f"{sql} AS {name}" for name, sql in columns.items())
    return f"SELECT {listed} FROM ({source})"


@builds(Filter, Project, Explode, Rekey)
def build(step: StatelessStep, building: Building) -> ChainNode:
    """One node for the step and all stateless steps below it that do not change the task."""
    steps: list[StatelessStep] = [step]
    below = step.input
    while isinstance(below, Filter | Project | Explode):
        steps.insert(0, below)
        below = below.input
    node = building.node(below)
    operator = Stateless(
        building.connection, steps, node.schema, node.extra, node.columns, building.partitioner, building.side
    )
    return building.chain(node, operator, *steps)
