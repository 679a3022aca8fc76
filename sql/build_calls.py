"""The grammar's rules for calls: arguments, the forms of standard SQL with keywords between arguments, FILTER and
OVER."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from lark import Token
from sqlglot import exp

from millstream.errors import SqlSyntaxError

from .parts import Part, at, has, items, span_of_all, statement_text
from .tokens import token_span

_FRAME_BOUND_MAX = 1_000_000
_FRAME_DIGITS_MAX = 80
_BEFORE_ALL, _AFTER_ALL = ("UNBOUNDED", "PRECEDING"), ("UNBOUNDED", "FOLLOWING")


class CallRules:
    def call(self, children: list[Any]) -> exp.Expression:
        name, *arguments, condition, over = _parts(children)
        return _call(children, name.name, arguments, condition, over)

    def call_star(self, children: list[Any]) -> exp.Expression:
        star = at(exp.Star(), token_span(children[2]))
        return _call(children, children[0].name, [star], children[-2], children[-1])

    def call_distinct(self, children: list[Any]) -> exp.Expression:
        name, *arguments, condition, over = _parts(children)
        return _call(children, name.name, arguments, condition, over, distinct=True)

    def plain_call(self, children: list[Any]) -> exp.Expression:
        """A function whose name is a keyword, because keywords may be between its arguments."""
        function, arguments = children[0].type, items(children)
        if function == "POSITION" and len(arguments) == 1 and isinstance(arguments[0], exp.In):
            within = arguments[0]  # POSITION('x' IN (text)) parses as a list of one item
            arguments = [within.this, *within.expressions]
        return _call(children, function, arguments, None, None)

    def extract(self, children: list[Any]) -> exp.Expression:
        field, value = items(children)
        unit = at(exp.Var(this=field.name), field.meta["span"])  # never a column, even if the unit does not exist
        return _call(children, "EXTRACT", [unit, value], None, None)

    def filter_clause(self, children: list[Any]) -> Part | None:
        return Part(children[3], span_of_all(children)) if children else None

    # -------------------------------------------------------------- OVER

    def over_clause(self, children: list[Any]) -> exp.Expression | None:
        if not children:
            return None
        partition, order, frame = children[2:5]
        sorted_by = None if order is None else at(exp.Order(expressions=order.value), order.span)
        partition_by = [] if partition is None else partition.value
        return at(exp.Window(partition_by=partition_by, order=sorted_by, spec=frame), span_of_all(children))

    def over_partition(self, children: list[Any]) -> Part | None:
        return Part(items(children), span_of_all(children)) if children else None

    over_order = over_partition

    def sort_item(self, children: list[Any]) -> exp.Expression:
        """NULLs come last, in both directions, unless NULLS FIRST is given."""
        descending, nulls_first = has(children, "DESC"), has(children, "FIRST")
        return at(exp.Ordered(this=children[0], desc=descending, nulls_first=nulls_first), span_of_all(children))

    def over_frame(self, children: list[Any]) -> exp.Expression | None:
        """A GRACE PERIOD is stored in the frame as a literal, in ms."""
        if not children:
            return None
        kind, *bounds, grace = children[0], *items(children[1:-1]), children[-1]
        if kind.type == "GROUPS":
            hint = "Count rows with ROWS, or bound the values of ORDER BY with RANGE."
            raise SqlSyntaxError("frames of GROUPS are not supported", span=token_span(kind), hint=hint)
        if kind.type == "ROWS":
            _check_counts(bounds, grace)
        start, end = bounds[0].value, bounds[1].value if len(bounds) > 1 else ("CURRENT ROW", None)
        span = span_of_all(children)
        if _place(start) > _place(end) or start == _AFTER_ALL or end == _BEFORE_ALL:
            hint = f"Write the earlier row first: {kind.type} BETWEEN 10 PRECEDING AND CURRENT ROW."
            raise SqlSyntaxError("the frame ends before it begins", span=span, hint=hint)
        spec = exp.WindowSpec(kind=kind.type, start=start[0], start_side=start[1], end=end[0], end_side=end[1])
        if grace is not None:
            spec.set("grace", exp.Literal.number(grace.value))
        return at(spec, span)

    def frame_bound(self, children: list[Any]) -> Part:
        span = span_of_all(children)
        if has(children, "CURRENT"):
            return Part(("CURRENT ROW", None), span)
        distance, side = children
        return Part(("UNBOUNDED" if isinstance(distance, Token) else distance, side.type), span)

    def frame_distance(self, children: list[Any]) -> exp.Expression:
        """A duration becomes an `Interval` in ms."""
        written, span = children[-1], span_of_all(children)
        if isinstance(written, exp.Expression):
            return written
        if isinstance(written, Part):
            node = at(exp.Interval(this=exp.Literal.number(written.value)), span)
            node.meta["written"] = statement_text(span)
            return node
        if len(written) > _FRAME_DIGITS_MAX:
            raise SqlSyntaxError("the number is too large", span=span)
        return at(exp.Literal.number(str(written)), span)


def _check_counts(bounds: Sequence[Part], grace: Part | None) -> None:
    """Checks the bounds of a ROWS frame. Raises `SqlSyntaxError`."""
    for bound in bounds:
        distance, side = bound.value
        if side is None or isinstance(distance, str):
            continue
        if isinstance(distance, exp.Interval) or not distance.name.isdigit():
            hint = "Bound the values of ORDER BY with RANGE instead."
            raise SqlSyntaxError("a frame of ROWS counts rows, in whole numbers", span=bound.span, hint=hint)
        if int(distance.name) > _FRAME_BOUND_MAX:
            raise SqlSyntaxError(f"a frame reaches at most {_FRAME_BOUND_MAX} rows", span=bound.span)
        distance.set("this", str(int(distance.name)))
    if grace is not None:
        hint = "Bound the time of the rows with RANGE instead."
        raise SqlSyntaxError("a frame of ROWS takes no GRACE PERIOD", span=grace.span, hint=hint)


def _parts(children: list[Any]) -> list[Any]:
    """The name, the arguments, the condition of FILTER and the window of OVER; the last two may be None."""
    return [*items(children[:-2]), *children[-2:]]


def _call(
    children: list[Any],
    name: str,
    arguments: list[exp.Expression],
    condition: Part | None,
    over: exp.Expression | None,
    *,
    distinct: bool = False,
) -> exp.Expression:
    end = next(i for i, child in enumerate(children) if isinstance(child, Token) and child.type == "RPAR")
    node = at(exp.Anonymous(this=name.upper(), expressions=arguments), span_of_all(children[: end + 1]))
    if distinct:
        node.set("distinct", True)
    if condition is not None:
        node.set("filter", condition.value)
    if over is None:
        return at(node, span_of_all(children))
    over.set("this", node)
    return at(over, span_of_all(children))


def _place(bound: tuple[Any, str | None]) -> Decimal:
    """The position of a bound relative to the current row."""
    distance, side = bound
    if side is None:
        return Decimal(0)
    steps = Decimal("inf") if distance == "UNBOUNDED" else Decimal(distance.name)
    return -steps if side == "PRECEDING" else steps
