"""Functions OVER partitions in a query: their plan, and the key of the rows.

A query's calls are grouped by their PARTITION BY; each group becomes one `Over` after its own repartition. The rest of
the query reads their results as columns whose names begin with #over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sqlglot import exp

from millstream.errors import InvalidStatement, TypeMismatch, UnknownFunction, did_you_mean

from ...sql.ast import Query, span_of, unwrapped
from ...sql.functions.over_functions import OVER_FUNCTIONS, OverFunction
from ...sql.printing import print_expression
from ...sql.types import BOOLEAN, NULL, SqlType
from ..expressions.conversions import coerced
from ..expressions.typed import Typed, column
from ..logical import LogicalPlan, Named
from ..schema import PSEUDO, RECORD_PLACE, WINDOW_BOUNDS, Column
from ..steps.over import LogicalOver
from ..steps.over_calls import ROW_NUMBER_COLUMN, LogicalOverCall, LogicalSortKey
from ..steps.project import LogicalProject, with_key_as_value
from ..steps.repartition import Repartition
from .frames import OverFrame, common_lateness, frame_of

Columns = Mapping[str, tuple[str, SqlType]]


class Resolve(Protocol):
    """Compiles an expression of SELECT; `more`: additional columns that its names may refer to."""

    def __call__(self, node: exp.Expression, *, more: Columns = ...) -> Typed: ...


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column that identifies result rows: its name in the plan, its text in the query, and its value."""

    name: str
    written: str
    typed: Typed


@dataclass(frozen=True, slots=True)
class Windowed:
    """`columns`: the results, by their names in `expressions`. `keys`: for each ROW_NUMBER, its PARTITION BY columns
    and its number, which together identify a row. `row`: for a stream, a column that identifies a row."""

    plan: LogicalPlan
    expressions: tuple[exp.Expression, ...]
    columns: Columns
    keys: tuple[tuple[KeyPart, ...], ...]
    row: KeyPart | None
    moved: tuple[tuple[exp.Expression, Typed], ...] = field(default=())

    def resolver(self, resolve: Resolve) -> Resolve:
        """`resolve` over the new plan, in which a PARTITION BY expression is replaced by the column with its value."""

        def resolved(node: exp.Expression, *, more: Columns = {}) -> Typed:  # noqa: B006 (never changed)
            typed = resolve(node, more={**self.columns, **more})
            tree = _bare(typed)
            return next((held for original, held in self.moved if original == tree), typed)

        return resolved


def contains_over(node: exp.Expression) -> bool:
    return node.find(exp.Window) is not None


def first_of_equals(query: Query, selected: Sequence[exp.Expression]) -> exp.Expression:
    """SELECT DISTINCT as a condition: of equal rows, keep the one that came first."""
    if query.qualify is not None or any(contains_over(node) for node in selected):
        raise InvalidStatement(
            "DISTINCT and functions OVER … cannot stand in one SELECT",
            span=query.span,
            hint="Put one of them into a subquery: SELECT DISTINCT … FROM (SELECT …) q.",
        )
    number = exp.Window(
        this=exp.Anonymous(this="ROW_NUMBER", expressions=[]), partition_by=[node.copy() for node in selected]
    )
    return exp.EQ(this=number, expression=exp.Literal.number("1"))


def window_identity(plan: LogicalPlan, selected: Sequence[exp.Expression]) -> tuple[str, ...]:
    """The window bounds that identify a row's window. For windows of one size one bound is enough, preferably a
    selected one."""
    if plan.key_window is None:
        return ()
    if plan.key_window.holds_end:
        return WINDOW_BOUNDS
    start, end = WINDOW_BOUNDS
    names = {node.name for each in selected if isinstance(node := unwrapped(each), exp.Column)}
    return (end,) if end in names and start not in names else (start,)


def check_qualify(node: exp.Expression) -> None:
    """Raises `InvalidStatement` if the condition contains no function OVER …."""
    if not contains_over(node):
        raise InvalidStatement(
            "QUALIFY filters by the result of a function OVER …", span=span_of(node), hint="Write WHERE instead."
        )


