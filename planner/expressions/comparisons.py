"""Comparisons by ksqlDB's rules: which types compare, NULL is never equal, a text compared with ROWTIME is a time.

The functions take compiled operands, and the node of the comparison for messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.errors import InvalidStatement, TypeMismatch

from ...sql import coercion
from ...sql.ast import span_of, unwrapped
from ...sql.functions.like import MATCHES_LIKE, is_simple
from ...sql.functions.udf import Udf
from ...sql.iso_time import InvalidTime, epoch_ms
from ...sql.printing import print_expression
from ...sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
    is_numeric,
)
from ..limits import count_step
from ..schema import WINDOW_BOUNDS
from .conversions import coerced, false_for_null, function_call, grouped, with_unknown_cases
from .exact_decimals import compared_exactly, has_room, is_held, written_as
from .scope import Scope
from .typed import Typed

_COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "EQUAL", exp.NEQ: "NOT_EQUAL", exp.LT: "LESS_THAN", exp.LTE: "LESS_THAN_OR_EQUAL",
    exp.GT: "GREATER_THAN", exp.GTE: "GREATER_THAN_OR_EQUAL",
    exp.NullSafeNEQ: "IS_DISTINCT_FROM", exp.NullSafeEQ: "IS_NOT_DISTINCT_FROM",
}  # fmt: skip
_SIGNS: dict[type[exp.Expression], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_TIMES = (DATE, TIME, TIMESTAMP)
_TIME_COLUMNS = ("ROWTIME", *WINDOW_BOUNDS)

_LIST_MIN = 8  # for fewer items, single comparisons are as fast, and easier to read in EXPLAIN

_Side = tuple[exp.Expression, Typed]  # the parsed expression, for messages, and the compiled one


def comparison(node: exp.Expression, left: Typed, right: Typed, scope: Scope) -> Typed:
    """One of `=`, `<`, IS DISTINCT FROM and the like. Raises `TypeMismatch` if ksqlDB does not compare the types."""
    left, right = _comparable(node, (node.this, left), (node.expression, right), scope)
    total = left.total and right.total
    tree = _compared(node, type(node), left, right)
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        return Typed(exp.Paren(this=tree), BOOLEAN, total)
    return Typed(false_for_null(tree), BOOLEAN, total)


def between(node: exp.Between, value: Typed, low: Typed, high: Typed, scope: Scope) -> Typed:
    """`value BETWEEN low AND high`; each bound is compared with the value according to its own type."""
    again = Typed(value.tree.copy(), value.type, value.total)
    value, low = _comparable(node, (node.this, value), (node.args["low"], low), scope)
    value2, high = _comparable(node, (node.this, again), (node.args["high"], high), scope)
    tree = exp.and_(_compared(node, exp.GTE, value, low), _compared(node, exp.LTE, value2, high))
    total = value.total and low.total and value2.total and high.total
    return Typed(false_for_null(tree), BOOLEAN, total)


def _compared(node: exp.Expression, operator: type[exp.Expression], left: Typed, right: Typed) -> exp.Expression:
    left, right = with_unknown_cases(left), with_unknown_cases(right)
    if left.type != right.type and is_numeric(left.type) and is_numeric(right.type):
        if not has_room(left.type, right.type):
            tree = compared_exactly(operator, left, right)
            count_step(node, tree)
            return tree
        common = coercion.common_type((left.type, right.type))
        left, right = coerced(left, common), coerced(right, common)
    return operator(this=grouped(left.tree), expression=grouped(right.tree))


def is_in(node: exp.In, value: Typed, options: Sequence[Typed]) -> Typed:
    """Converts the value and all items to one type; texts among numbers are read as numbers.

    Items that are literals become one list for DuckDB, and the value's expression occurs once beside it: if it occurred
    once per item, nested INs would grow as the product of their items."""
    times = [_is_magic(option, value) for option in options]
    options = [_magic_time(option, value) for option in options]
    written = [o.tree if time else one for time, o, one in zip(times, options, node.expressions, strict=True)]
    try:
        common = coercion.common_type([value.type, *(o.type for o in options)], [node.this, *written])
    except TypeMismatch as mismatch:
        span = mismatch.span or span_of(node)
        raise TypeMismatch(f"Invalid Predicate: {mismatch.message}", span=span, hint=mismatch.hint) from mismatch
    known = [(one, option) for one, option in zip(written, options, strict=True) if option.type != NULL]
    if not known:
        return Typed(exp.false(), BOOLEAN, True)
    if isinstance(common, Decimal) and not all(is_held(*side, common) for side in ((node.this, value), *known)):
        return _is_in_decimals(node, value, known)
    known = [(one, coerced(option, common)) for one, option in known]
    value = coerced(value, common)
    total = value.total and all(option.total for _, option in known)  # after the conversions, which can fail
    listed = [option.tree for one, option in known if _is_value(one)]
    others = [option for one, option in known if not _is_value(one)]
    if total and len(listed) < _LIST_MIN:  # if it can fail, see `_is_listed`
        listed, others = [], [option for _, option in known]
    return _found(node, value, listed, others, total)


def _is_in_decimals(node: exp.In, value: Typed, items: Sequence[_Side]) -> Typed:
    """No type can hold all items, so each is compared with the value separately. A literal that the value's type cannot
    represent equals none of its values."""
    type_ = coercion.as_decimal(value.type)
    value = Typed(coerced(value, type_).tree, type_, value.total)
    listed = [written_as(one, type_) for one, _ in items if _is_value(one)]
    others = [item for one, item in items if not _is_value(one)]
    total = value.total and all(item.total for item in others)
    return _found(node, value, [tree for tree in listed if tree is not None], others, total)


def _found(node: exp.In, value: Typed, listed: Sequence[exp.Expression], others: Sequence[Typed], total: bool) -> Typed:
    """Whether the value is one of the `listed`, which are values of its type, or equals one of the `others`."""
    left = grouped(value.tree)
    count_step(node, left, len(others) + bool(listed))
    found = [_is_listed(left, listed, total)] if listed else [exp.false()] if not others else []
    found += [_compared(node, exp.EQ, Typed(left.copy(), value.type), other) for other in others]
    return Typed(false_for_null(exp.or_(*found, copy=False)), BOOLEAN, total)


def _is_listed(value: exp.Expression, items: Sequence[exp.Expression], total: bool) -> exp.Expression:
    """Whether the value is one of the items. An expression that can fail uses `list_position`: DuckDB turns
    `list_contains`, and equalities joined by OR, into a join, and then computes the value outside the TRY."""
    values = function_call("list_value", *items)
    if total:
        return function_call("list_contains", values, value)
    return exp.GT(this=function_call("list_position", values, value), expression=exp.Literal.number(0))


def _is_value(node: exp.Expression) -> bool:
    inner = unwrapped(node)
    return isinstance(inner.this if isinstance(inner, exp.Neg) else inner, exp.Literal | exp.Boolean)


def like(node: exp.Expression, value: Typed, pattern: Typed, escape: exp.Expression | None) -> Typed:
    """`value LIKE pattern`, optionally with an ESCAPE character for `%` and `_`."""
    for side in (value, pattern):
        if side.type not in (STRING, NULL):
            raise TypeMismatch(
                "Like condition must be between strings. "
                f"The column type for Like condition must be VARCHAR. The column type is {side.type}",
                span=span_of(node),
            )
    if escape is not None and not (isinstance(escape, exp.Literal) and len(escape.this) == 1):
        raise InvalidStatement("ESCAPE takes a single character", span=span_of(escape))
    total = escape is None and value.total and pattern.total
    if not is_simple(pattern.tree):
        sides = [coerced(side, STRING).tree for side in (value, pattern)]
        sides += [] if escape is None else [exp.Literal.string(escape.this)]
        tree = Udf(MATCHES_LIKE, (STRING,) * len(sides), BOOLEAN).call(sides)
        return Typed(false_for_null(tree), BOOLEAN, total)
    tree: exp.Expression = exp.Like(this=grouped(value.tree), expression=grouped(pattern.tree))
    if escape is not None:
        tree = exp.Escape(this=tree, expression=exp.Literal.string(escape.this))
    return Typed(false_for_null(tree), BOOLEAN, total)


def _comparable(node: exp.Expression, one: _Side, other: _Side, scope: Scope) -> tuple[Typed, Typed]:
    """Both sides, converted to one type. Raises `TypeMismatch` if ksqlDB does not compare them."""
    (a, left), (b, right) = one, other
    where = "" if scope.clause == "SELECT" else f"Error in {scope.clause} expression: "
    if NULL in (left.type, right.type) and not isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        raise InvalidStatement(
            f"{where}Comparison with NULL not supported: {left.type} {_SIGNS.get(type(node), 'BETWEEN')} {right.type}\n"
            f"Use 'IS NULL' or 'IS NOT NULL' instead.\nStatement: {print_expression(node)}",
            span=span_of(node),
        )
    left, right = _magic_time(left, right), _magic_time(right, left)
    if left.type == right.type or NULL in (left.type, right.type):
        comparable = NULL in (left.type, right.type) or _allows(node, left.type)
    elif is_numeric(left.type) and is_numeric(right.type):
        comparable = True
    else:
        comparable = ({left.type, right.type} <= {STRING, *_TIMES} and (STRING in (left.type, right.type))) or (
            {left.type, right.type} == {DATE, TIMESTAMP}
        )
    if not comparable:
        operator = _COMPARISONS.get(type(node), "EQUAL")
        raise TypeMismatch(
            f"{where}Cannot compare {scope.in_plan(a)} ({left.type}) to {scope.in_plan(b)} ({right.type}) "
            f"with {operator}.\nStatement: {print_expression(node)}",
            span=span_of(node),
            hint=f"Make one like the other: CAST({print_expression(b)} AS {left.type}).",
        )
    if left.type == right.type or NULL in (left.type, right.type):
        return left, right
    if {left.type, right.type} == {DATE, TIMESTAMP}:
        common: SqlType = TIMESTAMP
    elif STRING in (left.type, right.type):
        common = right.type if left.type == STRING else left.type
    elif not has_room(left.type, right.type):
        return left, right  # see `_compared`
    else:
        common = coercion.common_type((left.type, right.type))
    return coerced(left, common), coerced(right, common)


def _allows(node: exp.Expression, type_: SqlType) -> bool:
    ordered = isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between)
    return not ordered or not (type_ == BOOLEAN or isinstance(type_, Array | Map | Struct))


def _magic_time(side: Typed, other: Typed) -> Typed:
    """A text compared with ROWTIME, WINDOWSTART or WINDOWEND is a point in time."""
    return side if not _is_magic(side, other) else _epoch(side)


def _is_magic(side: Typed, other: Typed) -> bool:
    name = other.column
    return (
        name is not None
        and other.type == BIGINT
        and name.rsplit("_", 1)[-1] in _TIME_COLUMNS
        and isinstance(side.tree, exp.Literal)
        and side.type == STRING
    )


def _epoch(side: Typed) -> Typed:
    try:
        return Typed(exp.Literal.number(str(epoch_ms(side.tree.this))), BIGINT, total=True)
    except InvalidTime as invalid:
        hint = "Write it as '2020-12-31T23:59:59.999'."
        raise InvalidStatement(str(invalid), span=span_of(side.tree), hint=hint) from invalid
