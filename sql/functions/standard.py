"""Functions of standard SQL that ksqlDB lacks, or has under another name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sqlglot import exp

from millstream.errors import InvalidStatement

from ..coercion import arithmetic_type, cast_sql, decimal_operation, divisor
from ..types import DATE, TIME, TIMESTAMP, Decimal, SqlType
from .function import BoundCall, Function, Render, scalar, variant
from .letter_case import CAPITALS, SMALL_LETTERS
from .template import fill

_time = partial(scalar, category="DATE / TIME")
_text = partial(scalar, category="STRING")

_TIME_FIELDS = ("HOUR", "MINUTE", "SECOND", "MILLISECOND")
_DATE_FIELDS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOW", "ISODOW", "DOY")
_FIELDS: Mapping[SqlType, tuple[str, ...]] = {
    TIMESTAMP: (*_DATE_FIELDS, *_TIME_FIELDS, "EPOCH"),
    DATE: (*_DATE_FIELDS, "EPOCH"),
    TIME: (*_TIME_FIELDS, "EPOCH"),
}
_TRUNCATED = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", *_TIME_FIELDS)


def _unit(call: BoundCall, unit: exp.Expression, known: tuple[str, ...]) -> str:
    """The unit that a literal names, in the singular. Raises `InvalidStatement`."""
    if not (isinstance(unit, exp.Literal) and unit.is_string):
        raise InvalidStatement(f"the unit of {call.function.name} must be a literal")
    name = unit.name.upper()
    singular = name if name in known else name.removesuffix("S")
    if singular not in known:
        raise InvalidStatement(
            f"{call.function.name} has no unit {unit.name.upper()} here", hint=f"The units are {', '.join(known)}."
        )
    return singular


def _extracts(type_: SqlType) -> Render:
    def render(call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression:
        unit, moment = arguments
        field = _unit(call, unit, _FIELDS[type_])
        if field == "MILLISECOND":  # of the second, where DuckDB gives those of the minute
            return fill("date_part('millisecond', :moment) % 1000", {"moment": moment})
        return fill(f"CAST(floor(date_part('{field.lower()}', :moment)) AS BIGINT)", {"moment": moment})

    return render


def _truncates(type_: SqlType) -> Render:
    def render(call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression:
        unit, moment = arguments
        known = _TRUNCATED if type_ == TIMESTAMP else tuple(u for u in _TRUNCATED if u not in _TIME_FIELDS)
        text = f"CAST(date_trunc('{_unit(call, unit, known).lower()}', :moment) AS {type_.duckdb})"
        return fill(text, {"moment": moment})

    return render


def _modulo(call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression:
    result = call.return_type
    left, right = zip(arguments, call.parameter_types, strict=True)
    if isinstance(result, Decimal):
        return decimal_operation("decimal_modulo", left, right, result)[0]
    value = cast_sql(*left, result, explicit=False)
    sides = {"divisor": divisor(cast_sql(*right, result, explicit=False), result, value), "value": value}
    return fill(":value % :divisor", sides)


def _modulo_type(types: tuple[SqlType, ...]) -> SqlType:
    return arithmetic_type("%", *types)


FUNCTIONS: tuple[Function, ...] = (
    _time(
        "extract",
        signatures=[
            variant("(field INTERVALUNIT, moment TIMESTAMP) -> BIGINT", render=_extracts(TIMESTAMP)),
            variant("(field INTERVALUNIT, moment DATE) -> BIGINT", render=_extracts(DATE)),
            variant("(field INTERVALUNIT, moment TIME) -> BIGINT", render=_extracts(TIME)),
        ],
        doc=f"A field of a moment, also written EXTRACT(HOUR FROM moment): {', '.join(_FIELDS[TIMESTAMP])}.",
        examples={
            "EXTRACT(HOUR FROM TIMESTAMP '2020-05-11T22:58:33')": "CAST(22 AS BIGINT)",
            "EXTRACT(MILLISECOND FROM TIME '10:00:02.345')": "CAST(345 AS BIGINT)",
            "EXTRACT(DOW FROM DATE '2020-05-10')": "CAST(0 AS BIGINT)",
            "EXTRACT(YEAR FROM CAST(NULL AS DATE))": "NULL",
        },
    ),
    _time(
        "date_trunc",
        signatures=[
            variant("(unit STRING, moment TIMESTAMP) -> TIMESTAMP", render=_truncates(TIMESTAMP)),
            variant("(unit STRING, date DATE) -> DATE", render=_truncates(DATE)),
        ],
        doc=f"The start of the unit that contains a moment: {', '.join(_TRUNCATED)}. A week starts on Monday.",
        examples={
            "DATE_TRUNC('hour', TIMESTAMP '2020-05-11T22:58:33')": "'2020-05-11T22:00:00'",
            "DATE_TRUNC('WEEK', DATE '2020-05-14')": "'2020-05-11'",
            "DATE_TRUNC('day', CAST(NULL AS TIMESTAMP))": "NULL",
        },
    ),
    _time(
        "now",
        signature="() -> TIMESTAMP",
        doc="The time by the wall clock; all rows of a batch get the same.",
        sql="make_timestamp(epoch_ms(now()) * 1000)",
        examples={"NOW() > TIMESTAMP '2020-01-01'": "true", "NULLIF(NOW(), NOW())": "NULL"},
    ),
    _text(
        "position",
        signature="(part STRING, text STRING) -> INTEGER",
        doc="Where `part` begins in `text`, from 1; 0 if it does not occur. Also written POSITION(part IN text).",
        sql="CAST(instr(:text, :part) AS INTEGER)",
        examples={
            "POSITION('b' IN 'abc')": "2",
            "POSITION('x', 'abc')": "0",
            "POSITION('x' IN CAST(NULL AS STRING))": "NULL",
        },
    ),
    _text(
        "lower",
        signature="(text STRING) -> STRING",
        doc="The text in lower case, as LCASE gives it.",
        sql=SMALL_LETTERS,
        examples={"LOWER('Apple')": "'apple'", "LOWER('ΟΔΟΣ')": "'οδος'", "LOWER(NULL)": "NULL"},
    ),
    _text(
        "upper",
        signature="(text STRING) -> STRING",
        doc="The text in upper case, as UCASE gives it.",
        sql=CAPITALS,
        examples={"UPPER('Apple')": "'APPLE'", "UPPER('Straße')": "'STRASSE'", "UPPER(NULL)": "NULL"},
    ),
    scalar(
        "mod",
        category="MATHEMATICAL",
        signature="(value ANY, divisor ANY) -> ANY",
        render=_modulo,
        returns=_modulo_type,
        doc="The rest of a division, with the sign of the value, as the operator % gives it; NULL for divisor 0.",
        examples={
            "MOD(7, 3)": "1",
            "MOD(-7, 3)": "-1",
            "MOD(7.50, 2)": "7.50 % 2",
            "MOD(1, 0)": "NULL",
            "MOD(CAST(NULL AS INTEGER), 2)": "NULL",
        },
    ),
)
