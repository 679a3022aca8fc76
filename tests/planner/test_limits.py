"""What a statement may not be: so large, or so deep, that planning it takes more than its text is worth."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from damaged import AnyPlanner

from millstream.errors import MillstreamError, SqlSyntaxError, Unsupported
from millstream.sql import parser
from millstream.sql.parser import parse

SOURCES = """
CREATE STREAM s (k STRING KEY, a INT, b STRING, c BOOLEAN, t TIMESTAMP, l ARRAY<INT>, d DECIMAL(9, 2))
  WITH (kafka_topic='s', value_format='JSON', partitions=1);
"""


def planned(text: str) -> None:
    planner = AnyPlanner()
    for statement in parse(SOURCES + text):
        planner.take(statement)


def _doubling(step: str, count: int) -> str:
    queries = ["c0 AS (SELECT a FROM s)", *(f"c{i + 1} AS ({step.replace('c?', f'c{i}')})" for i in range(count))]
    return f"WITH {', '.join(queries)} SELECT a FROM c{count} EMIT CHANGES;"


def _overs(partition: Callable[[int], str], count: int) -> str:
    calls = ", ".join(f"SUM(a) OVER (PARTITION BY {partition(i)}) AS x{i}" for i in range(count))
    return f"CREATE TABLE o AS SELECT a, {calls} FROM s;"


TOO_LARGE = {
    "queries that read the one before twice": (
        _doubling("SELECT a FROM c? UNION ALL SELECT a FROM c?", 60),
        "reads streams and tables at more than 200 places",
    ),
    "joins that do": (
        _doubling("SELECT x.a AS a FROM c? x JOIN c? y WITHIN UNBOUNDED ON x.a = y.a", 60),
        "reads streams and tables at more than 200 places",
    ),
    "queries of NOT IN inside each other": (
        f"SELECT a FROM s{' WHERE a NOT IN (SELECT a FROM s' * 9}{')' * 9} EMIT CHANGES;",
        "reads streams and tables at more than 200 places",
    ),
    "many branches": (
        f"SELECT a FROM s{' UNION ALL SELECT a FROM s' * 200} EMIT CHANGES;",
        "reads streams and tables at more than 200 places",
    ),
    "functions OVER": (_overs(lambda _: "b", 101), "more than 100 functions OVER"),
    "partitions": (_overs(lambda i: f"a + {i}", 17), "more than 16 different partitions"),
    "groups": (
        f"CREATE TABLE o AS SELECT COUNT(*) FROM s GROUP BY {', '.join(f'a + {i}' for i in range(101))};",
        "more than 100 expressions in GROUP BY",
    ),
    "stars": (f"SELECT {', '.join(['s.*'] * 500)} FROM s EMIT CHANGES;", "more than 2000 columns"),
    "casts that say their argument twice": (
        f"SELECT {'CAST(CAST(' * 60}b{' AS STRING) AS DECIMAL(9, 2))' * 60} AS x FROM s EMIT CHANGES;",
        "the expressions of the statement are too large",
    ),
    "CASE in the operand of CASE": (
        f"SELECT {'CASE ' * 60}a{' WHEN 1 THEN 2 WHEN 2 THEN 3 END' * 60} AS x FROM s EMIT CHANGES;",
        "the expressions of the statement are too large",
    ),
    "IN in the value of IN": (
        f"SELECT a FROM s WHERE {'((' * 60}c{') IN (c, c = true))' * 60} EMIT CHANGES;",
        "the expressions of the statement are too large",
    ),
    "a sum that the engine could not read": (
        f"SELECT {' + '.join(['a'] * 900)} AS x FROM s EMIT CHANGES;",
        "an expression is nested too deeply",
    ),
    "lambdas inside each other": (
        f"SELECT {''.join(f'TRANSFORM(ARRAY[a], x{i} => ' for i in range(13))}a{')[1]' * 13} AS x FROM s EMIT CHANGES;",
        "more than 12 functions with lambdas inside each other",
    ),
    "arrays in arrays": (
        f"SELECT {'ARRAY[' * 61}a{']' * 61} AS x FROM s EMIT CHANGES;",
        "a type is nested too deeply: more than 60 levels",
    ),
    "maps in maps": (
        f"SELECT MAP('k' := {'ARRAY[' * 59}a{']' * 59}) AS x FROM s EMIT CHANGES;",
        "a type is nested too deeply: more than 60 levels, of which a MAP is two",
    ),
    "a long value of a long IN": (
        f"SELECT a FROM s WHERE {'a + ' * 500}1 IN ({', '.join(f'a + {i}' for i in range(4_000))}) EMIT CHANGES;",
        "the expressions of the statement are too large",
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_would_grow_faster_than_its_text_is_refused(name: str) -> None:
    text, message = TOO_LARGE[name]
    with pytest.raises(Unsupported, match=message):
        planned(text)


TEXT = "'a text that is long'"
LONG = {
    "conditions": f"SELECT a FROM s WHERE {' AND '.join(['a <> 1000000000'] * 15_000)} EMIT CHANGES;",
    "branches of CASE": f"SELECT CASE {'WHEN a = 100000000 THEN 200000000 ' * 9_500}END AS x FROM s EMIT CHANGES;",
    "columns": f"SELECT {', '.join(f'a + 1000000 + 1000000 + 1000000 AS x{i}' for i in range(9_000))} FROM s;",
    "a list": f"SELECT a FROM s WHERE b IN ({', '.join([TEXT] * 20_000)}) EMIT CHANGES;",
}


@pytest.mark.parametrize("name", LONG)
def test_a_statement_of_hundreds_of_kilobytes_is_refused_before_it_is_parsed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parsed(*_: object) -> None:
        raise AssertionError("the statement was parsed")

    monkeypatch.setattr(parser, "_parse_tokens", parsed)
    assert len(LONG[name]) > 300_000
    with pytest.raises(SqlSyntaxError, match="more than 25000 words and signs"):
        parse(LONG[name])


ALLOWED = {
    "many rows": f"INSERT INTO s (k, a) VALUES {', '.join(['(NULL, 1)'] * 3_000)};",
    "the longest list": f"SELECT a FROM s WHERE a IN ({', '.join(['1'] * 9_999)}) EMIT CHANGES;",
    "a long sum": f"SELECT {' + '.join(['a'] * 400)} AS x FROM s EMIT CHANGES;",
    "many conditions": f"SELECT a FROM s WHERE {' OR '.join(f'a = {i}' for i in range(1_000))} EMIT CHANGES;",
    "a long list": f"SELECT a FROM s WHERE a IN ({', '.join(map(str, range(3_000)))}) EMIT CHANGES;",
    "a long list for a long value": (
        f"SELECT a FROM s WHERE {'a + ' * 300}1 IN ({', '.join(map(str, range(3_000)))}) EMIT CHANGES;"
    ),
    "lambdas in lambdas": (
        f"SELECT {''.join(f'TRANSFORM(l, x{i} => ' for i in range(12))}1{')' * 12} AS x FROM s EMIT CHANGES;"
    ),
    "subqueries in subqueries": f"SELECT a FROM {'(SELECT a FROM ' * 40}s{') q' * 40} EMIT CHANGES;",
    "conditions in conditions": (
        f"CREATE TABLE o AS SELECT a FROM s WHERE {'a IN (SELECT a FROM s WHERE ' * 20}a > 1{')' * 20};"
    ),
    "structs in structs": f"SELECT {'STRUCT(f := ' * 60}a{')' * 60} AS x FROM s EMIT CHANGES;",
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_people_may_write_is_planned(name: str) -> None:
    planned(ALLOWED[name])


REPEATED: dict[str, Callable[[int], str]] = {
    "columns": lambda n: f"SELECT {', '.join(f'a + {i} AS x{i}' for i in range(n))} FROM s EMIT CHANGES;",
    "conditions": lambda n: f"SELECT a FROM s WHERE {' AND '.join(f'a <> {i}' for i in range(n))} EMIT CHANGES;",
    "rows": lambda n: f"INSERT INTO s (k, a) VALUES {', '.join(['(NULL, 1)'] * n)};",
    "branches": lambda n: "\n".join(["SELECT a FROM s UNION ALL SELECT a FROM s EMIT CHANGES;"] * n),
    "counts": lambda n: (
        f"CREATE TABLE o AS SELECT b, {', '.join(f'COUNT(DISTINCT a + {i}) AS x{i}' for i in range(n))} FROM s "
        "GROUP BY b;"
    ),
    "decimals": lambda n: f"SELECT {' + '.join(['d'] * n)} AS x FROM s EMIT CHANGES;",
    "products of decimals": lambda n: f"SELECT {' * '.join(['d'] * n)} AS x FROM s EMIT CHANGES;",
    "texts": lambda n: f"SELECT {' || '.join(['b'] * n)} AS x FROM s EMIT CHANGES;",
    "arguments": lambda n: f"SELECT CONCAT({', '.join(['b'] * n)}) AS x FROM s EMIT CHANGES;",
    "alternatives": lambda n: f"SELECT a FROM s WHERE {' OR '.join(f'a = {i}' for i in range(n))} EMIT CHANGES;",
    "options": lambda n: f"SELECT a FROM s WHERE a IN ({', '.join(map(str, range(n)))}) EMIT CHANGES;",
    "cases": lambda n: f"SELECT CASE {'WHEN c THEN 1 ' * n}END AS x FROM s EMIT CHANGES;",
    "entries": lambda n: f"SELECT MAP({', '.join(f'b := {i}' for i in range(n))}) AS x FROM s EMIT CHANGES;",
    "damage": lambda n: f"SELECT {', '.join(['a'] * n)} FORM s;",
    "texts that have no end": lambda n: " ".join(f"$a{i}$" for i in range(n)),
}


@pytest.mark.parametrize("name", REPEATED)
def test_twice_the_text_is_not_much_more_than_twice_the_work(name: str) -> None:
    """Work is what Python calls: the same in every run."""
    calls = [_calls(REPEATED[name](count)) for count in (50, 50, 200)]  # the first fills caches
    assert calls[2] < 6 * calls[1] + 20_000


def test_twice_the_columns_in_a_call_are_twice_the_work() -> None:
    """In a call as long as people write them: what is done for each pair of arguments is most of the work there."""
    calls = [_calls(f"SELECT COALESCE({', '.join(['a'] * n)}) AS x FROM s EMIT CHANGES;") for n in (8, 200, 800)]
    assert calls[2] < 5 * calls[1]


def _calls(text: str) -> int:
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        planned(text)
    except MillstreamError:  # to refuse is work, too
        pass
    finally:
        sys.setprofile(before)
    return count
