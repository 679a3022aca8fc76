"""Pull queries: a SELECT without EMIT, answered once from what a source's topic holds."""

from __future__ import annotations

from millstream.errors import Unsupported

from ..sql.ast import Query, SourceName
from .analysis import analyze
from .catalog import SourceInfo
from .logical import Filter, Project, Scan
from .lowering import is_key_column, physical_names
from .optimize import optimize
from .planning import PlannedPull, PlanningContext
from .schema import Column, Schema
from .typed import to_sql


def plan_pull(query: Query, context: PlanningContext) -> PlannedPull:
    """DuckDB SQL over the relation `source`. Raises `StatementError`s, `Unsupported` for joins and aggregates."""
    if not isinstance(query.source, SourceName):
        raise Unsupported("joins in pull queries are not built yet", span=query.source.span, hint="Add EMIT CHANGES.")
    if query.group_by or query.window or query.partition_by:
        raise Unsupported("GROUP BY in pull queries is not built yet", span=query.span, hint="Add EMIT CHANGES.")
    analyzed = analyze(query, context, target="CLIENT")
    node = optimize(analyzed.plan)
    if not isinstance(node, Project):
        raise AssertionError("a query's plan ends in its projection")
    names = physical_names(analyzed.relation.sources[0][1].schema)
    selected = [to_sql(named.expression, names) for named in node.values]
    conditions = []
    below = node.input
    while isinstance(below, Filter):
        conditions.append(to_sql(below.predicate, names))
        below = below.input
    if not isinstance(below, Scan):
        raise Unsupported("table functions in pull queries are not built yet", span=query.span)
    sql = f"SELECT {', '.join(f'{e.sql} AS v{i}' for i, e in enumerate(selected))} FROM source"
    if conditions:
        sql += " WHERE " + " AND ".join(f"({condition.sql})" for condition in conditions)
    if query.limit is not None:
        sql += f"{_order(below.source)} LIMIT {int(query.limit)}"
    keyed = below.source.kind == "TABLE"
    schema = Schema(
        tuple(
            Column(named.name, named.expression.type, "KEY" if keyed and is_key_column(sql_of.sql) else "VALUE")
            for named, sql_of in zip(node.values, selected, strict=True)
        )
    )
    udfs = tuple(dict.fromkeys(udf for e in (*selected, *conditions) for udf in e.udfs))
    return PlannedPull(below.source, sql, schema, udfs)


def _order(source: SourceInfo) -> str:
    """The first rows of a table are those of the smallest keys; a stream has its order."""
    if source.kind == "STREAM":
        return ""
    names = [source.schema.physical_name(column) for column in source.schema.key]
    return f" ORDER BY {', '.join([*names, '_ws'])}"
