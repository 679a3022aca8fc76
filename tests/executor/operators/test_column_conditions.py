"""Conditions over Arrow columns: they mean what they mean in DuckDB, and what may not is refused."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.executor.operators.chains import column_conditions
from millstream.executor.operators.chains.column_conditions import column_condition

SCHEMA = pa.schema(
    [
        ("v0", pa.int64()), ("v1", pa.int32()), ("v2", pa.string()), ("v3", pa.bool_()), ("v4", pa.float64()),
        ("v5", pa.float64()), ("v6", pa.decimal128(10, 2)), ("v7", pa.date32()), ("v8", pa.timestamp("us")),
    ]
)  # fmt: skip
PLACES = {name: place for place, name in enumerate(SCHEMA.names)}
TEXTS = ("", "a", "A", "ä", "\U0001f600", "￿", "it's", "a\\b", "a\x00b", "abc", "ba")
PATTERNS = ("a", "a%", "%a", "%a%", "%%a", "it''s%", "ä%")

integers = st.sampled_from(
    ["v0", "v1", "CAST(v1 AS BIGINT)", "1", "-1", "CAST(1 AS INT)", "CAST(-1 AS BIGINT)", "CAST(0 AS SMALLINT)",
     "CAST(9223372036854775807 AS BIGINT)", "9223372036854775807", "TRY_CAST('1' AS BIGINT)", "(v0 % 7)",
     "v1 % CAST(3 AS BIGINT)", "v0 % 1", "v0 % CAST(9223372036854775807 AS BIGINT)"]
)  # fmt: skip
texts = st.sampled_from(["v2", *("'" + text.replace("'", "''") + "'" for text in TEXTS if "\x00" not in text)])
doubles = st.sampled_from(
    ["v4", "v5", "CAST(0 AS DOUBLE)", "CAST(CAST(1.5 AS DECIMAL(2, 1)) AS DOUBLE)", "CAST('NaN' AS DOUBLE)"]
)
decimals = st.sampled_from(["v6", "CAST(1.5 AS DECIMAL(10, 2))", "CAST(0 AS DECIMAL(10, 2))"])
dates = st.sampled_from(["v7", "CAST('2024-01-02' AS DATE)"])
times = st.sampled_from(["v8", "CAST('2024-01-02 03:04:05' AS TIMESTAMP)"])
booleans = st.sampled_from(["v3", "TRUE", "FALSE"])
compared = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
leaves = st.one_of(
    *(
        st.builds("{} {} {}".format, values, compared, values)
        for values in (integers, texts, doubles, decimals, dates, times, booleans)
    ),
    st.builds("v2 {}LIKE '{}'".format, st.sampled_from(["", "NOT "]), st.sampled_from(PATTERNS)),
    st.builds("{} IS {}NULL".format, st.sampled_from(SCHEMA.names), st.sampled_from(["", "NOT "])),
    st.just("v3"),
    st.lists(
        st.sampled_from(
            [
                "v0 = 1",
                "v0 = -1",
                "v1 = 9223372036854775807",
                "v1 = 0",
                "v2 = 'a'",
                "v2 = 'ä'",
                "v4 = CAST(0 AS DOUBLE)",
            ]
        ),
        min_size=2,
    ).map(" OR ".join),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("COALESCE({}, FALSE)".format, inner),
        st.builds("TRY({})".format, inner),
    ),
    max_leaves=8,
)
NUMBERS = [None, -1.0, 0.0, -0.0, 1.5, math.inf, -math.inf, math.nan]
rows = st.fixed_dictionaries(
    {
        "v0": st.sampled_from([None, -1, 0, 1, 2**63 - 1, -(2**63)]),
        "v1": st.sampled_from([None, -1, 0, 1, 2**31 - 1]),
        "v2": st.sampled_from([None, *TEXTS]),
        "v3": st.sampled_from([None, True, False]),
        "v4": st.sampled_from(NUMBERS),
        "v5": st.sampled_from(NUMBERS),
        "v6": st.sampled_from([None, Decimal("1.50"), Decimal("0.00"), Decimal("-99999999.99")]),
        "v7": st.sampled_from([None, datetime.date(2024, 1, 2), datetime.date(1969, 12, 31)]),
        "v8": st.sampled_from(
            [None, datetime.datetime(2024, 1, 2, 3, 4, 5), datetime.datetime(2024, 1, 2, 3, 4, 5, 1)]
        ),
    }
)


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@given(sql=conditions, given_rows=st.lists(rows, min_size=1, max_size=8))
def test_a_condition_means_what_it_means_in_duckdb(
    database: duckdb.DuckDBPyConnection, sql: str, given_rows: list[dict[str, Any]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_conditions, "_COMPARISONS_MAX", 1_000)
        condition = column_condition(sql, PLACES, SCHEMA.types, database)
    assert condition is not None
    table = pa.Table.from_pylist(given_rows, schema=SCHEMA)
    expected = [found for (found,) in database.from_arrow(table).select(sql).fetchall()]
    in_pieces = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    for given_table in (table, in_pieces):
        found = condition(given_table.columns)
        assert (found.to_pylist() if isinstance(found, pa.ChunkedArray) else [found.as_py()] * len(table)) == expected


def test_many_constants_are_one_comparison_and_many_comparisons_are_duckdbs(
    database: duckdb.DuckDBPyConnection,
) -> None:
    table = pa.table({"v0": pa.array([5, 70_000, None, -1], pa.int64())})

    def compiled(sql: str) -> Any:
        return column_condition(sql, {"v0": 0}, [pa.int64()], database)

    listed = compiled(" OR ".join(f"v0 = {number}" for number in range(3_000)))
    assert listed(table.columns).to_pylist() == [True, False, None, False]
    assert compiled("v0 = 5 OR v0 = -1 OR v0 IS NULL")(table.columns).to_pylist() == [True, False, True, True]
    assert compiled(" AND ".join(f"v0 <> {number}" for number in range(8))) is not None
    assert compiled(" AND ".join(f"v0 <> {number}" for number in range(9))) is None


@pytest.mark.parametrize(
    "sql",
    [
        "v4 > v0",
        "v0 > 1.5",
        "v6 > 1.5",
        "v7 = v8",
        "v3 = 1",
        "v4 IS NULL AND v4 = v0",
        "v0 + v1 > v0",
        "CAST(v2 AS BIGINT) > v0",
        "CAST('x' AS BIGINT) = v0",
        "v0 % 0 = 1",
        "v0 % -1 = 0",
        "v0 % v1 = 0",
        "v4 % 2 = CAST(0 AS DOUBLE)",
        "CAST(v0 AS INT) = v1",
        "TRY_CAST(v2 AS BIGINT) = v0",
        "CAST(300 AS TINYINT) = v0",
        "v2 = v0",
        "v2 LIKE 'a_'",
        "v2 LIKE 'a%b'",
        "v2 LIKE '%'",
        "v2 LIKE ''",
        "v2 LIKE 'a\\%'",
        "v2 LIKE v2",
        "v2 LIKE 'a%' ESCAPE '!'",
        "v2 ILIKE 'a%'",
        "now() > v8",
        "random() > v4",
        "COALESCE(v3, TRUE)",
        "f(v0)",
        "v0",
        "v9 = v0",
        "t.v0 = v1",
        "v2 COLLATE NOCASE = 'a'",
        "",
        "v0 >",
    ],
)
def test_what_may_mean_something_else_is_duckdbs_alone(database: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert column_condition(sql, PLACES, SCHEMA.types, database) is None
