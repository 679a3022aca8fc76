"""Turns a parsed query into a `LogicalPlan`: analyzes FROM, WHERE, PARTITION BY, GROUP BY, HAVING and SELECT.

The steps are in the order of the data: sources, filter, table functions, new key, aggregates, filter, projection.
`relations.py` handles FROM, `select_items.py` the SELECT list, `projection.py` the final projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from millstream.errors import InvalidStatement, TypeMismatch

from ...sql.ast import Query, SelectColumn, span_of
from ...sql.collector import collector_paused
from ...sql.printing import print_expression
from ...sql.types import BIGINT, BOOLEAN, NULL
from ..expressions.aggregate_calls import has_clauses
from ..expressions.compilation import compile_expression
from ..expressions.scope import Scope, ScopeSource
from ..expressions.typed import Typed, column
from ..formats import FORMATS
from ..limits import check_clauses, check_columns, check_reads
from ..logical import LogicalPlan, Named
from ..planning import PlanningContext
from ..rules.rank_bounds import fixed_columns
from ..schema import WINDOW_BOUNDS
from ..steps.filter import LogicalFilter
from ..steps.project import with_key_as_value
from ..steps.repartition import Repartition
from .aggregation import Grouping, aggregate, contains_aggregate
from .aliases import grouped_without_aliases, without_aliases
from .first_rows import with_first_rows
from .grouped_answers import with_groups_below
from .joined_answers import with_join_below
from .over_clause import Columns, Resolve, check_qualify, contains_over, first_of_equals, window_identity, windowed
from .projection import Key, KeyColumn, project
from .relation import ROW, Analyzed, PlannedRelation, Target
from .relations import relation_of
from .select_items import Item, expand, explode, table_calls
from .subqueries import with_ctes
from .value_queries import without_value_queries
from .window_functions import with_closing_windows, with_window_clause


def analyze(query: Query, context: PlanningContext, *, target: Target, target_name: str = "") -> Analyzed:
    """The logical plan of `query`.

    `target`: where the rows go: into a new stream or table; into an existing source (INSERT); to a client, which needs
    no key and may see pseudo columns; or to another query (SUBQUERY), where unselected key columns are kept as hidden
    columns. Raises `StatementError`s of all kinds.
    """
    with collector_paused(0 if query.span is None else query.span.end - query.span.start):
        return _analyze(query, context, target, target_name)


def _analyze(query: Query, context: PlanningContext, target: Target, target_name: str) -> Analyzed:
    if target == "SUBQUERY":
        query = with_first_rows(query, context)
    else:
        check_reads(query)
    check_clauses(query)
    context = with_ctes(query, context)
    query = with_join_below(query, context, target, _plan_subquery)
    query = with_groups_below(query, context, target, _plan_subquery)
    query = with_closing_windows(without_value_queries(query, context, target, _plan_subquery))
    relation = relation_of(query, context, _plan_subquery)
    query = with_window_clause(query, relation)
    scope = relation.scope
    plan = relation.plan
    _check_clauses(query, plan, target)
    _check_kafka_values(query, relation)
    if query.where is not None:
        plan = LogicalFilter(plan, _predicate(query.where, scope, "WHERE"))
    fixed = fixed_columns(plan.predicate) if isinstance(plan, LogicalFilter) and relation.beyond else frozenset[str]()
    items = expand(query, relation, target)
    check_columns(items, query)
    grouped = bool(query.group_by) or any(contains_aggregate(item.expression) for item in items)
    if grouped:
        query = grouped_without_aliases(query, items, relation)
        plan, resolve, key = _grouped(query, items, plan, relation, target, context)
    else:
        plan, items, scope = explode(items, plan, scope)
        plan, resolve, key = _partitioned(query, plan, scope, relation)
        key = replace(key, fixed=fixed)
    if query.distinct:
        query = replace(query, qualify=first_of_equals(query, [item.expression for item in items]))
    if query.qualify is not None or any(contains_over(item.expression) for item in items):
        plan, items, resolve, key = _windowed(_qualify(query, items, relation), plan, items, resolve, key)
    if key.loose or any(has_clauses(item.expression) for item in items):
        relation = replace(relation, beyond=True)
    final = project(plan, items, resolve, key, target, target_name, query, context, relation)
    return Analyzed(final.plan, final.order, relation.names, relation)


def _plan_subquery(query: Query, context: PlanningContext) -> Analyzed:
    return analyze(query, context, target="SUBQUERY")


# ------------------------------------------------------------------ checks


def _check_clauses(query: Query, plan: LogicalPlan, target: Target) -> None:
    if query.window is not None and plan.kind == "TABLE":
        raise InvalidStatement("WINDOW clause is only supported on streams.", span=query.window.span)
    if query.window is not None and not query.group_by:
        listed = ", ".join(print_expression(i.expression) for i in query.items if isinstance(i, SelectColumn)) or "*"
        raise InvalidStatement(
            f"Non-aggregate SELECT expression(s) not part of GROUP BY: {listed}\n"
            "WINDOW clause requires a GROUP BY clause.",
            span=query.window.span,
            hint="Say what is counted: SELECT column, COUNT(*) FROM … WINDOW … GROUP BY column.",
        )
    if query.partition_by and query.group_by:
        raise InvalidStatement("PARTITION BY and GROUP BY cannot stand in one query.", span=query.span)
    if query.partition_by and plan.kind == "TABLE":
        raise InvalidStatement("PARTITION BY clause is only supported on streams.", span=query.span)
    if query.having is not None and not query.group_by:
        raise InvalidStatement(
            "HAVING requires a GROUP BY clause.", span=span_of(query.having), hint="Rows are filtered with WHERE."
        )
    if query.emit == "FINAL" and (query.window is None or not query.group_by):
        raise InvalidStatement(
            "EMIT FINAL is only supported for windowed aggregations.",
            span=query.span,
            hint="Add a window after FROM, such as WINDOW TUMBLING (SIZE 1 HOUR), or write EMIT CHANGES.",
        )
    if query.order_by or query.offset is not None:
        raise InvalidStatement(
            f"{'ORDER BY' if query.order_by else 'OFFSET'} needs an answer that ends: only pull queries have it.",
            span=span_of(query.order_by[0]) if query.order_by else query.span,
            hint="Leave out EMIT CHANGES, or the clause; of a query's result keep the first rows with ROW_NUMBER().",
        )
    if query.limit is not None and target == "SUBQUERY":
        raise InvalidStatement(
            "a query in FROM or WITH cannot have LIMIT while records come: only pull queries have it there.",
            span=query.span,
            hint="QUALIFY ROW_NUMBER() OVER (ORDER BY …) <= 10 keeps the first rows.",
        )
    if query.limit is not None and target != "CLIENT":
        what = "INSERT INTO" if target == "INSERT" else f"CREATE {target} AS SELECT"
        raise InvalidStatement(
            f"{what} statements don't support LIMIT clause.",
            span=query.span,
            hint="Leave it out: the query goes on with every record that comes. SELECT … LIMIT looks at a few.",
        )


def _check_kafka_values(query: Query, relation: PlannedRelation) -> None:
    """As in ksqlDB: values in Kafka's own format cannot be written to repartition topics or state."""
    what = "JOIN" if len(relation.sources) > 1 else "GROUP BY" if query.group_by else None
    fixed = [source for _, source in relation.sources if not FORMATS[source.value_format.name].moves]
    if what is not None and fixed:
        found, name = sorted(source.name for source in fixed), fixed[0].value_format.name
        raise InvalidStatement(
            f"Source(s) {', '.join(found)} are using the '{name}' value format. This format does not yet support "
            f"{what}.",
            span=query.span,
            hint="Copy it with CREATE STREAM … WITH (VALUE_FORMAT='JSON') AS SELECT first.",
        )


