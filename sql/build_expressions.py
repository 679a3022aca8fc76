"""The grammar's rules for expressions: sqlglot nodes as in the table of `ast.py`. Each method has its rule's name."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from lark import Token
from sqlglot import exp

from millstream.errors import SqlSyntaxError

from .build_calls import CallRules
from .build_types import TypeRules
from .parts import Part, at, has, items, span_of_all, string_value
from .tokens import token_span
from .types import DATE, PRECISION_MAX, TIME, TIMESTAMP, SqlType

BIGINT_MAX = 2**63 - 1

BINARY: dict[str, type[exp.Expression]] = {
    "PLUS": exp.Add,
    "MINUS": exp.Sub,
    "STAR": exp.Mul,
    "SLASH": exp.Div,
    "PERCENT": exp.Mod,
    "EQ": exp.EQ,
    "NEQ": exp.NEQ,
    "LT": exp.LT,
    "LTE": exp.LTE,
    "GT": exp.GT,
    "GTE": exp.GTE,
}

_TYPED_LITERALS: dict[str, SqlType] = {"DATE": DATE, "TIME": TIME, "TIMESTAMP": TIMESTAMP}

E = TypeVar("E", bound=exp.Expression)


class ExpressionRules(CallRules, TypeRules):
    # -------------------------------------------------------------- logic and comparisons

    def expression(self, children: list[Any]) -> exp.Expression:
        return _balanced(exp.Or, items(children))

    def conjunction(self, children: list[Any]) -> exp.Expression:
        return _balanced(exp.And, items(children))

    def not_(self, children: list[Any]) -> exp.Expression:
        return _node(exp.Not, children, this=children[1])

    def comparison(self, children: list[Any]) -> exp.Expression:
        left, operator, right = children
        return _node(BINARY[operator.type], children, this=left, expression=right)

    def between(self, children: list[Any]) -> exp.Expression:
        value, low, high = items(children)
        return _perhaps_not(children, _node(exp.Between, children, this=value, low=low, high=high))

    def in_list(self, children: list[Any]) -> exp.Expression:
        value, *options = items(children)
        return _perhaps_not(children, _node(exp.In, children, this=value, expressions=options))

    def like(self, children: list[Any]) -> exp.Expression:
        value, pattern = items(children)
        span = span_of_all(children)
        result: exp.Expression = at(exp.Like(this=value, expression=pattern), span)
        if has(children, "ESCAPE"):
            escape = self.literal([children[-1]])
            if len(escape.name) != 1:
                raise SqlSyntaxError("ESCAPE takes one character", span=escape.meta["span"])
            result = at(exp.Escape(this=result, expression=escape), span)
        return _perhaps_not(children, result)

    def is_null(self, children: list[Any]) -> exp.Expression:
        null = at(exp.Null(), token_span(children[-1]))
        return _perhaps_not(children, _node(exp.Is, children, this=children[0], expression=null))

    def distinct_from(self, children: list[Any]) -> exp.Expression:
        left, right = items(children)
        same = has(children, "NOT")
        return _node(exp.NullSafeEQ if same else exp.NullSafeNEQ, children, this=left, expression=right)

    # -------------------------------------------------------------- operators

    def value(self, children: list[Any]) -> exp.Expression:
        return _balanced(exp.DPipe, items(children))

    def arithmetic(self, children: list[Any]) -> exp.Expression:
        left, operator, right = children
        return _node(BINARY[operator.type], children, this=left, expression=right)

    def signed(self, children: list[Any]) -> exp.Expression:
        sign, operand = children
        if sign.type == "PLUS":
            return operand
        if isinstance(operand, exp.Literal) and operand.this.lstrip("0") == str(BIGINT_MAX + 1):
            operand.meta.pop("fault", None)  # only with its minus it is a BIGINT
        return _node(exp.Neg, children, this=operand)

    def at_time_zone(self, children: list[Any]) -> exp.Expression:
        zone = self.literal([children[-1]])
        return _node(exp.AtTimeZone, children, this=children[0], zone=zone)

    # -------------------------------------------------------------- literals and columns

    def literal(self, children: list[Any]) -> exp.Expression:
        token: Token = children[0]
        span = token_span(token)
        match token.type:
            case "STRING_LITERAL":
                return at(exp.Literal.string(string_value(token)), span)
            case "TRUE" | "FALSE":
                return at(exp.Boolean(this=token.type == "TRUE"), span)
            case "NULL":
                return at(exp.Null(), span)
            case _:
                return _number(token)

    def column(self, children: list[Any]) -> exp.Expression:
        if len(children) == 1:
            return _node(exp.Column, children, this=children[0])
        return _node(exp.Column, children, this=children[2], table=children[0])

    def typed_literal(self, children: list[Any]) -> exp.Expression:
        """DATE '2024-01-31' becomes a cast of the string."""
        name, text = children
        to = _TYPED_LITERALS.get(name.name)
        if to is None:
            hint = "Strings follow a name only in DATE '…', TIME '…' and TIMESTAMP '…'."
            if name.name == "INTERVAL":
                hint = "A duration is a number and a unit, in windows and joins: WINDOW TUMBLING (SIZE 1 MINUTE)."
            raise SqlSyntaxError(f"unexpected {text}", span=token_span(text), hint=hint)
        return _cast(children, self.literal([text]), Part(to, name.meta["span"]))

    def cast(self, children: list[Any]) -> exp.Expression:
        expression, to = items(children)
        return _cast(children, expression, to)

    # -------------------------------------------------------------- structured values

    def dereference(self, children: list[Any]) -> exp.Expression:
        base, _, field = children
        return _node(exp.Dot, children, this=base, expression=field)

    def subscript(self, children: list[Any]) -> exp.Expression:
        base, index = items(children)
        return _node(exp.Bracket, children, this=base, expressions=[index])

    def array(self, children: list[Any]) -> exp.Expression:
        return _node(exp.Array, children, expressions=items(children))

    def map_(self, children: list[Any]) -> exp.Expression:
        entries: list[Part] = items(children)
        keys = _node(exp.Array, children, expressions=[entry.value[0] for entry in entries])
        values = _node(exp.Array, children, expressions=[entry.value[1] for entry in entries])
        return _node(exp.Map, children, keys=keys, values=values)

    def entry(self, children: list[Any]) -> Part:
        return Part((children[0], children[2]), span_of_all(children))

    def struct(self, children: list[Any]) -> exp.Expression:
        return _node(exp.Struct, children, expressions=items(children))

    def field_value(self, children: list[Any]) -> exp.Expression:
        name, value = items(children)
        return _node(exp.PropertyEQ, children, this=name, expression=value)

    # -------------------------------------------------------------- lambdas, CASE

    def lambda_(self, children: list[Any]) -> exp.Expression:
        *parameters, body = items(children)
        return _node(exp.Lambda, children, this=body, expressions=parameters)

    def simple_case(self, children: list[Any]) -> exp.Expression:
        operand, *branches = items(children[:-2])
        return _node(exp.Case, children, this=operand, ifs=branches, default=children[-2])

    def searched_case(self, children: list[Any]) -> exp.Expression:
        return _node(exp.Case, children, ifs=items(children[:-2]), default=children[-2])

    def when(self, children: list[Any]) -> exp.Expression:
        condition, result = items(children)
        return _node(exp.If, children, this=condition, true=result)

    def otherwise(self, children: list[Any]) -> exp.Expression | None:
        return children[1] if children else None

    def parenthesised(self, children: list[Any]) -> exp.Expression:
        return _node(exp.Paren, children, this=children[1])


def _node(kind: type[E], children: list[Any], **arguments: Any) -> E:
    return at(kind(**arguments), span_of_all(children))


def _perhaps_not(children: list[Any], node: exp.Expression) -> exp.Expression:
    if any(isinstance(child, Token) and child.type == "NOT" for child in children[1:3]):
        return _node(exp.Not, children, this=node)
    return node


def _balanced(kind: type[exp.Expression], operands: list[exp.Expression]) -> exp.Expression:
    """A chain of an associative operator as a shallow tree, so that no code recurses a thousand levels."""
    while len(operands) > 1:
        pairs = [
            _node(kind, operands[i : i + 2], this=operands[i], expression=operands[i + 1])
            for i in range(0, len(operands) - 1, 2)
        ]
        operands = pairs + operands[len(pairs) * 2 :]
    return operands[0]


def _cast(children: list[Any], expression: exp.Expression, to: Part) -> exp.Expression:
    data_type = at(exp.DataType(this=exp.DataType.Type.UNKNOWN), to.span)
    node = _node(exp.Cast, children, this=expression, to=data_type)
    node.meta["to"] = to.value
    return node


def _number(token: Token) -> exp.Expression:
    """A number. `meta["fault"]` is the message with which `nesting.check_number` refuses it later, when it is known
    whether a minus precedes it.

    Digits are counted before they are converted: a million digits are not a number.
    """
    text, span = str(token), token_span(token)
    node = at(exp.Literal.number(text), span)
    digits = text.lstrip("0")
    match token.type:
        case "INTEGER_LITERAL":
            if len(digits) > 19 or int(digits or "0") > BIGINT_MAX:
                node.meta["fault"] = "Invalid numeric literal"
        case "DECIMAL_LITERAL":
            if len(digits.replace(".", "")) > PRECISION_MAX:
                raise SqlSyntaxError(f"a DECIMAL has at most {PRECISION_MAX} digits", span=span)
        case _:
            if len(text) > 400 or math.isinf(float(text)):
                node.meta["fault"] = "Number overflows DOUBLE"
    return node
