"""AND and OR whose operands can fail.

In ksqlDB an operand is not evaluated where those before it have decided: `size > 0 OR CAST(text AS INT) > 3` is true
for a large row, whatever its text. DuckDB evaluates all operands, and one that fails makes the whole expression fail.
So they become a CASE, of which DuckDB computes a branch only for the rows that come to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Final

from sqlglot import exp

from ...sql.functions.casts.failing_casts import results_of
from ...sql.functions.trees import all_owned

AGAIN_MAX: Final = 100
"""Nodes of operands that stand twice in the tree at most: nested ones double with each level."""

_REPEATS: Final = "operands again"  # on the CASE of an AND: whether its ELSE has some of them before the last one


def joined(kind: type[exp.Expression], operands: Sequence[exp.Expression], fails: Sequence[bool]) -> exp.Expression:
    """The operands with AND or OR between them. In: `kind`: `exp.And` or `exp.Or`; `fails`: which a row can make
    fail."""
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
    """Where no operand decides, the result is the last one; or NULL, if one before it was NULL and the last one does
    not decide either: so those that may be NULL are evaluated `again`."""
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
    """Whether it is known to be true or false; one that may be NULL is not."""
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
