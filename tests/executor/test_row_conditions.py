"""Conditions in Python: they mean what they mean in DuckDB, and what may not is refused."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.executor.row_conditions import row_condition

SCHEMA = pa.schema(
    [("v0", pa.int64()), ("v1", pa.int32()), ("v2", pa.string()), ("v3", pa.bool_()), ("v4", pa.float64())]
)
PLACES = {name: place for place, name in enumerate(SCHEMA.names)}
TEXTS = ("", "a", "A", "ä", "\U0001f600", "￿", "it's", "a\\b", "a\x00b")

integers = st.sampled_from(
    ["v0", "v1", "CAST(1 AS INT)", "CAST(-1 AS BIGINT)", "CAST(9223372036854775807 AS BIGINT)", "CAST(0 AS SMALLINT)"]
)
texts = st.sampled_from(["v2", *("'" + text.replace("'", "''") + "'" for text in TEXTS if "\x00" not in text)])
compared = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
leaves = st.one_of(
    st.builds("{} {} {}".format, integers, compared, integers),
    st.builds("{} {} {}".format, texts, compared, texts),
    st.builds("{} IS {}NULL".format, st.sampled_from(SCHEMA.names[:4]), st.sampled_from(["", "NOT "])),
    st.just("v3"),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("COALESCE({}, FALSE)".format, inner),
    ),
    max_leaves=8,
)
rows = st.fixed_dictionaries(
    {
        "v0": st.sampled_from([None, -1, 0, 1, 2**63 - 1, -(2**63)]),
        "v1": st.sampled_from([None, -1, 0, 1, 2**31 - 1]),
        "v2": st.sampled_from([None, *TEXTS]),
        "v3": st.sampled_from([None, True, False]),
        "v4": st.none(),
    }
)


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@given(sql=conditions, given_rows=st.lists(rows, min_size=1, max_size=8))
def test_a_condition_means_what_it_means_in_duckdb(
    database: duckdb.DuckDBPyConnection, sql: str, given_rows: list[dict[str, Any]]
) -> None:
    condition = row_condition(sql, PLACES, SCHEMA.types)
    assert condition is not None
    table = pa.Table.from_pylist(given_rows, schema=SCHEMA)
    expected = [found for (found,) in database.from_arrow(table).select(sql).fetchall()]
    assert [condition([row[name] for name in SCHEMA.names]) for row in given_rows] == expected


@pytest.mark.parametrize(
    "sql",
    [
        "v4 > v0",
        "v4 IS NULL AND v4 = v4",
        "v0 > 1.5",
        "v0 + v1 > v0",
        "CAST(v2 AS BIGINT) > v0",
        "TRY_CAST('1' AS BIGINT) = v0",
        "CAST(300 AS TINYINT) = v0",
        "v2 = v0",
        "v2 LIKE 'a%'",
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
def test_what_may_mean_something_else_is_duckdbs_alone(sql: str) -> None:
    assert row_condition(sql, PLACES, SCHEMA.types) is None
