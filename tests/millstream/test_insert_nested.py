"""`Connection.insert` of dicts: nested values find their places by name, and nothing is lost without an error."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import millstream
from millstream.errors import InvalidStatement

CREATE = """
    CREATE STREAM s (pos STRUCT<x INT, y INT>, track ARRAY<STRUCT<x INT, y INT>>, info MAP<STRING, INT>,
                     deep MAP<STRING, STRUCT<x INT, y INT>>)
      WITH (kafka_topic='s', value_format='JSON', partitions=1);
"""


@pytest.fixture
def ms() -> Iterator[millstream.Connection]:
    with millstream.connect() as connection:
        connection.sql(CREATE)
        yield connection


def test_fields_of_structs_are_found_in_any_case(ms: millstream.Connection) -> None:
    ms.insert("s", [{"pos": {"x": 1, "Y": 2}}, {"pos": {"x": 3}}, {"pos": None}])
    assert ms.sql("SELECT pos->x, pos->y, pos IS NULL FROM s;").fetchall() == [
        (1, 2, False),
        (3, None, False),
        (None, None, True),
    ]


def test_dicts_are_entries_of_maps(ms: millstream.Connection) -> None:
    rows = [{"info": {"k": 1}}, {"info": {}}, {"info": {"k": 2, "l": 3}}, {"info": None}]
    ms.insert("s", rows)
    assert [dict(row[0]) if row[0] is not None else None for row in ms.sql("SELECT info FROM s;").fetchall()] == [
        row["info"] for row in rows
    ]


def test_structs_lie_in_arrays_and_maps(ms: millstream.Connection) -> None:
    ms.insert("s", [{"track": None}, {"track": [{"x": 1, "y": 2}, None]}, {"deep": {"a": {"x": 7}}}])
    query = "SELECT track[2] IS NULL, track[1]->y, deep['a']->x FROM s;"
    assert ms.sql(query).fetchall() == [(True, None, None), (True, 2, None), (True, None, 7)]
    field = pa.struct([("x", pa.int64())])
    table = pa.table(
        {
            "track": pa.array([[{"x": 0}], None, [{"x": 5}]], pa.large_list(field)),
            "deep": pa.array([[], None, [("b", {"x": 6})]], pa.map_(pa.string(), field)),
        }
    )
    assert ms.insert("s", table.slice(1)) == 2
    assert ms.sql("SELECT track[1]->x, deep['b']->x FROM s;").fetchall()[3:] == [(None, None), (5, 6)]


@pytest.mark.parametrize("pos", [{"x": 1, "z": 2}, {"x": 1, "X": 2}])
def test_a_field_that_the_struct_lacks_is_an_error(ms: millstream.Connection, pos: dict[str, int]) -> None:
    with pytest.raises(InvalidStatement, match="field"):
        ms.insert("s", [{"pos": pos}])
    assert ms.table("s").fetchall() == []


def test_a_column_that_only_later_rows_have_goes_in(ms: millstream.Connection) -> None:
    ms.insert("s", [{"info": {"k": 1}}, {"pos": {"x": 1, "y": 2}}])
    assert ms.sql("SELECT info['k'], pos->y FROM s;").fetchall() == [(1, None), (None, 2)]
