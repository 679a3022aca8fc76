"""Which signature a call means, and what it says when none fits."""

from __future__ import annotations

import pytest

from millstream.errors import TypeMismatch, UnknownFunction
from millstream.sql.functions.catalog import LambdaArgument, find_function
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
)


@pytest.mark.parametrize(
    ("name", "given", "wanted", "returned"),
    [
        ("ABS", (INTEGER,), (INTEGER,), INTEGER),
        ("ABS", (Decimal(4, 2),), (Decimal(4, 2),), Decimal(4, 2)),
        ("SQRT", (BIGINT,), (DOUBLE,), DOUBLE),
        ("SQRT", (Decimal(4, 2),), (DOUBLE,), DOUBLE),
        ("ROUND", (Decimal(33, 16),), (Decimal(33, 16),), Decimal(17, 0)),
        ("LPAD", (NULL, INTEGER, STRING), (STRING, INTEGER, STRING), STRING),
        ("LPAD", (BYTES, INTEGER, BYTES), (BYTES, INTEGER, BYTES), BYTES),
        ("GREATEST", (DATE, NULL, STRING), (DATE, DATE, DATE), DATE),
        ("GREATEST", (Decimal(4, 2), Decimal(5, 1)), (Decimal(4, 2), Decimal(5, 1)), Decimal(6, 2)),
        ("LEAST", (INTEGER, BIGINT, DOUBLE), (DOUBLE, DOUBLE, DOUBLE), DOUBLE),
        ("COALESCE", (NULL, Array(STRING)), (Array(STRING), Array(STRING)), Array(STRING)),
        ("MAP_VALUES", (Map(STRING, Array(INTEGER)),), (Map(STRING, Array(INTEGER)),), Array(Array(INTEGER))),
        ("CONVERT_TZ", (STRING, STRING, STRING), (TIMESTAMP, STRING, STRING), TIMESTAMP),
        ("FORMAT_TIME", (STRING, STRING), (TIME, STRING), STRING),
        ("EXPLODE", (Array(DATE),), (Array(DATE),), DATE),
        ("CUBE_EXPLODE", (Array(INTEGER),), (Array(INTEGER),), Array(INTEGER)),
    ],
)
def test_a_call_takes_the_exact_signature_or_widens_its_arguments(
    name: str, given: tuple[SqlType, ...], wanted: tuple[SqlType, ...], returned: SqlType
) -> None:
    call = find_function(name).resolve(given)
    assert (call.parameter_types, call.return_type) == (wanted, returned)


def test_a_lambda_learns_its_types_from_the_arguments_before_it() -> None:
    seen: list[tuple[SqlType, ...]] = []

    def body(types: tuple[SqlType, ...]) -> SqlType:
        seen.append(types)
        return types[0]

    call = find_function("reduce").resolve([Map(STRING, INTEGER), BIGINT, LambdaArgument(("s", "k", "v"), body)])
    assert seen == [(BIGINT, STRING, INTEGER)]
    assert call.lambda_types == ((), (), (BIGINT, STRING, INTEGER))
    assert call.return_type == BIGINT


def test_a_filter_that_is_no_boolean_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="needs a lambda that gives BOOLEAN, but it gives INTEGER"):
        find_function("FILTER").resolve([Array(INTEGER), LambdaArgument(("x",), lambda types: types[0])])


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("LPAD", (STRING, STRING)),
        ("GREATEST", ()),
        ("GREATEST", (STRING, INTEGER)),
        ("COALESCE", ()),
        ("COALESCE", (INTEGER, BIGINT)),
        ("ARRAY_CONTAINS", (Array(BIGINT), INTEGER)),
        ("TIMESTAMPADD", (TIMESTAMP, INTEGER, TIMESTAMP)),
        ("GEO_DISTANCE", (DOUBLE, DOUBLE, STRING, INTEGER)),
        ("LEN", (BOOLEAN,)),
    ],
)
def test_types_that_no_signature_takes_are_refused_with_the_alternatives(name: str, given: tuple[SqlType, ...]) -> None:
    function = find_function(name)
    with pytest.raises(TypeMismatch) as refusal:
        function.resolve(given)
    listed = ", ".join(map(str, given))
    assert f"Function '{function.spelling}' does not accept parameters ({listed})." in str(refusal.value)
    assert "Valid alternatives are:" in str(refusal.value)


@pytest.mark.parametrize("given", [(INTEGER, BIGINT), (INTEGER, BIGINT, Decimal(20, 3)), (NULL, NULL)])
def test_a_call_that_may_mean_several_signatures_is_refused(given: tuple[SqlType, ...]) -> None:
    with pytest.raises(TypeMismatch, match="Function 'least' cannot be resolved due to ambiguous method parameters"):
        find_function("LEAST").resolve(given)


def test_an_unknown_function_names_the_nearest_one() -> None:
    with pytest.raises(UnknownFunction, match="Can't find any functions with the name 'LPADD'") as unknown:
        find_function("LPADD")
    assert unknown.value.hint == 'Did you mean "LPAD"?'
