"""What data frames and dicts of columns become: values at the limits of their types, and those that are refused."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from running_server import service_in

import millstream
from millstream.errors import ConnectionClosed, InvalidStatement
from millstream.frames import arrow_table

PRICES = (
    "CREATE STREAM prices (k STRING KEY, n DECIMAL(38, 0), t TIMESTAMP, tags ARRAY<STRING>, m MAP<STRING, INT>) "
    "WITH (kafka_topic='prices', value_format='JSON', partitions=1);"
)
EARLIEST = {"auto.offset.reset": "earliest"}


@pytest.fixture(scope="module", params=["in process", "over HTTP"])
def ms(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[millstream.Connection]:
    if request.param == "in process":
        with millstream.connect(properties=EARLIEST) as connection:
            connection.sql(PRICES)
            yield connection
        return
    with service_in(tmp_path_factory.mktemp("data")) as service:
        with millstream.connect(f"http://{service.http_address}", EARLIEST) as connection:
            connection.sql(PRICES)
            yield connection


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"i": [1, "x"]}, "column i has values that cannot be read: Could not convert 'x'"),
        ({"i": [object()]}, "column i has values that cannot be read"),
        ({"d": [Decimal("NaN")]}, "column d has values that cannot be read"),
        ({"d": [10**400]}, "column d has values that cannot be read"),
        ({"s": ["\ud800"]}, "column s has values that cannot be read"),
        ({"m": [{1: 1}]}, "column m has values that cannot be read: Expected dict key of type str"),
        ([{"i": 1}, {"i": "x"}], "column i has values that cannot be read"),
        ({"k": ["a"], "i": [1, 2]}, "the columns have different numbers of values: k 1, i 2"),
        (pd.DataFrame({"i": [object()]}), "the data frame cannot be read: .*column i"),
    ],
)
def test_values_that_no_column_holds_are_refused_with_its_name(columns: Any, complaint: str) -> None:
    with pytest.raises(InvalidStatement, match=complaint):
        arrow_table(columns)


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        ({"k": "abc"}, "column k is one str: pass a list of values"),
        ({"i": 1}, "column i is one int"),
        ([[1, 2]], "a list of rows has dicts, not list"),
    ],
)
def test_what_is_no_frame_is_refused(frame: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        arrow_table(frame)


def test_missing_values_of_pandas_are_null() -> None:
    frame = {"t": [pd.NaT, datetime.datetime(2024, 1, 1)], "i": (1, pd.NA)}
    assert arrow_table(frame).to_pylist() == [
        {"t": None, "i": 1},
        {"t": datetime.datetime(2024, 1, 1), "i": None},
    ]


def test_integers_of_more_than_64_bits_go_into_decimals_and_find_them(ms: millstream.Connection) -> None:
    numbers = [2**63, -(2**63) - 1, 10**38 - 1, 5]
    ms.insert("prices", {"k": ["big"] * 4, "n": numbers})
    found = [n for (n,) in ms.sql("SELECT n FROM prices WHERE k = 'big';").fetchall()]
    assert found == numbers
    for number in numbers:
        for value in (number, Decimal(number)):
            assert ms.sql("SELECT n FROM prices WHERE n = ?;", [value]).fetchall() == [(number,)]


def test_categories_of_polars_are_texts(ms: millstream.Connection) -> None:
    import polars as pl  # it begins a thread, and tests are forked from a process without any

    frame = pl.DataFrame({"k": ["cat", "cat", None], "tags": [["x", "y"], ["x"], None]})
    ms.insert(
        "prices", frame.with_columns(pl.col("k").cast(pl.Categorical), pl.col("tags").cast(pl.List(pl.Categorical)))
    )
    assert ms.sql("SELECT k, tags FROM prices WHERE k = 'cat';").fetchall() == [("cat", ["x", "y"]), ("cat", ["x"])]


def test_a_map_comes_back_as_the_dict_that_it_was(ms: millstream.Connection) -> None:
    ms.insert("prices", {"k": ["map", "map"], "m": [{"a": 1, "b": None}, None]})
    found = ms.sql("SELECT m, ? AS p FROM prices WHERE k = 'map';", [{"x": [{"y": 1}]}]).fetchall()
    assert found == [({"a": 1}, {"x": [{"y": 1}]}), (None, {"x": [{"y": 1}]})]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.datetime64("2024-01-01T00:00:00.123456789"), datetime.datetime(2024, 1, 1, 0, 0, 0, 123000)),
        (np.datetime64("2024-01-01"), datetime.datetime(2024, 1, 1)),
        (np.datetime64("NaT"), None),
        (pd.NaT, None),
        (pd.NA, None),
    ],
)
def test_times_of_numpy_and_missing_values_are_parameters(
    ms: millstream.Connection, value: Any, expected: datetime.datetime | None
) -> None:
    ms.insert("prices", {"k": ["time"]})
    text = "SELECT CAST(? AS TIMESTAMP) AS v FROM prices WHERE k = 'time' LIMIT 1;"
    assert ms.sql(text, [value]).fetchall() == [(expected,)]


def test_a_closed_connection_says_so() -> None:
    closed = millstream.connect()
    closed.sql(PRICES)
    relation = closed.table("prices")
    closed.close()
    closed.close()
    for use in (lambda: closed.sql("SHOW TABLES;"), lambda: closed.insert("prices", {"k": []}), relation.fetchall):
        with pytest.raises(ConnectionClosed, match="the connection is closed"):
            use()
    assert "connection" in repr(closed)
