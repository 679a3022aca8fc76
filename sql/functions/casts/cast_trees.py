"""CAST as DuckDB SQL, with ksqlDB's meaning.

Where DuckDB's own CAST means something else (it rounds where Java truncates, refuses where Java wraps around, reads
`1_000` and `nan`), the SQL says it in full; what SQL cannot say exactly calls a Python function of `cast_functions`.
"""

from __future__ import annotations

from sqlglot import exp

from ...types import (
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
    Map,
    SqlType,
    Struct,
)
from ..template import fill
from ..trees import duckdb_type, owned
from ..udf import PythonFunction, Udf, without_null
from . import cast_functions
from .failing_casts import NOT_A_NUMBER


def plain_cast(expression: exp.Expression, target: SqlType) -> exp.Expression:
    """DuckDB's own CAST."""
    return exp.Cast(this=owned(expression), to=duckdb_type(without_null(target).duckdb))


def _widens(source: Decimal, target: Decimal) -> bool:
    return source.scale <= target.scale and source.precision - source.scale <= target.precision - target.scale


def _literal_of(value: exp.Expression) -> exp.Expression:
    """The number that is written, instead of its CAST to the type it has where it stands."""
    return value.this if isinstance(value, exp.Cast) and isinstance(value.this, exp.Literal) else value


def cast_tree(value: exp.Expression, source: SqlType, target: SqlType) -> exp.Expression | None:
    """`value` cast, in DuckDB SQL; a value that has no counterpart fails the row. None where there is no such cast."""
    if source == target:
        return owned(value)
    if target == STRING:
        return _to_string(value, source)
    match source, target:
        case Array(), Array():
            return _array_to_array(value, source, target)
        case Map(), Map():
            return _map_to_map(value, source, target)
        case Struct(), Struct():
            return _struct_to_struct(value, source, target)
        case Decimal(), Decimal():
            return plain_cast(_literal_of(value) if _widens(source, target) else value, target)
        case (_, Decimal()) if source in (INTEGER, BIGINT):
            return plain_cast(value, target)
        case (_, Decimal()) if source == DOUBLE:
            return Udf(cast_functions.double_to_decimal, (DOUBLE,), target).call([value])
        case (_, Decimal()) if source == STRING:
            return fill(_guarded(_NUMBER, f"CAST(trim(:value) AS {target.duckdb})"), {"value": value})
        case (Decimal(), _) if target in (INTEGER, BIGINT):
            return fill(_WRAP[target].format("CAST(trunc(:value) AS HUGEINT)"), {"value": value})
        case Decimal(), _:
            return plain_cast(value, target) if target == DOUBLE else None
        case _:
            template = _PLAIN_CASTS.get((source, target))
            if template is not None:
                return fill(template, {"value": value})
            function = _PYTHON_CASTS.get((source, target))
            return None if function is None else Udf(function, (source,), target).call([value])


_INTEGER = r"[+-]?[0-9]+"
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


def _guarded(pattern: str, cast: str) -> str:
    """`cast`, for texts that follow the pattern; others fail as what they are, a text that is no number."""
    return (
        f"CASE WHEN regexp_full_match(trim(:value), '{pattern}') THEN {cast} "
        f"WHEN :value IS NOT NULL THEN CAST('{NOT_A_NUMBER}' || :value AS INTEGER) END"
    )


