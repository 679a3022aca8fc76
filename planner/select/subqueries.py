"""Queries in FROM: a subquery, a query of WITH, the branches of UNION ALL. Each is planned into its reader's plan."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import InvalidStatement, Unsupported

from ...sql import ast
from ...sql.ast import Query
from ...sql.coercion import can_coerce
from ...sql.types import SqlType
from ..expressions.conversions import coerced
from ..expressions.typed import column
from ..logical import LogicalPlan, Named
from ..planning import PlanningContext
from ..schema import Column, Schema
from ..source_info import SourceInfo
from ..steps.filter import LogicalFilter
from ..steps.project import LogicalProject
from ..steps.union import LogicalUnion
from .naming import is_answer
from .origin import Origin, Plan, keeps_place, lies_as_read, place_of
from .relation import ROW, Analyzed, PlannedRelation

_HIDDEN = "#"  # no user's column begins with it


def hidden(name: str) -> str:
    """The name of a key column that a subquery does not select, but that its rows need."""
    return _HIDDEN + name


def is_hidden(name: str) -> bool:
    return name.startswith(_HIDDEN) and not is_answer(name)


def with_ctes(query: Query, context: PlanningContext) -> PlanningContext:
    """The context in which the sources of `query` are looked up: each query of WITH sees those before it."""
    for cte in query.ctes:
        context = replace(context, ctes={**context.ctes, cte.name: (cte.query, context)})
    return context


def query_origin(query: Query, alias: str, context: PlanningContext, plan: Plan) -> Origin:
    """The rows of a query, as a source named `alias`."""
    analyzed = plan(query, context)
    rows = analyzed.plan
    visible = [c for c in rows.schema if not is_hidden(c.name)]
    order = {name: i for i, name in enumerate(analyzed.order)}
    schema = Schema(tuple(sorted(visible, key=lambda c: order.get(c.name, len(order)))))
    pseudo = ROW if keeps_place(rows) else ROW[:1]
    identity = place_of(rows) or _selected_identity(rows, analyzed.relation)
    return Origin(
        _described(alias, rows, schema, analyzed), rows, pseudo, lies_as_read(rows), analyzed.sources, identity
    )


def _selected_identity(rows: LogicalPlan, relation: PlannedRelation) -> tuple[str, ...]:
    """The columns with the identity of the relation's rows; empty if the query does not select all of it."""
    names = {name: name for name in relation.identity}
    projections: list[LogicalProject] = []
    while rows is not relation.plan and isinstance(rows, LogicalFilter | LogicalProject):
        projections += [rows] if isinstance(rows, LogicalProject) else []
        rows = rows.input
    for projection in reversed(projections):
        given = {n.expression.column: n.name for n in (*projection.values, *(projection.key or ()))}
        names = {own: given[name] for own, name in names.items() if name in given}
    return tuple(names.values()) if rows is relation.plan and len(names) == len(relation.identity) else ()


def _described(alias: str, rows: LogicalPlan, schema: Schema, analyzed: Analyzed) -> SourceInfo:
    """A description as in the catalog. Properties that do not follow from the rows are those of the first source."""
    first = analyzed.relation.sources[0][1]
    return SourceInfo(
        name=alias,
        kind=rows.kind,
        topic="",
        schema=schema,
        key_format=first.key_format,
        value_format=first.value_format,
        key_window=rows.key_window,
        partition_count=first.partition_count,
    )


# ------------------------------------------------------------------ UNION ALL


def union_origin(union: ast.Subquery, context: PlanningContext, plan: Plan) -> Origin:
    """The rows of all branches. Columns are matched by position, and named as in the first branch."""
    branches = [plan(query, context) for query in union.queries]
    for query, branch in zip(union.queries, branches, strict=True):
        if branch.plan.kind == "TABLE":
            raise Unsupported(
                "UNION ALL is about streams; this branch gives a table",
                span=query.span,
                hint="A table has one row per key, and rows of two tables with one key would replace each other. "
                "Join the tables, or unite the streams that they are made of.",
            )
    columns = _columns(union, branches)
    keyed = [_key_places(branch) for branch in branches]
    key = keyed[0] if all(places == keyed[0] for places in keyed) else ()
    rows = _branch(branches[0], columns, key)
    for branch in branches[1:]:
        rows = LogicalUnion(rows, _branch(branch, columns, key))
    schema = Schema(tuple(replace(c, role="KEY" if i in key else "VALUE") for i, c in enumerate(columns)))
    reads = tuple(name for branch in branches for name in branch.sources)
    return Origin(_described(union.alias, rows, schema, branches[0]), rows, ROW[:1], None, reads, ())


def _selected(branch: Analyzed) -> list[Column]:
    """The columns of a branch in the order of its SELECT."""
    found = {c.name: c for c in branch.plan.schema if not is_hidden(c.name)}
    return [found[name] for name in branch.order]


def _key_places(branch: Analyzed) -> tuple[int, ...]:
    """The positions of the key among the selected columns; empty if a part of the key was not selected."""
    if any(is_hidden(c.name) for c in branch.plan.schema.key):
        return ()
    return tuple(i for i, c in enumerate(_selected(branch)) if c.role == "KEY")


def _columns(union: ast.Subquery, branches: list[Analyzed]) -> list[Column]:
    columns = _selected(branches[0])
    for query, branch in zip(union.queries[1:], branches[1:], strict=True):
        others = _selected(branch)
        if len(others) != len(columns):
            raise InvalidStatement(
                f"the branches of UNION ALL have different numbers of columns: {len(columns)} and {len(others)}",
                span=query.span,
                hint=f"The first branch selects {', '.join(c.name for c in columns)}.",
            )
        columns = [replace(mine, type=_common(mine, other, query)) for mine, other in zip(columns, others, strict=True)]
    return columns


def _common(mine: Column, other: Column, query: Query) -> SqlType:
    if can_coerce(other.type, mine.type):
        return mine.type
    if can_coerce(mine.type, other.type):
        return other.type
    raise InvalidStatement(
        f'the branches of UNION ALL disagree about column "{mine.name}": {mine.type} and {other.type}',
        span=query.span,
        hint="CAST one side.",
    )


def _branch(branch: Analyzed, columns: list[Column], key: tuple[int, ...]) -> LogicalPlan:
    named = [
        Named(target.name, coerced(column(own.name, own.type), target.type))
        for own, target in zip(_selected(branch), columns, strict=True)
    ]
    values = tuple(one for i, one in enumerate(named) if i not in key)
    return LogicalProject(branch.plan, values, tuple(named[i] for i in key))
