"""Joins on several columns, and joins on columns that are no key of either side. ksqlDB has neither.

Several equalities form one key of several columns; `joins.py` has the other joins. If that is neither a key of a table
nor a join of two streams, the join stores the rows of both sides under it, and every change of either side emits
changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from millstream.errors import InvalidStatement, TypeMismatch, Unsupported

from ...sql import ast
from ...sql.ast import span_of
from ...sql.printing import print_expression
from ...sql.types import BOOLEAN
from ..expressions.compilation import compile_expression
from ..expressions.scope import Scope
from ..expressions.typed import column
from ..logical import LogicalPlan, Named
from ..planning import PlanningContext
from ..steps.filter import LogicalFilter
from ..steps.project import LogicalProject
from ..steps.row_join import LogicalRowJoin
from ..steps.stream_stream_join import UNBOUNDED_MS, LogicalStreamStreamJoin
from ..steps.stream_table_join import LogicalStreamTableJoin
from ..steps.table_table_join import LogicalTableTableJoin
from .join_conditions import JoinCondition
from .moving import moved_under, partitions_of, same_columns, with_null_keys
from .origin import keeps_place
from .relation import Partitioning, PlannedRelation


def composite_join(
    join: ast.Join,
    left: PlannedRelation,
    right: PlannedRelation,
    conditions: Sequence[JoinCondition],
    context: PlanningContext,
) -> PlannedRelation:
    """The relation `left JOIN right` on several equalities. Raises `InvalidStatement`, `Unsupported`."""
    for condition in conditions:
        condition.check_types()
    kinds = (left.plan.kind, right.plan.kind)
    windowed = left.plan.key_window is not None or right.plan.key_window is not None
    if kinds == ("STREAM", "STREAM"):
        if windowed:
            raise Unsupported(
                "windowed streams are joined by their whole keys", span=join.span, hint="Write ON with one equality."
            )
        return _streams(join, left, right, conditions, context)
    _refuse_within(join, kinds)
    by_right = _is_whole_key(right, [c.right.column for c in conditions])
    by_left = _is_whole_key(left, [c.left.column for c in conditions])
    if not windowed and kinds == ("STREAM", "TABLE") and by_right and keeps_place(right.plan):
        return _stream_with_table(join, left, right, conditions, context)
    if not windowed and kinds == ("TABLE", "TABLE") and by_left and by_right:
        return _tables(join, left, right, conditions, context)
    return row_join(join, left, right, conditions, context)


def _refuse_within(join: ast.Join, kinds: tuple[str, str]) -> None:
    if join.within is not None:
        spoken = "-".join(kind.title() for kind in kinds)
        raise InvalidStatement(
            f"A window definition was provided for a {spoken} join. These joins are not windowed. "
            "Please drop the window definition (ie. the WITHIN clause) and try to execute your query again.",
            span=join.within.span,
        )


def times_of(join: ast.Join) -> tuple[int, int, int | None]:
    """How far apart the rows of two streams may be: before, after, and the grace. Raises `InvalidStatement`."""
    within = join.within
    if within is None:
        raise InvalidStatement(
            "Stream-Stream joins must have a WITHIN clause specified. None was provided.",
            span=join.span,
            hint="Say how far apart the rows may be: JOIN … WITHIN 1 HOUR ON …; WITHIN UNBOUNDED keeps all rows of "
            "both sides for good.",
        )
    if not within.unbounded:
        return within.before_ms, within.after_ms, within.grace_ms
    if join.kind != "INNER":
        raise Unsupported(
            f"WITHIN UNBOUNDED is for inner joins: in a {join.kind} join a row could find its partner at any time",
            span=within.span,
            hint="Give a time within which a partner has to come, such as WITHIN 1 DAY.",
        )
    return UNBOUNDED_MS, UNBOUNDED_MS, None


def filtered(relation: PlannedRelation, join: ast.Join, conditions: Sequence[exp.Expression]) -> PlannedRelation:
    """The joined pairs for which the other conditions of ON are true."""
    if not conditions:
        return relation
    if join.kind != "INNER":
        raise Unsupported(
            f"a {join.kind} join takes equalities only, and {print_expression(conditions[0])} is none",
            span=span_of(conditions[0]),
            hint="Filter the side it is about in a subquery: JOIN (SELECT … WHERE …) q ON …; or make it an INNER JOIN.",
        )
    plan = relation.plan
    for node in conditions:
        predicate = compile_expression(node, relation.scope.within("JOIN ON"))
        if predicate.type != BOOLEAN:
            raise TypeMismatch(
                f"ON takes conditions, and {print_expression(node)} is a {predicate.type}", span=span_of(node)
            )
        plan = LogicalFilter(plan, predicate)
    return replace(relation, plan=plan)


# ------------------------------------------------------------------ keys of several columns


def _streams(
    join: ast.Join,
    left: PlannedRelation,
    right: PlannedRelation,
    conditions: Sequence[JoinCondition],
    context: PlanningContext,
) -> PlannedRelation:
    before_ms, after_ms, grace_ms = times_of(join)
    names = _key_names(join, conditions)
    target = Partitioning(partitions_of(left))
    mine = moved_under(left, [c.left for c in conditions], names, target)
    theirs = moved_under(right, [c.right for c in conditions], names, target)
    plan = LogicalStreamStreamJoin(mine, theirs, join.kind, before_ms, after_ms, grace_ms)
    identity = (*left.identity, *right.identity) if left.identity and right.identity else ()
    return _joined(plan, left, right, context, _equals(join, names, conditions), identity)


def _stream_with_table(
    join: ast.Join,
    left: PlannedRelation,
    right: PlannedRelation,
    conditions: Sequence[JoinCondition],
    context: PlanningContext,
) -> PlannedRelation:
    if join.kind not in ("INNER", "LEFT"):
        raise Unsupported(f"a stream is joined to a table by INNER or LEFT, not {join.kind}", span=join.span)
    ordered = _in_order_of(right, conditions)
    names = [c.left.column or f"#join{i}" for i, c in enumerate(ordered)]
    if len(set(names)) < len(names):
        names = [f"#join{i}" for i in range(len(ordered))]
    target = Partitioning(partitions_of(left))
    mine = moved_under(left, [c.left for c in ordered], names, target)
    own = [c.name for c in right.plan.schema.key]
    theirs = moved_under(right, [c.right for c in ordered], own, target)
    plan = LogicalStreamTableJoin(mine, theirs, "LEFT" if join.kind == "LEFT" else "INNER")
    return _joined(plan, left, right, context, _equals(join, names, ordered), left.identity)


def _tables(
    join: ast.Join,
    left: PlannedRelation,
    right: PlannedRelation,
    conditions: Sequence[JoinCondition],
    context: PlanningContext,
) -> PlannedRelation:
    names = _key_names(join, conditions)
    target = Partitioning(partitions_of(left))
    mine = moved_under(left, [c.left for c in conditions], names, target)
    theirs = moved_under(right, [c.right for c in conditions], names, target)
    plan = LogicalTableTableJoin(mine, theirs, join.kind)
    return _joined(plan, left, right, context, _equals(join, names, conditions), tuple(names))


def _is_whole_key(relation: PlannedRelation, columns: Sequence[str | None]) -> bool:
    """Whether these are the columns of a table's key, each once."""
    names = [c.name for c in relation.plan.schema.key]
    return relation.plan.kind == "TABLE" and len(columns) == len(names) and set(columns) == set(names)


