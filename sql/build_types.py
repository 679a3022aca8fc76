"""The grammar's rules for types and names; each method has its rule's name."""

from __future__ import annotations

from typing import Any

from lark import Token
from sqlglot import exp

from millstream.errors import InvalidStatement, SqlSyntaxError

from .parts import SOURCE, Part, at, checked_name, items, span_of_all
from .tokens import token_span
from .types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    PRECISION_MAX,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    NamedType,
    SqlType,
    Struct,
)  # fmt: skip

TYPE_NAMES: dict[str, SqlType] = {
    "BOOLEAN": BOOLEAN,
    "INT": INTEGER,
    "INTEGER": INTEGER,
    "BIGINT": BIGINT,
    "DOUBLE": DOUBLE,
    "STRING": STRING,
    "VARCHAR": STRING,
    "BYTES": BYTES,
    "TIME": TIME,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
}


class TypeRules:
    """A type is a Part with a SqlType, a name an Identifier."""

    def name(self, children: list[Any]) -> exp.Identifier:
        token: Token = children[0]
        return at(exp.Identifier(this=checked_name(token), quoted=True), token_span(token))

    def resource(self, children: list[Any]) -> Part:
        """A topic, subject or query id, as written: these are not names of the language, so they keep their case."""
        token: Token = children[0]
        quote = token[0]
        written = token[1:-1].replace(quote * 2, quote) if quote in "'\"`" else str(token)
        return Part(written, token_span(token))

    def array_type(self, children: list[Any]) -> Part:
        (element,) = items(children)
        return Part(Array(element.value), span_of_all(children))

    def map_type(self, children: list[Any]) -> Part:
        key, value = items(children)
        return Part(Map(key.value, value.value), span_of_all(children))

    def struct_type(self, children: list[Any]) -> Part:
        fields: dict[str, Field] = {}
        for part in items(children):
            known = fields.setdefault(part.value.name, part.value)
            if known is not part.value:
                raise InvalidStatement(
                    f"Duplicate field names found in STRUCT: '{_described(known)}' and '{_described(part.value)}'",
                    span=part.span,
                    hint="Names are in upper case unless they stand in backticks.",
                )
        return Part(Struct(tuple(fields.values())), span_of_all(children))

    def field(self, children: list[Any]) -> Part:
        name, field_type = children
        return Part(Field(name.name, field_type.value), span_of_all(children))

    def decimal_type(self, children: list[Any]) -> Part:
        span = span_of_all(children)
        digits: list[int] = []
        for token in (children[2], children[4]):
            if len(token) > 4:
                raise SqlSyntaxError("a DECIMAL has at most 38 digits", span=token_span(token))
            digits.append(int(token))
        precision, scale = digits
        if not 1 <= precision <= PRECISION_MAX:
            message = f"the precision of a DECIMAL is between 1 and {PRECISION_MAX}, not {precision}"
            raise SqlSyntaxError(message, span=token_span(children[2]))
        if scale > precision:
            message = f"DECIMAL({precision}, {scale}) has more digits after the point than digits in all"
            raise SqlSyntaxError(message, span=span)
        return Part(Decimal(precision, scale), span)

    def named_type(self, children: list[Any]) -> Part:
        """A primitive type or a custom one. Parameters as in VARCHAR(20) have no effect, as in ksqlDB."""
        name: str = children[0].name
        found = TYPE_NAMES.get(name) or SOURCE.get().types.get(name) or NamedType(name)
        return Part(found, span_of_all(children))

    def type_parameter(self, children: list[Any]) -> Token:
        return children[0]


def _described(field: Field) -> str:
    return f"`{field.name}` {field.type}"
