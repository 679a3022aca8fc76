"""From a parsed query to a `LogicalPlan`: what FROM, WHERE, PARTITION BY, GROUP BY, HAVING and SELECT mean.

The order of work is that of the data: sources, filter, table functions, new key, aggregates, filter, projection.
How single sources and joins become a relation is in `relations.py`, how names of columns come about in `naming.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

from millstream.errors import InvalidStatement, Span, TypeMismatch

from ..sql.ast import Query, SelectColumn, SelectStar, SelectStructStar, span_of, unwrapped
from ..sql.functions.catalog import FUNCTIONS, find_function
from ..sql.printing import print_expression
from ..sql.types import BOOLEAN, NULL, Struct
from .aggregation import Grouping, aggregate, contains_aggregate
from .expressions import compile_call, compile_expression
from .logical import Explode, Filter, LogicalPlan, Named, Project, Repartition
from .naming import AliasGenerator
from .planning import PlanningContext
from .relation import JoinKey, Relation
from .relations import relation_of
from .scope import Scope, ScopeSource
from .typed import Typed, column

Target = Literal["STREAM", "TABLE", "INSERT", "CLIENT"]


@dataclass(frozen=True, slots=True)
class Item:
    """A selected column: its name, the expression, and where it stands."""

    name: str
    expression: exp.Expression
    aliased: bool
    span: Span | None


@dataclass(frozen=True, slots=True)
class Analyzed:
    """The plan of a query; `order` names the columns as the SELECT list has them (for clients)."""

    plan: LogicalPlan
    order: tuple[str, ...]
    sources: tuple[str, ...]
    relation: Relation


def analyze(query: Query, context: PlanningContext, *, target: Target, target_name: str = "") -> Analyzed:
    """The logical plan of `query`.

    `target`: what becomes of the rows: a new stream or table, rows for an existing source (INSERT), or an answer to
    a client, which needs no key and may show pseudo columns. Raises `StatementError`s of all kinds.
    """
    relation = relation_of(query, context)
    scope = relation.scope
    plan = relation.plan
    _check_clauses(query, plan, target)
    _check_kafka_values(query, relation)
    if query.where is not None:
        plan = Filter(plan, _predicate(query.where, scope, "WHERE"))
    items = _expand(query, relation, target)
    grouped = bool(query.group_by) or any(contains_aggregate(item.expression) for item in items)
    if grouped:
        plan, resolve, key = _grouped(query, items, plan, relation, target)
    else:
        plan, items, scope = _explode(items, plan, scope)
        plan, resolve, key = _partitioned(query, plan, scope, relation)
    final = _project(plan, items, resolve, key, target, target_name, query, context)
    return Analyzed(final.plan, final.order, relation.names, relation)


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
        )
    if query.partition_by and query.group_by:
        raise InvalidStatement("PARTITION BY and GROUP BY cannot stand in one query.", span=query.span)
    if query.partition_by and plan.kind == "TABLE":
        raise InvalidStatement("PARTITION BY is not supported on tables.", span=query.span)
    if query.having is not None and not query.group_by:
        raise InvalidStatement("HAVING requires a GROUP BY clause.", span=span_of(query.having))
    if query.emit == "FINAL" and (query.window is None or not query.group_by):
        raise InvalidStatement("EMIT FINAL is only supported for windowed aggregations.", span=query.span)
    if query.limit is not None and target != "CLIENT":
        what = "INSERT INTO" if target == "INSERT" else f"CREATE {target} AS SELECT"
        raise InvalidStatement(f"{what} statements don't support LIMIT clause.", span=query.span)


def _check_kafka_values(query: Query, relation: Relation) -> None:
    """As in ksqlDB: values in Kafka's own format do not travel through repartition topics, nor into state."""
    what = "JOIN" if len(relation.sources) > 1 else "GROUP BY" if query.group_by else None
    found = sorted(source.name for _, source in relation.sources if source.value_format.name == "KAFKA")
    if what is not None and found:
        raise InvalidStatement(
            f"Source(s) {', '.join(found)} are using the 'KAFKA' value format. This format does not yet support "
            f"{what}.",
            span=query.span,
            hint="Copy it with CREATE STREAM … WITH (VALUE_FORMAT='JSON') AS SELECT first.",
        )


