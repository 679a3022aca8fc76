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
from millstream.testing import Sandbox


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


def test_dates_that_python_does_not_have_are_written_too() -> None:
    row = {"D": 3_000_000, "T": 253_402_300_800_000, "L": [-800_000, None], "M": {"a": 3_000_000}, "S": {"T": -1}}
    with Sandbox() as sandbox:
        sandbox.execute(
            "CREATE STREAM s (k INT KEY, d DATE, t TIMESTAMP, l ARRAY<DATE>, m MAP<STRING, DATE>, "
            "s STRUCT<t TIMESTAMP>) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        )
        sandbox.produce("s", 1, row)
        sandbox.produce("s", 2, {"D": 0, "T": -62_135_596_800_001})
        for query in ("SELECT d, t, l, m, s FROM s;", "SELECT d, t, l, m, s FROM s EMIT CHANGES;"):
            sandbox.execute("SET 'auto.offset.reset'='earliest';")
            answered = [answer["row"]["columns"] for answer in sandbox.query(query) if "row" in answer]
            assert answered == [
                [
                    "+10183-09-21",
                    "+10000-01-01T00:00:00.000",
                    ["-0221-09-04", None],
                    {"a": "+10183-09-21"},
                    {"T": "1969-12-31T23:59:59.999"},
                ],
                ["1970-01-01", "0000-12-31T23:59:59.999", None, None, None],
            ]
