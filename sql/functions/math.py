"""Mathematical functions. The entries stand under the names that ksqlDB spells in its messages."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_DOWN, ROUND_HALF_UP, Context
from decimal import Decimal as PythonDecimal
from functools import partial, reduce

from sqlglot import exp

from ..coercion import cast_sql, widen_decimals
from ..types import BIGINT, DOUBLE, NULL, Decimal, SqlType
from .function import BoundCall, Function, scalar, variant
from .udf import by_typed_row

math_function = partial(scalar, category="MATHEMATICAL")
_EXACT = Context(prec=400)


def _double(name: str, doc: str, sql: str, examples: dict[str, str]) -> Function:
    """A function from one DOUBLE to another; other numbers become one."""
    given = {**examples, f"{name.upper()}(CAST(NULL AS DOUBLE))": "NULL"}
    return math_function(name, signature="(value DOUBLE) -> DOUBLE", doc=doc, sql=sql, examples=given)


def _rescaler(
    rounding: Callable[[PythonDecimal], str],
) -> Callable[[tuple[SqlType, ...], SqlType], Callable[..., object]]:
    """Bring a value to so many places (negative ones are before the point); its type stays as it is."""

    def make(parameters: tuple[SqlType, ...], returns: SqlType) -> Callable[..., object]:
        def on_double(value: float, places: int) -> float:
            return float(rescaled(PythonDecimal(repr(value)), places))

        def on_decimal(value: PythonDecimal, places: int) -> PythonDecimal:
            assert isinstance(returns, Decimal)
            return rescaled(value, places).quantize(PythonDecimal(1).scaleb(-returns.scale), context=_EXACT)

        def rescaled(value: PythonDecimal, places: int) -> PythonDecimal:
            exponent = value.as_tuple().exponent
            if not isinstance(exponent, int):
                raise ValueError(f"{value} cannot be rounded")
            if -exponent <= places:
                return value
            return value.quantize(PythonDecimal(1).scaleb(-places), rounding(value), _EXACT)

        return on_double if parameters[0] == DOUBLE else on_decimal

    return make


def round_to(parameters: tuple[SqlType, ...], returns: SqlType) -> Callable[..., object]:
    """Ties go up, towards positive infinity."""
    return _rescaler(lambda value: ROUND_HALF_UP if value > 0 else ROUND_HALF_DOWN)(parameters, returns)


def trunc_to(parameters: tuple[SqlType, ...], returns: SqlType) -> Callable[..., object]:
    return _rescaler(lambda _value: ROUND_DOWN)(parameters, returns)


_ROUND_TO = by_typed_row(round_to)
_TRUNC_TO = by_typed_row(trunc_to)


def _same(types: tuple[SqlType, ...]) -> SqlType:
    return types[0]


def _whole(types: tuple[SqlType, ...]) -> SqlType:
    """The decimal's digits before the point."""
    (type_,) = types
    assert isinstance(type_, Decimal)
    return Decimal(max(type_.precision - type_.scale, 1), 0)


def _widest(types: tuple[SqlType, ...]) -> SqlType:
    return reduce(widen_decimals, (type_ for type_ in types if type_ != NULL))


def _decimal(call: str) -> Callable[[BoundCall], str]:
    """A decimal's template: what DuckDB gives, as the type that the call gives."""
    return lambda resolved: f"CAST({call} AS {resolved.return_type.duckdb})"