def _in_order_of(table: PlannedRelation, conditions: Sequence[JoinCondition]) -> list[JoinCondition]:
    by_name = {c.right.column: c for c in conditions}
    return [by_name[c.name] for c in table.plan.schema.key]


def _key_names(join: ast.Join, conditions: Sequence[JoinCondition]) -> list[str]:
    """The names of the result's key columns. Each gets the name of an equal column, but not one of a side that may be
    padded with NULL."""
    names: list[str] = []
    for i, condition in enumerate(conditions):
        sides = [condition.left.column] if join.kind in ("INNER", "LEFT") else []
        sides += [condition.right.column] if join.kind in ("INNER", "RIGHT") else []
        names.append(next((name for name in sides if name is not None and name not in names), f"#join{i}"))
    return names


def _equals(join: ast.Join, names: Sequence[str], conditions: Sequence[JoinCondition]) -> tuple[tuple[str, ...], ...]:
    """For each key column the other columns with the same value."""
    found: list[tuple[str, ...]] = []
    for name, condition in zip(names, conditions, strict=True):
        sides = [condition.left.column] if join.kind in ("INNER", "LEFT") else []
        sides += [condition.right.column] if join.kind in ("INNER", "RIGHT") else []
        found.append(tuple(side for side in sides if side is not None and side != name))
    return tuple(found)