def windowed(
    plan: LogicalPlan, expressions: Sequence[exp.Expression], resolve: Resolve, identity: Sequence[Typed]
) -> Windowed:
    """`plan` with the results of all calls in `expressions` as additional columns.

    In: `identity`: the columns of the plan that identify a row of a table. Raises `InvalidStatement`,
    `TypeMismatch`, `UnknownFunction`.
    """
    builder = _Builder(resolve)
    replaced = tuple(builder.collect(node) for node in expressions)
    by_partition: dict[tuple[exp.Expression, ...], list[_Call]] = {}
    for call in builder.calls:
        by_partition.setdefault(tuple(typed.tree for typed in call.partition), []).append(call)
    stream = plan.kind == "STREAM"
    frames = [(call.window, call.frame) for call in builder.calls]
    lateness = common_lateness(frames, stream=stream, partitions=len(by_partition))
    plan = _with_pseudo_columns(plan, expressions)
    keys: list[tuple[KeyPart, ...]] = []
    moved: list[tuple[exp.Expression, Typed]] = []
    for number, calls in enumerate(by_partition.values()):
        parts = tuple(Named(f"#part{number}_{i}", typed) for i, typed in enumerate(calls[0].partition))
        told_apart = tuple(identity) if not stream else (column(*_row_column()),) if number else ()
        rows = Repartition(with_key_as_value(plan), parts, partition_count=None if parts else 1)
        plan = LogicalOver(
            rows,
            tuple(call.over if stream else replace(call.over, ties=told_apart) for call in calls),
            told_apart,
            lateness=lateness,
            # A row whose result of an earlier group changed is not a newly arrived row.
            arrival=column(*_row_column()) if number and stream and _breaks_ties(calls) else None,
        )
        held = [_held(named) for named in parts]
        moved += [(_bare(named.expression), part) for named, part in zip(parts, held, strict=True)]
        by = [
            KeyPart(part.column or "", print_expression(node), part)
            for node, part in zip(calls[0].partition_nodes, held, strict=True)
        ]
        keys += [
            (*by, KeyPart(call.over.name, call.written, column(call.over.name, call.over.column.type)))
            for call in calls
            if call.over.function == "ROW_NUMBER"
        ]
    results = {call.over.name: (call.over.name, call.over.column.type) for call in builder.calls}
    row = KeyPart(ROW_NUMBER_COLUMN, "ROW_ID", column(*_row_column())) if stream else None
    return Windowed(plan, replaced, results, tuple(keys), row, tuple(moved))


def _bare(typed: Typed) -> exp.Expression:
    """The expression without outer parentheses."""
    return unwrapped(typed.tree)


def _row_column() -> tuple[str, SqlType]:
    return ROW_NUMBER_COLUMN, PSEUDO["ROWTIME"][1]


def _held(named: Named) -> Typed:
    """The column with the value of a PARTITION BY expression: if it is a column, that column itself."""
    typed = named.expression
    return typed if typed.column is not None else column(named.name, typed.type)


def _with_pseudo_columns(plan: LogicalPlan, expressions: Sequence[exp.Expression]) -> LogicalPlan:
    """The plan with the window bounds, and with partition and offset if an expression reads them, as columns: after a
    repartition they are no longer available as pseudo columns."""
    names = list(WINDOW_BOUNDS) if plan.key_window is not None else []
    asked = {node.name for expression in expressions for node in expression.find_all(exp.Column)}
    names += [name for name in RECORD_PLACE if name in asked]
    added = [Named(name, column(name, PSEUDO[name][1])) for name in names if plan.schema.find(name) is None]
    if not added:
        return plan
    own = tuple(Named(c.name, column(c.name, c.type)) for c in plan.schema.value)
    return LogicalProject(plan, (*own, *added))


@dataclass(frozen=True, slots=True)
class _Call:
    over: LogicalOverCall
    partition: tuple[Typed, ...]
    partition_nodes: tuple[exp.Expression, ...]
    written: str
    window: exp.Window
    frame: OverFrame


def _breaks_ties(calls: Sequence[_Call]) -> bool:
    return any(call.over.breaks_ties for call in calls)