def _to_bigint(_call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression:
    return cast_sql(arguments[0], DOUBLE, BIGINT, explicit=True)


_ROUND_DOUBLE = (
    "CAST(CASE WHEN isnan(:value) THEN 0 WHEN :value >= 9223372036854775807e0 THEN 9223372036854775807 "
    "WHEN :value <= -9223372036854775808e0 THEN -9223372036854775808 "
    "ELSE CAST(floor(:value) AS BIGINT) + CASE WHEN :value - floor(:value) >= 0.5e0 THEN 1 ELSE 0 END END AS BIGINT)"
)
_LOG = "CASE WHEN :base <= 0 OR :base = 1 THEN CAST('NaN' AS DOUBLE) ELSE ln(:value) / ln(:base) END"
_UNFITTING = "NULL where a DECIMAL's type has no digit for it, as for 99.5 of DECIMAL(3, 1): CAST it to a wider one."
_COMPARABLE = ("INTEGER", "BIGINT", "DOUBLE", "STRING", "BYTES", "DATE", "TIME", "TIMESTAMP")


def _extreme(name: str, which: str, examples: dict[str, str]) -> Function:
    sql = f"{name}(:first, :others)"
    return math_function(
        name,
        signatures=[
            *(variant(f"(first {type_}, others {type_}...) -> {type_}", sql=sql) for type_ in _COMPARABLE),
            variant("(first DECIMAL, others DECIMAL...) -> DECIMAL", sql=_decimal(sql), returns=_widest),
        ],
        doc=f"The {which} of the values, not counting NULLs. All must be of one type.",
        examples=examples,
    )


def _rounded_to_whole(name: str, which: str, examples: dict[str, str]) -> Function:
    return math_function(
        name,
        signatures=[
            variant("(value INTEGER) -> INTEGER", sql=":value"),
            variant("(value BIGINT) -> BIGINT", sql=":value"),
            variant("(value DOUBLE) -> DOUBLE", sql=f"{name}(:value)"),
            variant("(value DECIMAL) -> DECIMAL", sql=_decimal(f"{name}(:value)"), returns=_same),
        ],
        doc=f"The {which} whole number, as a number of the same type. {_UNFITTING}",
        examples={**examples, f"{name.upper()}(CAST(NULL AS DOUBLE))": "NULL"},
    )


FUNCTIONS: tuple[Function, ...] = (
    math_function(
        "Abs",
        signatures=[
            variant("(value INTEGER) -> INTEGER", sql="abs(:value)"),
            variant("(value BIGINT) -> BIGINT", sql="abs(:value)"),
            variant("(value DOUBLE) -> DOUBLE", sql="abs(:value)"),
            variant("(value DECIMAL) -> DECIMAL", sql="abs(:value)", returns=_same),
        ],
        doc="The value without its sign.",
        examples={"ABS(-3)": "3", "ABS(-1.50)": "1.50", "ABS(CAST(NULL AS INTEGER))": "NULL"},
    ),
    _double("acos", "The arc cosine, in radians; NaN outside of -1 to 1.", "acos(:value)", {"ACOS(1)": "0.0"}),
    _double("asin", "The arc sine, in radians; NaN outside of -1 to 1.", "asin(:value)", {"ASIN(0)": "0.0"}),
    _double("atan", "The arc tangent, in radians.", "atan(:value)", {"ATAN(0)": "0.0"}),
    math_function(
        "atan2",
        signature="(y DOUBLE, x DOUBLE) -> DOUBLE",
        doc="The angle of the point (x, y), in radians.",
        sql="atan2(:y, :x)",
        examples={"ATAN2(0, 1)": "0.0", "ATAN2(CAST(NULL AS DOUBLE), 1)": "NULL"},
    ),
    _double(
        "cbrt",
        "The cube root.",
        # DuckDB's is one unit of the last place off for some cubes, as of -27.
        "CASE WHEN power(round(cbrt(:value)), 3) = :value THEN round(cbrt(:value)) ELSE cbrt(:value) END",
        {"CBRT(-8)": "-2.0", "CBRT(-27)": "-3.0"},
    ),
    _rounded_to_whole("Ceil", "next larger", {"CEIL(1.1e0)": "2.0", "CEIL(-1.5)": "-1.0"}),
    _double("cos", "The cosine of an angle in radians.", "cos(:value)", {"COS(0)": "1.0"}),
    _double("cosh", "The hyperbolic cosine.", "cosh(:value)", {"COSH(0)": "1.0"}),
    _double("cot", "The cotangent of an angle in radians.", "1e0 / tan(:value)", {"ROUND(COT(1), 6)": "0.642093"}),
    _double("degrees", "Radians as degrees.", "degrees(:value)", {"ROUND(DEGREES(PI()), 6)": "180.0"}),
    _double("exp", "e to the power of the value.", "exp(:value)", {"EXP(0)": "1.0"}),
    _rounded_to_whole("Floor", "next smaller", {"FLOOR(1.9e0)": "1.0", "FLOOR(-1.5)": "-2.0"}),
    _extreme("greatest", "largest", {"GREATEST(1, 3, NULL)": "3", "GREATEST(CAST(NULL AS INTEGER), NULL)": "NULL"}),
    _extreme("least", "smallest", {"LEAST('b', 'a', NULL)": "'a'", "LEAST(CAST(NULL AS INTEGER), NULL)": "NULL"}),
    _double("ln", "The natural logarithm; -Infinity of 0, NaN below.", "ln(:value)", {"LN(1)": "0.0"}),
    math_function(
        "log",
        signatures=[
            variant("(value DOUBLE) -> DOUBLE", sql="ln(:value)"),
            variant("(base DOUBLE, value DOUBLE) -> DOUBLE", sql=_LOG),
        ],
        doc="The logarithm to a base, or the natural one if no base is given. NaN if there is none.",
        examples={"ROUND(LOG(2, 8), 6)": "3.0", "LOG(1)": "0.0", "LOG(CAST(NULL AS DOUBLE))": "NULL"},
    ),
    math_function(
        "pi",
        signature="() -> DOUBLE",
        doc="The number pi.",
        sql="pi()",
        examples={"PI()": "3.141592653589793", "PI() + CAST(NULL AS DOUBLE)": "NULL"},
    ),
    math_function(
        "power",
        signature="(base DOUBLE, exponent DOUBLE) -> DOUBLE",
        doc="`base` to the power of `exponent`; Infinity where that is too large.",
        sql="pow(:base, :exponent)",
        examples={"POWER(15, 2)": "225.0", "POWER(CAST(NULL AS DOUBLE), 2)": "NULL"},
    ),
    _double("radians", "Degrees as radians.", "radians(:value)", {"ROUND(RADIANS(180), 6)": "3.141593"}),
    math_function(
        "random",
        signatures=[variant("() -> DOUBLE", sql="random()", volatile=True)],
        doc="A random number from 0 up to, not including, 1; another one for each row.",
        examples={"RANDOM() < 1": "true", "RANDOM() * CAST(NULL AS DOUBLE)": "NULL"},
    ),
    math_function(
        "Round",
        signatures=[
            variant("(value BIGINT) -> BIGINT", sql=":value"),
            variant("(value INTEGER) -> BIGINT", sql="CAST(:value AS BIGINT)"),
            variant("(value DOUBLE) -> BIGINT", sql=_ROUND_DOUBLE),
            variant("(value DOUBLE, places INTEGER) -> DOUBLE", python=_ROUND_TO),
            variant("(value DECIMAL) -> DECIMAL", sql=_decimal("floor(:value + 0.5)"), returns=_whole),
            variant("(value DECIMAL, places INTEGER) -> DECIMAL", python=_ROUND_TO, returns=_same),
        ],
        doc="Round to a whole number, or to a number of decimal places; ties go up, towards positive infinity. "
        f"{_UNFITTING}",
        examples={
            "ROUND(2.5e0)": "3",
            "ROUND(-1.5e0)": "-1",
            "ROUND(1.005e0, 2)": "1.01",
            "ROUND(12.345, 1)": "12.300",
            "ROUND(CAST(NULL AS DOUBLE))": "NULL",
        },
    ),
    math_function(
        "sign",
        signature="(value DOUBLE) -> INTEGER",
        doc="-1, 0 or 1, as the value is below, at or above 0.",
        sql="CAST(CASE WHEN isnan(:value) THEN 0 ELSE sign(:value) END AS INTEGER)",
        examples={"SIGN(-7)": "-1", "SIGN(0)": "0", "SIGN(CAST(NULL AS INTEGER))": "NULL"},
    ),
    _double("sin", "The sine of an angle in radians.", "sin(:value)", {"SIN(0)": "0.0"}),
    _double("sinh", "The hyperbolic sine.", "sinh(:value)", {"SINH(0)": "0.0"}),
    _double("sqrt", "The square root; NaN below 0.", "sqrt(:value)", {"SQRT(9)": "3.0"}),
    _double("tan", "The tangent of an angle in radians.", "tan(:value)", {"TAN(0)": "0.0"}),
    _double("tanh", "The hyperbolic tangent.", "tanh(:value)", {"TANH(0)": "0.0"}),
    math_function(
        "trunc",
        signatures=[
            variant("(value BIGINT) -> BIGINT", sql=":value"),
            variant("(value INTEGER) -> BIGINT", sql="CAST(:value AS BIGINT)"),
            variant("(value DOUBLE) -> BIGINT", render=_to_bigint),
            variant("(value DOUBLE, places INTEGER) -> DOUBLE", python=_TRUNC_TO),
            variant("(value DECIMAL) -> DECIMAL", sql=_decimal("trunc(:value)"), returns=_whole),
            variant("(value DECIMAL, places INTEGER) -> DECIMAL", python=_TRUNC_TO, returns=_same),
        ],
        doc="Truncate to a whole number, or to a number of decimal places: towards zero.",
        examples={
            "TRUNC(-1.7e0)": "-1",
            "TRUNC(12345.678e0, -2)": "12300.0",
            "TRUNC(1.59, 1)": "1.50",
            "TRUNC(CAST(NULL AS DOUBLE))": "NULL",
        },
    ),
)