def _predicate(node: exp.Expression, scope: Scope, clause: str) -> Typed:
    if clause == "WHERE" and (found := contains_aggregate(node)):
        raise InvalidStatement(f"{clause} cannot hold aggregates such as {found}; use HAVING", span=span_of(node))
    predicate = compile_expression(node, scope.within(clause))
    if predicate.type not in (BOOLEAN, NULL):
        raise TypeMismatch(
            f"Type error in {clause} expression: Should evaluate to boolean but is {print_expression(node)} "
            f"({predicate.type}) instead.",
            span=span_of(node),
        )
    return predicate


# ------------------------------------------------------------------ SELECT


def _expand(query: Query, relation: Relation, target: Target) -> list[Item]:
    """The selected columns with their names: stars unfolded, aliases made."""
    aliases = AliasGenerator(relation.column_names)
    items: list[Item] = []
    for selected in query.items:
        match selected:
            case SelectStar():
                items += [
                    Item(name, node, False, selected.span)
                    for name, node in relation.star(selected.source, query, selected.span, client=target == "CLIENT")
                ]
            case SelectStructStar():
                items += _struct_fields(selected, relation.scope)
            case SelectColumn():
                items.append(_item(selected, relation, aliases, target))
    return items


def _item(selected: SelectColumn, relation: Relation, aliases: AliasGenerator, target: Target) -> Item:
    node = selected.expression
    if selected.alias is not None:
        if selected.alias in relation.reserved:
            raise InvalidStatement(
                f"`{selected.alias}` is a reserved column name. You cannot use it as an alias for a column.",
                span=selected.span,
            )
        return Item(selected.alias, node, True, selected.span)
    inner = unwrapped(node)
    if isinstance(inner, exp.Column):
        if relation.is_reserved(inner) and target != "CLIENT":
            raise InvalidStatement(
                f"Reserved column name in select: `{inner.name}`. Please remove or alias the column.",
                span=selected.span,
            )
        return Item(relation.output_name(inner), node, False, selected.span)
    if isinstance(inner, exp.Dot):
        return Item(aliases.field(inner.expression.name), node, False, selected.span)
    return Item(aliases.next(), node, False, selected.span)


def _struct_fields(selected: SelectStructStar, scope: Scope) -> list[Item]:
    value = compile_expression(selected.expression, scope)
    if not isinstance(value.type, Struct):
        raise TypeMismatch(
            f"Cannot unfold {print_expression(selected.expression)} with ->*: it is a {value.type}, not a STRUCT",
            span=selected.span,
        )
    return [
        Item(
            field.name,
            exp.Dot(this=selected.expression.copy(), expression=exp.Identifier(this=field.name, quoted=True)),
            False,
            selected.span,
        )
        for field in value.type.fields
    ]


def _explode(items: list[Item], plan: LogicalPlan, scope: Scope) -> tuple[LogicalPlan, list[Item], Scope]:
    """Table functions in the SELECT list become one Explode; the items then read its columns."""
    arrays: list[Named] = []
    replaced: list[Item] = []
    for item in items:
        root = exp.Paren(this=item.expression.copy())
        for node in _table_calls(root.this):
            name = f"#element{len(arrays)}"
            arrays.append(Named(name, compile_call(find_function(node.name, span_of(node)), node, scope)))
            node.replace(exp.Column(this=exp.Identifier(this=name, quoted=True)))
        replaced.append(replace(item, expression=root.this))
    if not arrays:
        return plan, items, scope
    elements = ScopeSource("#elements", {named.name: (named.name, named.expression.type) for named in arrays})
    return Explode(plan, tuple(arrays)), replaced, replace(scope, sources=(*scope.sources, elements))


def _table_calls(node: exp.Expression) -> list[exp.Anonymous]:
    """The calls of table functions in an expression, the outermost ones."""
    if isinstance(node, exp.Anonymous) and (entry := FUNCTIONS.get(node.name)) and entry.kind == "table":
        return [node]
    return [call for child in node.iter_expressions() for call in _table_calls(child)]


# ------------------------------------------------------------------ keys

