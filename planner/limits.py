"""Limits of a statement's size. Constructs that grow faster than their text are refused before planning, and nesting is
limited so that planning never reaches Python's recursion limit.

Each reference to a query of WITH computes it again, so queries that read the previous one twice double with each step.
The same happens to expressions whose operand occurs more than once in DuckDB's SQL (CASE x WHEN, x IN, some functions).
A statement has a budget of steps for them, which no ordinary statement reaches.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from itertools import islice
from typing import ParamSpec, TypeVar

from sqlglot import exp

from millstream.errors import Unsupported

from ..sql import ast
from ..sql.ast import Query, SelectColumn, conjuncts, span_of, unwrapped

READS_MAX = 200
GROUPING_MAX = 100
OVERS_MAX = 100
PARTITIONS_MAX = 16
COLUMNS_MAX = 2_000
REMEMBERED_MS_MAX = 100 * 366 * 86_400_000  # 100 years: how long rows may be kept to be compared with later ones
STEPS_MAX = 50_000  # this many take seconds
FRAMES = 10_000  # Python's recursion limit, enough for all that the parser accepts: 200 levels, sums of 1,000

P = ParamSpec("P")
R = TypeVar("R")

_steps_left: ContextVar[list[int] | None] = ContextVar("steps_left", default=None)  # of the statement that is planned


def within_depth(plan: Callable[P, R]) -> Callable[P, R]:
    """A decorator for functions that plan a statement: a RecursionError becomes an error about the statement."""

    @functools.wraps(plan)
    def planned(*args: P.args, **kwargs: P.kwargs) -> R:
        if sys.getrecursionlimit() < FRAMES:
            sys.setrecursionlimit(FRAMES)
        token = _steps_left.set([STEPS_MAX])
        try:
            return plan(*args, **kwargs)
        except RecursionError:
            raise Unsupported(
                "the statement is nested too deeply",
                hint="Make a part of it a stream or table of its own with CREATE … AS SELECT.",
            ) from None
        finally:
            _steps_left.reset(token)

    return planned


def count_step(node: exp.Expression, tree: exp.Expression | None = None, times: int = 1) -> None:
    """Counts an expression that is compiled; or each node of a generated `tree`, this many `times`.

    Raises `Unsupported` once the statement has used up its steps."""
    left = _steps_left.get()
    if left is None:
        return
    left[0] -= 1 if tree is None else times * sum(1 for _ in islice(tree.walk(), left[0] // times + 1))
    if left[0] < 0:
        raise Unsupported(
            "the expressions of the statement are too large",
            span=span_of(node),
            hint="Calls, CASE and IN inside each other can say one thing many times over: compute a part of them in a "
            "subquery.",
        )


def check_columns(items: Sequence[object], query: Query) -> None:
    """Raises `Unsupported` for too many columns in SELECT, including those of its stars."""
    if len(items) > COLUMNS_MAX:
        raise Unsupported(f"more than {COLUMNS_MAX} columns", span=query.span)


def check_reads(query: Query) -> None:
    """Raises `Unsupported` if the query would read streams and tables more than READS_MAX times."""
    reads = _reads(query, {})
    if reads > READS_MAX:
        raise Unsupported(
            f"the statement reads streams and tables at more than {READS_MAX} places, each query of WITH counted "
            "wherever it is read",
            span=query.span,
            hint="Write the query that is read so often into a stream or table of its own with CREATE … AS SELECT.",
        )


def check_clauses(query: Query) -> None:
    """Raises `Unsupported` for a query with too many grouping expressions or window functions. Queries inside it are
    not counted."""
    for name, expressions in (("GROUP BY", query.group_by), ("PARTITION BY", query.partition_by)):
        if len(expressions) > GROUPING_MAX:
            raise Unsupported(
                f"more than {GROUPING_MAX} expressions in {name}", span=span_of(expressions[GROUPING_MAX])
            )
    selected = [item.expression for item in query.items if isinstance(item, SelectColumn)]
    written = [*selected, *([] if query.qualify is None else [query.qualify])]
    overs = [node for one in written for node in one.find_all(exp.Window)]
    if len(overs) > OVERS_MAX:
        raise Unsupported(f"more than {OVERS_MAX} functions OVER partitions in a query", span=span_of(overs[OVERS_MAX]))
    partitions = {tuple(over.args.get("partition_by") or ()): over for over in overs}
    if len(partitions) > PARTITIONS_MAX:
        raise Unsupported(
            f"functions OVER more than {PARTITIONS_MAX} different partitions in a query",
            span=span_of([*partitions.values()][PARTITIONS_MAX]),
        )


def _reads(query: Query, known: Mapping[str, int]) -> int:
    """How often the query reads streams and tables. In: `known`: how often each visible query of WITH reads. IN runs
    its query twice unless it is a whole condition: once for the value, and once for a NULL among the values."""
    seen = dict(known)
    for cte in query.ctes:
        seen[cte.name] = _reads(cte.query, seen)
    conditions = [] if query.where is None else list(conjuncts(query.where))
    written = [*conditions, *(item.expression for item in query.items if isinstance(item, SelectColumn))]
    plain = {id(unwrapped(condition)) for condition in conditions}
    asked = [node for one in written for node in one.find_all(exp.Subquery)]
    return _reads_of(query.source, seen) + sum(
        _reads(node.meta["query"], seen)
        * (2 if isinstance(node.parent, exp.In) and id(node.parent) not in plain else 1)
        for node in asked
    )


def _reads_of(relation: ast.Relation, known: Mapping[str, int]) -> int:
    match relation:
        case ast.SourceName():
            return known.get(relation.name, 1)
        case ast.Subquery():
            return sum(_reads(query, known) for query in relation.queries)
        case ast.TableFunctionCall():
            return _reads_of(relation.source, known)
        case ast.Join():
            return _reads_of(relation.left, known) + _reads_of(relation.right, known)
