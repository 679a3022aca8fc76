"""Words in and around a call that are not expressions: units of time, DISTINCT, FILTER, and a missing OVER."""

from __future__ import annotations

from sqlglot import exp

from millstream.errors import InvalidStatement

from ...sql.ast import span_of
from ...sql.functions.catalog import FUNCTIONS, Function
from ...sql.functions.over_functions import OVER_FUNCTIONS
from ...sql.types import INTERVAL_UNIT
from .typed import Typed

_UNITS = ("MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS", "WEEKS", "MONTHS", "YEARS")
_FIELDS = ("QUARTER", "DOW", "ISODOW", "DOY", "EPOCH")  # of EXTRACT


def check_needs_over(node: exp.Anonymous) -> None:
    """Raises `InvalidStatement` for a function that needs OVER after it."""
    if node.name in OVER_FUNCTIONS and node.name not in FUNCTIONS:
        raise InvalidStatement(
            f"{node.name} needs OVER behind it",
            span=span_of(node),
            hint=f"Write {node.name}(…) OVER (PARTITION BY … ORDER BY …).",
        )


def check_clauses(node: exp.Anonymous, function: Function) -> None:
    """Raises `InvalidStatement` for DISTINCT or FILTER in a call of a function that is no aggregate."""
    for clause in ("distinct", "filter"):
        if node.args.get(clause) and function.kind != "aggregate":
            raise InvalidStatement(
                f"{node.name} is no aggregate function: it takes no {clause.upper()}", span=span_of(node)
            )


def interval_unit(argument: exp.Expression, function: Function, position: int) -> Typed | None:
    """MINUTES in TIMESTAMPADD(MINUTES, …) parses as a column; it is a unit if the function takes one here."""
    if not (isinstance(argument, exp.Column) and not argument.table and function.takes_interval_unit(position)):
        return None
    name = argument.name.upper()
    if name in _FIELDS or argument.meta.get("unit"):
        return Typed(exp.Literal.string(name), INTERVAL_UNIT, total=True)
    plural = name if name.endswith("S") else name + "S"
    return Typed(exp.Literal.string(plural), INTERVAL_UNIT, total=True) if plural in _UNITS else None
