"""Evaluates conditions over a row's columns in Python, for batches of a few rows. For these, a DuckDB statement costs
more than all other work of a filter (0.5 ms, however few rows).

Only operations with the same meaning in Python and DuckDB are supported: comparisons of integers and of text, IS NULL,
and their combinations. DuckDB evaluates conditions that contain anything else. NULL is None: a condition is true, false
or None. Python compares text by code points and DuckDB by bytes; in UTF-8 that is the same order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

Row = Sequence[Any]
RowCondition = Callable[[Row], bool | None]
_Value = Callable[[Row], Any]

_COMPARISONS: Final[Mapping[type[exp.Expr], Callable[[Any, Any], bool]]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_BITS: Final = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


class _Beyond(Exception):
    """The condition contains something that only DuckDB can evaluate."""


def row_condition(sql: str, columns: Mapping[str, int], types: Sequence[pa.DataType]) -> RowCondition | None:
    """The compiled condition; None if only DuckDB can evaluate it. In: `columns`: the position in a row of each column
    that the condition may name. `types`: the types of a row's values."""
    try:
        return _Compiler(columns, types).condition(sqlglot.parse_one(sql, dialect="duckdb"))
    except (_Beyond, SqlglotError):
        return None


class _Compiler:
    def __init__(self, columns: Mapping[str, int], types: Sequence[pa.DataType]) -> None:
        self._columns = columns
        self._types = types

    def condition(self, node: exp.Expr) -> RowCondition:
        """Raises `_Beyond`, as all methods do."""
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.Not():
                return _negated(self.condition(node.this))
            case exp.And():
                return _both(self.condition(node.left), self.condition(node.right))
            case exp.Or():
                return _either(self.condition(node.left), self.condition(node.right))
            case exp.Coalesce(expressions=[exp.Boolean(this=False)]):
                inner = self.condition(node.this)
                return lambda row: bool(inner(row))
            case exp.Is(expression=exp.Null()):
                place = self._place(node.this)
                return lambda row: row[place] is None
            case exp.Column():
                place = self._place(node)
                if not pa.types.is_boolean(self._types[place]):
                    raise _Beyond
                return lambda row: row[place]
            case _ if type(node) in _COMPARISONS:
                return self._compared(_COMPARISONS[type(node)], node.this, node.expression)
            case _:
                raise _Beyond

    def _compared(self, compare: Callable[[Any, Any], bool], left: exp.Expr, right: exp.Expr) -> RowCondition:
        one, of_integers = self._value(left)
        other, of_integers_too = self._value(right)
        if of_integers != of_integers_too:
            raise _Beyond

        def compared(row: Row) -> bool | None:
            a, b = one(row), other(row)
            return None if a is None or b is None else compare(a, b)

        return compared

    def _value(self, node: exp.Expr) -> tuple[_Value, bool]:
        """A function that returns the value, and whether the value is an integer (otherwise it is text)."""
        match node:
            case exp.Paren():
                return self._value(node.this)
            case exp.Literal(is_string=True):
                text = str(node.this)
                return lambda row: text, False
            case exp.Cast(this=exp.Literal() | exp.Neg()) if type(node) is exp.Cast:
                number = _integer(node)
                return lambda row: number, True
            case exp.Column():
                place = self._place(node)
                type_ = self._types[place]
                if not (pa.types.is_string(type_) or pa.types.is_signed_integer(type_)):
                    raise _Beyond
                return operator.itemgetter(place), pa.types.is_signed_integer(type_)
            case _:
                raise _Beyond

    def _place(self, node: exp.Expr) -> int:
        place = self._columns.get(node.name) if isinstance(node, exp.Column) and not node.table else None
        if place is None:
            raise _Beyond
        return place


def _integer(node: exp.Cast) -> int:
    """The value of an expression like `CAST(5 AS BIGINT)`."""
    bits = _BITS.get(node.to.this.name) if isinstance(node.to.this, exp.DataType.Type) else None
    literal = node.this.this if isinstance(node.this, exp.Neg) else node.this
    if bits is None or not isinstance(literal, exp.Literal) or literal.is_string or not literal.name.isdecimal():
        raise _Beyond
    number = -int(literal.name) if isinstance(node.this, exp.Neg) else int(literal.name)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise _Beyond
    return number


def _negated(inner: RowCondition) -> RowCondition:
    def negated(row: Row) -> bool | None:
        found = inner(row)
        return None if found is None else not found

    return negated


def _both(one: RowCondition, other: RowCondition) -> RowCondition:
    def both(row: Row) -> bool | None:
        found = one(row)
        if found is False:
            return False
        more = other(row)
        return more if more is False or found else None

    return both


def _either(one: RowCondition, other: RowCondition) -> RowCondition:
    def either(row: Row) -> bool | None:
        found = one(row)
        if found:
            return True
        more = other(row)
        return more if more or found is False else None

    return either
