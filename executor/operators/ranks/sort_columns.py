"""The columns that rows are ranked by."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from ....planner.specs import SqlExpression
from ....planner.steps.over_calls import SortKey
from ....sql.types import SqlType
from ..sort_words import is_plain
from ..statement import BatchStatement


class SortColumns:
    """The columns that rows are sorted by. Computed columns are stored with the row, under separate names.

    `names`: in the order of the keys. `kept`: the computed columns. `looks`: how many keys to compare per attempt:
    first only those that are cheap to compare, then, if they do not decide, all of them.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, order: Sequence[SortKey], schema: pa.Schema) -> None:
        self.names: list[str] = []
        self.kept: dict[str, SqlType] = {}
        computed: list[str] = []
        for number, key in enumerate(order):
            expression = key.expression
            if _is_column(expression, schema):
                self.names.append(expression.sql)
                continue
            name = f"s{number}"
            self.names.append(name)
            self.kept[name] = expression.type
            computed.append(f"TRY_CAST(({expression.sql}) AS {expression.type.duckdb}) AS {name}")
        plain = [is_plain(key.expression.type.arrow) for key in order]
        first = [*plain, False].index(False)
        self.looks = [first, len(plain)] if 0 < first < len(plain) else [len(plain)]
        self._statement: BatchStatement | None = None
        if computed:
            sql = f"SELECT *, {', '.join(computed)} FROM {{input}}"
            self._statement = BatchStatement(connection, sql, {"input": schema})

    def added(self, rows: pa.Table) -> pa.Table:
        return rows if self._statement is None else self._statement.run(input=rows)


def _is_column(expression: SqlExpression, schema: pa.Schema) -> bool:
    return expression.sql in schema.names and schema.field(expression.sql).type.equals(expression.type.arrow)
