"""The decorators: types from annotations or signatures, and a text that works without the program around it."""

from __future__ import annotations

import json
import math as mathematics
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal

import pytest

import millstream
from millstream.functions import NotAFunction
from millstream.testing import Sandbox

RATE = 0.25
TABLE = {"a": 1}

ORDERS = """CREATE STREAM orders (id STRING KEY, amount DOUBLE)
  WITH (kafka_topic='orders', value_format='JSON', partitions=1);"""


@millstream.scalar
def net(amount: float) -> float:
    """What is left of an amount."""
    return amount * (1 - RATE)


@millstream.scalar("(amount DOUBLE) -> STRING", name="As_Json")
def whatever(amount):  # pyrefly: ignore[implicit-any-parameter, unannotated-return]
    return json.dumps({"root": mathematics.sqrt(amount)})


@millstream.scalar(vectorized=True)
def double(amount: float) -> float:
    return amount.to_numpy() * 2  # pyrefly: ignore[missing-attribute]


@millstream.table_function
def letters(text: str) -> Iterator[str]:
    yield from text


@millstream.aggregate
class Spread:
    def init(self) -> list[float]:
        return []

    def add(self, state: list[float], amount: float) -> list[float]:
        return [*state, amount]

    def result(self, state: list[float]) -> float:
        return max(state) - min(state)


def test_decorated_functions_work_in_queries() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(ORDERS)
        millstream.register(sandbox, net, whatever, double, letters, Spread)  # pyrefly: ignore[bad-argument-type]
        sandbox.execute("""
            CREATE STREAM s AS SELECT id, net(amount) AS n, as_json(amount) AS j, double(amount) AS d FROM orders;
            CREATE STREAM l AS SELECT id, letters('ab') AS c FROM orders;
            CREATE TABLE t AS SELECT id, spread(amount) AS n FROM orders GROUP BY id;
            INSERT INTO orders VALUES ('x', 4); INSERT INTO orders VALUES ('x', 9);
        """)
        sandbox.drain()
        values = {topic: [record["value"] for record in sandbox.consume(topic)] for topic in ("S", "L", "T")}
        (page,) = sandbox.execute("DESCRIBE FUNCTION net;")
    assert values["S"][0] == {"N": 3.0, "J": '{"root": 2.0}', "D": 8.0}
    assert values["L"][:2] == [{"C": "a"}, {"C": "b"}]
    assert values["T"] == [{"N": 0.0}, {"N": 5.0}]
    assert page["description"] == "What is left of an amount."


def test_a_decorated_function_is_still_one_of_python() -> None:
    assert net(100.0) == 75.0


def test_types_come_from_annotations() -> None:
    @millstream.scalar
    def many(a: int, b: Decimal | None, c: list[str], d: dict[str, datetime]) -> bool:
        return bool(a or b or c or d)

    assert (
        "many(`a` BIGINT, `b` DECIMAL(38, 10), `c` ARRAY<STRING>, `d` MAP<STRING, TIMESTAMP>) RETURNS BOOLEAN"
        in many.sql
    )


def test_registering_again_replaces() -> None:
    with Sandbox() as sandbox:
        millstream.register(sandbox, net)
        millstream.register(sandbox, net)


def test_what_cannot_go_into_the_log_is_said() -> None:
    def uses_table(a: int) -> int:
        return TABLE["a"] + a

    def no_types(a):  # pyrefly: ignore[implicit-any-parameter, unannotated-return]
        return a

    def odd_type(a: object) -> int:
        return 1

    for function, message in (
        (uses_table, "uses TABLE"),
        (no_types, "has no annotation"),
        (odd_type, "no type of SQL's"),
        (abs, "signature|source|annotation"),
    ):
        with pytest.raises((NotAFunction, ValueError), match=message):
            millstream.scalar(function)
    with pytest.raises(NotAFunction, match="is no signature"):
        millstream.scalar("a DOUBLE to STRING")(net.python)
