"""Every scalar function of the catalog is called with values that nobody sane would send: each row ends, as a value or
as an error of the row, within the time that a function may take.

The calls are the catalog's examples, with literals replaced by columns of hostile values. `make soak` runs all of them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from itertools import islice

import pytest
from damaged import AnyPlanner

from millstream.errors import MillstreamError
from millstream.sql.ast import Statement
from millstream.sql.functions.catalog import FUNCTIONS
from millstream.sql.parser import parse
from millstream.testing import Sandbox

STREAM = (
    "CREATE STREAM h (id INT KEY, s STRING, t STRING, i INT, b BIGINT, d DOUBLE) "
    "WITH (kafka_topic='h', value_format='JSON', partitions=1);"
)
_NEST = 20_000
ROWS = (
    ("a" * 45 + "!", "(a+)+$", 1, 1, 0.5),
    ("a" * 45 + "!", "^(a|aa|b?)+(?!c)$", -1, -1, -0.5),
    ("a" * 100_000, "a" * 50_000 + "b", 100_000, 1 << 40, 1e18),
    ("[" * _NEST, "$" + "..a" * 1_000, 2**31 - 1, 2**63 - 1, 1e308),
    ('{"a":' * _NEST + "1" + "}" * _NEST, "$" + ".a" * 5_000, -(2**31), -(2**63), -1e308),
    ("9" * 4_000, "%_" * 2_000, 366, 1 << 62, 1e-308),
    ("1e999999999", "yyyy" * 500, 13, 253_402_300_800_000, 2.0**63),
    ("+294277-13-45T99:99:99Z", "-999999-00-00", 0, -(1 << 55), 0.0),
    ("", "", 0, 0, -0.0),
)
_LITERAL = re.compile(r"'(?:[^']|'')*'|(?<![\w.'])-?\d+(?:\.\d+)?(?![\w.'])")
_BATCH = 60


def hostile(example: str) -> Iterator[str]:
    """The call with one of its literals, and with all of them, replaced by a column."""
    found = list(_LITERAL.finditer(example))
    columns = [_columns(match[0], number) for number, match in enumerate(found)]
    for kind in range(2):
        yield _replaced(example, {match: names[kind % len(names)] for match, names in zip(found, columns, strict=True)})
        for match, names in zip(found, columns, strict=True):
            yield _replaced(example, {match: names[kind % len(names)]})


def _columns(literal: str, number: int) -> tuple[str, ...]:
    if literal.startswith("'"):
        return ("s", "t") if number % 2 == 0 else ("t", "s")
    return ("d",) if "." in literal else ("i", "b")


def _replaced(text: str, columns: dict[re.Match[str], str]) -> str:
    for match, name in sorted(columns.items(), key=lambda item: -item[0].start()):
        text = text[: match.start()] + name + text[match.end() :]
    return text


def calls() -> list[str]:
    """Of all scalar functions, those that have a plan."""
    declared = parse(STREAM)
    return [call for of_one in _calls().values() for call in of_one if _has_plan(declared, call)]


def one_of_each(chance: random.Random) -> dict[str, str]:
    """A call of each scalar function, by its name, of those that have a plan; planning all of them takes seconds."""
    declared, found = parse(STREAM), dict[str, str]()
    for name, of_one in _calls().items():
        tried = chance.sample(of_one, len(of_one))
        call = next((call for call in tried if _has_plan(declared, call)), None)
        if call is not None:
            found[name] = call
    return found


def _calls() -> dict[str, list[str]]:
    return {
        name: list(dict.fromkeys(call for text in function.examples for call in hostile(text) if call != text))
        for name, function in FUNCTIONS.items()
        if function.kind == "scalar"
    }


def _has_plan(declared: list[Statement], call: str) -> bool:
    planner = AnyPlanner()
    try:
        for statement in (*declared, *parse(f"SELECT ({call}) IS NULL AS x FROM h EMIT CHANGES;")):
            planner.take(statement)
    except MillstreamError:
        return False
    return True


def batches(all_calls: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(all_calls)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def check(some_calls: list[str]) -> None:
    with Sandbox(properties={"millstream.functions.max.seconds": "0.1"}) as sandbox:
        sandbox.execute(STREAM)
        for number, (s, t, i, b, d) in enumerate(ROWS):
            sandbox.execute(f"INSERT INTO h VALUES ({number}, '{s}', '{t}', {i}, CAST('{b}' AS BIGINT), {d!r});")
        sandbox.execute("SET 'auto.offset.reset'='earliest';")
        for batch in batches(some_calls):
            columns = ", ".join(f"({call}) IS NULL AS x{number}" for number, call in enumerate(batch))
            sandbox.execute(f"CREATE STREAM o AS SELECT id, {columns} FROM h;")
            sandbox.drain()
            rows = [row["row"]["columns"] for row in sandbox.query("SELECT * FROM o;") if "row" in row]
            assert sorted(row[0] for row in rows) == list(range(len(ROWS))), batch
            sandbox.execute("DROP STREAM o DELETE TOPIC;")


@pytest.fixture(scope="module")
def some_calls() -> dict[str, str]:
    return one_of_each(random.Random(11))


def test_most_functions_are_called(some_calls: dict[str, str]) -> None:
    scalar = {name for name, function in FUNCTIONS.items() if function.kind == "scalar"}
    called = {name for name, call in some_calls.items() if call.upper().startswith(f"{name}(")}
    assert len(called) > 0.6 * len(scalar), sorted(scalar - called)


def test_no_function_holds_a_row_for_ever(some_calls: dict[str, str]) -> None:
    check(list(some_calls.values()))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_no_call_of_any_function_holds_a_row_for_ever() -> None:
    check(calls())
