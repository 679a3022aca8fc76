"""DELETE FROM table WHERE …: writes a tombstone for each row that matches the condition."""

from __future__ import annotations

import pyarrow as pa

from ...planner.pull.deletions import plan_deletion
from ...sql.ast import DeleteRows
from ..engine.entities import Entity, RowsDeleted
from ..engine.pull_answers import answer
from ..engine.request import Request


def delete_rows(statement: DeleteRows, request: Request) -> list[Entity]:
    """Deletes the table's current rows that match; the tombstones become visible together. A row with the same key that
    is written between the read and the tombstone is deleted, too."""
    planned = plan_deletion(statement, request.planning_context())
    source = request.catalog.source(statement.target, statement.span)
    rows = answer(planned, request).rows
    if rows.num_rows:
        now = pa.array([request.now_ms()] * rows.num_rows, pa.int64())
        keys = {
            column: rows.column(index).combine_chunks().cast(column.type.arrow)
            for index, column in enumerate(source.schema.key)
        }
        request.appender.delete(source, keys, now)
    return [RowsDeleted(statement_text=statement.text, source_name=source.name, count=rows.num_rows)]