# Java keeps the low bits where a number does not fit.
_WRAP: dict[SqlType, str] = {
    INTEGER: "CAST(((({0} & 4294967295) + 2147483648) & 4294967295) - 2147483648 AS INTEGER)",
    BIGINT: "CAST(((({0} & CAST(18446744073709551615 AS HUGEINT)) + 9223372036854775808) "
    "& CAST(18446744073709551615 AS HUGEINT)) - 9223372036854775808 AS BIGINT)",
}
# Beyond the milliseconds that formats read, too (`executor/formats/limits.py`), it fails with an overflow. By itself
# `make_timestamp` gives moments before the first one that are in no calendar.
TIMESTAMP_OF_MS = (
    "make_timestamp({0} * CASE WHEN {0} BETWEEN -9223372022400000 AND 9223372036854774 OR {0} IS NULL "
    "THEN 1000 ELSE 4611686018427387904 END)"
)
_TRUE = "'t|tr|tru|true|y|ye|yes'"  # DuckDB makes a join of IN, and so computes the text outside of a TRY around it
_PLAIN_CASTS: dict[tuple[SqlType, SqlType], str] = {
    (INTEGER, BIGINT): "CAST(:value AS BIGINT)",
    (INTEGER, DOUBLE): "CAST(:value AS DOUBLE)",
    (BIGINT, DOUBLE): "CAST(:value AS DOUBLE)",
    (BIGINT, INTEGER): _WRAP[INTEGER].format(":value"),
    (DOUBLE, INTEGER): "CASE WHEN isnan(:value) THEN 0 WHEN :value >= 2147483647 THEN 2147483647 "
    "WHEN :value <= -2147483648e0 THEN -2147483648 ELSE CAST(trunc(:value) AS INTEGER) END",
    (
        DOUBLE,
        BIGINT,
    ): "CAST(CASE WHEN isnan(:value) THEN 0 WHEN :value >= 9223372036854775807e0 THEN 9223372036854775807 "
    "WHEN :value <= -9223372036854775808e0 THEN -9223372036854775808 ELSE CAST(trunc(:value) AS BIGINT) END AS BIGINT)",
    (STRING, BOOLEAN): f"regexp_full_match(lower(trim(:value)), {_TRUE})",
    (STRING, INTEGER): _guarded(_INTEGER, "CAST(trim(:value) AS INTEGER)"),
    (STRING, BIGINT): _guarded(_INTEGER, "CAST(trim(:value) AS BIGINT)"),
    (STRING, DOUBLE): _guarded(_NUMBER + "[dDfF]?", "CAST(rtrim(trim(:value), 'dDfF') AS DOUBLE)"),
    (TIMESTAMP, DATE): "CAST(:value AS DATE)",
    (TIMESTAMP, TIME): "CAST(:value AS TIME)",
    (DATE, TIMESTAMP): "CAST(:value AS TIMESTAMP)",
    (BIGINT, TIMESTAMP): TIMESTAMP_OF_MS.format(":value"),
    (TIMESTAMP, BIGINT): "epoch_ms(:value)",
}
_PYTHON_CASTS: dict[tuple[SqlType, SqlType], PythonFunction] = {
    (STRING, TIMESTAMP): cast_functions.string_to_timestamp,
    (STRING, TIME): cast_functions.string_to_time,
    (STRING, DATE): cast_functions.string_to_date,
    (STRING, BYTES): cast_functions.string_to_bytes,
}


def reads_as(text: str, target: SqlType) -> bool:
    """Whether the text spells a BOOLEAN, or a value of a type that a Python function reads.

    CAST makes the last day of a month of one behind it, as Java does. Who writes that in a statement is mistaken.
    """
    if target == BOOLEAN:
        text = text.strip().lower()
        return text != "" and any(word.startswith(text) for word in ("true", "false", "yes", "no"))
    row = _PYTHON_CASTS[STRING, target].row
    assert row is not None, "texts are read one by one"
    try:
        row((STRING,), target)(text)
    except ValueError:
        return False
    return target != TIMESTAMP or reads_as(text.strip().partition("T")[0], DATE)


def _with_signed_years(format_: str) -> str:
    """As Java and as answers: strftime pads no year below 0, and puts no sign before a fifth digit."""
    year = "date_part('year', :value)"
    far = f"WHEN {year} < 0 OR {year} > 9999 THEN printf('%+05d', {year}) || strftime(:value, '{format_}')"
    return f"CASE {far} ELSE strftime(:value, '%Y{format_}') END"


