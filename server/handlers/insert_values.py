"""INSERT INTO … VALUES: writes one record per row in the source's formats, all at once."""

from __future__ import annotations

import pyarrow as pa

from millstream.errors import InvalidStatement

from ...planner.declarations.values import Plain, PlannedRow, plan_insert_values
from ...planner.schema import Column
from ...planner.select.naming import joined
from ...planner.source_info import SourceInfo
from ...planner.specs import SqlExpression
from ...sql.ast import InsertValues
from ...sql.types import BIGINT
from ..engine.entities import Entity, Warned
from ..engine.request import Request

_ROWTIME = Column("ROWTIME", BIGINT)
_EXPRESSIONS_MAX = 1_000  # per evaluation


def insert_values(statement: InsertValues, request: Request) -> list[Entity]:
    """INSERT INTO name [(columns)] VALUES (…), (…). It returns no entity, except a warning."""
    planned = plan_insert_values(statement, request.planning_context())
    computed = _evaluated([_asked(row) for row in planned.rows], request)
    rowtimes = [_rowtime(row.get(_ROWTIME), request) for row in computed]
    rows = list(zip(planned.rows, computed, strict=True))
    columns = {
        column: _together([row.plain.get(column) or arrays.get(column) for row, arrays in rows], column)
        for column in planned.source.schema
    }
    request.appender.append(planned.source, columns, pa.array(rowtimes, pa.int64()))
    return _overwritten(statement, planned.source, request)


def _overwritten(statement: InsertValues, table: SourceInfo, request: Request) -> list[Entity]:
    """A warning if queries write the table: they do not know rows of other writers."""
    writers = sorted(query.id for query in request.visible.writers_of(table.name))
    if table.kind != "TABLE" or not writers:
        return []
    message = (
        f"The rows are written, but {joined(writers)} writes {table.name} too: its next change of a key replaces the "
        "row, and its results do not include this one. Insert into its sources instead."
    )
    return [Warned(statement_text=statement.text, message=message)]


def _asked(row: PlannedRow) -> dict[Column, SqlExpression]:
    return dict(row.computed) if row.rowtime is None else {**row.computed, _ROWTIME: row.rowtime}


def _evaluated(rows: list[dict[Column, SqlExpression]], request: Request) -> list[dict[Column, pa.Array]]:
    """The values of each row. Many rows are evaluated together, because each evaluation is a query."""
    size = max(1, _EXPRESSIONS_MAX // max(1, *map(len, rows)))
    evaluated: list[dict[Column, pa.Array]] = []
    for begin in range(0, len(rows), size):
        part = rows[begin : begin + size]
        arrays = iter(request.constants.evaluate([expression for row in part for expression in row.values()]))
        evaluated += [{column: next(arrays) for column in row} for row in part]
    return evaluated


def _rowtime(given: pa.Array | None, request: Request) -> int:
    if given is None:
        return request.now_ms()
    rowtime = given[0].as_py()
    if rowtime is None or rowtime < 0:
        raise InvalidStatement("ROWTIME must not be NULL or negative.")
    return rowtime


def _together(values: list[Plain | pa.Array | None], column: Column) -> pa.Array:
    """One value from each row, as an array of the column's type."""
    type_ = column.type.arrow
    if all(value is None or isinstance(value, Plain) for value in values):
        return pa.array([None if value is None else value.value for value in values], type_)
    return pa.concat_arrays(
        _together([value], column) if value is None or isinstance(value, Plain) else value.cast(type_)
        for value in values
    )
