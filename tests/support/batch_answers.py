"""Compares what a persistent query has written in the end with DuckDB's answer to a query over the same rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from databases import new_connection

from millstream.testing import Sandbox

Row = dict[str, Any]


def sandbox(**properties: str) -> Sandbox:
    """A Sandbox whose queries read from the beginning."""
    return Sandbox(properties={"auto.offset.reset": "earliest", **properties})


def final_rows(sandbox: Sandbox, name: str) -> Counter[tuple[Any, ...]]:
    """The rows of a stream or table at the end: values in the order of their columns, key columns first."""
    (source,) = [found for found in sandbox.sources() if found["name"] == name]
    records = sandbox.consume(source["topic"])
    if source["type"] == "STREAM":
        return Counter(_values(record) for record in records)
    latest = {_identity(record): record for record in records}
    return Counter(_values(record) for record in latest.values() if record["value"] is not None)


def _identity(record: Any) -> str:
    return repr((record["key"], record["window"]))


def _values(record: Any) -> tuple[Any, ...]:
    key, value = record["key"], record["value"]
    keys = tuple(key.values()) if isinstance(key, Mapping) else () if key is None else (key,)
    return (*keys, *(value or {}).values())


def batch_rows(sql: str, **tables: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    """DuckDB's answer over these tables."""
    with new_connection() as connection:
        for name, rows in tables.items():
            connection.register(name, pa.Table.from_pylist(list(rows)))
        return Counter(connection.sql(sql).fetchall())


def feed(sandbox: Sandbox, topic: str, rows: Iterable[Row], *, key: str = "", partition: int | None = None) -> None:
    """Produces the rows, each at the time in its column `ts`; `key` names the column that is the record's key."""
    for row in rows:
        value = {name.upper(): item for name, item in row.items() if name != key}
        sandbox.produce(topic, row[key] if key else None, value, row["ts"], partition=partition)


def shelf_changes(seed: int, count: int) -> list[tuple[Row, Row | None]]:
    """Random changes of a table of shops and items: keys with new values, or None where a row goes."""
    rng = random.Random(seed)
    changes: list[tuple[Row, Row | None]] = []
    for _ in range(count):
        key = {"shop": f"s{rng.randrange(4)}", "item": f"i{rng.randrange(3)}"}
        gone = rng.random() < 0.2
        changes.append((key, None if gone else {"n": rng.randrange(6), "kind": f"t{rng.randrange(3)}"}))
    return changes


def last_rows(changes: Iterable[tuple[Row, Row | None]]) -> list[Row]:
    """What a table holds after all changes."""
    latest = {tuple(key.items()): (key, value) for key, value in changes}
    return [{**key, **value} for key, value in latest.values() if value is not None]


def upper(row: Row | None) -> Row | None:
    """The row as JSON in topics has it."""
    return None if row is None else {name.upper(): value for name, value in row.items()}


def bids(seed: int, count: int) -> list[Row]:
    """Random bids: few auctions, bidders and prices, so that much of it meets; times not quite in order."""
    rng = random.Random(seed)
    return [
        {
            "id": n,
            "auction": rng.randrange(5),
            "bidder": rng.randrange(4),
            "price": rng.randrange(1, 20),
            "ts": max(0, n * 700 + rng.randrange(-3_000, 3_000)),
        }
        for n in range(count)
    ]
