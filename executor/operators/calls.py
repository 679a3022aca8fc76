"""The calls of an aggregation: their arguments as columns, and the columns that keep their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from ...planner.physical import AggregateCall
from ...sql.functions.aggregate_kernels import Events
from ...sql.functions.aggregates import AGGREGATES
from ...sql.types import SqlType
from .columns import flat
from .statement import Statement


class Calls:
    """Column `a{i}_{j}` is argument j of call i, `s{i}_{j}` column j of its state, `v{i}` its result."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        calls: Sequence[AggregateCall],
        input_schema: pa.Schema,
        kept: Sequence[str],
        properties: Mapping[str, str],
    ) -> None:
        self.folds = [
            AGGREGATES[call.function].fold([a.type for a in call.arguments], call.constants, properties)
            for call in calls
        ]
        self.state_types: dict[str, SqlType] = {
            f"s{i}_{j}": type_ for i, fold in enumerate(self.folds) for j, type_ in enumerate(fold.state_types)
        }
        self.result_names = [f"v{i}" for i in range(len(calls))]
        self._kept = list(kept)
        self._sources: dict[str, str] = {}
        rendered: list[str] = []
        is_plain = True
        for i, (call, fold) in enumerate(zip(calls, self.folds, strict=True)):
            for j, (argument, type_) in enumerate(zip(call.arguments, fold.parameter_types, strict=True)):
                name = f"a{i}_{j}"
                self._sources[name] = argument.sql
                rendered.append(f"({argument.sql})::{type_.duckdb} AS {name}")
                known = argument.sql in input_schema.names
                is_plain &= known and input_schema.field(argument.sql).type.equals(type_.arrow)
        self._statement = None
        if not is_plain:
            sql = f"SELECT {', '.join([*self._kept, *rendered])} FROM {{input}}"
            self._statement = Statement(connection, sql, {"input": input_schema})

    def with_arguments(self, rows: pa.Table) -> pa.Table:
        """The kept columns and the arguments; columns that are arguments as they are cost nothing."""
        if self._statement is not None:
            return self._statement.run(input=rows)
        columns = [rows.column(name) for name in [*self._kept, *self._sources.values()]]
        return pa.table(columns, names=[*self._kept, *self._sources])

    def arguments(self, rows: pa.Table, call: int) -> list[pa.Array]:
        return [flat(rows, f"a{call}_{j}") for j in range(len(self.folds[call].parameter_types))]

    def run(
        self, events: Events, rows: pa.Table, states: pa.Table, known: Sequence[bool]
    ) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
        """Fold the events. Out: per event the results, and per group the new states."""
        results: dict[str, pa.Array] = {}
        after: dict[str, pa.Array] = {}
        for i, fold in enumerate(self.folds):
            names = [f"s{i}_{j}" for j in range(len(fold.state_types))]
            state = [flat(states, name) for name in names]
            results[f"v{i}"], columns = fold.run(events, self.arguments(rows, i), state, known)
            after |= dict(zip(names, columns, strict=True))
        return results, after

    def results(self, states: pa.Table) -> dict[str, pa.Array]:
        """The results of stored states."""
        return {
            f"v{i}": fold.results([flat(states, f"s{i}_{j}") for j in range(len(fold.state_types))])
            for i, fold in enumerate(self.folds)
        }
