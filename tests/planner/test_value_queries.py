"""Queries as conditions of WHERE: what is refused, and where the message points. What they give: tests/nexmark."""

from __future__ import annotations

import pytest
from planning import Planner

from millstream.errors import StatementError
from millstream.planner.steps.sink import Sink

BIDS = "CREATE STREAM bid (auction BIGINT, price BIGINT) WITH (kafka_topic='bid', value_format='JSON', partitions=1);"

REFUSED = {
    "price > (SELECT price FROM bid b WHERE b.auction = a.auction)": ("several values", "SELECT price FROM bid b"),
    "price > (SELECT MAX(price) FROM bid b WHERE b.auction > a.auction)": ("equalities", "b.auction > a.auction"),
    "price IN (SELECT price, auction FROM bid b)": ("one column", "SELECT price, auction"),
    "price IN (SELECT MAX(price) FROM bid b)": ("gives one value", "SELECT MAX(price) FROM bid b"),
    "LEN((SELECT 'x' FROM bid b)) = 1": ("several values", "SELECT 'x' FROM bid b"),
    "price IN (SELECT price FROM bid LIMIT 1)": ("EMIT or LIMIT", "SELECT price FROM bid LIMIT"),
    "price IN (SELECT price FROM bid OFFSET 1)": ("nor OFFSET", "SELECT price FROM bid OFFSET"),
    "EXISTS (SELECT price FROM bid LIMIT 1 OFFSET 5)": ("nor OFFSET", "SELECT price FROM bid LIMIT 1 OFFSET"),
}


@pytest.mark.parametrize("condition", REFUSED)
def test_a_query_that_is_no_join_is_refused_with_its_place(condition: str) -> None:
    text = f"{BIDS} CREATE TABLE t AS SELECT price FROM bid a WHERE {condition};"
    message, begin = REFUSED[condition]
    with pytest.raises(StatementError, match=message) as refused:
        list(Planner().plans(text))
    span = refused.value.span
    assert span is not None
    assert text[span.start :].startswith(begin)


def test_a_star_shows_no_column_that_a_query_was_joined_for() -> None:
    text = f"{BIDS} CREATE TABLE t AS SELECT * FROM bid WHERE price NOT IN (SELECT auction FROM bid b) OR price > 3;"
    (plan,) = Planner().plans(text)
    assert isinstance(plan.root, Sink)
    assert [c.name for c in plan.root.schema.value] == ["AUCTION", "PRICE"]


def test_a_stream_that_is_no_look_into_a_table_is_a_table() -> None:
    with pytest.raises(StatementError, match="produces a TABLE"):
        list(
            Planner().plans(
                f"{BIDS} CREATE STREAM t AS SELECT price FROM bid WHERE price IN (SELECT auction FROM bid);"
            )
        )


def test_windows_are_over_a_stream_that_looks_into_a_table() -> None:
    blocked = (
        "CREATE TABLE blocked (id BIGINT PRIMARY KEY, y BIGINT) WITH (kafka_topic='t', format='JSON', partitions=1);"
    )
    text = "SELECT auction, COUNT(*) FROM bid WINDOW TUMBLING (SIZE 1 HOUR) WHERE {} GROUP BY auction;"
    (plan,) = Planner().plans(
        f"{BIDS} {blocked} CREATE TABLE t AS {text.format('price NOT IN (SELECT id FROM blocked)')}"
    )
    assert isinstance(plan.root, Sink)
    assert [c.name for c in plan.root.schema.key] == ["AUCTION"]
