"""Conversions between types: which are possible, the common type of several types, and result types of arithmetic.

`functions/casts/cast_trees.py` renders conversions as DuckDB SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal as PythonDecimal
from decimal import InvalidOperation
from typing import Literal

from sqlglot import exp

from millstream.errors import TypeMismatch

from .ast import span_of, unwrapped
from .functions.casts import cast_functions
from .functions.casts.cast_trees import cast_tree, plain_cast, reads_as
from .functions.casts.failing_casts import DIVISION_BY_ZERO
from .functions.signature import BIGINT_AS_DECIMAL, INTEGER_AS_DECIMAL
from .functions.trees import owned
from .functions.udf import PythonFunction, Udf
from .printing import print_expression
from .types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    PRECISION_MAX,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    SqlType,
    Struct,
    is_numeric,
)

Operator = Literal["+", "-", "*", "/", "%"]
_TIME_FORMS: Mapping[SqlType, str] = {
    DATE: "A DATE is written as '2020-12-31'; day and month may be missing.",
    TIME: "A TIME is written as '23:59:59.999'; seconds may be missing.",
    TIMESTAMP: "A TIMESTAMP is written as '2020-12-31T23:59:59.999'; it may end earlier, and behind the time an offset "
    "as +02:00 may stand.",
}
_DIVISION_NODES_MAX = 100  # a side may itself be a division: each level triples the number of nodes
_SMALL_MAX = 18  # digits that fit DuckDB's 64 bits
_SCALE_KEPT = 6  # digits after the point that a result keeps even if its precision has to be reduced


# ------------------------------------------------------------------ implicit conversion


def can_coerce(source: SqlType, target: SqlType, *, literal: bool = False) -> bool:
    """Whether a value of `source` converts to `target` without CAST.

    `literal`: the value is written in the statement. Then numbers, booleans and times also convert from and to text.
    """
    match source, target:
        case _ if source == target or source == NULL:
            return True
        case Decimal(), Decimal():
            whole = source.precision - source.scale <= target.precision - target.scale
            return whole and source.scale <= target.scale
        case _, Decimal() if source in (INTEGER, BIGINT):
            return can_coerce(as_decimal(source), target)
        case Array(), Array():
            return can_coerce(source.element, target.element, literal=literal)
        case Map(), Map():
            return can_coerce(source.key, target.key, literal=literal) and can_coerce(
                source.value, target.value, literal=literal
            )
        case Struct(), Struct():
            return all(
                (wanted := target.field(field.name)) is not None
                and can_coerce(field.type, wanted.type, literal=literal)
                for field in source.fields
            )
        case _:
            return _converts_plainly(source, target, literal=literal)


def _converts_plainly(source: SqlType, target: SqlType, *, literal: bool) -> bool:
    if source == INTEGER and target == BIGINT:
        return True
    if target == DOUBLE and is_numeric(source):
        return True
    if source == STRING and target in (TIMESTAMP, TIME, DATE, BYTES):
        return True
    plain = is_numeric(source) or source in (BOOLEAN, TIMESTAMP, TIME, DATE)
    return literal and (
        (source == STRING and (target == BOOLEAN or is_numeric(target))) or (target == STRING and plain)
    )


def common_type(types: Sequence[SqlType], expressions: Sequence[exp.Expression] = ()) -> SqlType:
    """The common type of all `types`: of an ARRAY's elements, of COALESCE's arguments, of IN's items.

    The first type that is not NULL determines the kind: numbers widen to the widest, structs get the fields of all.
    With the `expressions` as written, texts among numbers or booleans are parsed as such, as in ARRAY[1, '2.5'], and
    messages quote them. NULL if all are NULL. Raises `TypeMismatch`.
    """
    common: SqlType = NULL
    for position, type_ in enumerate(types):
        written = expressions[position] if expressions else None
        found = _common_of_two(common, type_, written)
        if found is None:
            given = f" ({print_expression(written)})" if written is not None else ""
            raise TypeMismatch(
                f"operator does not exist: {common} = {type_}{given}\nHint: You might need to add explicit type casts.",
                span=span_of(written) if written is not None else None,
            )
        common = found
    return common


def _common_of_two(common: SqlType, type_: SqlType, written: exp.Expression | None) -> SqlType | None:
    """None if there is no common type. Raises `TypeMismatch` for a text that is not a valid value of the other type."""
    if common == NULL or type_ == NULL:
        return type_ if common == NULL else common
    if written is not None and isinstance(written, exp.Literal) and written.is_string:
        if is_numeric(common):
            return _common_with_number_text(common, written)
        if common in (BOOLEAN, DATE, TIME, TIMESTAMP):
            if not reads_as(written.this, common):
                raise _bad_literal(common, written)
            return common
    if isinstance(written, exp.Array | exp.Map | exp.Struct) and type(common) is type(type_):
        return _common_with_constructor(common, type_, written)
    literal = isinstance(written, exp.Literal | exp.Boolean | exp.Neg)
    return _wider(type_, common, literal=literal) or _wider(common, type_, literal=literal)


def _common_with_constructor(common: SqlType, type_: SqlType, written: exp.Expression) -> SqlType | None:
    """The common type if `written` is an ARRAY[…], MAP(…) or STRUCT(…): texts inside are parsed as in a list."""
    match common, type_, written:
        case Array(), Array(), exp.Array():
            element = _common_of_items(common.element, type_.element, written.expressions)
            return None if element is None else Array(element)
        case Map(), Map(), exp.Map():
            key = _common_of_items(common.key, type_.key, written.args["keys"].expressions)
            value = _common_of_items(common.value, type_.value, written.args["values"].expressions)
            return None if key is None or value is None else Map(key, value)
        case Struct(), Struct(), exp.Struct():
            items = {entry.this.name: entry.expression for entry in written.expressions}
            return _common_of_fields(common, type_, items)
        case _:
            return None


def _common_of_items(common: SqlType, type_: SqlType, items: Sequence[exp.Expression]) -> SqlType | None:
    found: SqlType | None = common
    for item in items:
        if not isinstance(item, exp.Null):
            found = None if found is None else _common_of_two(found, type_, item)
    return found


def _common_of_fields(common: Struct, type_: Struct, items: Mapping[str, exp.Expression]) -> SqlType | None:
    """A struct with the fields of both, those of `common` first."""
    fields = {field.name: field.type for field in common.fields}
    for field in type_.fields:
        known = fields.get(field.name)
        both = field.type if known is None else _common_of_two(known, field.type, items[field.name])
        if both is None:
            return None
        fields[field.name] = both
    return Struct(tuple(Field(name, both) for name, both in fields.items()))


def _wider(source: SqlType, target: SqlType, *, literal: bool) -> SqlType | None:
    """`target`, wide enough for `source`, too; None if `source` does not convert to it."""
    match source, target:
        case _ if NULL in (source, target):
            return target if source == NULL else source
        case (_, Decimal()) if source in (INTEGER, BIGINT) or isinstance(source, Decimal):
            return widen_decimals(source, target)
        case Array(), Array():
            element = _either(source.element, target.element, literal=literal)
            return None if element is None else Array(element)
        case Map(), Map():
            key = _either(source.key, target.key, literal=literal)
            value = _either(source.value, target.value, literal=literal)
            return None if key is None or value is None else Map(key, value)
        case Struct(), Struct():
            return _wider_struct(source, target, literal=literal)
        case _:
            return target if can_coerce(source, target, literal=literal) else None


def _either(a: SqlType, b: SqlType, *, literal: bool) -> SqlType | None:
    return _wider(a, b, literal=literal) or _wider(b, a, literal=literal)


def _wider_struct(source: Struct, target: Struct, *, literal: bool) -> SqlType | None:
    fields: list[Field] = []
    for name in dict.fromkeys(field.name for field in source.fields + target.fields):
        a, b = source.field(name), target.field(name)
        if a is None or b is None:
            fields.append(a or b or fields[-1])
            continue
        type_ = _either(a.type, b.type, literal=literal)
        if type_ is None:
            return None
        fields.append(Field(name, type_))
    return Struct(tuple(fields))


def _common_with_number_text(common: SqlType, written: exp.Literal) -> SqlType:
    try:
        number = PythonDecimal(written.this.strip())
    except InvalidOperation as invalid:
        raise _bad_literal(common, written) from invalid
    if not number.is_finite() or not -1000 < number.adjusted() < 1000:
        raise _bad_literal(common, written)
    type_: SqlType
    if not any(mark in written.this for mark in ".eE") and abs(number) < 2**63:
        type_ = INTEGER if abs(number) < 2**31 - 1 else BIGINT
    else:
        type_ = decimal_of(number)
    if common == DOUBLE:
        return DOUBLE
    if isinstance(type_, Decimal) or isinstance(common, Decimal):
        return widen_decimals(type_, common)
    return BIGINT if BIGINT in (type_, common) else INTEGER


def decimal_of(number: PythonDecimal) -> Decimal:
    """The smallest DECIMAL for the number, with at least one digit before the point."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "the number is finite"
    scale = min(max(-exponent, 0), PRECISION_MAX)
    digits = max(number.adjusted() + 1, 1) if number else 1
    return Decimal(min(digits + scale, PRECISION_MAX), scale)