def _predicate(node: exp.Expression, scope: Scope, clause: str) -> Typed:
    if clause == "WHERE":
        for bound in [c for c in node.find_all(exp.Column) if c.name in WINDOW_BOUNDS]:
            scope.within(clause).resolve(bound)
    if clause == "WHERE" and (found := contains_aggregate(node)):
        raise InvalidStatement(f"{clause} cannot hold aggregates such as {found}; use HAVING", span=span_of(node))
    return _boolean(node, compile_expression(node, scope.within(clause)), clause)


def _boolean(node: exp.Expression, predicate: Typed, clause: str) -> Typed:
    if predicate.type not in (BOOLEAN, NULL):
        raise TypeMismatch(
            f"Type error in {clause} expression: Should evaluate to boolean but is {print_expression(node)} "
            f"({predicate.type}) instead.",
            span=span_of(node),
            hint=f"Compare it with something, as in: {print_expression(node)} > 0.",
        )
    return predicate


# ------------------------------------------------------------------ keys


def _windowed(
    qualify: list[exp.Expression], plan: LogicalPlan, items: list[Item], resolve: Resolve, key: Key
) -> tuple[LogicalPlan, list[Item], Resolve, Key]:
    """The functions OVER … in SELECT and QUALIFY, and QUALIFY itself."""
    bounds = window_identity(plan, [item.expression for item in items])
    own = (*key.columns, *(KeyColumn(name, name, column(name, BIGINT)) for name in bounds))
    result = windowed(plan, [*(i.expression for i in items), *qualify], resolve, [c.typed for c in own])
    resolve, plan = result.resolver(resolve), result.plan
    items = [replace(item, expression=node) for item, node in zip(items, result.expressions, strict=False)]
    fixed: frozenset[str] = frozenset()
    for node in result.expressions[len(items) :]:
        predicate = _boolean(node, resolve(node), "QUALIFY")
        plan, fixed = LogicalFilter(plan, predicate), fixed_columns(predicate)
    candidates = [
        tuple(KeyColumn(part.name, part.written, part.typed) for part in parts if part.name not in fixed)
        for parts in result.keys
    ]
    if result.row is None:
        candidates.insert(0, own)
    selected = {resolve(item.expression).column for item in items}
    chosen = next((each for each in candidates if each and all(c.name in selected for c in each)), None)
    if chosen is not None:
        return plan, items, resolve, Key(chosen, "key column", loose=True)
    if result.row is None:
        return plan, items, resolve, replace(key, columns=own, loose=True)
    row = KeyColumn(result.row.name, result.row.written, result.row.typed)
    return plan, items, resolve, Key((row,), "key column", loose=True)


