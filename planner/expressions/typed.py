"""A typed expression: the result of analyzing a piece of SQL, and its conversion to DuckDB text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from millstream.errors import Unsupported

from ...sql.functions.udf import udfs_in
from ...sql.types import Array, Map, SqlType, Struct
from ..specs import SqlExpression
from .drawn_values import draw_outside, is_volatile, with_drawn
from .failing_constants import fails_always, hide_failing_constants

DEPTH_MAX = 900  # levels of a tree; DuckDB accepts 1,000, and TRY and other wrappers are added
LAMBDAS_MAX = 12  # inside each other; DuckDB's time and memory double with each: 0.5 s for 12, minutes for 20
TYPE_LEVELS_MAX = 60  # of a type; Arrow takes 64, with those of the batch around it
_DUCKDB = DuckDB()
_ANY_ROW = exp.Column(this=exp.Identifier(this="_seq", quoted=False))  # of every row of a batch


@dataclass(frozen=True, slots=True)
class Typed:
    """A DuckDB expression tree over *logical* column names, and its SQL type.

    `total` is true when no row can make it fail, so that it needs no TRY.
    """

    tree: exp.Expression
    type: SqlType
    total: bool = False

    @property
    def column(self) -> str | None:
        """The column's name if the expression is just a column."""
        return self.tree.name if isinstance(self.tree, exp.Column) else None

    @property
    def volatile(self) -> bool:
        """Whether its value may differ from call to call; DuckDB refuses TRY around such expressions."""
        return any(map(is_volatile, self.tree.walk()))

    def columns(self) -> frozenset[str]:
        """The names of all columns it reads."""
        return frozenset(node.name for node in self.tree.find_all(exp.Column))


def column(name: str, type_: SqlType) -> Typed:
    """A reference to a column of the input."""
    return Typed(exp.Column(this=exp.Identifier(this=name, quoted=True)), type_, total=True)


def to_sql(typed: Typed, physical: Callable[[str], str], *, in_rows: bool = False) -> SqlExpression:
    """The expression as DuckDB text. In: `physical`: returns a column's name inside batches. `in_rows`: whether it is
    computed for the rows of a batch, so that also what fails without reading a column fails for each of them.

    An expression that can fail is wrapped in TRY, so that a failure gives NULL, as in ksqlDB. Raises `Unsupported` for
    an expression or a type that is too deep for DuckDB and Arrow, or would take too long.
    """
    _check_depth(typed.tree)
    _check_lambdas(typed.tree)
    _check_type(typed.type)
    if isinstance(typed.tree, exp.Column):
        return SqlExpression(physical(typed.tree.name), typed.type)
    tree = typed.tree.copy()
    for node in tree.find_all(exp.Column):
        node.set("this", exp.Identifier(this=physical(node.name), quoted=False))
    if typed.total:
        return SqlExpression(tree.sql(dialect=_DUCKDB, copy=False), typed.type, udfs_in(tree))
    if not in_rows and fails_always(tree):
        return SqlExpression(f"CAST(NULL AS {typed.type.duckdb})", typed.type)
    tree = exp.Paren(this=tree) if is_volatile(tree) else tree
    drawn = draw_outside(tree)
    column = tree.find(exp.Column) or (_ANY_ROW if in_rows else None)
    whole = exp.Paren(this=tree)
    if column is not None:
        hide_failing_constants(whole, column)
    text = f"TRY{whole.sql(dialect=_DUCKDB, copy=False)}"
    text = with_drawn(text, drawn) if drawn else text
    return SqlExpression(text, typed.type, udfs_in(tree))


def _check_depth(tree: exp.Expression) -> None:
    level: list[exp.Expr] = [tree]
    for _ in range(DEPTH_MAX):
        level = [child for node in level for child in _below(node)]
        if not level:
            return
    raise Unsupported(
        "an expression is nested too deeply",
        hint="Compute a part of it in a subquery; a sum of hundreds of columns can be a sum of sums in parentheses.",
    )


def _check_lambdas(tree: exp.Expression) -> None:
    for lambda_ in tree.find_all(exp.Lambda):
        around, node = 1, lambda_.find_ancestor(exp.Lambda)
        while node is not None:
            around, node = around + 1, node.find_ancestor(exp.Lambda)
        if around > LAMBDAS_MAX:
            raise Unsupported(
                f"more than {LAMBDAS_MAX} functions with lambdas inside each other",
                hint="Compute the inner ones in a subquery, and use their result.",
            )


def _check_type(type_: SqlType) -> None:
    if _levels(type_) > TYPE_LEVELS_MAX:
        raise Unsupported(
            f"a type is nested too deeply: more than {TYPE_LEVELS_MAX} levels, of which a MAP is two",
            hint="Keep the inner part as a STRING of JSON, and take from it with EXTRACTJSONFIELD.",
        )


def _levels(type_: SqlType) -> int:
    match type_:
        case Array():
            return 1 + _levels(type_.element)
        case Map():
            return 2 + _levels(type_.value)
        case Struct():
            return 1 + max((_levels(field.type) for field in type_.fields), default=0)
        case _:
            return 0


def _below(node: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of a node. A chain of ANDs or ORs is one level, as in DuckDB."""
    return node.flatten(unnest=False) if isinstance(node, exp.And | exp.Or) else node.iter_expressions()
