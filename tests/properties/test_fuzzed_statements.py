"""Law: whatever text comes, parsing and planning give a plan or an error of ours, and soon."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from laws.budget import Budget
from laws.expressions import Expressions, Names
from laws.queries import random_case
from laws.values import Col
from planning import Planner
from repository import REPOSITORY

from millstream.errors import MillstreamError
from millstream.planner.catalog import Catalog
from millstream.planner.planning import PlanningContext
from millstream.planner.pull import plan_pull
from millstream.sql import ast
from millstream.sql.parser import parse

SEEDS = st.integers(0, 2**32)
BUDGET = Budget(seconds=5)
SECONDS_MAX = 1.0

_TOKENS = re.compile(r"'(?:[^']|'')*'|`[^`]*`|\"[^\"]*\"|\w+|\s+|--[^\n]*|.", re.DOTALL)
_WORDS = tuple(
    """
    SELECT FROM WHERE GROUP BY HAVING PARTITION EMIT CHANGES FINAL LIMIT WINDOW TUMBLING HOPPING SESSION SIZE
    GRACE PERIOD RETENTION SECONDS ADVANCE JOIN LEFT OUTER INNER FULL ON WITHIN AS CASE WHEN THEN ELSE END AND OR
    NOT NULL IS IN LIKE ESCAPE BETWEEN DISTINCT CAST CREATE STREAM TABLE SOURCE REPLACE IF EXISTS WITH INSERT INTO
    VALUES STRUCT ARRAY MAP DECIMAL INT BIGINT STRING KEY PRIMARY EXPLODE COUNT SUM LATEST_BY_OFFSET ROWTIME
    ROWKEY WINDOWSTART TRANSFORM REDUCE true false _null _seq v0 k0 ( ) , ; . * + - / % = <> < -> => := [ ] { } ||
    'a' '' ' `x` ` " 0 1 -1 1e400 0.1 ${x} é 🎈 99999999999999999999 \u0000 -- /* */ @ # \\ ?
    """.split()
)
_COLUMNS = (Col("K", "STRING"), Col("V0", "INT"), Col("V1", "STRING"))
_SETUP = """
CREATE STREAM S (K STRING KEY, V0 INT, V1 STRING, V2 ARRAY<INT>, V3 STRUCT<A INT, B STRING>, V4 DECIMAL(9, 2),
  V5 MAP<STRING, INT>, V6 BOOLEAN, V7 TIMESTAMP, V8 BYTES) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE T (K STRING PRIMARY KEY, V0 INT, V1 STRING) WITH (kafka_topic='t', value_format='JSON', partitions=2);
"""


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement that can be planned, and the sources and topics that it finds."""

    text: str
    catalog: Catalog
    topics: Mapping[str, int]


@cache
def _golden() -> tuple[_Statement, ...]:
    """The statements of the golden files, those that are refused there too."""
    found: list[_Statement] = []
    for file in sorted((REPOSITORY / "tests" / "planner" / "golden").glob("*.sql")):
        planner = Planner()
        for text in re.split(r"(?<=;)\s*\n", file.read_text()):
            found.append(_Statement(text, planner.catalog, dict(planner.topics)))
            with contextlib.suppress(MillstreamError):
                list(planner.plans(text))
    assert len(found) > 50
    return tuple(found)


@cache
def _setup() -> tuple[Catalog, Mapping[str, int]]:
    planner = Planner()
    list(planner.plans(_SETUP))
    return planner.catalog, planner.topics


def mutated(rng: Random) -> _Statement:
    """A statement that was right once."""
    statement = _any_statement(rng)
    tokens = _TOKENS.findall(statement.text)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(tokens) + 1)
        match rng.randrange(7):
            case 0:
                del tokens[at : at + rng.randint(1, 3)]
            case 1:
                tokens.insert(at, f" {rng.choice(_WORDS)} ")
            case 2 if tokens:
                tokens[min(at, len(tokens) - 1)] = rng.choice(_WORDS)
            case 3:
                other = _TOKENS.findall(_any_statement(rng).text)
                begin = rng.randrange(len(other) + 1)
                tokens[at:at] = [" ", *other[begin : begin + rng.randint(1, 12)], " "]
            case 4 if len(tokens) > 1:
                other_at = rng.randrange(len(tokens))
                at = min(at, len(tokens) - 1)
                tokens[at], tokens[other_at] = tokens[other_at], tokens[at]
            case 5:
                piece = tokens[at : at + rng.randint(1, 6)]
                tokens[at:at] = piece * rng.choice((1, 1, 2, 40))
            case _:
                tokens.insert(at, chr(rng.choice((0, 9, 34, 39, 40, 59, 96, 127, 160, 0x2028, 0x1F388))))
    return replace(statement, text="".join(tokens))


