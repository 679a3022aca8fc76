"""DELETE FROM: plans a pull query for the keys of the rows to delete."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millstream.errors import InvalidStatement, UnknownSource, did_you_mean

from ...sql.ast import DeleteRows, Query, SelectColumn, SourceName
from ...sql.settings.property_table import PULL_FULL_SQL
from ..planning import PlannedBatch, PlannedPull, PlanningContext
from ..source_info import SourceInfo
from .pull_queries import plan_pull


def plan_deletion(statement: DeleteRows, context: PlanningContext) -> PlannedPull | PlannedBatch:
    """A pull query for the key columns, in order, of the rows that match the condition.

    Raises `UnknownSource`, `InvalidStatement` for a source that is not a table written by users, and what planning
    raises.
    """
    source = context.catalog.sources.get(statement.target)
    if source is None:
        raise UnknownSource(
            f"Cannot delete from an unknown table: `{statement.target}`",
            span=statement.span,
            hint=did_you_mean(statement.target, context.catalog.sources),
        )
    _check_deletable(source, statement, context)
    query = Query(
        items=tuple(SelectColumn(expression=_column(column.name), alias=None) for column in source.schema.key),
        source=SourceName(name=source.name, alias=source.name, span=statement.span),
        where=statement.where,
        span=statement.span,
        text=statement.text,
    )
    return plan_pull(query, replace(context, properties={**context.properties, PULL_FULL_SQL.name: "true"}))


def _check_deletable(source: SourceInfo, statement: DeleteRows, context: PlanningContext) -> None:
    if source.kind == "STREAM":
        raise InvalidStatement(
            f"Cannot delete from {source.name}: it is a stream.",
            span=statement.span,
            hint="What was appended to a stream stays; a query can leave it out with WHERE.",
        )
    if source.read_only:
        raise InvalidStatement(f"Cannot delete from read-only table: {source.name}", span=statement.span)
    writers = context.catalog.writers_of(source.name)
    if writers or source.created_by is not None:
        name = writers[0].id if writers else source.created_by
        raise InvalidStatement(
            f"Cannot delete from {source.name}: the query {name} makes its rows.",
            span=statement.span,
            hint="Delete from the tables that the query reads, or leave the rows out with WHERE or HAVING.",
        )
    if source.key_window is not None:
        raise InvalidStatement(f"Cannot delete from {source.name}: it has windows in its keys.", span=statement.span)


def _column(name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))