Resolve = Callable[[exp.Expression], Typed]


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column of the relation that is projected: its name in the plan, and how messages call it."""

    name: str
    written: str
    typed: Typed


@dataclass(frozen=True, slots=True)
class Key:
    """`what`: key column, partitioning expression, grouping expression (for messages). `join`: which columns the key
    of a join can be selected by."""

    columns: tuple[KeyColumn, ...]
    what: str
    join: JoinKey | None = None


def _partitioned(query: Query, plan: LogicalPlan, scope: Scope, relation: Relation) -> tuple[LogicalPlan, Resolve, Key]:
    def resolve(node: exp.Expression) -> Typed:
        return compile_expression(node, scope)

    if not query.partition_by:
        columns = tuple(KeyColumn(c.name, c.name, column(c.name, c.type)) for c in plan.schema.key)
        return plan, resolve, Key(columns, "key column", relation.join_key)
    written = _key_expressions(query.partition_by, scope, "PARTITION BY")
    if any(contains_aggregate(node) for node, _ in written):
        raise InvalidStatement("PARTITION BY does not support aggregate functions.", span=query.span)
    if len(written) == 1 and written[0][1].type == NULL:
        return Repartition(with_key_as_value(plan), ()), resolve, Key((), "partitioning expression")
    key = tuple(Named(f"#key{i}", _null_in_null_rows(typed)) for i, (_, typed) in enumerate(written))
    moved = Repartition(with_key_as_value(plan), key)
    columns = tuple(
        KeyColumn(named.name, print_expression(node), column(named.name, named.expression.type))
        for named, (node, _) in zip(key, written, strict=True)
    )
    originals = [(typed, named) for named, (_, typed) in zip(key, written, strict=True)]

    def resolve_moved(node: exp.Expression) -> Typed:
        typed = resolve(node)
        tree = typed.tree.unnest()  # parentheses make no difference
        same = next((named for original, named in originals if original.tree.unnest() == tree), None)
        return typed if same is None else column(same.name, same.expression.type)

    return moved, resolve_moved, Key(columns, "partitioning expression")


def _null_in_null_rows(typed: Typed) -> Typed:
    """A row without value has no pseudo columns to be keyed by either."""
    if typed.column in ("ROWTIME", "ROWPARTITION", "ROWOFFSET"):
        tree = exp.Case(
            ifs=[exp.If(this=exp.Column(this=exp.to_identifier("_null")), true=exp.Null())], default=typed.tree.copy()
        )
        return Typed(tree, typed.type, total=True)
    return typed


def _key_expressions(nodes: Sequence[exp.Expression], scope: Scope, clause: str) -> list[tuple[exp.Expression, Typed]]:
    """The expressions of GROUP BY or PARTITION BY; each may stand there once."""
    found: list[tuple[exp.Expression, Typed]] = []
    for node in nodes:
        typed = compile_expression(node, scope.within(clause))
        if any(other.tree == typed.tree for _, other in found):
            raise InvalidStatement(f"Duplicate {clause} expression: {print_expression(node)}", span=span_of(node))
        found.append((node, typed))
    return found


def with_key_as_value(plan: LogicalPlan) -> LogicalPlan:
    """The same rows, with the key columns also as value columns, so that a new key does not lose them."""
    values = (*plan.schema.value, *plan.schema.key)
    key = tuple(Named(f"#old{i}", column(c.name, c.type)) for i, c in enumerate(plan.schema.key))
    return Project(plan, tuple(Named(c.name, column(c.name, c.type)) for c in values), key)


def _grouped(
    query: Query, items: list[Item], plan: LogicalPlan, relation: Relation, target: Target
) -> tuple[LogicalPlan, Resolve, Key]:
    listed = [i for i in items if not contains_aggregate(i.expression)]
    grouping_nodes: Sequence[exp.Expression] = query.group_by
    if not grouping_nodes and target == "CLIENT" and query.emit == "CHANGES" and not listed:
        grouping_nodes = [exp.Literal.number(0)]  # a push query may fold everything into one row
    if not grouping_nodes:
        extra = f": {', '.join(print_expression(i.expression) for i in listed)}" if listed else ""
        raise InvalidStatement(
            "Use of aggregate functions requires a GROUP BY clause. "
            f"Non-aggregate SELECT expression(s) not part of GROUP BY{extra}.",
            span=query.span,
        )
    for item in items:
        if _table_calls(item.expression):
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
    result, resolve = aggregate(keyed, grouping, query, [item.expression for item in items], state_format)
    columns = tuple(
        KeyColumn(c.name, print_expression(node), column(c.name, c.type))
        for c, (node, _) in zip(keyed.schema.key, written, strict=True)
    )
    return result, resolve, Key(columns, "grouping expression")


def _group_input(plan: LogicalPlan, written: Sequence[tuple[exp.Expression, Typed]]) -> LogicalPlan:
    """The rows under the grouping key; they move only where it is not the key they have."""
    names = tuple(c.name for c in plan.schema.key)
    if plan.kind == "STREAM" and tuple(typed.column for _, typed in written) == names and plan.key_window is None:
        return plan
    key = tuple(Named(f"#key{i}", typed) for i, (_, typed) in enumerate(written))
    return Repartition(with_key_as_value(plan), key, drop_null_key=True)


# ------------------------------------------------------------------ the projection


@dataclass(frozen=True, slots=True)
class _Final:
    plan: LogicalPlan
    order: tuple[str, ...]


def _project(
    plan: LogicalPlan, items: Sequence[Item], resolve: Resolve, key: Key, target: Target, target_name: str,
    query: Query, context: PlanningContext,
) -> _Final:  # fmt: skip
    typed = [(item, resolve(item.expression)) for item in items]
    for item, expression in typed:
        if expression.type == NULL:
            raise InvalidStatement(
                "Can't infer a type of null. Please explicitly cast it to a required type, e.g. CAST(null AS VARCHAR).",
                span=item.span,
            )
    if target == "CLIENT":
        values = _unique(tuple(Named(item.name, expression) for item, expression in typed))
        return _Final(Project(plan, values), tuple(named.name for named in values))
    keys, values = _split(typed, key, target_name, context, query)
    _check_names(keys, values)
    if not values:
        raise InvalidStatement("The projection contains no value columns.", span=query.span)
    return _Final(Project(plan, values, keys), tuple(item.name for item in items))


def _split(
    typed: Sequence[tuple[Item, Typed]], key: Key, target_name: str, context: PlanningContext, query: Query
) -> tuple[tuple[Named, ...], tuple[Named, ...]]:
    """Key and value columns of the result: an item that is just a key column is that key's name."""
    taken: dict[int, list[Item]] = {i: [] for i in range(len(key.columns))}
    values: list[Named] = []
    names = {expression.column for _, expression in typed}
    for item, expression in typed:
        position = _position(expression, key, names)
        if position is None:
            values.append(Named(item.name, expression))
        else:
            taken[position].append(item)
    for chosen in taken.values():
        if len(chosen) > 1:
            listed = " and ".join(f"`{item.name}`" for item in chosen)
            raise InvalidStatement(
                f"The projection contains a key column more than once: {listed}.", span=chosen[1].span
            )
    missing = [column_ for i, column_ in enumerate(key.columns) if not taken[i]]
    if (
        missing
        and key.what == "key column"
        and context.properties.get("ksql.new.query.planner.enabled", "").lower() == "true"
    ):
        return (), tuple(values)
    if missing and key.join is not None:
        absent = [column_.name for column_ in missing]
        raise InvalidStatement(key.join.missing_message(target_name, absent), span=query.span)
    if missing:
        listed = [c.written for c in (missing if key.what != "key column" else key.columns)]
        what = key.what + ("s" if len(listed) > 1 else "")
        joined = listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
        raise InvalidStatement(
            f"The query used to build `{target_name}` must include the {what} {joined} in its projection "
            f"(eg, SELECT {', '.join(listed)}...).",
            span=query.span,
        )
    return tuple(Named(taken[i][0].name, c.typed) for i, c in enumerate(key.columns)), tuple(values)


def _position(expression: Typed, key: Key, selected: set[str | None]) -> int | None:
    """Which key column the expression is; of the columns that hold a join's key it is the first that is selected."""
    name = expression.column
    if key.join is not None and not key.join.foreign:
        chosen = next((viable for viable, _ in key.join.viable if viable in selected), None)
        return 0 if name is not None and name == chosen else None
    return next((i for i, c in enumerate(key.columns) if c.name == name), None)


def _check_names(keys: Sequence[Named], values: Sequence[Named]) -> None:
    seen: dict[str, Named] = {}
    for named in (*keys, *values):
        if named.name in seen:
            raise InvalidStatement(
                f"Duplicate value columns found in schema: `{named.name}` {named.expression.type}",
                hint="Give one of them another name with AS.",
            )
        seen[named.name] = named


def _unique(values: tuple[Named, ...]) -> tuple[Named, ...]:
    """Different names for clients too: a repeated one gets a number."""
    seen: set[str] = set()
    result: list[Named] = []
    for named in values:
        name, n = named.name, 0
        while name in seen:
            n += 1
            name = f"{named.name}_{n}"
        seen.add(name)
        result.append(Named(name, named.expression))
    return tuple(result)
