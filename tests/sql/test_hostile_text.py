"""Whatever the text: a statement or an error that says where comes out, and soon."""

from __future__ import annotations

import re
import sys

import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import InvalidNumber, SqlSyntaxError
from millstream.sql.automaton import is_keyword_type
from millstream.sql.parser import lark, parse, parse_expression, parse_type, split_statements
from millstream.sql.tokens import PUNCTUATION

DEEP = {
    "parentheses": "(" * 30_000 + "a" + ")" * 30_000,
    "a few parentheses too many": "(" * 201 + "a" + ")" * 201,
    "unclosed parentheses": "(" * 90_000,
    "NOT": "NOT " * 30_000 + "a",
    "minus": "- " * 30_000 + "a",
    "CASE": "CASE WHEN a THEN " * 3_000 + "1" + " END" * 3_000,
    "casts": "CAST(" * 3_000 + "a" + " AS INT)" * 3_000,
    "types": "CAST(a AS " + "ARRAY<" * 300 + "INT" + ">" * 300 + ")",
    "array types behind": "CAST(a AS INT" + " ARRAY" * 3_000 + ")",
    "fields": "a" + "->b" * 3_000,
    "subscripts": "a" + "[1]" * 3_000,
    "sum": " + ".join(["a"] * 1_001),
    "list": "f(" + ", ".join(["1"] * 10_001) + ")",
    "calls with keywords": "f(map, array, " * 6_000,
}


@pytest.mark.parametrize("name", DEEP)
def test_what_is_nested_too_deeply_is_refused(name: str) -> None:
    with pytest.raises(SqlSyntaxError):
        parse_expression(DEEP[name])


@pytest.mark.parametrize(
    "text",
    ["(" * 190 + "a" + ")" * 190, " AND ".join(["a"] * 1_000), " || ".join(["a"] * 1_000), " + ".join(["a"] * 1_000)],
)
def test_what_people_may_write_is_taken(text: str) -> None:
    parse_expression(text)


HOSTILE = {
    "NUL": "SELECT a\0 FROM s",
    "surrogate": "SELECT '\ud83d' FROM s",
    "too long": " " * (1 << 20) + "x",
    "too long in bytes": "'" + "\U0001f600" * 300_000 + "'",
    "too many tokens": "a," * 60_000,
    "EXPLAIN": "EXPLAIN " * 5_000 + "SHOW STREAMS",
    "joins": "SELECT * FROM a " + " ".join(f"JOIN t{i} ON a = b" for i in range(17)),
    "columns": "CREATE STREAM s (" + ", ".join(f"c{i} INT" for i in range(2_001)) + ")",
    "direction override": 'SELECT "a\u202eb" FROM s',
    "zero width": "SELECT a\u200b FROM s",
    "many digits": f"SELECT {'9' * 500_000} FROM s",
    "many digits in a limit": f"SELECT a FROM s LIMIT {'9' * 5_000}",
    "many digits in a duration": f"SELECT a FROM s WINDOW SESSION ({'9' * 5_000} DAYS) GROUP BY a",
    "many digits in a type": f"CREATE STREAM s (a DECIMAL({'9' * 5_000}, 1))",
    "many digits in a property": f"CREATE STREAM s WITH (a = {'9' * 5_000})",
    "huge exponent": "SELECT 1e999999999 FROM s",
    "quotes": "'" * 100_001,
    "comments": "/* " * 100_000,
    "texts without an end": "".join(f"$a{i}$ " for i in range(100_000)),
    "queries of WITH": "WITH " + ", ".join(f"c{i} AS (SELECT a FROM s)" for i in range(101)) + " SELECT a FROM c0",
    "moved by intervals": "SELECT t" + " + INTERVAL '1' DAY" * 201 + " FROM s",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_with_an_error_that_can_be_sent(name: str) -> None:
    with pytest.raises((SqlSyntaxError, InvalidNumber)) as caught:
        parse(HOSTILE[name])
    assert caught.value.text is not None
    caught.value.render().encode()


def test_a_byte_order_mark_at_the_start_is_no_word() -> None:
    assert len(parse("\ufeffSHOW STREAMS;")) == 1


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9223372036854775808", "Invalid numeric literal: 9223372036854775808"),
        ("1 - 9223372036854775808", "Invalid numeric literal: 9223372036854775808"),
        ("-9223372036854775809", "Invalid numeric literal: -9223372036854775809"),
        ("1.8e308", "Number overflows DOUBLE: 1.8e308"),
    ],
)
def test_numbers_that_no_type_holds_are_refused(text: str, number: str) -> None:
    with pytest.raises(InvalidNumber, match=rf"{re.escape(number)}(\n|$)"):
        parse_expression(text)


@pytest.mark.parametrize(
    "text", ["9223372036854775807", "-9223372036854775808", "1.7e308", "00000000000000000000000001"]
)
def test_numbers_at_the_edge_are_taken(text: str) -> None:
    parse_expression(text)


_WORDS = sorted(terminal.name for terminal in lark().terminals if is_keyword_type(terminal.name))
_PIECES = st.sampled_from(
    [
        *_WORDS,
        *PUNCTUATION,
        *["a", "b", "'s'", "`q`", '"Q"', "1", "1.5", "1e3", "1x", "${v}", "--", "/*", "'", "INT", "DAYS"],
    ]
)


@settings(max_examples=drawn(150))
@given(st.lists(_PIECES, max_size=40).map(" ".join) | st.text(max_size=60))
def test_any_text_gives_statements_or_a_syntax_error(text: str) -> None:
    split_statements(text)
    for read in (parse, parse_expression, parse_type):
        try:
            read(text)
        except (SqlSyntaxError, InvalidNumber) as error:
            error.render()


@settings(max_examples=drawn(100))
@given(st.data())
def test_a_damaged_statement_gives_statements_or_a_syntax_error(data: st.DataObject) -> None:
    words: list[str] = list(
        (
            "CREATE TABLE t WITH ( partitions = 1 ) AS SELECT a , COUNT ( * ) n , ARRAY [ 1 ] , x -> y FROM s JOIN u"
            " WITHIN 1 DAY ON s . a = u . b WINDOW TUMBLING ( SIZE 1 DAY ) WHERE CASE WHEN a THEN 1 END = 2 GROUP BY a"
            " EMIT CHANGES LIMIT 1"
        ).split()
    )
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(words) - 1))
        words[position : position + data.draw(st.integers(0, 2))] = data.draw(st.lists(_PIECES, max_size=2))
        words = words or ["a"]
    try:
        parse(" ".join(words))
    except SqlSyntaxError as error:
        error.render()


def test_parsing_does_not_recurse() -> None:
    parse_expression("a")
    limit = sys.getrecursionlimit()
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + 60)
    try:
        parse_expression("(" * 190 + "a" + ")" * 190)
    finally:
        sys.setrecursionlimit(limit)