# ------------------------------------------------------------------ rows kept on both sides


def row_join(
    join: ast.Join,
    left: PlannedRelation,
    right: PlannedRelation,
    conditions: Sequence[JoinCondition],
    context: PlanningContext,
) -> PlannedRelation:
    """A table of pairs of rows that match the conditions; its key consists of the keys of both sides. A LEFT join also
    emits rows without a partner. There a row may have at most one partner, or the key would not be unique."""
    one_partner = set(right.identity) <= {c.right.column for c in conditions}
    if join.kind not in ("INNER", "LEFT") or (join.kind == "LEFT" and not one_partner):
        raise Unsupported(
            f"a {join.kind} join needs the key of {'the right' if join.kind == 'LEFT' else 'each'} side in ON",
            span=join.span,
            hint="Make it an INNER JOIN, or join by the keys.",
        )
    for condition in conditions:
        condition.check_types()
    for relation in (left, right):
        if not relation.identity:
            raise Unsupported(
                f"nothing tells the rows of {relation.sources[0][0]} apart, so that this join could take them back",
                span=join.span,
                hint="Write them into a stream first with CREATE STREAM … AS SELECT, and join that.",
            )
    names = [f"#join{i}" for i in range(len(conditions))]
    target = Partitioning(partitions_of(left))
    mine = moved_under(left, [c.left for c in conditions], names, target)
    theirs = moved_under(right, [c.right for c in conditions], names, target)
    if join.kind == "LEFT":
        mine = with_null_keys(mine)
    plan = LogicalRowJoin(mine, theirs, join.kind, left.identity, right.identity)
    key = _pair_key(left, right, conditions)
    columns = {c.name: c for c in plan.schema.value}
    keyed = LogicalProject(
        plan,
        same_columns(c for c in plan.schema.value if c.name not in key),
        tuple(Named(name, column(name, columns[name].type)) for name in key),
    )
    equal = {c.left.column: c.right.column for c in conditions} | {c.right.column: c.left.column for c in conditions}
    equal = equal if join.kind == "INNER" else {}
    same = tuple((other,) if (other := equal.get(name)) is not None else () for name in key)
    return _joined(keyed, left, right, context, same, key)


def _pair_key(left: PlannedRelation, right: PlannedRelation, conditions: Sequence[JoinCondition]) -> tuple[str, ...]:
    """The columns that identify a pair. If all identifying columns of one side equal columns of the other side, those
    of the other side are enough."""
    if set(right.identity) <= {c.right.column for c in conditions}:
        return left.identity
    if set(left.identity) <= {c.left.column for c in conditions}:
        return right.identity
    equal = {c.right.column for c in conditions if c.left.column in left.identity}
    return (*left.identity, *(name for name in right.identity if name not in equal))


def _joined(
    plan: LogicalPlan,
    left: PlannedRelation,
    right: PlannedRelation,
    context: PlanningContext,
    same_as_key: tuple[tuple[str, ...], ...],
    identity: tuple[str, ...],
) -> PlannedRelation:
    sources = tuple(source for source in (*left.scope.sources, *right.scope.sources) if source.alias)
    return PlannedRelation(
        plan,
        Scope(sources, context.catalog.types),
        (*left.sources, *right.sources),
        reads=(*left.reads, *right.reads),
        beyond=True,
        same_as_key=same_as_key,
        identity=identity,
    )
