"""Compares two numbers without a common DECIMAL type of 38 digits, such as a DECIMAL(38, 0) and 5.5.

The number with more fractional digits is truncated to the scale of the other one, which always fits. If the two are
equal then, the digits that were cut off decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context
from decimal import Decimal as PythonDecimal

from sqlglot import exp

from ...sql import coercion
from ...sql.ast import unwrapped
from ...sql.functions.casts.cast_trees import plain_cast
from ...sql.types import DOUBLE, PRECISION_MAX, STRING, Decimal, SqlType
from .conversions import false_for_null, function_call, grouped
from .typed import Typed

_Pair = tuple[exp.Expression, exp.Expression]
_STRICT: Mapping[type[exp.Expression], type[exp.Expression]] = {exp.LTE: exp.LT, exp.GTE: exp.GT}


def has_room(left: SqlType, right: SqlType) -> bool:
    """Whether the common type of two numbers can represent every value of both."""
    if DOUBLE in (left, right) or not (isinstance(left, Decimal) or isinstance(right, Decimal)):
        return True
    common = coercion.widen_decimals(left, right)
    return coercion.can_coerce(left, common) and coercion.can_coerce(right, common)


def compared_exactly(operator: type[exp.Expression], left: Typed, right: Typed) -> exp.Expression:
    """`left operator right`, for numbers whose common type cannot represent both. It never fails, and is NULL when the
    operator's result is NULL."""
    types = [coercion.as_decimal(side.type) for side in (left, right)]
    trees = [
        coercion.cast_sql(side.tree, side.type, type_, explicit=True)
        for side, type_ in zip((left, right), types, strict=True)
    ]
    fine = 0 if types[0].scale > types[1].scale else 1
    cut = list(trees)
    cut[fine] = _cut(trees[fine], types[1 - fine].scale)
    rest = list(trees)
    rest[1 - fine] = plain_cast(cut[fine], types[fine])
    return _by_parts(operator, (cut[0], cut[1]), (rest[0], rest[1]))


def _cut(tree: exp.Expression, scale: int) -> exp.Expression:
    cut = function_call("trunc", tree.copy(), *([exp.Literal.number(scale)] if scale else []))
    return plain_cast(cut, Decimal(PRECISION_MAX, scale))


def _by_parts(operator: type[exp.Expression], whole: _Pair, rest: _Pair) -> exp.Expression:
    match operator:
        case exp.EQ:
            return exp.And(this=_of(exp.EQ, whole), expression=_of(exp.EQ, rest))
        case exp.NEQ:
            return exp.Or(this=_of(exp.NEQ, whole), expression=_of(exp.NEQ, rest))
        case exp.NullSafeNEQ:
            return exp.Or(this=_of(operator, whole), expression=false_for_null(_of(exp.NEQ, rest)))
        case exp.NullSafeEQ:
            return exp.Not(this=exp.Paren(this=_by_parts(exp.NullSafeNEQ, whole, rest)))
        case _:
            equal = exp.And(this=_of(exp.EQ, whole), expression=_of(operator, rest))
            return exp.Or(this=_of(_STRICT.get(operator, operator), whole), expression=exp.Paren(this=equal))


def _of(operator: type[exp.Expression], sides: _Pair) -> exp.Expression:
    return operator(this=grouped(sides[0].copy()), expression=grouped(sides[1].copy()))


def written_as(node: exp.Expression, type_: Decimal) -> exp.Expression | None:
    """A number literal (or a text with a number) as a value of the type; None if the type cannot represent it."""
    unscaled = _unscaled(_number_of(node), type_.scale)
    if unscaled is None or abs(unscaled) >= 10**type_.precision:
        return None
    text = PythonDecimal(unscaled).scaleb(-type_.scale, Context(prec=PRECISION_MAX))
    return plain_cast(exp.Literal.string(f"{text:f}"), type_)


def is_held(node: exp.Expression, item: Typed, type_: Decimal) -> bool:
    """Whether the type can represent every value of the item, or the number in a literal text."""
    if item.type == STRING:
        return written_as(node, type_) is not None
    return coercion.can_coerce(item.type, type_)


def _number_of(node: exp.Expression) -> PythonDecimal:
    """The number of a literal, which may be a text and may have a sign."""
    inner = unwrapped(node)
    if isinstance(inner, exp.Neg):
        return _number_of(inner.this).copy_negate()
    return PythonDecimal(inner.name.strip())


def _unscaled(number: PythonDecimal, scale: int) -> int | None:
    """The number times 10**scale, if that is an integer."""
    sign, digits, exponent = number.as_tuple()
    shift = int(exponent) + scale
    whole = int("".join(map(str, digits)))
    whole, rest = divmod(whole * 10 ** max(shift, 0), 10 ** max(-shift, 0))
    return None if rest else -whole if sign else whole
