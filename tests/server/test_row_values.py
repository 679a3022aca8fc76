"""Result values as JSON."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from millstream.server.http.row_values import converter
from millstream.sql.types import (
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    SqlType,
    Struct,
)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (BYTES, b"!", "IQ=="),
        (DATE, datetime.date(2020, 1, 2), "2020-01-02"),
        (TIME, datetime.time(3, 4), "03:04"),
        (TIME, datetime.time(3, 4, 5), "03:04:05"),
        (TIME, datetime.time(3, 4, 5, 250_000), "03:04:05.250"),
        (TIMESTAMP, datetime.datetime(2020, 1, 2, 3, 4, 5, 6_000), "2020-01-02T03:04:05.006"),
        (DOUBLE, float("nan"), "NaN"),
        (DOUBLE, float("-inf"), "-Infinity"),
        (Array(BYTES), [b"!", None], ["IQ==", None]),
        (Map(STRING, DATE), [("a", datetime.date(2020, 1, 2))], {"a": "2020-01-02"}),
        (Struct((Field("B", BYTES), Field("I", INTEGER))), {"B": b"!", "I": 1}, {"B": "IQ==", "I": 1}),
        (Array(INTEGER), None, None),
    ],
)
def test_values_become_json_as_the_http_api_writes_them(type_: SqlType, value: Any, expected: Any) -> None:
    convert = converter(type_)
    assert convert is not None
    assert convert(value) == expected


def test_a_decimal_keeps_its_digits() -> None:
    assert converter(Decimal(4, 2)) is None, str(decimal.Decimal("1.10"))
