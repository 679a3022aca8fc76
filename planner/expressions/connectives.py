"""AND and OR with operands that can fail.

ksqlDB does not evaluate an operand if the operands before it have decided the result:
`size > 0 OR CAST(text AS INT) > 3` is true for a large row, whatever its text. DuckDB evaluates all operands, and one
that fails makes the whole expression fail. So the operands become a CASE: DuckDB computes its branches only for the
rows that reach them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Final

from sqlglot import exp

from ...sql.functions.casts.failing_casts import results_of
from ...sql.functions.trees import all_owned

AGAIN_MAX: Final = 100
"""The largest number of nodes of operands that may occur twice in the tree: nesting doubles them at each level."""

_REPEATS: Final = "operands again"  # on the CASE of an AND: whether its ELSE repeats operands before the last one


def joined(kind: type[exp.Expression], operands: Sequence[exp.Expression], fails: Sequence[bool]) -> exp.Expression:
    """The operands joined by AND or OR. In: `kind`: `exp.And` or `exp.Or`; `fails`: which operands can fail."""
    if any(fails[1:]):
        again = [operand for operand in operands[:-1] if not _never_null(operand)]
        if len(list(islice(chain.from_iterable(operand.walk() for operand in again), AGAIN_MAX + 1))) <= AGAIN_MAX:
            return _in_turn(kind, operands, again)
    return exp.Paren(this=_at_once(kind, operands))


def all_of_turn(tree: exp.Expression) -> Sequence[exp.Expression] | None:
    """The operands of an AND that are evaluated in turn; None for any other expression."""
    if not isinstance(tree, exp.Case) or _REPEATS not in tree.meta:
        return None
    default = tree.args["default"]
    return [*(branch.this.this.this for branch in tree.args["ifs"]), default.right if tree.meta[_REPEATS] else default]


def _in_turn(
    kind: type[exp.Expression], operands: Sequence[exp.Expression], again: Sequence[exp.Expression]
) -> exp.Expression:
    """A CASE that evaluates the operands one after the other. If no operand before the last one decides, the result is
    the last one, or NULL if an earlier one was NULL and the last one does not decide either. So operands that may be
    NULL are evaluated `again` at the end."""
    decided = exp.false() if kind is exp.And else exp.true()
    *first, last = operands
    branches = [exp.If(this=_decides(kind, operand), true=decided.copy()) for operand in first]
    default = _at_once(kind, [*(operand.copy() for operand in again), last.copy()])
    tree = exp.Case(ifs=branches, default=default)
    if kind is exp.And:
        tree.meta[_REPEATS] = bool(again)
    return exp.Paren(this=tree)


def _decides(kind: type[exp.Expression], operand: exp.Expression) -> exp.Expression:
    operand = exp.Paren(this=operand.copy())
    return exp.Not(this=operand) if kind is exp.And else operand


def _at_once(kind: type[exp.Expression], operands: Sequence[exp.Expression]) -> exp.Expr:
    connect = exp.and_ if kind is exp.And else exp.or_
    return connect(*all_owned(operands), copy=False)


def _never_null(tree: exp.Expr) -> bool:
    """Whether the expression is known to be never NULL."""
    match tree:
        case exp.Paren() | exp.Not():
            return _never_null(tree.this)
        case exp.And() | exp.Or():
            return all(map(_never_null, tree.flatten()))
        case exp.Coalesce():
            return any(map(_never_null, (tree.this, *tree.expressions)))
        case exp.Case():
            return tree.args.get("default") is not None and all(map(_never_null, results_of(tree)))
        case _:
            return isinstance(tree, exp.Is | exp.Boolean)