def _bad_literal(type_: SqlType, written: exp.Literal) -> TypeMismatch:
    name = "DECIMAL" if isinstance(type_, Decimal) else str(type_)
    return TypeMismatch(
        f'invalid input syntax for type {name}: "{written.this}".', span=span_of(written), hint=_TIME_FORMS.get(type_)
    )


def check_time_text(written: exp.Expression, target: SqlType) -> None:
    """Raises `TypeMismatch` if a text in the place of a DATE, TIME or TIMESTAMP is not a valid one."""
    inner = unwrapped(written)
    if target in _TIME_FORMS and isinstance(inner, exp.Literal) and inner.is_string:
        if not reads_as(inner.this, target):
            raise _bad_literal(target, inner)


# ------------------------------------------------------------------ decimals


def as_decimal(type_: SqlType) -> Decimal:
    """The DECIMAL that can represent every value of an INTEGER, a BIGINT or a DECIMAL."""
    if isinstance(type_, Decimal):
        return type_
    assert type_ in (INTEGER, BIGINT), f"{type_} is no decimal"
    return INTEGER_AS_DECIMAL if type_ == INTEGER else BIGINT_AS_DECIMAL


def widen_decimals(a: SqlType, b: SqlType) -> Decimal:
    """The DECIMAL that can represent every value of both. If that takes more than 38 digits, it has fewer before the
    point: a number that is too large is an error, whereas digits after the point would be lost without a word."""
    left, right = as_decimal(a), as_decimal(b)
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return Decimal(min(whole + scale, PRECISION_MAX), scale)


