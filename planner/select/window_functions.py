"""TUMBLE, HOP and SESSION of SQL:2016 in FROM.

TUMBLE and HOP add the window that contains a column's time to each row, as two columns; this needs no state. SESSION
has a meaning only with GROUP BY, and becomes WINDOW SESSION there. TUMBLE and HOP with EMIT FINAL become a WINDOW
clause, too, because EMIT FINAL needs windows that close.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from millstream.errors import InvalidStatement, SqlSyntaxError, TypeMismatch, Unsupported

from ...sql import ast
from ...sql.ast import Query, SelectColumn, span_of, unwrapped
from ...sql.functions.catalog import find_function
from ...sql.printing import print_expression
from ...sql.types import BIGINT, BOOLEAN, TIMESTAMP, SqlType
from ...sql.windows.hopping import Hopping
from ...sql.windows.session import SessionWindow
from ...sql.windows.tumbling import Tumbling
from ..expressions.compilation import compile_call, compile_expression
from ..expressions.scope import Scope, ScopeSource
from ..expressions.typed import Typed, column
from ..logical import LogicalPlan, Named
from ..planning import PlanningContext
from ..schema import Column, Schema
from ..steps.explode import LogicalExplode
from ..steps.filter import LogicalFilter
from ..steps.project import LogicalProject
from ..steps.source import Scan
from .naming import bare_name
from .origin import Origin
from .relation import PlannedRelation
from .table_functions import TableFunction, find_table_function

START, END = "WINDOW_START", "WINDOW_END"
_ELEMENT = "#window"
_WINDOWS_PER_ROW_MAX = 100_000


class _OfGroups(TableFunction):
    """A function whose windows may be used by GROUP BY, as in a WINDOW clause."""

    def clause(self, call: ast.TableFunctionCall) -> ast.WindowExpression:
        """The same windows as a WINDOW clause."""
        raise AssertionError(f"{type(self).__name__} has no windows")

    def check_grouping(self, query: Query, call: ast.TableFunctionCall) -> None:
        """Raises `InvalidStatement` if `query` does not group by the windows."""
        raise AssertionError(f"{type(self).__name__} has no groups")

    def ends_later_ms(self, call: ast.TableFunctionCall) -> int:
        """How much later its windows end than those of the WINDOW clause."""
        return 0


class _WindowFunction(_OfGroups):
    """A function that adds the columns WINDOW_START and WINDOW_END to `origin`."""

    def over(self, call: ast.TableFunctionCall, origin: Origin, context: PlanningContext) -> Origin:
        time = _descriptor(call, origin, context)
        if call.as_clause:
            return _by_descriptor(call, origin, time)
        taken = next((name for name in (START, END) if origin.source.schema.find(name)), None)
        if taken is not None:
            raise InvalidStatement(
                f'{call.name} adds a column "{taken}", and "{call.source.name}" has one already',
                span=call.span,
                hint="Give it another name in a subquery, and read that: (SELECT … AS … FROM …).",
            )
        size_ms, step_ms = self.sizes(call)
        if size_ms // step_ms > _WINDOWS_PER_ROW_MAX:
            raise InvalidStatement(f"each row would fall into {size_ms // step_ms} windows", span=call.span)
        rows, start = self.starts(call, origin.plan, time)
        return _with_windows(origin, rows, start, size_ms, time.type)

    def sizes(self, call: ast.TableFunctionCall) -> tuple[int, int]:
        """Size and step in ms."""
        return call.intervals_ms[-1], call.intervals_ms[0]

    def starts(self, call: ast.TableFunctionCall, rows: LogicalPlan, time: Typed) -> tuple[LogicalPlan, Typed]:
        """The rows, once for each of their windows, and the start of that window."""
        raise AssertionError(f"{type(self).__name__} has no windows")

    def check_grouping(self, query: Query, call: ast.TableFunctionCall) -> None:
        _check_closing(query, call)


class Tumble(_WindowFunction):
    name = "TUMBLE"
    shape = "di"
    example = "TUMBLE(TABLE bids, DESCRIPTOR(time), INTERVAL '10' SECOND)"

    def starts(self, call: ast.TableFunctionCall, rows: LogicalPlan, time: Typed) -> tuple[LogicalPlan, Typed]:
        there = exp.Not(this=exp.Is(this=time.tree.copy(), expression=exp.Null()))
        start = Typed(_floored(_milliseconds(time).tree, call.intervals_ms[0]), BIGINT)
        return LogicalFilter(rows, Typed(there, BOOLEAN, total=True)), start

    def clause(self, call: ast.TableFunctionCall) -> ast.WindowExpression:
        return ast.WindowExpression(kind=Tumbling.name, size_ms=call.intervals_ms[0], span=call.span)


class Hop(_WindowFunction):
    name = "HOP"
    shape = "dii"
    example = "HOP(TABLE bids, DESCRIPTOR(time), INTERVAL '2' SECOND, INTERVAL '10' SECOND), step and size"

    def over(self, call: ast.TableFunctionCall, origin: Origin, context: PlanningContext) -> Origin:
        step_ms, size_ms = call.intervals_ms
        if step_ms > size_ms:
            raise SqlSyntaxError(
                "the step of HOP is larger than its size", span=call.name_span, hint=f"Write {self.example}."
            )
        if origin.plan.kind == "TABLE":
            raise Unsupported(
                "HOP puts each row into several windows, but a table has one row per key",
                span=call.span,
                hint="HOP takes a stream; over a table there is TUMBLE.",
            )
        windowed = super().over(call, origin, context)
        return replace(windowed, identity=(*origin.identity, START)) if origin.identity else windowed

    def starts(self, call: ast.TableFunctionCall, rows: LogicalPlan, time: Typed) -> tuple[LogicalPlan, Typed]:
        step_ms, size_ms = call.intervals_ms
        starts = _starts(_milliseconds(time), size_ms, step_ms)
        return LogicalExplode(rows, (Named(_ELEMENT, starts),)), column(_ELEMENT, BIGINT)

    def clause(self, call: ast.TableFunctionCall) -> ast.WindowExpression:
        step_ms, size_ms = call.intervals_ms
        return ast.WindowExpression(kind=Hopping.name, size_ms=size_ms, advance_ms=step_ms, span=call.span)


def _descriptor(call: ast.TableFunctionCall, origin: Origin, context: PlanningContext) -> Typed:
    columns = {c.name: (c.name, c.type) for c in origin.source.schema} | {"ROWTIME": ("ROWTIME", BIGINT)}
    scope = Scope((ScopeSource(call.source.name, columns),), context.catalog.types, "DESCRIPTOR")
    (written,) = call.descriptors
    time = compile_expression(written, scope)
    if time.type not in (BIGINT, TIMESTAMP):
        raise TypeMismatch(
            f"DESCRIPTOR takes a TIMESTAMP or a BIGINT in milliseconds, not {print_expression(written)} ({time.type})",
            span=span_of(written),
        )
    return time


def _with_windows(origin: Origin, rows: LogicalPlan, start: Typed, size_ms: int, type_: SqlType) -> Origin:
    """`rows` of the origin with the bounds of their windows, which have the type of the time column."""
    end = Typed(exp.Add(this=exp.Paren(this=start.tree.copy()), expression=_number(size_ms)), BIGINT)
    added = (Named(START, _as_time(start, type_)), Named(END, _as_time(end, type_)))
    values = tuple(Named(c.name, column(c.name, c.type)) for c in origin.plan.schema.value)
    schema = Schema((*origin.source.schema.columns, *(Column(named.name, type_) for named in added)))
    return replace(
        origin,
        source=replace(origin.source, schema=schema),
        plan=LogicalProject(rows, (*values, *added)),
        beyond=True,
    )


def _starts(time_ms: Typed, size_ms: int, step_ms: int) -> Typed:
    """The starts of the windows that contain the time: multiples of the step in (time - size, time]."""
    earliest = exp.Sub(this=exp.Paren(this=time_ms.tree.copy()), expression=_number(size_ms))
    low = exp.Add(this=_floored(earliest, step_ms), expression=_number(step_ms))
    beyond = exp.Add(this=exp.Paren(this=time_ms.tree.copy()), expression=_number(1))
    return Typed(exp.Anonymous(this="range", expressions=[low, beyond, _number(step_ms)]), BIGINT)


def _floored(time: exp.Expression, step_ms: int) -> exp.Expression:
    """The largest multiple of the step that is not later than the time. DuckDB's remainder has the sign of the
    dividend."""
    remainder = exp.Mod(this=exp.Paren(this=time.copy()), expression=_number(step_ms))
    positive = exp.Mod(
        this=exp.Paren(this=exp.Add(this=exp.Paren(this=remainder), expression=_number(step_ms))),
        expression=_number(step_ms),
    )
    return exp.Paren(this=exp.Sub(this=exp.Paren(this=time.copy()), expression=exp.Paren(this=positive)))


def _number(value: int) -> exp.Expression:
    return exp.Cast(this=exp.Literal.number(value), to=exp.DataType.build("BIGINT"))


def _milliseconds(time: Typed) -> Typed:
    return time if time.type == BIGINT else _call("UNIX_TIMESTAMP", time)


def _as_time(time_ms: Typed, type_: SqlType) -> Typed:
    return time_ms if type_ == BIGINT else _call("FROM_UNIXTIME", time_ms)


def _call(name: str, argument: Typed) -> Typed:
    """A call of a function of the catalog with a typed expression."""
    node = exp.Anonymous(this=name, expressions=[exp.Column(this=exp.Identifier(this="#argument", quoted=True))])
    scope = Scope((ScopeSource("", {"#argument": ("#argument", argument.type)}),))
    call = compile_call(find_function(name, None), node, scope)
    tree = call.tree.transform(lambda part: exp.Paren(this=argument.tree.copy()) if _is_argument(part) else part)
    return Typed(tree, call.type, call.total and argument.total)


def _is_argument(part: exp.Expression) -> bool:
    return isinstance(part, exp.Column) and part.name == "#argument"


# ------------------------------------------------------------------ as WINDOW …


class SessionFunction(_OfGroups):
    """SESSION leaves the rows unchanged; GROUP BY over it becomes WINDOW SESSION, see `with_window_clause`."""

    name = SessionWindow.name
    shape = "k*di"
    example = "SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(time), INTERVAL '10' SECOND)"

    def over(self, call: ast.TableFunctionCall, origin: Origin, context: PlanningContext) -> Origin:
        return _by_descriptor(call, origin, _descriptor(call, origin, context))

    def clause(self, call: ast.TableFunctionCall) -> ast.WindowExpression:
        return ast.WindowExpression(kind=SessionWindow.name, size_ms=call.intervals_ms[0], span=call.span)

    def check_grouping(self, query: Query, call: ast.TableFunctionCall) -> None:
        _check_session(query, call)

    def ends_later_ms(self, call: ast.TableFunctionCall) -> int:
        return call.intervals_ms[0]


def _by_descriptor(function: ast.TableFunctionCall, origin: Origin, time: Typed) -> Origin:
    """The rows with the column as their ROWTIME."""
    if not isinstance(origin.plan, Scan) or origin.plan.kind == "TABLE":
        final = " with EMIT FINAL" if function.as_clause else ""
        raise Unsupported(
            f'{function.name}{final} takes a stream, and "{function.source.name}" is {_spoken(origin)}',
            span=function.source.span,
            hint="Make a stream of it first with CREATE STREAM … WITH (TIMESTAMP = …) AS SELECT.",
        )
    if time.column == "ROWTIME":
        return replace(origin, beyond=True)
    return replace(origin, plan=replace(origin.plan, timestamp=_milliseconds(time)), beyond=True)


def _spoken(origin: Origin) -> str:
    return "a table" if origin.plan.kind == "TABLE" else "a query of its own"


def with_closing_windows(query: Query) -> Query:
    """Marks TUMBLE and HOP with EMIT FINAL, which then only define the windows that close. Other queries are
    unchanged."""
    function = query.source
    if query.emit != "FINAL" or query.window is not None or not isinstance(function, ast.TableFunctionCall):
        return query
    if not isinstance(find_table_function(function), _WindowFunction):
        return query
    return replace(query, source=replace(function, as_clause=True))


def with_window_clause(query: Query, relation: PlannedRelation) -> Query:
    """Rewrites GROUP BY over a function that only defines windows as GROUP BY with WINDOW; other queries are unchanged.
    `relation`: of its FROM.

    WINDOW_START of a session is the time of its first row, WINDOW_END a gap after its last one.
    """
    function = query.source
    if not isinstance(function, ast.TableFunctionCall):
        _refuse_in_joins(function)
        return query
    found = find_table_function(function)
    if not isinstance(found, _OfGroups) or not (function.as_clause or isinstance(found, SessionFunction)):
        return query
    if query.window is not None:
        raise InvalidStatement(f"WINDOW cannot stand beside {function.name}(…)", span=query.window.span)
    found.check_grouping(query, function)
    keys = tuple(node for node in query.group_by if bare_name(node) not in (START, END))
    bounds = _bounds(found.ends_later_ms(function), compile_expression(function.descriptors[0], relation.scope).type)
    return replace(
        query,
        items=tuple(_item(item, bounds) for item in query.items),
        window=found.clause(function),
        group_by=keys or (exp.Literal.number(0),),
        having=None if query.having is None else bounds(query.having),
    )


def _check_closing(query: Query, function: ast.TableFunctionCall) -> None:
    if not {START, END} & {bare_name(node) for node in query.group_by}:
        raise InvalidStatement(
            f"EMIT FINAL gives what a window holds when it closes, and GROUP BY does not name that of {function.name}",
            span=span_of(query.group_by[0]) if query.group_by else query.span,
            hint="Write GROUP BY …, window_start, window_end; or EMIT CHANGES.",
        )
    asked = [] if query.where is None else [c for c in query.where.find_all(exp.Column) if c.name in (START, END)]
    if asked:
        raise InvalidStatement(
            f"with EMIT FINAL, WHERE does not know {asked[0].name}: a row's windows are found after it",
            span=span_of(asked[0]) or query.span,
            hint=f"Filter the result: SELECT * FROM (SELECT … EMIT FINAL) q WHERE {asked[0].name} > ….",
        )


def _check_session(query: Query, function: ast.TableFunctionCall) -> None:
    grouped = [print_expression(unwrapped(node)) for node in query.group_by]
    names = [bare_name(node) for node in query.group_by]
    missing = [print_expression(key) for key in function.partition_by if bare_name(key) not in names]
    missing += [name for name in (START, END) if name not in names]
    extra = [
        text
        for text, name in zip(grouped, names, strict=True)
        if name not in (START, END, *(bare_name(key) for key in function.partition_by))
    ]
    if missing or extra:
        listed = ", ".join([*(print_expression(key) for key in function.partition_by), "window_start", "window_end"])
        raise InvalidStatement(
            "sessions are told apart by what SESSION is partitioned by, and grouped by that",
            span=span_of(query.group_by[0]) if query.group_by else query.span,
            hint=f"Write GROUP BY {listed}.",
        )


def _refuse_in_joins(relation: ast.Relation) -> None:
    members = [relation.left, relation.right] if isinstance(relation, ast.Join) else []
    for member in members:
        if isinstance(member, ast.TableFunctionCall) and member.name == SessionFunction.name:
            raise InvalidStatement(
                "SESSION(…) stands alone in FROM, under GROUP BY",
                span=member.span,
                hint="Group the sessions in a subquery, and join that.",
            )
        _refuse_in_joins(member)


def _item(item: ast.SelectItem, rewrite: Callable[[exp.Expression], exp.Expression]) -> ast.SelectItem:
    if not isinstance(item, SelectColumn):
        return item
    name = bare_name(item.expression)
    alias = name if item.alias is None and name in (START, END) else item.alias
    return replace(item, expression=rewrite(item.expression), alias=alias)


def _bounds(later_ms: int, type_: SqlType) -> Callable[[exp.Expression], exp.Expression]:
    """A function that replaces WINDOW_START and WINDOW_END by the bounds of the WINDOW clause. In: `later_ms`: how much
    later the function's windows end; `type_`: for TIMESTAMP, the bounds are converted."""
    start = exp.Column(this=exp.Identifier(this="WINDOWSTART", quoted=True))
    end: exp.Expression = exp.Column(this=exp.Identifier(this="WINDOWEND", quoted=True))
    if later_ms:
        end = exp.Paren(this=exp.Add(this=end, expression=exp.Literal.number(later_ms)))
    bounds: dict[str, exp.Expression] = {START: start, END: end}
    if type_ == TIMESTAMP:
        bounds = {name: exp.Anonymous(this="FROM_UNIXTIME", expressions=[ms]) for name, ms in bounds.items()}

    def rewrite(node: exp.Expression) -> exp.Expression:
        def replaced(part: exp.Expression) -> exp.Expression:
            return bounds[part.name].copy() if isinstance(part, exp.Column) and part.name in bounds else part

        return node.copy().transform(replaced)

    return rewrite
