"""Queries of the kinds that are hard to keep right, their input, and the answers of a batch query to each of them.

Every change is asked for, so what a query writes is known record by record: a change that is missing, or there twice,
shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import pyarrow as pa

PARTITIONS: Final = 3
KEYS: Final = [f"k{number}" for number in range(20)]
ORDERS: Final = [f"o{number}" for number in range(15)]
PRODUCTS: Final = [f"p{number}" for number in range(5)]
WINDOW_MS: Final = 10_000
START_MS: Final = 1_000_000
BEFORE_MS: Final = 1  # of rows of tables that are there from the beginning; 0 would be the time of day for librdkafka
STEP_MS: Final = 7  # from one record to the next
LAST_MS: Final = 10**10
"""The time of the records that close the windows of all others, one in each partition."""

SOURCES: Final = """
CREATE STREAM events (k STRING KEY, id BIGINT, v BIGINT) WITH (kafka_topic='events', value_format='JSON', partitions=3);
CREATE TABLE names (k STRING PRIMARY KEY, g STRING) WITH (kafka_topic='names', value_format='JSON', partitions=3);
CREATE TABLE orders (o STRING PRIMARY KEY, p STRING, version BIGINT)
  WITH (kafka_topic='orders', value_format='JSON', partitions=3);
CREATE TABLE products (p STRING PRIMARY KEY, name STRING)
  WITH (kafka_topic='products', value_format='JSON', partitions=3);
"""
QUERIES: Final = """
CREATE TABLE sums WITH (kafka_topic='sums', value_format='JSON') AS
  SELECT k, COUNT(*) AS n, SUM(v) AS total FROM events WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 1 DAY)
  GROUP BY k EMIT CHANGES;
CREATE STREAM named WITH (kafka_topic='named', value_format='JSON') AS
  SELECT e.k AS k, id, v, g FROM events e JOIN names n ON e.k = n.k;
CREATE TABLE priced WITH (kafka_topic='priced', value_format='JSON') AS
  SELECT o, version, name FROM orders JOIN products ON orders.p = products.p;
CREATE TABLE groups WITH (kafka_topic='groups', value_format='JSON') AS
  SELECT g, SUM(n) AS n FROM (SELECT k, LATEST_BY_OFFSET(g) AS g, COUNT(*) AS n FROM named GROUP BY k) GROUP BY g;
CREATE TABLE closed WITH (kafka_topic='closed', value_format='JSON') AS
  SELECT k, COUNT(*) AS n, SUM(v) AS total FROM events WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 5 SECONDS)
  GROUP BY k EMIT FINAL;
"""

Changes = Mapping[Any, Sequence[Any]]
"""What a topic says, by key: its values in their order."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was sent: rows of the topics. `events`: (k, id, v, time), the last ones in `closing`; `orders`: (o, p,
    version)."""

    events: list[tuple[str, int, int, int]] = field(default_factory=list)
    closing: list[tuple[str, int, int, int]] = field(default_factory=list)
    orders: list[tuple[str, str, int]] = field(default_factory=list)


def group_of(key: str) -> str:
    return f"g{int(key[1:]) % 4}"


def name_of(product: str) -> str:
    return f"name of {product}"


def answers(inputs: Inputs) -> dict[str, Changes]:
    """By topic, what DuckDB gives for all rows at once."""
    with duckdb.connect() as connection:
        rows = [(*row, False) for row in inputs.events] + [(*row, True) for row in inputs.closing]
        connection.register("events", _table(rows, "k", "id", "v", "ts", "closing"))
        connection.register("orders", _table(inputs.orders, "o", "p", "version"))
        connection.register("names", _table([(key, group_of(key)) for key in KEYS], "k", "g"))
        connection.register("products", _table([(each, name_of(each)) for each in PRODUCTS], "p", "name"))
        return {topic: _changes(connection.sql(text).fetchall()) for topic, text in _BATCH.items()}


_WINDOW: Final = f"ts // {WINDOW_MS} * {WINDOW_MS}"
_BATCH: Final = {
    "sums": f"""SELECT (k, {_WINDOW}), (COUNT(*) OVER changes, SUM(v) OVER changes) FROM events
        WINDOW changes AS (PARTITION BY k, {_WINDOW} ORDER BY id) ORDER BY id""",
    "named": "SELECT k, (id, v, g) FROM events JOIN names USING (k) ORDER BY id",
    "priced": "SELECT o, (version, name) FROM orders JOIN products USING (p) ORDER BY version",
    "groups": "SELECT g, row_number() OVER (PARTITION BY g ORDER BY id) FROM events JOIN names USING (k) ORDER BY id",
    "closed": f"SELECT (k, {_WINDOW}), (COUNT(*), SUM(v)) FROM events WHERE NOT closing GROUP BY k, {_WINDOW}",
}

READ: Final[Mapping[str, tuple[bool, Callable[[dict[str, Any]], Any]]]] = {
    "sums": (True, lambda value: (value["N"], value["TOTAL"])),
    "named": (False, lambda value: (value["ID"], value["V"], value["G"])),
    "priced": (False, lambda value: (value["VERSION"], value["NAME"])),
    "groups": (False, lambda value: value["N"]),
    "closed": (True, lambda value: (value["N"], value["TOTAL"])),
}
"""By topic: whether its keys have windows, and what of its values is compared."""


def changes_of(topic: str, records: Sequence[tuple[bytes, dict[str, Any] | None]]) -> Changes:
    """What records say, keys as text and, for windows, eight bytes of the beginning."""
    windowed, value_of = READ[topic]
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, value in records:
        name = (key[:-8].decode(), int.from_bytes(key[-8:], "big")) if windowed else key.decode()
        found[name].append(None if value is None else value_of(value))
    return dict(found)


def differences(topic: str, expected: Changes, found: Changes) -> list[str]:
    """In words, one line for each key whose changes are not those expected."""
    wrong: list[str] = []
    for key in sorted({*expected, *found}, key=repr):
        wanted, got = list(expected.get(key, [])), list(found.get(key, []))
        if wanted != got:
            at = next((n for n, pair in enumerate(zip(wanted, got, strict=False)) if pair[0] != pair[1]), None)
            place = min(len(wanted), len(got)) if at is None else at
            wrong.append(
                f"{topic} {key}: {len(got)} changes instead of {len(wanted)}; from {place} on"
                f" {got[place : place + 4]} instead of {wanted[place : place + 4]}"
            )
    return wrong


def _table(rows: Sequence[tuple[Any, ...]], *names: str) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


def _changes(rows: Sequence[tuple[Any, Any]]) -> Changes:
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, value in rows:
        found[key].append(value)
    return dict(found)
