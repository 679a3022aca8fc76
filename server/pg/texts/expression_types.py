"""The types of expressions, as far as names alone tell them: what stands beside an untyped text may be computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlglot import exp

from millstream.errors import TypeMismatch

from ....sql.functions.aggregation.aggregate_fold import AggregateFunction
from ....sql.functions.catalog import FUNCTIONS
from ....sql.functions.function import Function
from ....sql.functions.signature import has_variables
from ....sql.types import BIGINT, DOUBLE, INTEGER, STRING, TIMESTAMP, Array, Decimal, Map, SqlType, Struct
from ..dialect.pg_quantified import ITEM

_RANKS: Final[Mapping[SqlType, int]] = {INTEGER: 1, BIGINT: 2, DOUBLE: 4}
_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)


class ExpressionTypes:
    """In: the types of columns by their names."""

    def __init__(self, columns: Mapping[str, SqlType]) -> None:
        self._columns = columns

    def of(self, node: Any) -> SqlType | None:
        """None if it is not known."""
        match node:
            case exp.Column():
                return self._of_item(node) if node.name == ITEM else self._columns.get(node.name)
            case exp.Cast():
                return node.meta.get("to")
            case exp.Paren() | exp.Neg():
                return self.of(node.this)
            case exp.DPipe():
                return STRING
            case exp.Literal(is_string=False):
                return _of_number(node.name)
            case exp.Anonymous():
                return self._of_call(str(node.this).upper(), node.expressions)
            case exp.Bracket():
                return _inside(self.of(node.this))
            case exp.Dot():
                return _of_field(self.of(node.this), node.expression.name)
            case exp.Case():
                return self._first(
                    [*(branch.args.get("true") for branch in node.args["ifs"]), node.args.get("default")]
                )
            case _ if isinstance(node, _ARITHMETIC):
                return self._of_arithmetic(node)
            case _:
                return None

    def _of_item(self, item: exp.Column) -> SqlType | None:
        """Of an element of the array that `= ANY(array)` searches."""
        search = item.find_ancestor(exp.Anonymous)
        searched = None if search is None else self.of(search.expressions[0])
        return searched.element if isinstance(searched, Array) else None

    def _of_arithmetic(self, node: Any) -> SqlType | None:
        both = [self.of(node.this), self.of(node.expression)]
        if TIMESTAMP in both:
            return TIMESTAMP
        known = sorted((type_ for type_ in both if type_ is not None), key=_rank)
        return known[-1] if known and _rank(known[-1]) else None

    def _of_call(self, name: str, arguments: Sequence[Any]) -> SqlType | None:
        function = FUNCTIONS.get(name)
        if isinstance(function, AggregateFunction):
            return self._of_aggregate(function, arguments)
        if not isinstance(function, Function):
            return None
        returned = {variant.signature.returns for variant in function.variants}
        if len(returned) == 1 and not any(map(has_variables, returned)):
            return returned.pop()
        first = self._first(arguments)
        if first in returned or any(has_variables(type_) for type_ in returned):
            return first
        return None

    def _of_aggregate(self, function: AggregateFunction, arguments: Sequence[Any]) -> SqlType | None:
        """An argument of unknown type counts as a text: COUNT takes any, and the others have no result for it."""
        types = [STRING if isinstance(each, exp.Star) else self.of(each) or STRING for each in arguments]
        try:
            return function.resolve(types[: function.arguments]).return_type
        except TypeMismatch:
            return None

    def _first(self, nodes: Sequence[Any]) -> SqlType | None:
        return next((type_ for node in nodes if (type_ := self.of(node)) is not None), None)


def _rank(type_: SqlType) -> int:
    """Which of two numbers' types their sum has: that of the higher rank. 0: it is no number."""
    if isinstance(type_, Decimal):
        return 3
    return _RANKS.get(type_, 0)


def _of_number(text: str) -> SqlType:
    if "e" in text.lower():
        return DOUBLE
    if "." in text:
        return Decimal(38, 10)
    return INTEGER if int(text) < 1 << 31 else BIGINT


def _inside(type_: SqlType | None) -> SqlType | None:
    match type_:
        case Array(element):
            return element
        case Map():
            return type_.value
        case _:
            return None


def _of_field(type_: SqlType | None, name: str) -> SqlType | None:
    field = type_.field(name) if isinstance(type_, Struct) else None
    return None if field is None else field.type
