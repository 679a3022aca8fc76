"""What a query has written: its topic's records as rows, read by DuckDB and not by what is under test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

from millstream.executor.formats.windows import suffix_bytes
from millstream.logcore.client import FetchedColumns, LogClient
from millstream.planner.schema import Column
from millstream.planner.source_info import SourceInfo

_PLACE: Final = ("_partition", "_at")
_SIGNIFICANT: Final = 1e-9


class WrongAnswer(AssertionError):
    """A query's rows are not those of the batch query."""


def final_rows(log: LogClient, source: SourceInfo, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """A stream's rows, or those that a table has in the end. The log's topics are in JSON, or columnar."""
    columnar = source.value_format.name == "ARROW"
    records = _records(log, source, columnar)
    names = [f'"{column.name}"' for column in source.schema.columns]
    key = ", ".join([f'"{column.name}"' for column in source.schema.key] if columnar else ["key"])
    if columnar and source.key_window is not None:
        key += ", _ws, _we"
    alive = "NOT _null" if columnar else "value IS NOT NULL"
    newest = ""
    if source.kind == "TABLE":
        newest = f" QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY _partition, _at DESC) = 1"
    connection.register("records", records)
    latest = f"SELECT * FROM (SELECT * FROM records{newest}) WHERE {alive}"
    if columnar:
        return connection.sql(f"SELECT {', '.join(names)} FROM ({latest})").to_arrow_table()
    return connection.sql(f"SELECT {', '.join(_decoded(source))} FROM ({latest})").to_arrow_table()


def compare(found: pa.Table, answer: str, connection: duckdb.DuckDBPyConnection) -> int:
    """The number of rows, which are the answer's: the same ones equally often. Raises `WrongAnswer`.

    Key columns that the statement did not select are left aside: a table has all of its key. Floats may differ in their
    last digits: who adds them up in another order rounds differently.
    """
    connection.register("found", found)
    ours, wanted = connection.sql("FROM found"), connection.sql(f"SELECT * FROM ({answer})")
    all_types = {name.lower(): type_ for name, type_ in zip(ours.columns, ours.types, strict=True)}
    missing = [name for name in wanted.columns if name.lower() not in all_types]
    if missing:
        raise WrongAnswer(f"there is no column {missing} among {ours.columns}")
    types = {name: all_types[name.lower()] for name in wanted.columns}
    floats = [name for name, type_ in types.items() if str(type_) in ("DOUBLE", "FLOAT")]
    exact = [name for name in types if name not in floats]
    order = ", ".join(f'"{name}"' for name in (*exact, *floats))
    casts = ", ".join(f'CAST("{name}" AS {type_}) AS "{name}"' for name, type_ in types.items())
    connection.execute(f"CREATE OR REPLACE TEMP TABLE wanted AS SELECT {casts} FROM ({answer})")
    have = connection.sql(f"SELECT {order} FROM found ORDER BY {order}").to_arrow_table()
    want = connection.sql(f"SELECT {order} FROM wanted ORDER BY {order}").to_arrow_table()
    if len(have) != len(want) or not all(
        _same(have[i], want[i], name in floats) for i, name in enumerate((*exact, *floats))
    ):
        raise WrongAnswer(_difference(connection, have, want, order))
    return len(have)


def _records(log: LogClient, source: SourceInfo, columnar: bool) -> pa.Table:
    """All records of the topic with their places."""
    parts: list[pa.Table] = []
    for partition in range(log.topics()[source.topic].partition_count):
        offset, fetched = -1, log.fetch(source.topic, partition, 0)
        while fetched.next_offset > offset:
            for run in fetched.runs:
                if isinstance(run, FetchedColumns):
                    assert columnar, source.topic
                    rows = pa.Table.from_batches([run.batch]).replace_schema_metadata()
                    at = pa.array(run.base_offset + np.arange(len(rows)))
                else:
                    assert not columnar, source.topic
                    rows, at = run.table.select(["key", "value"]), run.table["offset"]
                place = pa.array(np.full(len(rows), partition))
                parts.append(rows.append_column("_partition", place).append_column("_at", at))
            offset = fetched.next_offset
            fetched = log.fetch(source.topic, partition, offset)
    if parts:
        return pa.concat_tables(parts)
    fields = [pa.field(column.name, column.type.arrow) for column in source.schema.columns] if columnar else []
    fields += [pa.field("_null", pa.bool_())] if columnar else [pa.field(n, pa.binary()) for n in ("key", "value")]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in _PLACE)]).empty_table()


def _decoded(source: SourceInfo) -> list[str]:
    """An expression per column, over the records' `key` and `value` in JSON."""
    key = "key"
    if source.key_window is not None:
        key = f"key[1:octet_length(key) - {suffix_bytes(source.key_window)}]"
    wrapped = f"CAST(decode({key}) AS JSON)"
    keys, values = source.schema.key, source.schema.value
    decoded = [_named(keys[0], f"{wrapped} ->> '$'")] if len(keys) == 1 else _members(keys, wrapped)
    return decoded + _members(values, "CAST(decode(value) AS JSON)")


def _members(columns: Sequence[Column], text: str) -> list[str]:
    return [_named(column, f"json_extract_string({text}, '$.\"{column.name}\"')") for column in columns]


def _named(column: Column, text: str) -> str:
    return f'{_typed(column, text)} AS "{column.name}"'


def _typed(column: Column, text: str) -> str:
    match str(column.type):
        case "TIMESTAMP":
            return f"make_timestamp(CAST({text} AS BIGINT) * 1000)"
        case "DATE":
            return f"DATE '1970-01-01' + CAST({text} AS INTEGER)"
        case _:
            return f"CAST({text} AS {column.type.duckdb})"


def _same(ours: pa.ChunkedArray, theirs: pa.ChunkedArray, is_float: bool) -> bool:
    if not is_float:
        return ours.equals(theirs.cast(ours.type))
    left, right = ours.to_numpy(), theirs.to_numpy()
    return bool(np.all(np.isclose(left, right, rtol=_SIGNIFICANT, atol=0.0, equal_nan=True)))


def _difference(connection: duckdb.DuckDBPyConnection, ours: pa.Table, theirs: pa.Table, order: str) -> str:
    connection.register("ours", ours)
    connection.register("theirs", theirs)
    extra = connection.sql(f"FROM ours EXCEPT ALL FROM theirs ORDER BY {order} LIMIT 5").fetchall()
    missing = connection.sql(f"FROM theirs EXCEPT ALL FROM ours ORDER BY {order} LIMIT 5").fetchall()
    text = f"{len(ours)} rows instead of {len(theirs)}"
    return "\n".join([text, *(f"  not wanted: {row}" for row in extra), *(f"  missing: {row}" for row in missing)])
