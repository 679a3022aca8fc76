"""The SELECT list: expands stars, names columns, and extracts table functions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.errors import InvalidStatement, Span, TypeMismatch

from ...sql.ast import Query, SelectColumn, SelectStar, SelectStructStar, span_of, unwrapped
from ...sql.functions.catalog import FUNCTIONS, find_function
from ...sql.printing import print_expression
from ...sql.types import Struct
from ..expressions.compilation import compile_call, compile_expression
from ..expressions.scope import Scope, ScopeSource
from ..logical import LogicalPlan, Named
from ..schema import PSEUDO
from ..steps.explode import LogicalExplode
from .naming import AliasGenerator, bare_name, is_answer
from .relation import PlannedRelation, Target


@dataclass(frozen=True, slots=True)
class Item:
    """A selected column: its name, its expression, and its span."""

    name: str
    expression: exp.Expression
    aliased: bool
    span: Span | None


def expand(query: Query, relation: PlannedRelation, target: Target) -> list[Item]:
    """The selected columns with their names: stars are expanded, and missing aliases are generated."""
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
    return _plainly_named(items) if target == "SUBQUERY" else items


def _plainly_named(items: list[Item]) -> list[Item]:
    """In a subquery a column of a join has its own name, as in standard SQL, if no other column has that name."""
    plain = [None if item.aliased else bare_name(item.expression) for item in items]
    names = Counter(name or item.name for name, item in zip(plain, items, strict=True))
    return [
        replace(item, name=name) if name is not None and names[name] == 1 and name not in PSEUDO else item
        for name, item in zip(plain, items, strict=True)
    ]


def _item(selected: SelectColumn, relation: PlannedRelation, aliases: AliasGenerator, target: Target) -> Item:
    node = selected.expression
    if selected.alias is not None:
        if selected.alias in relation.reserved:
            raise InvalidStatement(
                f"`{selected.alias}` is a reserved column name. You cannot use it as an alias for a column.",
                span=selected.span,
            )
        return Item(selected.alias, node, True, selected.span)
    inner = unwrapped(node)
    if isinstance(inner, exp.Column) and not is_answer(inner.name):
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


def explode(items: list[Item], plan: LogicalPlan, scope: Scope) -> tuple[LogicalPlan, list[Item], Scope]:
    """Table functions in the SELECT list become one LogicalExplode; the items then read its columns."""
    arrays: list[Named] = []
    replaced: list[Item] = []
    for item in items:
        root = exp.Paren(this=item.expression.copy())
        for node in table_calls(root.this):
            _check_table_call(node, plan)
            name = f"#element{len(arrays)}"
            arrays.append(Named(name, compile_call(find_function(node.name, span_of(node)), node, scope)))
            node.replace(exp.Column(this=exp.Identifier(this=name, quoted=True)))
        replaced.append(replace(item, expression=root.this))
    if not arrays:
        return plan, items, scope
    elements = ScopeSource("#elements", {named.name: (named.name, named.expression.type) for named in arrays})
    return LogicalExplode(plan, tuple(arrays)), replaced, replace(scope, sources=(*scope.sources, elements))


def _check_table_call(node: exp.Anonymous, plan: LogicalPlan) -> None:
    """Raises `InvalidStatement` if a row cannot become several rows: in CASE, in another call, and for a table, which
    has one row per key."""
    around = node.find_ancestor(exp.Case)
    if around is not None:
        raise InvalidStatement(
            f"Table functions cannot be used in CASE: {print_expression(around)}",
            span=span_of(node),
            hint=f"Write the CASE inside of {node.name}(…), with an array in each branch.",
        )
    inner = [call for argument in node.expressions for call in table_calls(argument)]
    if inner:
        raise InvalidStatement(
            f"Table functions cannot be nested: {node.name}({inner[0].name}())",
            span=span_of(inner[0]),
            hint="Unfold the inner arrays in a subquery, or in a stream of their own.",
        )
    if plan.kind == "TABLE":
        raise InvalidStatement(
            "Table source is not supported with table functions",
            span=span_of(node),
            hint="A table has one row for each key. Read its topic as a stream.",
        )


def table_calls(node: exp.Expression) -> list[exp.Anonymous]:
    """The calls of table functions in an expression, the outermost ones."""
    if isinstance(node, exp.Anonymous) and (entry := FUNCTIONS.get(node.name)) and entry.kind == "table":
        return [node]
    return [call for child in node.iter_expressions() for call in table_calls(child)]