def _any_statement(rng: Random) -> _Statement:
    choice = rng.random()
    if choice < 0.5:
        return rng.choice(_golden())
    if choice < 0.7:
        return _Statement(_query(rng), *_setup())
    case = random_case(rng.getrandbits(32), 0)
    planner = Planner()
    for source in case.sources:
        list(planner.plans(source.statement))
    return _Statement(case.statements[0], planner.catalog, planner.topics)


_SNIPPETS = (
    "STRUCT(A := V0, B := V1)",
    "MAP('a' := V0, V1 := 2)",
    "ARRAY[V0, 1, NULL]",
    "V3->A",
    "V3->*",
    "V2[1]",
    "V5['a']",
    "TRANSFORM(V2, x => x + V0)",
    "REDUCE(V2, 0, (s, x) => CASE WHEN x > 1 THEN s + x ELSE s END)",
    "FILTER(V5, (k, v) => v > 1 AND k <> V1)",
    "CASE V0 WHEN 1 THEN 'a' WHEN 2 THEN V1 END",
    "V1 LIKE 'a!_%' ESCAPE '!'",
    "V1 NOT LIKE '%'",
    "V0 NOT BETWEEN 1 AND V0",
    "V0 NOT IN (1, 2, V0)",
    "V0 IS DISTINCT FROM 3",
    "-V0",
    "V4 * V4 / 3.00",
    "CAST(V1 AS DECIMAL(38, 37))",
    "CAST(V1 AS ARRAY<STRUCT<X INT>>)",
    "V7 > '2020-01-01'",
    "ROWTIME > '2020-01-01T00:00:00'",
    "TIMESTAMPTOSTRING(ROWTIME, 'yyyy')",
    "EXPLODE(V2)",
    "COUNT(*)",
    "SUM(V0 + 1)",
    "TOPK(V0, 3)",
    "COLLECT_LIST(V3)",
    "LATEST_BY_OFFSET(V1, 2, false)",
    "HISTOGRAM(V1)",
    "AS_VALUE(K)",
    "NULL",
    "*",
    "S.*",
    "WINDOWSTART",
)


def _query(rng: Random) -> str:
    """Words after words, some of which make sense."""
    expressions = Expressions(rng, Names(_COLUMNS))
    columns = ", ".join(
        expressions.any(3).sql if rng.random() < 0.5 else rng.choice(_SNIPPETS) for _ in range(rng.randint(1, 4))
    )
    emit = rng.choice((" EMIT CHANGES", " EMIT CHANGES LIMIT 3", "", " LIMIT 2"))
    where = f" WHERE {expressions.predicate(3).sql}" if rng.random() < 0.5 else ""
    window = rng.choice((" WINDOW TUMBLING (SIZE 1 SECOND)", " WINDOW SESSION (1 MINUTE)", "", ""))
    by = rng.choice((expressions.any(1).sql, rng.choice(_SNIPPETS), "K", "V0"))
    tail = rng.choice(("", "", f"{where}", f" PARTITION BY {by}", f" HAVING {rng.choice(_SNIPPETS)} > 1"))
    group = f" GROUP BY {by}" if rng.random() < 0.4 else ""
    source = rng.choice(("S", "T", "S", "S JOIN T ON S.K = T.K", "S s LEFT JOIN T t ON s.V1 = t.K"))
    made = rng.choice(("", "", "CREATE STREAM O AS ", "CREATE TABLE O AS ", "INSERT INTO S "))
    return f"{made}SELECT {columns} FROM {source}{window if group else ''}{where}{group}{tail}{emit};"


def check(seed: int) -> None:
    statement = mutated(Random(seed))
    message = None
    began = time.process_time()
    try:
        _plan(statement)
    except MillstreamError as error:
        message = str(error)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{statement.text}") from error
    assert time.process_time() - began < SECONDS_MAX, statement.text
    assert message != "", statement.text


def _plan(statement: _Statement) -> None:
    planner = Planner(statement.catalog, dict(statement.topics))
    for parsed in parse(statement.text):
        match parsed:
            case ast.Query(emit=None):
                plan_pull(parsed, PlanningContext(planner.catalog, {}, planner.topics, "QUERY"))
            case ast.CreateSource() | ast.CreateAsSelect() | ast.InsertInto() | ast.Query():
                planner.plan(parsed)
            case _:
                pass  # nothing to plan


@settings(max_examples=1000, derandomize=True, phases=[Phase.generate])
@given(seed=SEEDS)
def test_a_damaged_statement_is_planned_or_refused_with_an_error_of_ours(seed: int) -> None:
    BUDGET.run(check, seed)


@pytest.mark.soak
@settings(max_examples=200_000, phases=[Phase.generate])
@given(seed=SEEDS)
def test_many_damaged_statements_are_planned_or_refused_with_an_error_of_ours(seed: int) -> None:
    check(seed)
