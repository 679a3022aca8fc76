"""Runs a chain of stateless steps over a few rows without DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ...row_conditions import RowCondition, row_condition
from .chain_text import WORD, StatelessStep, column_sources, kept_where, leaves_out


class FewRows:
    """Runs a chain over a few rows without DuckDB, if the chain only leaves out rows and passes on columns.

    In: `read`: the columns that the `conditions` get as a row.
    """

    def __init__(
        self, conditions: Sequence[RowCondition], read: Sequence[str], passed: Mapping[str, str], given: pa.Schema
    ) -> None:
        self._conditions = conditions
        self._read = read
        self._sources = [passed[name] for name in given.names]
        self._given = given

    @classmethod
    def of(
        cls, steps: Sequence[StatelessStep], schema: pa.Schema, passed: Mapping[str, str], given: pa.Schema
    ) -> FewRows | None:
        """None if only DuckDB can evaluate one of the conditions."""
        # A step that leaves out rows does not move the columns that it reads, so their sources after it hold before it.
        asked = [
            (kept_where(step), column_sources(steps[: number + 1], schema))
            for number, step in enumerate(steps)
            if leaves_out(step)
        ]
        words = [sources.get(word) for sql, sources in asked for word in WORD.findall(sql)]
        read = [str(name) for name in schema.names if name in words]
        types = [schema.field(name).type for name in read]
        conditions: list[RowCondition] = []
        for sql, sources in asked:
            places = {name: read.index(source) for name, source in sources.items() if source in read}
            condition = row_condition(sql, places, types)
            if condition is None:
                return None
            conditions.append(condition)
        return cls(conditions, read, passed, given)

    def kept(self, rows: pa.Table) -> pa.Table:
        """The output rows of the chain. In: rows of its input schema."""
        listed = zip(*(rows.column(name).to_pylist() for name in self._read), strict=True)
        mask = [all(condition(row) for condition in self._conditions) for row in listed]
        if not any(mask):
            return self._given.empty_table()
        kept = pa.table([rows.column(source) for source in self._sources], schema=self._given)
        return kept if all(mask) else kept.filter(pa.array(mask))
