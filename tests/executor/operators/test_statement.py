"""Prepared statements read every Arrow table, whatever slices it was made of."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millstream.executor.operators.statement import BatchStatement, readable
from millstream.testing import Sandbox

INNER = pa.struct([("n", pa.string())])
OUTER = pa.struct([("p", INNER)])
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "a struct": (INNER, {"n": "x"}),
    "a struct in a struct": (OUTER, {"p": {"n": "x"}}),
    "three structs": (pa.struct([("o", OUTER)]), {"o": {"p": {"n": "x"}}}),
    "structs in an array": (pa.list_(OUTER), [{"p": {"n": "x"}}, None]),
    "structs in a map": (pa.map_(pa.string(), OUTER), [("a", {"p": {"n": "x"}}), ("b", None)]),
    "an array in a struct": (pa.struct([("l", pa.list_(OUTER))]), {"l": [{"p": {"n": "x"}}]}),
}


@pytest.mark.parametrize("kind", TYPES)
def test_slices_of_nested_values_are_read_as_they_are(kind: str) -> None:
    type_, value = TYPES[kind]
    table = pa.table({"i": pa.array(range(6)), "v": pa.array([value, None, value, None, value, value], type_)})
    slices = [table.slice(1, 2), pa.concat_tables([table.slice(1, 2), table.slice(4)]), table.slice(3, 0), table]
    with duckdb.connect() as connection:
        statement = BatchStatement(connection, "SELECT v FROM {input} ORDER BY i", {"input": table.schema})
        for rows in slices:
            assert statement.run(input=rows)["v"].to_pylist() == rows["v"].to_pylist()


@pytest.mark.parametrize("kind", TYPES)
def test_nested_values_beside_a_column_of_other_chunks_are_read(kind: str) -> None:
    type_, value = TYPES[kind]
    chunked, others = pa.chunked_array([[0], [1, 2], [3]]), pa.chunked_array([[0, 1], [], [2, 3]])
    table = pa.table({"i": chunked, "v": pa.array([value, None, value, value], type_), "w": others})
    with duckdb.connect() as connection:
        statement = BatchStatement(connection, "SELECT * FROM {input} ORDER BY i", {"input": table.schema})
        for rows in (table, table.slice(1)):
            assert statement.run(input=rows)["v"].to_pylist() == rows["v"].to_pylist()


def test_structs_that_begin_behind_the_start_inside_of_an_array_are_read() -> None:
    items = pa.array([{"p": {"n": text}} for text in "abcd"], OUTER).slice(1)
    table = pa.table({"v": pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), items)})
    with duckdb.connect() as connection:
        connection.register("rows", readable(table))
        assert connection.sql("SELECT v FROM rows").fetchall() == [(row,) for row in table["v"].to_pylist()]


@pytest.mark.parametrize("partitions", [1, 2, 6])
def test_a_query_reads_nested_structs_from_any_number_of_partitions(partitions: int) -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.create_topic("s", partitions)
        sandbox.execute(
            "CREATE STREAM s (k INT KEY, o STRUCT<p STRUCT<n STRING>>, l ARRAY<INT>) "
            "WITH (kafka_topic='s', value_format='JSON');"
        )
        for key, name in enumerate(["a", None, "b", "c"]):
            sandbox.produce("s", key, {"O": {"P": {"N": name}}, "L": [key]}, timestamp=key)
            sandbox.produce("s", None, None, timestamp=key)
        sandbox.execute("CREATE STREAM c AS SELECT k, o->p->n AS n, IFNULL(l, ARRAY[7]) AS l FROM s;")
        sandbox.drain()
        values = [(record["key"], record["value"]) for record in sandbox.consume("C") if record["value"] is not None]
        copied = sorted((key, value["N"], value["L"]) for key, value in values)
        assert copied == [(0, "a", [0]), (1, None, [1]), (2, "b", [2]), (3, "c", [3])]
        answered = list(sandbox.query("SELECT k, o->p->n AS n FROM s WHERE o->p->n = 'b';"))
        assert [row["row"]["columns"] for row in answered if "row" in row] == [[2, "b"]]
