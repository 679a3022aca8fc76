"""Words in and around a call that are not expressions: units of time, DISTINCT, FILTER, and a missing OVER."""

from __future__ import annotations

from typing import TypeVar

from sqlglot import exp

from millstream.errors import InvalidStatement

from ...sql.ast import Node, span_of
from ...sql.functions.catalog import FUNCTIONS, Function
from ...sql.functions.over_functions import OVER_FUNCTIONS
from ...sql.types import INTERVAL_UNIT
from .rewriting import rewritten
from .typed import Typed

N = TypeVar("N", bound=Node)

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


def with_units(statement: N) -> N:
    """The statement with its units of time (DAYS in `DATEADD(DAYS, 1, day)`), which parse as columns, as words (`Var`).
    Whatever looks for the columns of an expression then leaves them out."""
    return rewritten(statement, _with_units)


def interval_unit(argument: exp.Expression, function: Function, position: int) -> Typed | None:
    """MINUTES in TIMESTAMPADD(MINUTES, …) parses as a column; it is a unit if the function takes one here."""
    is_word = isinstance(argument, exp.Var) or (isinstance(argument, exp.Column) and not argument.table)
    if not (is_word and function.takes_interval_unit(position)):
        return None
    name = argument.name.upper()
    if name in _FIELDS or isinstance(argument, exp.Var):
        return Typed(exp.Literal.string(name), INTERVAL_UNIT, total=True)
    plural = name if name.endswith("S") else name + "S"
    return Typed(exp.Literal.string(plural), INTERVAL_UNIT, total=True) if plural in _UNITS else None


def _with_units(expression: exp.Expression) -> exp.Expression:
    if not any(_units(call) for call in expression.find_all(exp.Anonymous)):
        return expression
    root = exp.Paren(this=expression.copy())
    for call in root.find_all(exp.Anonymous):
        for argument, unit in _units(call):
            word = exp.Var(this=unit)
            word.meta.update(argument.meta)
            argument.replace(word)
    return root.this.pop()


def _units(call: exp.Anonymous) -> list[tuple[exp.Expression, str]]:
    """The arguments that are units written like columns, with their names."""
    function = FUNCTIONS.get(call.name)
    if function is None or function.kind == "aggregate":
        return []
    found = ((a, interval_unit(a, function, i)) for i, a in enumerate(call.expressions) if isinstance(a, exp.Column))
    return [(argument, unit.tree.name) for argument, unit in found if unit is not None]
