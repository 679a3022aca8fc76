"""Debezium's envelopes as rows of tables, whose changes retract the old rows in aggregates."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from batch_answers import sandbox

from millstream.executor.formats.registry import decoder, encoder
from millstream.logcore.clients.producer import Producer
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql.types import INTEGER, STRING, Decimal, Struct
from millstream.sql.types import Field as TypeField

COLUMNS = (Column("ID", INTEGER), Column("NAME", STRING), Column("PRICE", Decimal(30, 10)))
FULL_SQL = {"millstream.pull.full.sql": "true"}
ROW: dict[str, Any] = {"id": 1, "name": "a", "price": 1.5}


def decode(*records: bytes | None, columns: tuple[Column, ...] = COLUMNS) -> tuple[list[list[Any]], list[int]]:
    """Rows without values are empty; and which rows are no JSON."""
    found = decoder(FormatSpec("DEBEZIUM"), columns).decode(pa.array(records, pa.binary()))
    rows = [list(row) for row in zip(*(column.to_pylist() for column in found.columns), strict=True)]
    return [[] if null else row for row, null in zip(rows, found.null_rows.to_pylist(), strict=True)], [
        error.row for error in found.errors
    ]


@pytest.mark.parametrize("copies", [1, 50])
def test_the_row_after_a_change_is_the_row(copies: int) -> None:
    """50: so many that the compiled scan reads them."""
    exact = b'{"before":null,"after":{"id":2,"name":"\\u00fc \\"{}","price":12345678901234567890.0123456789},"op":"r"}'
    records = [
        json.dumps({"before": None, "after": ROW, "op": "c", "source": {"op": "x", "after": 1}}).encode(),
        exact,
        json.dumps({"before": ROW, "after": None, "op": "d"}).encode(),
        None,
        json.dumps({"schema": {"type": "struct"}, "payload": {"after": ROW, "op": "u"}}).encode(),
        json.dumps(ROW).encode(),
        b"{no json",
        b'{"after":[1],"op":"c"}',
    ]
    rows, failed = decode(*(records * copies))
    first = rows[:8]
    assert [row[:2] for row in first[:6]] == [[1, "a"], [2, 'ü "{}'], [], [], [1, "a"], [1, "a"]]
    assert str(first[1][2]) == "12345678901234567890.0123456789"
    assert rows == first * copies
    assert failed == [index + 8 * copy for copy in range(copies) for index in (6, 7)]


def test_nested_rows_keep_their_fields() -> None:
    columns = (Column("S", Struct((TypeField("A", INTEGER), TypeField("AFTER", STRING)))),)
    rows, failed = decode(b'{"after":{"s":{"a":1,"after":"x"}},"op":"c"}', columns=columns)
    assert (rows, failed) == ([[{"A": 1, "AFTER": "x"}]], [])


def test_what_is_written_is_read_back() -> None:
    columns = COLUMNS[:2]
    arrays = [pa.array([1, None, 3], pa.int32()), pa.array(["a", "ü", None])]
    data = encoder(FormatSpec("DEBEZIUM"), columns).encode(arrays, null_rows=pa.array([False, False, True]))
    assert data.to_pylist() == [
        b'{"before":null,"after":{"ID":1,"NAME":"a"},"op":"c"}',
        '{"before":null,"after":{"ID":null,"NAME":"ü"},"op":"c"}'.encode(),
        None,
    ]
    assert decode(*data.to_pylist(), columns=columns) == ([[1, "a"], [None, "ü"], []], [])


def test_a_table_of_envelopes_retracts_old_rows_in_an_aggregate() -> None:
    with sandbox(**FULL_SQL) as opened:
        opened.create_topic("pg.public.orders")
        opened.execute(
            """CREATE TABLE orders (id INT PRIMARY KEY, customer STRING, amount DECIMAL(10, 2))
                 WITH (kafka_topic='pg.public.orders', format='DEBEZIUM');
               CREATE TABLE spent AS
                 SELECT customer, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY customer;"""
        )

        def change(key: int, op: str, customer: str | None, amount: float = 0) -> None:
            after = None if customer is None else {"id": key, "customer": customer, "amount": amount}
            value = {"before": None, "after": after, "op": op, "ts_ms": 1}
            with Producer(opened.log) as producer:  # pyrefly: ignore[bad-argument-type]
                producer.send("pg.public.orders", json.dumps(value).encode(), b'{"id":%d}' % key, timestamp_ms=1)
                if op == "d":
                    producer.send("pg.public.orders", None, b'{"id":%d}' % key, timestamp_ms=1)

        change(1, "r", "ada", 10)
        change(2, "r", "ada", 5)
        change(3, "c", "bob", 1)
        change(1, "u", "bob", 7)
        change(2, "d", None)
        opened.drain()
        rows = [found["row"]["columns"] for found in opened.query("SELECT * FROM orders;") if "row" in found]
        assert sorted(row[0] for row in rows) == [1, 3]
        totals = [found["row"]["columns"] for found in opened.query("SELECT * FROM spent;") if "row" in found]
        assert [[row[0], str(row[1]), row[2]] for row in totals if row[2]] == [["bob", "8.00", 2]]
