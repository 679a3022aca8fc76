"""Column lineage: which columns of which sources a query's results come from, and through which expressions.

DIRECT is what goes into a value; INDIRECT what decides which rows there are, or which value is taken: filters, join
keys, groups, windows, conditions. The words are those of OpenLineage. Within one query: `trace`; through the queries
and topics of a catalog: `catalog_lineage.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from .explain import call_text, over_text
from .physical import (
    Aggregate,
    Expire,
    Explode,
    Filter,
    Join,
    Over,
    PhysicalPlan,
    Project,
    Rekey,
    RowJoin,
    Sink,
    Source,
    SqlExpression,
    Step,
    StreamStreamJoin,
    Union,
    schema_of,
)
from .readable import column_names, readable, used_columns
from .user_functions import with_names

Kind = Literal["DIRECT", "INDIRECT"]
Subtype = Literal[
    "IDENTITY", "TRANSFORMATION", "AGGREGATION", "FILTER", "JOIN", "GROUP_BY", "SORT", "WINDOW", "CONDITIONAL"
]

_STRENGTH: tuple[Subtype, ...] = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")
_TEXT_MAX = 400  # characters of an expression; a longer one is named by its column


@dataclass(frozen=True, slots=True, order=True)
class Field:
    """A column of a stream or table, by the names that users see."""

    source: str
    column: str

    def __str__(self) -> str:
        return f"{self.source}.{self.column}"


@dataclass(frozen=True, slots=True)
class Influence:
    """How one column of a source gets into a result. `description`: the expression, condition or key."""

    field: Field
    kind: Kind
    subtype: Subtype
    description: str = ""


@dataclass(frozen=True, slots=True)
class QueryLineage:
    """`columns`: of each column of the sink what its values come from. `rows`: what decides about all of its rows."""

    columns: Mapping[str, tuple[Influence, ...]]
    rows: tuple[Influence, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    """A column inside the plan: its expression over the sources' columns, and what it is made of."""

    text: str
    influences: tuple[Influence, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The columns that a step gives, by their names in batches, and what decided about its rows."""

    values: Mapping[str, _Value]
    influences: tuple[Influence, ...]

    def influences_of(self, name: str) -> tuple[Influence, ...]:
        found = self.values.get(name)
        return () if found is None else found.influences

    @property
    def texts(self) -> dict[str, str]:
        return {name: value.text for name, value in self.values.items()}


def trace(plan: PhysicalPlan) -> QueryLineage:
    """In: a plan with or without a Sink."""
    root = plan.root
    rows, schema = _rows(root), schema_of(root)
    columns = {
        column.name: _unique(rows.values[schema.physical_name(column)].influences)
        for column in schema
        if schema.physical_name(column) in rows.values
    }
    return QueryLineage(columns, _unique(rows.influences))


def _rows(step: Step) -> _Rows:
    match step:
        case Source():
            return _source(step)
        case Sink() | Expire():
            return _rows(step.input)
        case Filter():
            below = _rows(step.input)
            return replace(below, influences=below.influences + _deciding([step.predicate.sql], "FILTER", below))
        case Project():
            return _project(step)
        case Rekey():
            below = _rows(step.input)
            return replace(below, values={**below.values, **_keyed(step.key, below)})
        case Explode():
            return _explode(step)
        case Aggregate():
            return _aggregate(step)
        case Over():
            return _over(step)
        case Union():
            return _union(step)
        case _:
            assert isinstance(step, Join), f"unknown step {type(step).__name__}"
            return _join(step)


# ------------------------------------------------------------------ the steps


def _source(step: Source) -> _Rows:
    values = {physical: _own(step, name) for physical, name in column_names(step.schema).items()}
    rows = _Rows(values, ())
    if step.timestamp is not None:
        rows = replace(rows, values={**values, "_ts": _computed(step.timestamp.sql, rows)})
    return rows


def _own(step: Source, column: str) -> _Value:
    field = Field(step.name or step.topic, column)
    return _Value(str(field), (Influence(field, "DIRECT", "IDENTITY", str(field)),))


def _project(step: Project) -> _Rows:
    below = _rows(step.input)
    values = {f"v{i}": _computed(expression.sql, below) for i, expression in enumerate(step.values)}
    keys = _keys(below.values) if step.key is None else _keyed(step.key, below)
    return _Rows({**_pseudo(below.values), **keys, **values}, below.influences)


def _explode(step: Explode) -> _Rows:
    below = _rows(step.input)
    first = len(step.schema.value) - len(step.arrays)
    elements = {
        f"v{first + i}": _through(_computed(array.sql, below), "EXPLODE({})") for i, array in enumerate(step.arrays)
    }
    return replace(below, values={**below.values, **elements})


def _aggregate(step: Aggregate) -> _Rows:
    below = _rows(step.input)
    named = below.texts
    values: dict[str, _Value] = {}
    for i, call in enumerate(step.calls):
        conditions = [] if call.filter is None else [call.filter.sql]
        text = with_names(_short(call_text(call, lambda sql: _text(sql, named)).replace("COUNT()", "COUNT(*)")))
        direct = _influences((argument.sql for argument in call.arguments), below, "AGGREGATION", text)
        values[f"v{i}"] = _Value(text, direct + _deciding(conditions, "FILTER", below))
    influences = below.influences
    for value in _keys(below.values).values():
        influences += _indirect(value.influences, "GROUP_BY", value.text)
    bounds: dict[str, _Value] = {}
    if step.window is not None:
        times = below.influences_of("_ts")
        influences += _indirect(times, "WINDOW", f"WINDOW {step.window.kind}")
        for name, text in (("_ws", "WINDOWSTART"), ("_we", "WINDOWEND")):
            bounds[name] = _Value(text, tuple(_changed(each, "TRANSFORMATION", text) for each in times))
    return _Rows({**_pseudo(below.values), **bounds, **_keys(below.values), **values}, influences)


def _over(step: Over) -> _Rows:
    below = _rows(step.input)
    named = below.texts
    values = dict(below.values)
    first = len(step.schema.value) - len(step.calls) - (not step.identity)
    influences = below.influences
    partition = sum((_indirect(value.influences, "WINDOW", value.text) for value in _keys(values).values()), ())
    for i, call in enumerate(step.calls):
        text = with_names(_short(over_text(call, lambda sql: _text(sql, named))))
        direct = _influences((argument.sql for argument in call.arguments), below, "AGGREGATION", text)
        order = _deciding([key.expression.sql for key in call.order], "SORT", below)
        conditions = [] if call.filter is None else [call.filter.sql]
        values[f"v{first + i}"] = _Value(text, direct + partition + order + _deciding(conditions, "FILTER", below))
    if not step.identity:
        values[f"v{first + len(step.calls)}"] = _Value("a number", ())
    if step.bound is not None:
        position, largest = step.bound
        bound = values[f"v{first + position}"]
        influences += _indirect(bound.influences, "FILTER", f"{bound.text} <= {largest}")
    return _Rows(values, influences)


def _union(step: Union) -> _Rows:
    left, right = _rows(step.left), _rows(step.right)
    values = {
        name: _Value(value.text, value.influences + (right.values[name].influences if name in right.values else ()))
        for name, value in left.values.items()
    }
    return _Rows(values, left.influences + right.influences)


def _join(step: Join) -> _Rows:
    left, right = _rows(step.left), _rows(step.right)
    left_values = _positional(left.values, len(step.left_schema.value))
    right_values = _positional(right.values, len(step.right_schema.value))
    if len(step.schema.value) > len(left_values) + len(right_values):  # a stream with a table: its key goes in between
        right_values = [*_keys(right.values).values(), *right_values]
    keys = {name: _both(value, right.values.get(name), _join_kind(step)) for name, value in _keys(left.values).items()}
    values = {f"v{i}": value for i, value in enumerate([*left_values, *right_values])}
    condition = " = ".join(", ".join(value.text for value in _keys(side.values).values()) for side in (left, right))
    influences = left.influences + right.influences
    for side in (left, right):
        for value in _keys(side.values).values():
            influences += _indirect(value.influences, "JOIN", condition)
        if isinstance(step, StreamStreamJoin):
            influences += _indirect(side.influences_of("_ts"), "JOIN", "WITHIN")
    return _Rows({**_pseudo(left.values), **keys, **values}, influences)


def _join_kind(step: Join) -> str:
    return ("LEFT" if step.outer else "INNER") if isinstance(step, RowJoin) else step.kind


def _both(left: _Value, right: _Value | None, kind: str) -> _Value:
    """The key of a joined row: that of the left side, and where it may be missing, that of the right one."""
    if right is None or kind not in ("RIGHT", "FULL"):
        return left
    return _Value(f"COALESCE({left.text}, {right.text})", left.influences + right.influences)


# ------------------------------------------------------------------ expressions


def _computed(sql: str, below: _Rows) -> _Value:
    named = below.texts
    text = _short(_text(sql, named))
    used = used_columns(sql)
    if used.values and sql.strip("()") == used.values[0]:
        return below.values[used.values[0]]
    return _Value(text, _influences([sql], below, "TRANSFORMATION", text))


def _influences(sqls: Iterable[str], below: _Rows, subtype: Subtype, text: str) -> tuple[Influence, ...]:
    found: tuple[Influence, ...] = ()
    for sql in sqls:
        used = used_columns(sql)
        for name in used.values:
            found += tuple(_changed(each, subtype, text) for each in below.influences_of(name))
        for name in used.conditions:
            found += _indirect(below.influences_of(name), "CONDITIONAL", text)
    return found


def _changed(influence: Influence, subtype: Subtype, text: str) -> Influence:
    if influence.kind == "INDIRECT":
        return influence
    return replace(influence, subtype=stronger(influence.subtype, subtype), description=text)


def stronger(one: Subtype, other: Subtype) -> Subtype:
    """Of two DIRECT ways the one that does more to a value."""
    return one if _STRENGTH.index(one) >= _STRENGTH.index(other) else other


def _deciding(sqls: Iterable[str], subtype: Subtype, below: _Rows) -> tuple[Influence, ...]:
    """What is read to decide, and gets into no value."""
    found: tuple[Influence, ...] = ()
    named = below.texts
    for sql in sqls:
        used, text = used_columns(sql), _short(_text(sql, named))
        for name in (*used.values, *used.conditions):
            found += _indirect(below.influences_of(name), subtype, text)
    return found


def _indirect(influences: Iterable[Influence], subtype: Subtype, text: str) -> tuple[Influence, ...]:
    return tuple(Influence(each.field, "INDIRECT", subtype, text) for each in influences)


def _through(value: _Value, template: str) -> _Value:
    text = template.format(value.text)
    return _Value(text, tuple(_changed(each, "TRANSFORMATION", text) for each in value.influences))


def _text(sql: str, named: Mapping[str, str]) -> str:
    return with_names(readable(sql, lambda name: named.get(name, name)))


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"


# ------------------------------------------------------------------ columns


def _keyed(key: tuple[SqlExpression, ...], below: _Rows) -> dict[str, _Value]:
    return {f"k{i}": _computed(expression.sql, below) for i, expression in enumerate(key)}


def _keys(values: Mapping[str, _Value]) -> dict[str, _Value]:
    return {name: value for name, value in values.items() if name[0] == "k"}


def _pseudo(values: Mapping[str, _Value]) -> dict[str, _Value]:
    return {name: value for name, value in values.items() if name[0] == "_"}


def _positional(values: Mapping[str, _Value], count: int) -> list[_Value]:
    return [values.get(f"v{i}", _Value("", ())) for i in range(count)]


def _unique(influences: Iterable[Influence]) -> tuple[Influence, ...]:
    return tuple(dict.fromkeys(influences))
