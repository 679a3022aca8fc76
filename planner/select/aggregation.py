"""GROUP BY: finds the aggregates and grouping expressions in SELECT and HAVING; refuses columns that are neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType

from sqlglot import exp

from millstream.errors import (
    FormatError,
    InvalidStatement,
    StatementError,
    TypeMismatch,
    UnknownFunction,
    UnknownName,
)

from ...sql.ast import Query, WindowExpression, span_of, unwrapped
from ...sql.functions.aggregation.aggregates import AGGREGATES
from ...sql.printing import print_expression
from ...sql.types import BIGINT, BOOLEAN, NULL
from ...sql.windows import WINDOW_TYPES
from ..expressions.aggregate_calls import aggregate_filter, is_distinct
from ..expressions.compilation import compile_expression
from ..expressions.conversions import coerced
from ..expressions.scope import Scope, ScopeSource
from ..expressions.typed import Typed, column
from ..formats import check_columns
from ..logical import LogicalPlan
from ..schema import PSEUDO, WINDOW_BOUNDS, Column
from ..specs import WindowSpec
from ..steps.aggregate import Call, LogicalAggregate
from ..steps.filter import LogicalFilter
from .naming import joined
from .over_clause import Columns, Resolve

_ZERO_OF_NOTHING = ("SUM", "AVG")


def contains_aggregate(node: exp.Expression) -> str | None:
    """The name of an aggregate that `node` calls, or None. A call with OVER does not aggregate."""
    return next((call.name for call in node.find_all(exp.Anonymous) if _aggregates(call)), None)


def _aggregates(call: exp.Anonymous) -> bool:
    return call.name in AGGREGATES and not (isinstance(call.parent, exp.Window) and call.arg_key == "this")


def place_in_grouping(node: exp.Expression, grouping: Sequence[exp.Expression], scope: Scope) -> int | None:
    """Which of the grouping expressions, which are compiled in `scope`, it is, however it is written."""
    # Parts of CASE and STRUCT, and units of time.
    parts = exp.Identifier | exp.Star | exp.Lambda | exp.DataType | exp.If | exp.PropertyEQ | exp.Var
    if isinstance(node, parts) or contains_aggregate(node):
        return None
    try:
        tree = compile_expression(unwrapped(node), scope).tree
    except UnknownFunction:
        raise
    except StatementError:
        return None
    return next((i for i, known in enumerate(grouping) if known == tree), None)


@dataclass(frozen=True, slots=True)
class Grouping:
    """`expressions`: each grouping expression (compiled over the rows), and the key column with its value."""

    expressions: tuple[tuple[exp.Expression, Typed], ...]
    scope: Scope


def aggregate(
    rows: LogicalPlan,
    grouping: Grouping,
    query: Query,
    selected: Sequence[exp.Expression],
    qualify: Sequence[exp.Expression],
    state_format: str,
    *,
    as_standard: bool = False,
    as_batch: bool = False,
    lossy: bool = False,
) -> tuple[LogicalPlan, Resolve]:
    """The aggregation (with HAVING), and a function that compiles an expression of SELECT or `qualify` over its result.

    `rows` already have the grouping key. `state_format`: the format that must be able to encode a group's state.
    `as_standard`: SUM and AVG of no values are NULL; in ksqlDB they are 0. `as_batch`: a group whose rows were all
    retracted is removed, as in a batch query, and not only with calls that ksqlDB refuses over tables; in ksqlDB it
    stays. `lossy`: EMIT FINAL loses the same results as in ksqlDB. Raises `InvalidStatement` for a column that is
    neither grouped nor aggregated.
    """
    builder = _Builder(grouping, query.window is not None, as_standard=as_standard)
    open_in_select = [builder.ungrouped(node, windows=True) for node in selected]
    left_over = [node for node, columns in zip(selected, open_in_select, strict=True) if columns]
    open_in_having = [] if query.having is None else builder.ungrouped(query.having, windows=False)
    open_in_qualify = [c for node in qualify for c in builder.ungrouped(node, windows=True) if c.name != "ROWTIME"]
    if not builder.calls:
        raise InvalidStatement(
            "GROUP BY requires aggregate functions in either the SELECT or HAVING clause.",
            span=query.span,
            hint="Select one, such as COUNT(*): a table then has a row for each group.",
        )
    if left_over:
        _check_known([*left_over, *chain.from_iterable(open_in_select)], grouping.scope)
        listed = ", ".join(print_expression(node) for node in left_over)
        raise InvalidStatement(
            f"Non-aggregate SELECT expression(s) not part of GROUP BY: {listed}\n"
            "Either add the column(s) to the GROUP BY or remove them from the SELECT.",
            span=span_of(left_over[0]) or query.span,
            hint=_hint_to_group(query.group_by),
        )
    if open_in_qualify:
        _check_known(open_in_qualify, grouping.scope.within("QUALIFY"))
        raise InvalidStatement(
            "Non-aggregate QUALIFY expression not part of GROUP BY: "
            f"{', '.join(dict.fromkeys(map(print_expression, open_in_qualify)))}",
            span=span_of(open_in_qualify[0]),
            hint="Add it to GROUP BY, or aggregate it.",
        )
    if open_in_having:
        _check_known(open_in_having, grouping.scope.within("HAVING"))
        raise InvalidStatement(
            "Non-aggregate HAVING expression not part of GROUP BY: "
            f"{', '.join(dict.fromkeys(map(print_expression, open_in_having)))}\n"
            "Consider switching the HAVING clause to a WHERE clause before the GROUP BY.",
            span=span_of(open_in_having[0]),
            hint="Add it to GROUP BY, or aggregate it.",
        )
    over_table = rows.kind == "TABLE" and bool(query.group_by)
    present = builder.present() if over_table and (as_batch or builder.is_beyond_tables) else None
    _check_table_support(rows, builder.calls)
    _check_merging_support(query, builder.calls)
    _check_state(builder.intermediates, state_format, query)
    result: LogicalPlan = LogicalAggregate(
        rows,
        tuple(builder.calls),
        None if query.window is None else _window_spec(query.window, final=query.emit == "FINAL", lossy=lossy),
        "FINAL" if query.emit == "FINAL" else "CHANGES",
        emit_old=query.having is not None,
        of_all=not query.group_by,
    )
    if query.having is not None:
        result = LogicalFilter(result, _having(query.having, builder))
    if present is not None:
        result = LogicalFilter(result, present)
    return result, builder.compile


def _hint_to_group(group_by: Sequence[exp.Expression]) -> str:
    number = next((node for node in group_by if isinstance(node, exp.Literal) and not node.is_string), None)
    if number is not None:
        return f"GROUP BY {print_expression(number)} groups by a number: name the column or expression instead."
    return "Add it to GROUP BY, or aggregate it."


def _check_known(nodes: Sequence[exp.Expression], scope: Scope) -> None:
    """Raises `UnknownName` for a name that no source has, or that several have: then the grouping is not the error."""
    for node in nodes:
        try:
            compile_expression(node, scope)
        except UnknownName:
            raise
        except StatementError:
            continue  # it contains an aggregate, which this scope does not allow


def _having(node: exp.Expression, builder: _Builder) -> Typed:
    predicate = builder.compile(node, "HAVING")
    if predicate.type not in (BOOLEAN, NULL):
        raise TypeMismatch(
            f"Type error in HAVING expression: Should evaluate to boolean but is {print_expression(node)} "
            f"({predicate.type}) instead.",
            span=span_of(node),
        )
    return predicate


def _check_state(kept: Sequence[Column], format_name: str, query: Query) -> None:
    """As in ksqlDB, the value format of the (first) source must be able to encode the state of each aggregate."""
    for each in kept:
        try:
            check_columns(format_name, (each,), "Value")
        except FormatError as refused:
            raise InvalidStatement(
                "One of the functions used in the statement has an intermediate type that the value format can not "
                "handle. Please remove the function or change the format.",
                span=query.span,
                hint=f"{each.name} keeps a {each.type}, which {format_name} cannot hold.",
            ) from refused


def _check_table_support(rows: LogicalPlan, calls: Sequence[Call]) -> None:
    """Raises `InvalidStatement` for aggregates that cannot retract. The message names the same functions as ksqlDB's,
    including those that we could compute."""
    functions = [AGGREGATES[call.function] for call in calls]
    refused = list(dict.fromkeys(function.name for function in functions if not function.supports_undo))
    if rows.kind == "TABLE" and not all(function.takes_back for function in functions):
        plural = "s" if len(refused) > 1 else ""
        raise InvalidStatement(
            f"The aggregation function{plural} {joined(refused)} cannot be applied to a table source, only to a stream "
            "source."
        )


def _check_merging_support(query: Query, calls: Sequence[Call]) -> None:
    """Growing windows merge when they meet, so their aggregates must be able to merge states."""
    if query.window is None or not WINDOW_TYPES[query.window.kind].grows:
        return
    for function in (AGGREGATES[call.function] for call in calls):
        if not function.supports_merge:
            kind = query.window.kind.lower()
            raise InvalidStatement(
                f"The aggregation function {function.name} cannot be applied to {kind} windows, which join.",
                span=query.window.span,
                hint="Give its class a method merge(self, a, b) that joins two states.",
            )


def _window_spec(window: WindowExpression, *, final: bool, lossy: bool) -> WindowSpec:
    """The window with its defaults. The default grace period is 0 for EMIT FINAL, else the window type decides."""
    type_ = WINDOW_TYPES[window.kind]
    grace = window.grace_ms
    if grace is None:
        grace = 0 if final else type_.default_grace_ms(window.size_ms)
    type_.check(window)
    if window.retention_ms is not None and window.retention_ms < window.size_ms + (window.grace_ms or 0):
        raise InvalidStatement(
            "The retention period of the window store must be no smaller than its window size plus the grace period.",
            span=window.span,
        )
    retention = window.retention_ms or window.size_ms + grace if final and lossy else None
    return WindowSpec(window.kind, window.size_ms, window.advance_ms, grace, retention, window.timezone)


class _Builder:
    """Collects the aggregate calls of a query, each once."""

    def __init__(self, grouping: Grouping, windowed: bool, *, as_standard: bool) -> None:
        self.calls: list[Call] = []
        self.intermediates: list[Column] = []  # per call: the function's name, and the type of its state
        self._keys: dict[tuple[str, tuple[str, ...], tuple[object, ...]], Call] = {}
        self._grouping = grouping
        self._compiled = [compiled for compiled, _ in grouping.expressions]
        self._windowed = windowed
        self._as_standard = as_standard

    def ungrouped(self, node: exp.Expression, *, windows: bool) -> list[exp.Column]:
        """Registers the calls in `node`. Returns its columns that are neither grouped nor aggregated."""
        found = self._rewritten(node, windows).find_all(exp.Column)
        return [column_ for column_ in found if not column_.name.startswith("#")]

    @property
    def is_beyond_tables(self) -> bool:
        """Whether ksqlDB refuses one of the calls over a table."""
        return any(
            call.distinct or call.filter is not None or not AGGREGATES[call.function].supports_undo
            for call in self.calls
        )

    def present(self) -> Typed:
        """Whether a group has rows."""
        call = self._register(exp.Anonymous(this="COUNT", expressions=[exp.Star()]))
        is_there = exp.GT(this=column(call.name, BIGINT).tree, expression=exp.Literal.number(0))
        return Typed(is_there, BOOLEAN, total=True)

    def compile(self, node: exp.Expression, clause: str = "SELECT", *, more: Columns = MappingProxyType({})) -> Typed:
        """`node`, compiled over the columns of the aggregation and `more`."""
        return compile_expression(self._rewritten(node, True), self._result_scope(more).within(clause))

    def _rewritten(self, node: exp.Expression, windows: bool) -> exp.Expression:
        """A copy in which grouping expressions and aggregate calls are replaced by columns whose names begin with #."""
        root = exp.Paren(this=node.copy())
        self._replace(root.this, frozenset(), windows)
        return root.this

    def _replace(self, node: exp.Expression, variables: frozenset[str], windows: bool) -> None:
        if isinstance(node, exp.Window):
            for part in parts_of_window(node):
                self._replace(part, variables, windows)
            return
        if isinstance(node, exp.Anonymous) and node.name in AGGREGATES:
            node.replace(self._result_of(node))
            return
        if isinstance(node, exp.Column) and node.name in WINDOW_BOUNDS and self._windowed and not node.table:
            if not windows:
                raise _misplaced_bound(node)
            node.replace(_reference("#" + node.name, written=node.name))
            return
        key = place_in_grouping(node, self._compiled, self._grouping.scope)
        if key is not None:
            node.replace(_reference(f"#k{key}", written=print_expression(node)))
            return
        if isinstance(node, exp.Column) and node.name in variables:
            node.replace(exp.Column(this=exp.Identifier(this=node.name, quoted=True), table=None))
            return
        if isinstance(node, exp.Lambda):
            self._grouping.scope.check_lambda(tuple(parameter.name for parameter in node.expressions), span_of(node))
            inner = variables | {parameter.name for parameter in node.expressions}
            self._replace_in_lambda(node, inner, windows)
            return
        for child in list(node.iter_expressions()):
            if not isinstance(child, exp.Identifier | exp.DataType):
                self._replace(child, variables, windows)

    def _result_of(self, node: exp.Anonymous) -> exp.Expression:
        """The column of a call. With `as_standard` or FILTER, a SUM or AVG of no values is NULL instead of 0."""
        result = _reference("#" + self._register(node).name, written=self._grouping.scope.in_plan(node))
        if node.name not in _ZERO_OF_NOTHING or not (self._as_standard or node.args.get("filter")):
            return result
        counting = node.copy()
        counting.set("this", "COUNT")
        count = _reference("#" + self._register(counting).name, written=print_expression(counting))
        return exp.Case(ifs=[exp.If(this=exp.GT(this=count, expression=exp.Literal.number(0)), true=result)])

    def _replace_in_lambda(self, node: exp.Lambda, variables: frozenset[str], windows: bool) -> None:
        """Variables are renamed to begin with `#=`: `#` marks them as known columns, and no column begins with `#=`."""
        renamed = {name: f"#={name}" for name in variables}
        for parameter in node.expressions:
            parameter.set("this", renamed.get(parameter.name, parameter.name))
        for reference in list(node.this.find_all(exp.Column)):
            if not reference.table and reference.name in renamed:
                reference.this.set("this", renamed[reference.name])
        self._replace(node.this, frozenset(renamed.values()), windows)

    def _register(self, node: exp.Anonymous) -> Call:
        inner = next(filter(None, map(contains_aggregate, node.iter_expressions())), None)
        if inner is not None:
            raise InvalidStatement(
                f"Aggregate functions can not be nested: {node.name}({inner}())",
                span=span_of(node),
                hint=f"Compute {inner} in a subquery in FROM, and aggregate its result.",
            )
        function = AGGREGATES[node.name]
        written = [argument for argument in node.expressions if not isinstance(argument, exp.Star)]
        if not written and node.name != "COUNT":
            written = [exp.Column(this=exp.Identifier(this="ROWTIME", quoted=True))]
        constant = set(function.constant_positions(len(written)))
        constants = tuple(_constant(argument, node) for i, argument in enumerate(written) if i in constant)
        scope = self._grouping.scope
        if self._windowed:
            _check_bounds(written)
        arguments = [compile_expression(argument, scope) for i, argument in enumerate(written) if i not in constant]
        signature = function.resolve([argument.type for argument in arguments], constants, span_of(node))
        arguments = [coerced(a, t) for a, t in zip(arguments, signature.parameter_types, strict=True)]
        condition = aggregate_filter(node, scope)
        distinct = is_distinct(node, arguments)
        key = (
            node.name,
            tuple(argument.tree.sql("duckdb") for argument in arguments),
            # As text: in Python, True == 1 == 1.0.
            (repr(constants), distinct, None if condition is None else condition.tree.sql("duckdb")),
        )
        if key not in self._keys:
            name = f"agg{len(self.calls)}"
            result = Column(name, signature.return_type)
            call = Call(name, node.name, tuple(arguments), constants, result, condition, distinct)
            self._keys[key] = call
            self.calls.append(call)
            self.intermediates.append(Column(node.name, signature.intermediate_type))
        return self._keys[key]

    def _result_scope(self, more: Columns) -> Scope:
        columns = {
            f"#k{i}": (typed.column or "", typed.type) for i, (_, typed) in enumerate(self._grouping.expressions)
        }
        columns |= {f"#{call.name}": (call.name, call.column.type) for call in self.calls}
        if self._windowed:
            columns |= {f"#{name}": (name, PSEUDO[name][1]) for name in WINDOW_BOUNDS}
        columns |= {"ROWTIME": ("ROWTIME", BIGINT), **more}
        return replace(self._grouping.scope, sources=(ScopeSource("", columns),))


