"""Recognizes a join of rows with the greatest or least value of their own group: its result is the rows of rank 1.

    SELECT … FROM n JOIN (SELECT g, MAX(x) AS top FROM n GROUP BY g) m ON n.g = m.g AND n.x = m.top

reads `n` twice, and pairs every row with the extreme of its group whenever one of them changes. RANK() = 1 over the
rows of each group, ordered by x, has the same rows as its result, and reads them once. Their time is that of the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from ...sql.functions.aggregation.aggregates import AGGREGATES
from ...sql.types import BIGINT, BOOLEAN, DOUBLE
from ..expressions.typed import Typed, column
from ..logical import LogicalPlan, Named
from ..schema import Column
from .aggregate import LogicalAggregate
from .filter import LogicalFilter
from .over_calls import LogicalOverCall, LogicalSortKey
from .project import LogicalProject
from .repartition import Repartition
from .top_rows import LogicalTopRows

_RANK = "#rank"


@dataclass(frozen=True, slots=True)
class _Extreme:
    """The right side of such a join: its group's key columns and its extreme, as expressions over the rows below.

    `columns`: for each column of the right side, the number of the key column that it is; None: it is the extreme.
    """

    rows: LogicalPlan
    keys: tuple[Typed, ...]
    value: Typed
    greatest: bool
    columns: dict[str, int | None]


def ranked_rows(
    left: LogicalPlan, right: LogicalPlan, left_key: Sequence[str], needed: frozenset[str]
) -> LogicalPlan | None:
    """The result of an inner join of these sides; None if it is not such a join.

    In: `left_key`: the columns that identify a left row. `needed`: the columns that are read; other columns of the
    right side may be NULL.
    """
    if "ROWTIME" in needed:  # the time of a pair is the later one of its rows
        return None
    if not isinstance(left, LogicalProject) or not isinstance(left.input, Repartition) or left.key is None:
        return None
    moved, extreme = left.input, _extreme_of(right, needed)
    if extreme is None:
        return None
    made = {named.name: named.expression for named in moved.key}
    by = [made.get(named.expression.column or "") for named in left.key]
    matched = [extreme.columns[c.name] for c in right.schema.key]
    groups = [key for key in matched if key is not None]
    if sorted(groups) != list(range(len(extreme.keys))) or len(groups) != len(matched) - 1 or not groups:
        return None
    rows, mine = _through_projects(moved.input, [typed for typed in by if typed is not None])
    theirs = [extreme.value if key is None else extreme.keys[key] for key in matched]
    same = len(mine) == len(theirs) and all(_is_same(one, other) for one, other in zip(mine, theirs, strict=True))
    if not same or rows.kind != "TABLE" or rows != extreme.rows:
        return None
    return _first_ranks(left, moved, extreme, right, [typed for typed in by if typed is not None], matched, left_key)


def _first_ranks(
    left: LogicalProject,
    moved: Repartition,
    extreme: _Extreme,
    right: LogicalPlan,
    by: Sequence[Typed],
    matched: Sequence[int | None],
    left_key: Sequence[str],
) -> LogicalPlan:
    """In: `by`: the left expressions of the join condition; `matched`: the columns on the right that they equal."""
    names = [c.name for c in left.schema.key]
    value = by[matched.index(None)]
    there: exp.Expression = exp.true()
    for number, typed in enumerate(by):
        condition = exp.Not(this=exp.Is(this=typed.tree.copy(), expression=exp.Null()))
        there = exp.And(this=there, expression=condition) if number else condition
    rows = LogicalFilter(moved.input, Typed(there, BOOLEAN, total=all(typed.total for typed in by)))
    keys = tuple(Named(name, typed) for name, typed, key in zip(names, by, matched, strict=True) if key is not None)
    grouped = replace(moved, input=rows, key=keys, keeps_window=False)
    order = LogicalSortKey(value, descending=extreme.greatest, nulls_first=False)
    call = LogicalOverCall(_RANK, "RANK", (), (order,), Column(_RANK, BIGINT))
    types = {c.name: c.type for c in left.schema}
    identity = tuple(column(name, types[name]) for name in left_key)
    top = LogicalTopRows(grouped, call, 1, numbered=False, identity=identity)
    held = [
        value if key is None else column(name, typed.type) for name, typed, key in zip(names, by, matched, strict=True)
    ]
    of_key = dict(zip(matched, held, strict=True))
    theirs = tuple(
        Named(c.name, of_key[extreme.columns[c.name]] if c.name in extreme.columns else Typed(exp.Null(), c.type, True))
        for c in right.schema.value
    )
    return LogicalProject(
        top, (*left.values, *theirs), tuple(Named(name, typed) for name, typed in zip(names, held, strict=True))
    )


def _extreme_of(right: LogicalPlan, needed: frozenset[str]) -> _Extreme | None:
    """The right side as an extreme; None unless it is one extreme per group, for all groups that have rows."""
    read = [*right.schema.key, *(c for c in right.schema.value if c.name in needed)]
    columns = [column(c.name, c.type) for c in read]
    plan: LogicalPlan = right
    while isinstance(plan, LogicalProject | Repartition):
        found = [plan.before(typed) for typed in columns]
        columns = [typed for typed in found if typed is not None]
        if len(columns) < len(found):
            return None
        plan = plan.input
    if isinstance(plan, LogicalFilter) and isinstance(plan.input, LogicalAggregate):
        if not _has_rows(plan.predicate.tree, plan.input):
            return None
        plan = plan.input
    if not isinstance(plan, LogicalAggregate) or plan.window is not None or plan.key_window is not None:
        return None
    names = [c.name for c in plan.schema.key]
    extremes = {call.name: call for call in plan.calls if AGGREGATES[call.function].picks is not None}
    used = {name for typed in columns if (name := _bare_name(typed)) not in names}
    if len(used) != 1 or not used <= set(extremes):
        return None
    call = next(call for name, call in extremes.items() if name in used)
    if call.filter is not None or call.column.type == DOUBLE:  # MIN and MAX skip NaN
        return None
    keys = [column(c.name, c.type) for c in plan.schema.key]
    rows = plan.input
    if isinstance(rows, Repartition):
        traced = [rows.before(typed) for typed in (*keys, *call.arguments)]
        rows = rows.input
    else:
        traced = [*keys, *call.arguments]
    rows, below = _through_projects(rows, [typed for typed in traced if typed is not None])
    if len(below) != len(keys) + 1:
        return None
    bare = [_bare_name(typed) or "" for typed in columns]
    found_keys = {c.name: names.index(name) if name in names else None for c, name in zip(read, bare, strict=True)}
    return _Extreme(rows, tuple(below[:-1]), below[-1], AGGREGATES[call.function].picks == "greatest", found_keys)


def _through_projects(plan: LogicalPlan, expressions: Sequence[Typed]) -> tuple[LogicalPlan, list[Typed]]:
    """The rows below all projections, and the expressions over those rows; empty if one cannot be rewritten."""
    found = list(expressions)
    while isinstance(plan, LogicalProject):
        below = [plan.before(typed) for typed in found]
        found = [typed for typed in below if typed is not None]
        if len(found) < len(below):
            return plan, []
        plan = plan.input
    return plan, found


def _has_rows(condition: exp.Expression, plan: LogicalAggregate) -> bool:
    """Whether the condition is true for all groups except those without rows: COUNT(*) > 0."""
    if not isinstance(condition, exp.GT) or not isinstance(condition.this, exp.Column):
        return False
    call = next((call for call in plan.calls if call.name == condition.this.name), None)
    is_count = call is not None and call.function == "COUNT" and not call.arguments and call.filter is None
    return is_count and condition.expression == exp.Literal.number(0)


def _bare(typed: Typed) -> exp.Expression:
    tree = typed.tree
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree


def _bare_name(typed: Typed) -> str | None:
    tree = _bare(typed)
    return tree.name if isinstance(tree, exp.Column) else None


def _is_same(one: Typed, other: Typed) -> bool:
    return one.type == other.type and _bare(one) == _bare(other) and not one.volatile