_TIME_TEXTS: dict[SqlType, str] = {
    DATE: _with_signed_years("-%m-%d"),
    TIMESTAMP: _with_signed_years("-%m-%dT%H:%M:%S.%g"),
}


def _to_string(value: exp.Expression, source: SqlType) -> exp.Expression | None:
    if source in (BOOLEAN, INTEGER, BIGINT):
        return plain_cast(value, STRING)
    if source in (DATE, TIMESTAMP):
        return fill(_TIME_TEXTS[source], {"value": value})
    if isinstance(source, Decimal):
        if source.precision > source.scale:
            return plain_cast(value, STRING)
        # DuckDB writes no 0 before the point where no digit may stand there.
        if source.precision < PRECISION_MAX:
            return plain_cast(plain_cast(value, Decimal(source.precision + 1, source.scale)), STRING)
        return Udf(cast_functions.to_java_text, (source,), STRING).call([value])
    if source == TIME:
        text = "left(CAST(:value AS VARCHAR), CASE WHEN date_part('second', :value) = 0 THEN 5 ELSE 8 END)"
        return fill(text, {"value": value})
    if source == DOUBLE:
        plain = "(abs(:value) >= 1e-3 AND abs(:value) < 1e7) OR :value = 0"
        filling = {"value": value, "java": Udf(cast_functions.to_java_text, (DOUBLE,), STRING).call([value])}
        return fill(f"CASE WHEN {plain} THEN CAST(:value AS VARCHAR) ELSE :java END", filling)
    if isinstance(source, Array | Map | Struct):
        return Udf(cast_functions.to_java_text, (source,), STRING).call([value])
    return None


_ELEMENT = exp.to_identifier("$e", quoted=True)
_KEY = exp.Dot(this=_ELEMENT.copy(), expression=exp.to_identifier("key"))
_VALUE = exp.Dot(this=_ELEMENT.copy(), expression=exp.to_identifier("value"))


def _array_to_array(value: exp.Expression, source: Array, target: Array) -> exp.Expression | None:
    element = _element_cast(_ELEMENT, source.element, target.element)
    if element is None:
        return None
    return fill('list_transform(:value, lambda "$e": :element)', {"value": value, "element": element})


def _map_to_map(value: exp.Expression, source: Map, target: Map) -> exp.Expression | None:
    key = _element_cast(_KEY, source.key, target.key)
    of = _element_cast(_VALUE, source.value, target.value)
    if key is None or of is None:
        return None
    text = "map_from_entries(list_transform(map_entries(:value), lambda \"$e\": {'k': :key, 'v': :of}))"
    return fill(text, {"value": value, "key": key, "of": of})


def _element_cast(element: exp.Expression, source: SqlType, target: SqlType) -> exp.Expression | None:
    """The cast inside a lambda. Lambdas inside lambdas name their variable alike, and hide the outer one rightly."""
    return plain_cast(element, target) if source == NULL else cast_tree(element, source, target)


def _struct_to_struct(value: exp.Expression, source: Struct, target: Struct) -> exp.Expression | None:
    if not target.fields:
        text = f"CASE WHEN :value IS NOT NULL THEN CAST({{'#': NULL}} AS {target.duckdb}) END"
        return fill(text, {"value": value})
    entries: list[exp.Expression] = []
    for engine_name, field in zip(target.engine_names, target.fields, strict=True):
        given = source.field(field.name)
        if given is None:
            inner: exp.Expression | None = plain_cast(exp.Null(), field.type)
        else:
            member_name = exp.Literal.string(source.engine_name(field.name)).sql("duckdb")
            member = fill(f"struct_extract(:value, {member_name})", {"value": value})
            inner = _element_cast(member, given.type, field.type)
        if inner is None:
            return None
        entries.append(exp.PropertyEQ(this=exp.to_identifier(engine_name, quoted=True), expression=inner))
    return fill(
        "CASE WHEN :value IS NOT NULL THEN :struct END", {"value": value, "struct": exp.Struct(expressions=entries)}
    )
