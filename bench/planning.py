"""How long a statement is planned, against reading its text with nothing but lark.

The statement joins four streams and selects 30 columns, each an expression. Planning it is everything that happens
before a plan is stored: parse, names and types, rewrites, DuckDB text. The other side is the same grammar under lark's
own LALR parser and contextual lexer, without a callback: the least that any parse of the text in Python costs.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lark import Lark

from millstream.planner.catalog import Catalog
from millstream.planner.declarations.sources import plan_create_source
from millstream.planner.planning import PlanningContext
from millstream.planner.select.queries import plan_query
from millstream.sql.ast import CreateAsSelect, CreateSource
from millstream.sql.parser import grammar, parse, parse_one
from millstream.sql.tokens import PUNCTUATION

from .report import Line

COLUMNS: Final = 30
JOINS: Final = 3
TIMES_MAX: Final = 20
_RUNS: Final = 15  # of each round; the rounds of both sides take turns

_PATTERNS: Final = {
    "NAME": r"/[A-Za-z_][A-Za-z0-9_@]*|[0-9][A-Za-z0-9_@]+/",
    "QUOTED_NAME": r"/`[^`]*(``[^`]*)*`|\"[^\"]*(\"\"[^\"]*)*\"/",
    "STRING_LITERAL": r"/'[^']*(''[^']*)*'/",
    "DOLLAR_LITERAL": r"/\$\$(.|\n)*?\$\$/",
    "INTEGER_LITERAL": r"/[0-9]+(?![A-Za-z_@])/",
    "DECIMAL_LITERAL": r"/[0-9]+\.[0-9]*|\.[0-9]+/",
    "FLOAT_LITERAL": r"/([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][+-]?[0-9]+/",
    "LAMBDA_LPAR": r"/\((?=[\w\s,]*\)\s*=>)/",
}


@dataclass(frozen=True, slots=True)
class Planning:
    """CPU seconds for one statement, medians over rounds."""

    lark_s: float
    parse_s: float
    plan_s: float

    @property
    def times(self) -> float:
        """Planning as a multiple of lark's parse."""
        return self.plan_s / self.lark_s


def sources() -> str:
    """The statements that declare the streams s0 to s3."""
    columns = ", ".join(f"c{i} {('BIGINT', 'DOUBLE', 'STRING')[i % 3]}" for i in range(COLUMNS))
    return "".join(
        f"CREATE STREAM s{n} (id BIGINT KEY, {columns}) "
        f"WITH (kafka_topic='s{n}', value_format='JSON', key_format='JSON', partitions=1);\n"
        for n in range(JOINS + 1)
    )


def statement() -> str:
    """CREATE STREAM … AS SELECT of 30 columns over 3 joins."""
    shapes = (
        "CASE WHEN s{n}.c{i} > 10 AND s{m}.c{i} < 100 THEN s{n}.c{i} * 2 + 1 ELSE -s{m}.c{i} END",
        "ROUND(ABS(s{n}.c{i} - s{m}.c{i}) / 2.0, 2)",
        "CONCAT(UCASE(s{n}.c{i}), '-', SUBSTRING(TRIM(s{m}.c{i}), 1, 3))",
    )
    items = [
        f"  {shapes[i % 3].format(n=i % (JOINS + 1), m=(i + 1) % (JOINS + 1), i=i)} AS v{i}" for i in range(COLUMNS)
    ]
    joins = "\n".join(
        f"  JOIN s{n} WITHIN 1 HOUR GRACE PERIOD 1 MINUTE ON s0.id = s{n}.id" for n in range(1, JOINS + 1)
    )
    selected = ",\n".join(["  s0.id AS id", *items])
    return f"CREATE STREAM joined AS SELECT\n{selected}\nFROM s0\n{joins}\nWHERE s0.c0 > 5 AND s1.c2 LIKE 'a%'"


def bare_lark() -> Lark:
    """Our grammar with lark's own lexer: each terminal gets its pattern."""
    text = grammar()
    names = sorted({name for line in re.findall(r"^%declare (.*)$", text, re.M) for name in line.split()})
    signs: dict[str, list[str]] = {}
    for sign, kind in PUNCTUATION.items():
        signs.setdefault(kind, []).append(f'"{sign}"')
    lines = [re.sub(r"^%declare .*$", "", text, flags=re.M)]
    for name in names:
        if name in _PATTERNS:
            lines.append(f"{name}: {_PATTERNS[name]}")
        elif name in signs:
            lines.append(f"{name}: {' | '.join(signs[name])}")
        else:
            lines.append(f"{name}.2: /{name}(?![A-Za-z0-9_@])/i")
    lines += [r"SPACE: /[ \t\r\n]+|--[^\r\n]*/", "%ignore SPACE"]
    return Lark(
        "\n".join(lines).replace("LAMBDA_LPAR:", "LAMBDA_LPAR.3:"),
        parser="lalr",
        lexer="contextual",
        start=["statement", "expression", "type"],
        maybe_placeholders=False,
    )


def measure(rounds: int) -> Planning:
    """Both sides in turns, so that what else the machine does falls on both."""
    catalog, text, lark = _catalog(), statement(), bare_lark()
    topics = {source.topic: 1 for source in catalog.sources.values()}

    def plan() -> None:
        parsed = parse_one(text)
        assert isinstance(parsed, CreateAsSelect)
        plan_query(parsed, PlanningContext(catalog, {}, topics, "CSAS_JOINED_1"))

    sides: list[Callable[[], object]] = [lambda: lark.parse(text, start="statement"), lambda: parse_one(text), plan]
    taken: list[list[float]] = [[], [], []]
    for side in sides:
        side()  # caches: lark's tables, templates of functions
    for _ in range(rounds):
        for side, times in zip(sides, taken, strict=True):
            times += [_cpu_seconds(side) for _ in range(_RUNS)]
    return Planning(*(statistics.median(times) for times in taken))


def planning_lines(rounds: int) -> list[Line]:
    found = measure(rounds)
    what = f"a statement of {COLUMNS} columns and {JOINS} joins"
    return [
        _line(f"lark alone parses {what}", found.lark_s),
        _line("Millstream parses it", found.parse_s, found.parse_s / found.lark_s),
        _line("Millstream plans it, parse included", found.plan_s, found.times, f"< {TIMES_MAX} ×"),
    ]


def _line(what: str, seconds: float, times: float | None = None, wanted: str = "") -> Line:
    ratio = "" if times is None else f"{times:.1f} × lark alone"
    return Line(what, "", f"{seconds * 1000:.1f} ms CPU", ratio, wanted)


def _cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _catalog() -> Catalog:
    catalog, topics = Catalog(), dict[str, int]()
    for parsed in parse(sources()):
        assert isinstance(parsed, CreateSource)
        planned = plan_create_source(parsed, PlanningContext(catalog, {}, topics))
        assert planned.topic is not None
        topics[planned.topic.name] = planned.topic.partition_count
        catalog = catalog.with_source(planned.source)
    return catalog