def _check_bounds(arguments: Sequence[exp.Expression]) -> None:
    """A window's bounds are known in its result, but not while rows are aggregated."""
    for argument in arguments:
        bound = next((c for c in argument.find_all(exp.Column) if c.name in WINDOW_BOUNDS and not c.table), None)
        if bound is not None:
            raise _misplaced_bound(bound)


def _misplaced_bound(bound: exp.Column) -> InvalidStatement:
    return InvalidStatement(
        f"Window bounds column {bound.name} can only be used in the SELECT clause of windowed aggregations and can not "
        "be passed to aggregate functions.\nSee https://github.com/confluentinc/ksql/issues/4397",
        span=span_of(bound),
    )


def parts_of_window(node: exp.Window) -> list[exp.Expression]:
    """The expressions that a function OVER … reads. The function is no aggregate, but these may contain aggregates."""
    order = node.args.get("order")
    items = [] if order is None else [item.this for item in order.expressions]
    return [*node.this.iter_expressions(), *(node.args.get("partition_by") or ()), *items]


def _reference(name: str, *, written: str) -> exp.Column:
    column = exp.Column(this=exp.Identifier(this=name, quoted=True))
    column.meta["written"] = written
    return column


def _position(argument: exp.Expression, call: exp.Anonymous) -> int:
    """The position of the argument, from 1."""
    return next(i for i, other in enumerate(call.expressions, 1) if other is argument)


def _number(literal: exp.Literal) -> int | float:
    return float(literal.this) if any(mark in literal.this for mark in ".eE") else int(literal.this)


def _constant(argument: exp.Expression, call: exp.Anonymous) -> str | int | bool | float | None:
    node = unwrapped(argument)
    match node:
        case exp.Literal() if node.is_string:
            return node.this
        case exp.Literal():
            return _number(node)
        case exp.Boolean():
            return bool(node.this)
        case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return -_number(node.this)
        case exp.Null():
            return None
        case _:
            raise InvalidStatement(
                f"Parameter {_position(argument, call)} passed to function {call.name} must be a literal constant, "
                f"but was expression: '{print_expression(argument)}'",
                span=span_of(argument),
            )