def _qualify(query: Query, items: Sequence[Item], relation: PlannedRelation) -> list[exp.Expression]:
    """The condition of QUALIFY, if there is one, without aliases."""
    if query.qualify is None:
        return []
    condition = without_aliases(query.qualify, items, relation)
    check_qualify(condition)
    return [condition]


def _partitioned(
    query: Query, plan: LogicalPlan, scope: Scope, relation: PlannedRelation
) -> tuple[LogicalPlan, Resolve, Key]:
    def resolve(node: exp.Expression, *, more: Columns = MappingProxyType({})) -> Typed:
        known = replace(scope, sources=(*scope.sources, ScopeSource("#over", more))) if more else scope
        return compile_expression(node, known)

    if not query.partition_by:
        same = relation.same_as_key or ((),) * len(plan.schema.key)
        columns = tuple(
            KeyColumn(c.name, c.name, column(c.name, c.type), equals)
            for c, equals in zip(plan.schema.key, same, strict=True)
        )
        return plan, resolve, Key(columns, "key column", None if relation.same_as_key else relation.join_key)
    written = _key_expressions(query.partition_by, scope, "PARTITION BY")
    if any(contains_aggregate(node) for node, _ in written):
        raise InvalidStatement("PARTITION BY does not support aggregate functions.", span=query.span)
    if len(written) == 1 and written[0][1].type == NULL:
        return Repartition(with_key_as_value(plan), ()), resolve, Key((), "partitioning expression")
    key = tuple(Named(f"#key{i}", _null_in_null_rows(typed)) for i, (_, typed) in enumerate(written))
    moved = Repartition(with_key_as_value(plan), key)
    columns = tuple(
        KeyColumn(named.name, print_expression(scope.qualified(node)), column(named.name, named.expression.type))
        for named, (node, _) in zip(key, written, strict=True)
    )
    originals = [(typed, named) for named, (_, typed) in zip(key, written, strict=True)]

    def resolve_moved(node: exp.Expression, *, more: Columns = MappingProxyType({})) -> Typed:
        typed = resolve(node, more=more)
        tree = typed.tree.unnest()  # ignores parentheses
        same = next((named for original, named in originals if original.tree.unnest() == tree), None)
        return typed if same is None else column(same.name, same.expression.type)

    return moved, resolve_moved, Key(columns, "partitioning expression")


def _null_in_null_rows(typed: Typed) -> Typed:
    """A pseudo column as a key is NULL in a row without a value."""
    if typed.column in ROW:
        tree = exp.Case(
            ifs=[exp.If(this=exp.Column(this=exp.to_identifier("_null")), true=exp.Null())], default=typed.tree.copy()
        )
        return Typed(tree, typed.type, total=True)
    return typed