class _Builder:
    """Collects the calls of a query, each once."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._by_text: dict[str, _Call] = {}

    @property
    def calls(self) -> list[_Call]:
        return list(self._by_text.values())

    def collect(self, node: exp.Expression) -> exp.Expression:
        """A copy of `node` in which each call OVER … is replaced by a column."""
        root = exp.Paren(this=node.copy())
        while (window := root.find(exp.Window)) is not None:
            call = self._call(window)
            reference = exp.Column(this=exp.Identifier(this=call.over.name, quoted=True))
            reference.meta["written"] = call.written
            reference.meta["span"] = span_of(window)
            window.replace(reference)
        return root.this

    def _call(self, window: exp.Window) -> _Call:
        written = print_expression(window)
        if written not in self._by_text:
            if any(inner is not window for inner in window.find_all(exp.Window)):
                raise InvalidStatement(
                    "a function OVER … cannot stand in another one",
                    span=span_of(window),
                    hint="Compute the inner one in a subquery: FROM (SELECT …) q.",
                )
            self._by_text[written] = self._compiled(window, written)
        return self._by_text[written]

    def _compiled(self, window: exp.Window, written: str) -> _Call:
        head = window.this
        function = _function(head)
        arguments = self._arguments(head, function)
        type_ = function.resolve([typed.type for typed in arguments], span_of(head))
        arguments = [coerced(t, type_) if i == 2 else t for i, t in enumerate(arguments)]  # the default of LAG
        order = window.args.get("order")
        keys = [] if order is None else [self._sort_key(item) for item in order.expressions]
        nodes = tuple(unwrapped(node) for node in window.args.get("partition_by") or ())
        name = f"#over{len(self._by_text)}"
        frame = frame_of(window, function, keys)
        over = LogicalOverCall(
            name,
            function.name,
            tuple(arguments),
            tuple(keys),
            Column(name, type_),
            frame.sql,
            self._filter(head, function),
            _is_distinct(head, function),
            frame.measured,
        )
        partition: dict[exp.Expression, tuple[Typed, exp.Expression]] = {}
        for node in nodes:
            typed = self._resolve(node)
            partition.setdefault(typed.tree, (typed, node))
        by, by_nodes = tuple(t for t, _ in partition.values()), tuple(n for _, n in partition.values())
        return _Call(over, by, by_nodes, written, window, frame)

    def _arguments(self, head: exp.Anonymous, function: OverFunction) -> list[Typed]:
        if any(isinstance(argument, exp.Star) for argument in head.expressions):
            if function.name != "COUNT":
                raise InvalidStatement(
                    f"{function.name}(*) is not possible: only rows are counted.", span=span_of(head)
                )
            return []
        return [self._resolve(argument) for argument in head.expressions]

    def _sort_key(self, item: exp.Ordered) -> LogicalSortKey:
        typed = self._resolve(item.this)
        if typed.type == NULL:
            raise InvalidStatement("OVER cannot be ordered by NULL", span=span_of(item))
        return LogicalSortKey(typed, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))

    def _filter(self, head: exp.Anonymous, function: OverFunction) -> Typed | None:
        condition = head.args.get("filter")
        if condition is None:
            return None
        _check_aggregates(head, function, "FILTER")
        predicate = self._resolve(condition)
        if predicate.type not in (BOOLEAN, NULL):
            raise TypeMismatch(
                f"FILTER takes a BOOLEAN, not {predicate.type}: {print_expression(condition)}", span=span_of(condition)
            )
        return predicate


def _function(head: exp.Anonymous) -> OverFunction:
    function = OVER_FUNCTIONS.get(head.name)
    if function is None:
        raise UnknownFunction(
            f"{head.name} cannot stand before OVER",
            span=span_of(head),
            hint=did_you_mean(head.name, OVER_FUNCTIONS) or f"These can: {', '.join(OVER_FUNCTIONS)}.",
        )
    return function


def _check_aggregates(head: exp.Anonymous, function: OverFunction, clause: str) -> None:
    if not function.aggregates:
        raise InvalidStatement(f"{function.name} is no aggregate function: it takes no {clause}", span=span_of(head))


def _is_distinct(head: exp.Anonymous, function: OverFunction) -> bool:
    if not head.args.get("distinct"):
        return False
    _check_aggregates(head, function, "DISTINCT")
    return True
