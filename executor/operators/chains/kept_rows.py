"""Runs a chain of stateless steps that only leave out rows and pass on columns, without DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ....planner.steps.filter import Filter
from ..columns import where
from .chain_text import WORD, StatelessStep, column_sources, kept_where, leaves_out
from .column_conditions import Condition, column_condition


class KeptRows:
    """In: `read`: the columns that the `conditions` get. `passed`: output column → the input column that it is."""

    def __init__(
        self, conditions: Sequence[Condition], read: Sequence[str], passed: Mapping[str, str], given: pa.Schema
    ) -> None:
        self._conditions = conditions
        self._read = read
        self._sources = [passed[name] for name in given.names]
        self._given = given

    @classmethod
    def of(
        cls,
        steps: Sequence[StatelessStep],
        schema: pa.Schema,
        passed: Mapping[str, str],
        given: pa.Schema,
        connection: duckdb.DuckDBPyConnection,
    ) -> KeptRows | None:
        """None if only DuckDB can evaluate one of the conditions. In: `connection`: computes constants in them."""
        # A step that leaves out rows does not move the columns that it reads, so their sources after it hold before it.
        asked = [
            (kept_where(step), column_sources(steps[: number + 1], schema))
            for number, step in enumerate(steps)
            if leaves_out(step)
        ]
        words = [sources.get(word) for sql, sources in asked for word in WORD.findall(sql)]
        read = [str(name) for name in schema.names if name in words]
        types = [schema.field(name).type for name in read]
        conditions: list[Condition] = []
        for sql, sources in asked:
            places = {name: read.index(source) for name, source in sources.items() if source in read}
            condition = column_condition(sql, places, types, connection)
            if condition is None:
                return None
            conditions.append(condition)
        return cls(conditions, read, passed, given)

    @classmethod
    def of_leading_filters(
        cls, steps: Sequence[StatelessStep], schema: pa.Schema, connection: duckdb.DuckDBPyConnection
    ) -> tuple[KeptRows | None, Sequence[StatelessStep]]:
        """For as many of the first filters as Arrow can evaluate; and the steps that are left."""
        count = next((number for number, step in enumerate(steps) if not isinstance(step, Filter)), len(steps))
        same = {name: name for name in schema.names}
        for number in range(count, 0, -1):
            found = cls.of(steps[:number], schema, same, schema, connection)
            if found is not None:
                return found, steps[number:]
        return None, steps

    def of_batch(self, rows: pa.Table) -> pa.Table:
        """The output rows of the chain. In: rows of its input schema."""
        columns = [rows.column(name) for name in self._read]
        mask = reduce(pc.and_kleene, (condition(columns) for condition in self._conditions))
        kept = rows.select(list(dict.fromkeys(self._sources)))  # GROUP BY a column makes it a key as well
        if isinstance(mask, pa.Scalar):
            kept = kept if mask.as_py() else kept.slice(0, 0)
        else:
            kept = where(kept, mask)
        return pa.table([kept.column(source) for source in self._sources], schema=self._given)