def _cut(precision: int, scale: int) -> Decimal:
    """A DECIMAL of at most 38 digits: digits after the point are dropped first, down to six of them."""
    if precision <= PRECISION_MAX:
        return Decimal(precision, scale)
    whole = precision - scale
    return Decimal(PRECISION_MAX, max(PRECISION_MAX - whole, min(scale, _SCALE_KEPT), 0))


def arithmetic_type(operator: Operator, left: SqlType, right: SqlType) -> SqlType:
    """The type of `left operator right`. Raises `TypeMismatch` if these types have no such arithmetic."""
    if NULL in (left, right):
        names = ["null" if side == NULL else str(side) for side in (left, right)]
        raise TypeMismatch(f"Arithmetic on types {names[0]} and {names[1]} are not supported.")
    if operator == "+" and left == right == STRING:
        return STRING
    if not (is_numeric(left) and is_numeric(right)):
        raise TypeMismatch(
            f"Unsupported arithmetic types. {base_name(left)} {base_name(right)}",
            hint="CAST a text to a number first, as in CAST(column AS DOUBLE); texts are joined with || or CONCAT.",
        )
    if DOUBLE in (left, right):
        return DOUBLE
    if not isinstance(left, Decimal) and not isinstance(right, Decimal):
        return BIGINT if BIGINT in (left, right) else INTEGER
    return _decimal_result(operator, as_decimal(left), as_decimal(right))


def _decimal_result(operator: Operator, left: Decimal, right: Decimal) -> Decimal:
    scale = max(left.scale, right.scale)
    left_whole, right_whole = left.precision - left.scale, right.precision - right.scale
    match operator:
        case "+" | "-":
            return _cut(scale + max(left_whole, right_whole) + 1, scale)
        case "*":
            return _cut(left.precision + right.precision + 1, left.scale + right.scale)
        case "/":
            scale = max(6, left.scale + right.precision + 1)
            return _cut(left_whole + right.scale + scale, scale)
        case "%":
            return _cut(max(min(left_whole, right_whole) + scale, 1), scale)


def base_name(type_: SqlType) -> str:
    return str(type_).split("<")[0].split("(")[0]


_DECIMAL_OPERATIONS: dict[str, PythonFunction] = {
    "decimal_add": cast_functions.decimal_add,
    "decimal_subtract": cast_functions.decimal_subtract,
    "decimal_multiply": cast_functions.decimal_multiply,
    "decimal_divide": cast_functions.decimal_divide,
    "decimal_modulo": cast_functions.decimal_modulo,
}
_EXACT_IN_DUCKDB = {"decimal_add": exp.Add, "decimal_subtract": exp.Sub, "decimal_multiply": exp.Mul}


