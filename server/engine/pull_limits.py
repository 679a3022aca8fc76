"""Refuses what an operator has disabled in pull queries: streams, LIMIT, and reading more of a table than single keys.

Without table scans each disjunct of WHERE has to fix the whole key, with `=` or `IN`. If range scans are allowed, one
comparison of a table's only key column, a STRING, is enough.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millstream.errors import InvalidStatement, Span

from ...planner.planning import PlannedBatch, PlannedPull
from ...planner.pull.pull_queries import PUSH_INSTEAD
from ...planner.pull.window_bounds import disjuncts_of
from ...planner.source_info import SourceInfo
from ...sql.ast import Query, span_of
from ...sql.printing import print_expression
from ...sql.settings.property import Property
from ...sql.settings.property_table import PULL_LIMIT_CLAUSE, PULL_STREAMS, PULL_TABLE_SCANS
from ...sql.types import STRING
from .statement_settings import StatementSettings

_EQUALITIES = (exp.EQ, exp.In)
_RANGES = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)


def refuse_disabled(statement: Query, planned: PlannedPull | PlannedBatch, settings: StatementSettings) -> None:
    """Raises `InvalidStatement` for a pull query that the settings do not allow."""
    looks_up = isinstance(planned, PlannedPull)
    sources = (planned.source_info,) if looks_up else planned.sources
    if any(source.kind == "STREAM" for source in sources) and not settings.pull_streams:
        raise _disabled("Pull queries on streams are", PULL_STREAMS, statement.span)
    if statement.limit is not None and not settings.pull_limit_clause:
        raise _disabled("LIMIT clause in pull queries is", PULL_LIMIT_CLAUSE, statement.span)
    tables = [source for source in sources if source.kind == "TABLE"]
    if tables and not settings.pull_table_scans:
        if not looks_up:
            raise _scan_needed("Query requires table scan to be enabled.", statement.span)
        if statement.where is None:
            raise _scan_needed("Missing WHERE clause.", statement.span)
        disjuncts = disjuncts_of(statement.where)
        ranges = len(disjuncts) == 1 and settings.pull_range_scans
        for conjuncts in disjuncts:
            _check_disjunct(conjuncts, tables[0], ranges)


def _disabled(what: str, property: Property[bool], span: Span | None) -> InvalidStatement:
    return InvalidStatement(
        f"{what} currently disabled. You can enable them by setting {property}=true. {PUSH_INSTEAD}", span=span
    )


def _scan_needed(reason: str, span: Span | None) -> InvalidStatement:
    return InvalidStatement(
        reason,
        span=span,
        hint=f"Name the whole key in WHERE, or set {PULL_TABLE_SCANS}=true.",
    )


def _check_disjunct(conjuncts: list[exp.Expression], source: SourceInfo, ranges: bool) -> None:
    bound: dict[str, exp.Expression] = {}
    for conjunct in conjuncts:
        for name in _bound_keys(conjunct, source):
            if name in bound:
                raise _scan_needed(
                    "A comparison condition on the key column cannot be combined with other comparisons such as an IN "
                    "predicate.",
                    span_of(conjunct),
                )
            bound[name] = conjunct
    keys = [column.name for column in source.schema.key]
    if not bound:
        shown = " AND ".join(print_expression(conjunct) for conjunct in conjuncts)
        shown = shown if shown.startswith("(") and len(conjuncts) == 1 else f"({shown})"
        raise _scan_needed(f"WHERE clause missing key column for disjunct: {shown}", span_of(conjuncts[0]))
    if len(bound) < len(keys):
        raise _scan_needed(
            "Multi-column sources must specify every key in the WHERE clause. "
            f"Specified: {sorted(bound)} Expected: {keys}",
            span_of(conjuncts[0]),
        )
    for name, comparison in bound.items():
        if isinstance(comparison, _RANGES) and not (ranges and _range_fits(source, name)):
            raise _scan_needed("Query requires table scan to be enabled.", span_of(comparison))


def _bound_keys(conjunct: exp.Expression, source: SourceInfo) -> Iterator[str]:
    """The key column that a condition compares with a constant, if any."""
    if isinstance(conjunct, exp.Like) and not isinstance(conjunct.this.unnest(), exp.Column):
        raise _scan_needed("Like condition must be between strings.", span_of(conjunct))
    if isinstance(conjunct, exp.Binary) and not any(
        isinstance(child.unnest(), exp.Column) for child in conjunct.iter_expressions()
    ):
        raise _scan_needed("A comparison must directly reference a key column.", span_of(conjunct))
    if not isinstance(conjunct, (*_EQUALITIES, *_RANGES)):
        return
    operands = [child.unnest() for child in conjunct.iter_expressions()]
    keys = [o for o in operands if isinstance(o, exp.Column) and _is_key(o, source)]
    if not keys:
        return
    others = [operand for operand in operands if operand is not keys[0]]
    if any(other.find(exp.Column) is not None for other in others):
        raise _scan_needed("A comparison must be between a key column and a resolvable expression.", span_of(conjunct))
    yield keys[0].name


def _is_key(column: exp.Column, source: SourceInfo) -> bool:
    return any(key.name == column.name for key in source.schema.key)


def _range_fits(source: SourceInfo, name: str) -> bool:
    """Keys are ordered by their bytes, which is the order of the values only for texts."""
    column = source.schema.find(name)
    return column is not None and column.type == STRING and source.key_window is None
