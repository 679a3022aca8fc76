"""Queries as conditions of WHERE: what is refused, and where the message points. What they give: tests/nexmark."""

from __future__ import annotations

import pytest
from planning import Planner

from millstream.errors import StatementError

BIDS = "CREATE STREAM bid (auction BIGINT, price BIGINT) WITH (kafka_topic='bid', value_format='JSON', partitions=1);"

REFUSED = {
    "price > 3 OR price IN (SELECT price FROM bid)": ("a query can be a condition", "price > 3 OR price IN"),
    "price NOT IN (SELECT price FROM bid)": ("a query can be a condition", "price NOT IN"),
    "price > (SELECT price FROM bid b WHERE b.auction = a.auction)": ("several values", "SELECT price FROM bid b"),
    "price > (SELECT MAX(price) FROM bid b)": ("says nothing about A", "price > (SELECT MAX"),
    "price > (SELECT MAX(price) FROM bid b WHERE b.auction > a.auction)": ("equalities", "b.auction > a.auction"),
    "price IN (SELECT price, auction FROM bid b)": ("one column", "SELECT price, auction"),
    "LEN((SELECT 'x' FROM bid b)) = 1": ("a query can be a condition", "LEN("),
    "price IN (SELECT price FROM bid LIMIT 1)": ("EMIT or LIMIT", "SELECT price FROM bid LIMIT"),
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


def test_a_query_cannot_stand_in_select() -> None:
    with pytest.raises(StatementError, match="not stand here"):
        list(Planner().plans(f"{BIDS} CREATE TABLE t AS SELECT (SELECT MAX(price) FROM bid) FROM bid;"))
