"""The final projection of a query: which of its columns are the key, and the names of the columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from millstream.errors import InvalidStatement

from ...sql.ast import Query
from ...sql.types import NULL
from ..expressions.typed import Typed
from ..formats.format import nested_types
from ..logical import LogicalPlan, Named
from ..planning import PlanningContext
from ..steps.project import LogicalProject
from .loose_keys import hidden_keys, loose_keys
from .naming import joined
from .over_clause import Resolve
from .relation import JoinKey, PlannedRelation, Target
from .select_items import Item


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column of the projected relation: its name in the plan, its text in messages, and other columns with the
    same value (`equals`)."""

    name: str
    written: str
    typed: Typed
    equals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """`what`: key column, partitioning expression, grouping expression (for messages). `join`: the columns by which the
    key of a join can be selected. `loose`: unselected key columns are kept as hidden columns. `fixed`: columns with the
    same value in all rows."""

    columns: tuple[KeyColumn, ...]
    what: str
    join: JoinKey | None = None
    loose: bool = False
    fixed: frozenset[str] = frozenset()

    def without_fixed(self, selected: set[str | None]) -> Key:
        """The key without unselected columns that are the same in all rows, unless that is the whole key."""
        left = tuple(c for c in self.columns if c.name in selected or c.name not in self.fixed)
        return replace(self, columns=left or self.columns)


@dataclass(frozen=True, slots=True)
class Projected:
    plan: LogicalPlan
    order: tuple[str, ...]


def project(
    plan: LogicalPlan, items: Sequence[Item], resolve: Resolve, key: Key, target: Target, target_name: str,
    query: Query, context: PlanningContext, relation: PlannedRelation,
) -> Projected:  # fmt: skip
    typed = [(item, resolve(item.expression)) for item in items]
    for item, expression in typed:
        if NULL in nested_types(expression.type):
            raise InvalidStatement(
                "Can't infer a type of null. Please explicitly cast it to a required type, e.g. CAST(null AS VARCHAR).",
                span=item.span,
            )
    if target == "CLIENT":
        values = _unique(tuple(Named(item.name, expression) for item, expression in _with_keys(typed, key)))
        hidden = hidden_keys([(c.written, c.typed) for c in key.columns], {}) if key.loose else None
        return Projected(LogicalProject(plan, values, hidden), tuple(named.name for named in values))
    keys, values = _split(plan, typed, key, target, target_name, context, query, relation)
    _check_names(keys, values)
    if not values and target != "SUBQUERY" and not (query.distinct or relation.beyond):
        raise InvalidStatement("The projection contains no value columns.", span=query.span)
    return Projected(LogicalProject(plan, values, keys), tuple(item.name for item in items))


def _with_keys(typed: Sequence[tuple[Item, Typed]], key: Key) -> Iterator[tuple[Item, Typed]]:
    """The items; those that are a key column are read from the key, which a deletion still has."""
    names = {expression.column for _, expression in typed}
    for item, expression in typed:
        position = _position(expression, key, names)
        of_key = expression if position is None else key.columns[position].typed
        yield item, of_key if of_key.type == expression.type else expression


def _split(
    plan: LogicalPlan, typed: Sequence[tuple[Item, Typed]], key: Key, target: Target, target_name: str,
    context: PlanningContext, query: Query, relation: PlannedRelation,
) -> tuple[tuple[Named, ...], tuple[Named, ...]]:  # fmt: skip
    """Key and value columns of the result: an item that is just a key column names that key column."""
    names = {expression.column for _, expression in typed}
    key = key.without_fixed(names)
    taken: dict[int, list[Item]] = {i: [] for i in range(len(key.columns))}
    values: list[Named] = []
    for item, expression in typed:
        position = _position(expression, key, names)
        again = position is not None and taken[position] and (target == "SUBQUERY" or relation.beyond)
        if position is None or again:
            values.append(Named(item.name, expression))
        else:
            taken[position].append(item)
    for position, found in taken.items():
        if len(found) > 1:
            raise _selected_twice(key, key.columns[position], found)
    missing = [column_ for i, column_ in enumerate(key.columns) if not taken[i]]
    chosen = {i: items[0].name for i, items in taken.items() if items}
    if target == "SUBQUERY":
        return hidden_keys([(c.written, c.typed) for c in key.columns], chosen), tuple(values)
    if missing and relation.beyond:
        selected = [Named(item.name, expression) for item, expression in typed]
        return loose_keys(plan.kind, [(c.written, c.typed) for c in key.columns], chosen, selected)
    if missing and key.what == "key column" and context.settings.keyless_projections:
        return (), tuple(values)
    if missing and key.join is not None:
        absent = [column_.name for column_ in missing]
        raise InvalidStatement(key.join.missing_message(target_name, absent), span=query.span)
    if missing:
        listed = [c.written for c in (missing if key.what != "key column" else key.columns)]
        what = key.what + ("s" if len(listed) > 1 else "")
        raise InvalidStatement(
            f"Key{'s' if len(listed) > 1 else ''} missing from projection (ie, SELECT).\n"
            f"The query used to build `{target_name}` must include the {what} {joined(listed)} in its projection "
            f"(eg, SELECT {', '.join(listed)}...).",
            span=query.span,
            hint="Select it too; or give the rows another key with PARTITION BY, a table with GROUP BY.",
        )
    return tuple(Named(taken[i][0].name, c.typed) for i, c in enumerate(key.columns)), tuple(values)


def _selected_twice(key: Key, column_: KeyColumn, found: Sequence[Item]) -> InvalidStatement:
    names = sorted(item.name for item in found)
    if key.what == "key column":
        again = f"(`{column_.name}`) more than once, aliased as: {joined(names)}"
    else:
        again = f"more than once: {joined([f'`{name}`' for name in names])}"
    return InvalidStatement(
        f"The projection contains a key column {again}.\nEach key column must only be in the projection once.",
        span=found[1].span,
        hint="AS_VALUE copies a key column into the value: SELECT id, AS_VALUE(id) AS copy.",
    )


def _position(expression: Typed, key: Key, selected: set[str | None]) -> int | None:
    """Which key column the expression is. The key of a join is the first selected column among those with its value."""
    name = expression.column
    if key.join is not None and not key.join.foreign:
        chosen = next((viable for viable, _ in key.join.viable if viable in selected), None)
        return 0 if name is not None and name == chosen else None
    for i, c in enumerate(key.columns):
        if name == next((each for each in (c.name, *c.equals) if each in selected), None) is not None:
            return i
    return None


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
    """The columns with unique names for a client: a repeated name gets a number."""
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