def _key_expressions(nodes: Sequence[exp.Expression], scope: Scope, clause: str) -> list[tuple[exp.Expression, Typed]]:
    """The expressions of GROUP BY or PARTITION BY; each may occur only once."""
    found: list[tuple[exp.Expression, Typed]] = []
    for node in nodes:
        typed = compile_expression(node, scope.within(clause))
        if any(other.tree == typed.tree for _, other in found):
            raise InvalidStatement(f"Duplicate {clause} expression: {print_expression(node)}", span=span_of(node))
        found.append((node, typed))
    return found


def _not_grouped(listed: Sequence[Item]) -> str:
    """ksqlDB's message about columns beside an aggregate function."""
    if not listed:
        return ""
    columns = ", ".join(print_expression(item.expression) for item in listed)
    return (
        f"\nNon-aggregate SELECT expression(s) not part of GROUP BY: {columns}\n"
        "Either add the column(s) to the GROUP BY or remove them from the SELECT."
    )


def _group_by_hint(listed: Sequence[Item]) -> str | None:
    """A hint with the missing GROUP BY, if it is obvious."""
    columns = [print_expression(item.expression) for item in listed]
    return f"Add GROUP BY {', '.join(columns)}." if columns else None


def _grouped(
    query: Query,
    items: list[Item],
    plan: LogicalPlan,
    relation: PlannedRelation,
    target: Target,
    context: PlanningContext,
) -> tuple[LogicalPlan, Resolve, Key]:
    listed = [i for i in items if not contains_aggregate(i.expression)]
    grouping_nodes: Sequence[exp.Expression] = query.group_by
    for_client = target == "CLIENT" and query.emit == "CHANGES"
    if not grouping_nodes and not listed and (for_client or (target == "SUBQUERY" and context.answered_once)):
        grouping_nodes = [exp.Literal.number(0)]  # everything is aggregated into one row
    if not grouping_nodes:
        function = next(filter(None, (contains_aggregate(item.expression) for item in items)), None)
        raise InvalidStatement(
            f"Use of aggregate function {function} requires a GROUP BY clause.{_not_grouped(listed)}",
            span=query.span,
            hint=_group_by_hint(listed),
        )
    for item in items:
        if table_calls(item.expression):
            raise InvalidStatement("Table functions cannot be used with aggregations.", span=item.span)
    for node in grouping_nodes:
        if function := contains_aggregate(node):
            raise InvalidStatement(
                f"GROUP BY does not support aggregate functions: {function} is an aggregate function.",
                span=span_of(node),
            )
    scope = relation.scope
    written = _key_expressions(grouping_nodes, scope, "GROUP BY")
    keyed = _group_input(plan, written)
    grouping = Grouping(
        expressions=tuple(
            (typed.tree, column(c.name, c.type)) for (_, typed), c in zip(written, keyed.schema.key, strict=True)
        ),
        scope=scope,
    )
    state_format = relation.sources[0][1].value_format.name
    ranked = query.distinct or query.qualify is not None or any(contains_over(item.expression) for item in items)
    as_batch = relation.beyond or target == "SUBQUERY" or plan.key_window is not None or ranked
    result, resolve = aggregate(
        keyed,
        grouping,
        query,
        [item.expression for item in items],
        _qualify(query, items, relation),
        state_format,
        as_standard=relation.beyond,
        as_batch=as_batch,
        lossy=context.settings.lossy_final,
    )
    columns = tuple(
        KeyColumn(c.name, print_expression(node), column(c.name, c.type))
        for c, (node, _) in zip(keyed.schema.key, written, strict=True)
    )
    return result, resolve, Key(columns, "grouping expression")


def _group_input(plan: LogicalPlan, written: Sequence[tuple[exp.Expression, Typed]]) -> LogicalPlan:
    """The rows under the grouping key; they are repartitioned only if it is not their current key."""
    names = tuple(c.name for c in plan.schema.key)
    in_place = plan.kind == "STREAM" and plan.key_window is None and not plan.scattered
    if in_place and tuple(typed.column for _, typed in written) == names:
        return plan
    key = tuple(Named(f"#key{i}", typed) for i, (_, typed) in enumerate(written))
    return Repartition(with_key_as_value(plan), key, drop_null_key=True)
