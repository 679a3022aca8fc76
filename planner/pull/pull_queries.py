"""Pull queries: a SELECT without EMIT, answered once from the current contents of its sources.

A query that filters and projects one source reads a materialized relation (`PlannedPull`). Any other query runs the
plan of the push query once, over the sources' contents (`PlannedBatch`), so the answer agrees with what a persistent
query would have written. ksqlDB has only the first kind; a property allows the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from millstream.errors import InvalidStatement, Span, SqlSyntaxError, TypeMismatch

from ...sql import coercion
from ...sql.ast import Join, Query, SelectColumn, SelectStructStar, SourceName, span_of, unwrapped
from ...sql.printing import print_expression
from ...sql.settings.property_table import PULL_FULL_SQL
from ..expressions.call_words import with_units
from ..expressions.compilation import compile_expression
from ..expressions.scope import Scope
from ..expressions.typed import to_sql
from ..limits import within_depth
from ..logical import LogicalPlan
from ..lowering import is_key_column, physical_names
from ..optimize import optimize
from ..planning import PlannedBatch, PlannedPull, PlanningContext
from ..schema import RECORD_PLACE, Column, Schema
from ..select.analysis import analyze
from ..select.first_rows import with_given_order
from ..select.naming import bare_name
from ..select.queries import lower_for_client
from ..select.relation import Analyzed
from ..source_info import SourceInfo
from ..steps.explode import LogicalExplode
from ..steps.filter import LogicalFilter
from ..steps.project import LogicalProject
from ..steps.source import Scan
from .pull_order import Ordered, with_order_selected
from .window_bounds import check_window_bounds

PUSH_INSTEAD = "See https://cnfl.io/queries for more info.\nAdd EMIT CHANGES if you intended to issue a push query."
_HINT = f"SET '{PULL_FULL_SQL}'='true'; allows it: joins, GROUP BY, ORDER BY, windows, tables that are only declared."


@within_depth
def plan_pull(query: Query, context: PlanningContext) -> PlannedPull | PlannedBatch:
    """How to answer the query.

    Raises `StatementError`s. Without the property `millstream.pull.full.sql` it also raises them for clauses that need
    a running query, for the partition and offset of a record (a row of a table has none), and for tables that nothing
    keeps up to date.
    """
    query = with_units(query)
    full = context.settings.full_sql
    if not full:
        _refuse_order(query)
        _refuse_clauses(query)
        _refuse_places(query)
    else:
        query, context = with_given_order(query, context), replace(context, answered_once=True)
    ordered = with_order_selected(query)
    # A query that runs once is analyzed like a continuous query.
    asked = replace(ordered.query, emit="CHANGES") if full else ordered.query
    analyzed = analyze(asked, context, target="CLIENT")
    node = analyzed.plan
    scan = _looked_up(node)
    if scan is None:
        batch = _batch(analyzed, ordered, context)
        if not full:
            _refuse_steps(node, query)
            _refuse_repeated(query, batch.schema)
        return batch
    assert isinstance(node, LogicalProject), "a query's plan ends in its projection"
    # Only a stream needs the batch plan, because it may be too long to keep in memory. Look-ups in tables stay cheap.
    batch = _batch(analyzed, ordered, context) if scan.kind == "STREAM" else None
    return _lookup(query, node, scan, ordered, batch, analyzed.relation.scope, context)


def _looked_up(node: LogicalPlan) -> Scan | None:
    """The source, if the plan is a projection of some of its rows; else None."""
    below = node.input if isinstance(node, LogicalProject) else node
    while isinstance(below, LogicalFilter):
        below = below.input
    return below if isinstance(below, Scan) else None


# ------------------------------------------------------------------ one relation


def _lookup(
    query: Query,
    node: LogicalProject,
    scan: Scan,
    ordered: Ordered,
    batch: PlannedBatch | None,
    scope: Scope,
    context: PlanningContext,
) -> PlannedPull:
    source = scan.source
    full = context.settings.full_sql
    if not full:
        _refuse_other_keys(source, query, scope)
    if query.where is not None and source.kind == "TABLE" and source.key_window is not None and not full:
        check_window_bounds(query.where, source, scope.within("WHERE"))
    names = physical_names(source.schema)
    selected = [to_sql(named.expression, names) for named in node.values]
    conditions = []
    below = node.input
    while isinstance(below, LogicalFilter):
        conditions.append(to_sql(below.predicate, names))
        below = below.input
    sql = f"SELECT {', '.join(f'({e.sql}) AS c{i}' for i, e in enumerate(selected))} FROM source"
    if conditions:
        sql += " WHERE " + " AND ".join(f"({condition.sql})" for condition in conditions)
    order = _order(source)
    clause = ordered.clause([named.name for named in node.values], order)
    if not clause and source.key_window is not None and order:  # the windows of a key are ordered by time
        clause = f" ORDER BY {order}"
    sql += clause
    schema = _schema(node, [expression.sql for expression in selected], ordered, keyed=source.kind == "TABLE")
    _refuse_repeated(query, schema)
    _refuse_not_kept(source, query, context)
    udfs = tuple(dict.fromkeys(udf for e in (*selected, *conditions) for udf in e.udfs))
    timestamp = None if scan.timestamp is None else to_sql(scan.timestamp, names)
    return PlannedPull(source, sql, schema, udfs, timestamp, batch, tuple(expression.sql for expression in selected))


def _order(source: SourceInfo) -> str:
    """The default order: a table's rows by partition and key; a stream's rows keep their order."""
    if source.kind == "STREAM":
        return ""
    names = [source.schema.physical_name(column) for column in source.schema.key]
    return ", ".join(["_rowpartition", *names, "_ws", "_we"])


def _schema(node: LogicalProject, columns: Sequence[str], ordered: Ordered, *, keyed: bool) -> Schema:
    """The columns of the answer. In: `columns`: the physical name of each selected column in the rows."""
    shown = len(node.values) - ordered.hidden
    return Schema(
        tuple(
            Column(named.name, named.expression.type, "KEY" if keyed and is_key_column(name) else "VALUE")
            for named, name in zip(node.values[:shown], columns, strict=False)
        )
    )


# ------------------------------------------------------------------ a plan, once


def _batch(analyzed: Analyzed, ordered: Ordered, context: PlanningContext) -> PlannedBatch:
    node = optimize(analyzed.plan)
    assert isinstance(node, LogicalProject), "a query's plan ends in its projection"
    plan, columns = lower_for_client(analyzed, node, context)
    is_table = node.kind == "TABLE"
    window = ("_ws", "_we") if is_table and node.key_window is not None else ()
    keys = tuple(f"k{i}" for i in range(len(node.schema.key)))
    otherwise = ", ".join((*keys, *window)) if is_table else "_place"
    listed = ", ".join(f"{name} AS c{i}" for i, name in enumerate(columns))
    clause = ordered.clause([named.name for named in node.values], otherwise)
    if not clause and otherwise:
        clause = f" ORDER BY {otherwise}"
    enough = None
    if not is_table and not ordered.terms and ordered.limit is not None:
        enough = ordered.limit + (ordered.offset or 0)
    return PlannedBatch(
        plan,
        tuple(source for _, source in analyzed.relation.sources),
        f"SELECT {listed} FROM answer{clause}",
        _schema(node, columns, ordered, keyed=is_table),
        is_table,
        enough,
    )


# ------------------------------------------------------------------ refusals


def _refuse_order(query: Query) -> None:
    """ksqlDB has no ORDER BY: it parses ORDER as the source's alias, and reports an error at BY."""
    term = span_of(query.order_by[0]) if query.order_by else None
    if term is None or query.span is None:
        return
    start = query.span.start + query.text.upper().rfind("BY", 0, term.start - query.span.start)
    raise SqlSyntaxError("pull queries don't support ORDER BY clauses", span=Span(start, start + 2), hint=_HINT)