def divisor(tree: exp.Expression, type_: SqlType, dividend: exp.Expression) -> exp.Expression:
    """The divisor as DuckDB SQL. As in Java, division of an integer by 0 fails, where DuckDB silently returns NULL;
    NULL divided by 0 is NULL. A divisor of more than `_DIVISION_NODES_MAX` nodes is left to DuckDB, because the check
    needs it three times."""
    is_plain = type_ not in (INTEGER, BIGINT) or _is_one_or_more(tree)
    if is_plain or _is_large(tree):
        return owned(tree)
    is_whole = isinstance(tree, exp.Column | exp.Paren | exp.Cast)
    parts = [tree.copy() if is_whole else exp.Paren(this=tree.copy()) for _ in range(3)]
    of_both = parts[0] if _is_large(dividend) else exp.Paren(this=_text_of_both(parts[0], dividend))
    text = exp.DPipe(this=exp.Literal.string(DIVISION_BY_ZERO), expression=of_both)  # not constant for a column
    is_zero = exp.EQ(this=parts[1], expression=exp.Literal.number(0))
    return exp.Paren(this=exp.Case(ifs=[exp.If(this=is_zero, true=plain_cast(text, type_))], default=parts[2]))


def _text_of_both(tree: exp.Expression, dividend: exp.Expression) -> exp.Expression:
    """NULL where the dividend is: then nothing is cast, and nothing fails."""
    return exp.DPipe(this=tree, expression=exp.Paren(this=dividend.copy()))


def _is_large(tree: exp.Expression) -> bool:
    return sum(1 for _ in tree.walk()) > _DIVISION_NODES_MAX


def _is_one_or_more(tree: exp.Expression) -> bool:
    """Whether it is a literal number that is not 0 as an integer, of any sign."""
    while isinstance(tree, exp.Paren | exp.Cast | exp.Neg):
        tree = tree.this
    return isinstance(tree, exp.Literal) and not tree.is_string and float(tree.this) >= 1


def decimal_operation(
    name: str, left: tuple[exp.Expression, SqlType], right: tuple[exp.Expression, SqlType], result: Decimal
) -> tuple[exp.Expression, tuple[str, ...]]:
    """Exact arithmetic of decimals (`decimal_add`, …), and the Python functions it needs.

    A quotient is rounded half up. If the result type cannot represent the value, or a divisor is 0, the result is NULL.
    """
    sides = [(tree, type_, as_decimal(type_)) for tree, type_ in (left, right)]
    trees = [cast_sql(tree, type_, decimal, explicit=True) for tree, type_, decimal in sides]
    a, b = sides[0][2], sides[1][2]
    if name in _EXACT_IN_DUCKDB and _exact_in_duckdb(name, a, b):
        if name == "decimal_multiply" and max(a.precision, b.precision) <= _SMALL_MAX < a.precision + b.precision:
            trees[0] = plain_cast(trees[0], Decimal(_SMALL_MAX + 1, a.scale))  # otherwise DuckDB multiplies in 64 bits
        operation = _EXACT_IN_DUCKDB[name](
            this=exp.paren(trees[0], copy=False), expression=exp.paren(trees[1], copy=False)
        )
        return plain_cast(operation, result), ()
    udf = Udf(_DECIMAL_OPERATIONS[name], (a, b), result)
    return udf.call(trees), (udf.name,)


def _exact_in_duckdb(name: str, left: Decimal, right: Decimal) -> bool:
    """Whether DuckDB computes the result with all its digits."""
    if name == "decimal_multiply":
        return left.precision + right.precision <= PRECISION_MAX
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return whole + max(left.scale, right.scale) + 1 <= PRECISION_MAX


# ------------------------------------------------------------------ CAST


def cast_sql(expression: exp.Expression, source: SqlType, target: SqlType, *, explicit: bool) -> exp.Expression:
    """`expression` of type `source` as `target`, in DuckDB SQL; a value without an equivalent fails the row.

    `explicit` for CAST; otherwise only implicit conversions. `udfs_in(tree)` returns the Python functions that the
    result calls. Raises `TypeMismatch`.
    """
    if source == target:
        return owned(expression)
    if source == NULL:
        return plain_cast(expression, target)
    if not explicit and not _becomes(source, target):
        raise TypeMismatch(f"{source} does not become {target} without a CAST", span=span_of(expression))
    tree = cast_tree(expression, source, target)
    if tree is None:
        raise TypeMismatch(f"Cast of {source} to {target} is not supported", span=span_of(expression))
    return tree


def _becomes(source: SqlType, target: SqlType) -> bool:
    """Whether an implicit conversion may be rendered: of values, literals, and dates compared with timestamps."""
    if (source, target) == (DATE, TIMESTAMP) or can_coerce(source, target, literal=True):
        return True
    return _wider(source, target, literal=True) is not None
