"""What the whole input answers to a batch query of DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from .sources import Record, SourceSpec

ARROW_TYPES = {
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "DECIMAL(9, 2)": pa.decimal128(9, 2),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "ARRAY<INT>": pa.list_(pa.int32()),
    "ARRAY<STRING>": pa.list_(pa.string()),
    "STRUCT<A INT, B STRING>": pa.struct([("A", pa.int32()), ("B", pa.string())]),
}


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def in_order(sources: Sequence[SourceSpec]) -> list[tuple[SourceSpec, Record]]:
    """All records that can be read, in the order in which a query of these sources sees them: each partition keeps its
    order, between partitions the smaller running maximum of the time goes first, then tables, the earlier source,
    partition."""
    arranged: list[tuple[int, int, int, int, SourceSpec, Record]] = []
    for lane, source in enumerate(sorted(sources, key=lambda source: source.kind != "TABLE")):
        latest: dict[int, int] = {}
        for number, record in enumerate(source.records):
            if not record.malformed:
                latest[record.partition] = max(latest.get(record.partition, 0), record.time_ms)
                arranged.append((latest[record.partition], lane, record.partition, number, source, record))
    arranged.sort(key=lambda item: item[:4])
    return [(source, record) for *_, source, record in arranged]


def answer(sources: Sequence[SourceSpec], sql: str) -> list[tuple[Any, ...]]:
    """The rows of `sql` over the sources' tables, which have the columns `o` (order), `part`, `ts`, `nothing` (the
    value is null as a whole), and their own."""
    connection = _connection()
    ordered = in_order(sources)
    for source in sources:
        rows = [(o, record) for o, (its, record) in enumerate(ordered) if its is source]
        connection.register(source.name, _table(source, rows))
    try:
        return connection.execute(sql).fetchall()
    finally:
        for source in sources:
            connection.unregister(source.name)


def _table(source: SourceSpec, rows: Sequence[tuple[int, Record]]) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "o": pa.array([o for o, _ in rows], pa.int64()),
        "part": pa.array([record.partition for _, record in rows], pa.int32()),
        "ts": pa.array([record.time_ms for _, record in rows], pa.int64()),
        "nothing": pa.array([record.value is None for _, record in rows], pa.bool_()),
    }
    for i, col in enumerate(source.keys):
        columns[col.name] = pa.array([record.key[i] for _, record in rows], ARROW_TYPES[col.type])
    for col in source.cols:
        values = [None if record.value is None else record.value[col.name] for _, record in rows]
        columns[col.name] = pa.array(values, ARROW_TYPES[col.type])
    return pa.table(columns)


def normal(value: Any) -> Any:
    """A value in a form in which equal ones are equal, whoever computed or printed them."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return ("number", Decimal(value)) if abs(value) >= 2**53 else ("double", float(value))
        case float():
            return ("double", float(f"{value:.12g}") + 0.0)
        case Decimal():
            return normal(float(value)) if abs(value) < 2**53 else ("number", value.normalize())
        case Mapping():
            return tuple(sorted((name, normal(item)) for name, item in value.items()))
        case Sequence():
            return tuple(normal(item) for item in value)
        case _:
            raise AssertionError(f"no value of a record: {value!r}")
