"""Pull queries: a SELECT without EMIT, answered once from what a source's topic holds."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millstream.errors import InvalidStatement, Span, TypeMismatch, Unsupported

from ..sql import coercion
from ..sql.ast import Query, SelectColumn, SelectStructStar, SourceName, span_of, unwrapped
from ..sql.printing import print_expression
from .analysis import analyze
from .catalog import SourceInfo
from .expressions import compile_expression
from .logical import Filter, Project, Scan
from .lowering import is_key_column, physical_names
from .optimize import optimize
from .planning import PlannedPull, PlanningContext
from .schema import Column, Schema
from .scope import Scope
from .typed import to_sql

ANY_TABLE = "millstream.pull.any.table"
PUSH_INSTEAD = "See https://cnfl.io/queries for more info.\nAdd EMIT CHANGES if you intended to issue a push query."
_PLACES = ("ROWPARTITION", "ROWOFFSET")


def plan_pull(query: Query, context: PlanningContext) -> PlannedPull:
    """DuckDB SQL over the relation `source`.

    Raises `StatementError`s: for clauses that need a running query, for the place of a record in its topic (a row of a
    table has none), and for tables that nothing keeps up to date.
    """
    _refuse_clauses(query)
    _refuse_places(query)
    analyzed = analyze(query, context, target="CLIENT")
    node = optimize(analyzed.plan)
    if not isinstance(node, Project):
        raise AssertionError("a query's plan ends in its projection")
    _refuse_other_keys(analyzed.relation.sources[0][1], query, analyzed.relation.scope)
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
    _refuse_repeated(query, schema)
    _refuse_not_kept(below.source, query, context)
    udfs = tuple(dict.fromkeys(udf for e in (*selected, *conditions) for udf in e.udfs))
    return PlannedPull(below.source, sql, schema, udfs)


def _refuse_clauses(query: Query) -> None:
    clauses = {
        "JOIN": not isinstance(query.source, SourceName),
        "WINDOW": query.window is not None,
        "GROUP BY": bool(query.group_by),
        "PARTITION BY": bool(query.partition_by),
        "HAVING": query.having is not None,
    }
    found = next((clause for clause, used in clauses.items() if used), None)
    if found is not None:
        raise _refused(f"Pull queries don't support {found} clauses.", query.span)


def _refuse_places(query: Query) -> None:
    for clause, nodes in (("SELECT", list(_selected(query))), ("WHERE", [query.where] if query.where else [])):
        columns = [column for node in nodes for column in node.find_all(exp.Column) if column.name in _PLACES]
        if columns:
            listed = ", ".join(f"`{name}`" for name in dict.fromkeys(column.name for column in columns))
            raise _refused(
                f"Pull queries don't support the following columns in {clause} clauses: {listed}", span_of(columns[0])
            )


def _selected(query: Query) -> Iterator[exp.Expression]:
    for item in query.items:
        if isinstance(item, SelectColumn | SelectStructStar):
            yield item.expression


def _refuse_not_kept(source: SourceInfo, query: Query, context: PlanningContext) -> None:
    """A table that was only declared on a topic: as in ksqlDB nobody keeps its rows, unless a property says so."""
    kept = source.kind == "STREAM" or source.created_by is not None or source.read_only
    if kept or context.properties.get(ANY_TABLE, "false") == "true":
        return
    raise InvalidStatement(
        f"The `{source.name}` table isn't queryable. To derive a queryable table, you can do "
        f"'CREATE TABLE QUERYABLE_{source.name} AS SELECT * FROM {source.name}'. " + PUSH_INSTEAD,
        span=query.source.span,
        hint=f"SET '{ANY_TABLE}'='true'; reads such tables as well, or declare it as CREATE SOURCE TABLE.",
    )


def _refuse_other_keys(source: SourceInfo, query: Query, scope: Scope) -> None:
    """Keys are looked up as they are: what IN lists for a key of a table is not read as another type first."""
    if source.kind == "STREAM" or query.where is None:
        return
    for node in query.where.find_all(exp.In):
        column = unwrapped(node.this)
        key = source.schema.find(column.name) if isinstance(column, exp.Column) else None
        if key is None or key.role != "KEY":
            continue
        for option in node.expressions:
            if option.find(exp.Column) is not None:
                continue
            if not coercion.can_coerce(compile_expression(option, scope).type, key.type):
                raise TypeMismatch(
                    f"{print_expression(option)} can not be converted to the type of the key column: "
                    f"{key.name} {key.type} KEY",
                    span=span_of(option),
                )


def _refuse_repeated(query: Query, schema: Schema) -> None:
    """Columns under one name cannot be told apart in an answer; `_unique` made their names different."""
    names = [item.alias or _own_name(item.expression) for item in query.items if isinstance(item, SelectColumn)]
    repeated = next((name for name in names if name and names.count(name) > 1), None)
    column = schema.find(repeated) if repeated else None
    if column is not None:
        role = "key" if column.role == "KEY" else "value"
        raise InvalidStatement(f"Duplicate {role} columns found in schema: {column}", span=query.span)


def _own_name(node: exp.Expression) -> str | None:
    inner = unwrapped(node)
    return inner.name if isinstance(inner, exp.Column) else None


def _refused(message: str, span: Span | None) -> InvalidStatement:
    return InvalidStatement(f"{message} {PUSH_INSTEAD}", span=span)


def _order(source: SourceInfo) -> str:
    """The first rows of a table are those of the smallest keys; a stream has its order."""
    if source.kind == "STREAM":
        return ""
    names = [source.schema.physical_name(column) for column in source.schema.key]
    return f" ORDER BY {', '.join([*names, '_ws'])}"