def _refuse_clauses(query: Query) -> None:
    clauses = {
        "JOIN clauses": isinstance(query.source, Join),
        "WITH clauses": bool(query.ctes),
        "subqueries in FROM": not isinstance(query.source, Join | SourceName),
        "WINDOW clauses": query.window is not None,
        "GROUP BY clauses": bool(query.group_by),
        "PARTITION BY clauses": bool(query.partition_by),
        "HAVING clauses": query.having is not None,
        "SELECT DISTINCT": query.distinct,
        "QUALIFY clauses": query.qualify is not None,
    }
    found = next((clause for clause, used in clauses.items() if used), None)
    if found is not None:
        raise _refused(f"Pull queries don't support {found}.", query.span)


def _refuse_steps(node: LogicalPlan, query: Query) -> None:
    """Raises `InvalidStatement` for steps that ksqlDB does not support. It supports table functions, and analysis
    allows them only over streams."""
    below = node
    while isinstance(below, LogicalProject | LogicalFilter | LogicalExplode):
        below = below.input
    if not isinstance(below, Scan):
        raise _refused("Pull queries don't support subqueries or functions OVER rows.", query.span)


def _refuse_places(query: Query) -> None:
    for clause, nodes in (("SELECT", list(_selected(query))), ("WHERE", [query.where] if query.where else [])):
        columns = [column for node in nodes for column in node.find_all(exp.Column) if column.name in RECORD_PLACE]
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
    """Refuses a table that is only declared on a topic: as in ksqlDB its rows are not materialized, unless a property
    allows it."""
    kept = source.kind == "STREAM" or source.created_by is not None or source.read_only
    if kept or context.settings.full_sql:
        return
    raise InvalidStatement(
        f"The `{source.name}` table isn't queryable. To derive a queryable table, you can do "
        f"'CREATE TABLE QUERYABLE_{source.name} AS SELECT * FROM {source.name}'. " + PUSH_INSTEAD,
        span=query.source.span,
        hint=f"SET '{PULL_FULL_SQL}'='true'; reads such tables as well, or declare it as CREATE SOURCE TABLE.",
    )


def _refuse_other_keys(source: SourceInfo, query: Query, scope: Scope) -> None:
    """Refuses values in IN for a table's key that do not have the key's type: keys are looked up without conversion."""
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
            if isinstance(unwrapped(option), exp.Null):
                raise InvalidStatement(
                    f"Primary key columns can not be NULL: ({key.name} = null)", span=span_of(option)
                )
            if not coercion.can_coerce(compile_expression(option, scope).type, key.type):
                raise TypeMismatch(
                    f"{print_expression(option)} can not be converted to the type of the key column: "
                    f"{key.name} {key.type} KEY",
                    span=span_of(option),
                )


def _refuse_repeated(query: Query, schema: Schema) -> None:
    """Refuses two selected columns with the same name, to which `_unique` gave different names."""
    names = [item.alias or bare_name(item.expression) for item in query.items if isinstance(item, SelectColumn)]
    repeated = next((name for name in names if name and names.count(name) > 1), None)
    column = schema.find(repeated) if repeated else None
    if column is not None:
        role = "key" if column.role == "KEY" else "value"
        raise InvalidStatement(f"Duplicate {role} columns found in schema: {column}", span=query.span)


def _refused(message: str, span: Span | None) -> InvalidStatement:
    return InvalidStatement(f"{message} {PUSH_INSTEAD}", span=span, hint=_HINT)
