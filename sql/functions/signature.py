"""Signatures of functions as text: how they are written, parsed once, and matched with the types of a call.

    (text STRING, length INTEGER) -> STRING          plain types
    (list ARRAY<T>, value T) -> BOOLEAN              type variables: one capital letter
    (first T, others T...) -> T                      a variadic parameter takes any number of arguments, also none
    (value DECIMAL) -> DECIMAL                       any decimal; what comes out is then computed (`returns=`)
    (list ARRAY<T>, body LAMBDA(T) -> R) -> ARRAY<R>
    (unit INTERVALUNIT, …) -> …                      MINUTES and its kin
    (value ANY) -> STRING                            every type

Type texts (`parse_type`) are the same without variables; they are also how a Python function's name keeps its types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from ..types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL_UNIT,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    SqlType,
    Struct,
)

INTEGER_AS_DECIMAL = Decimal(10, 0)
BIGINT_AS_DECIMAL = Decimal(19, 0)


@dataclass(frozen=True, slots=True)
class Variable(SqlType):
    """A type variable; stands for one type in the whole signature."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class AnyDecimal(SqlType):
    """DECIMAL of any precision and scale."""

    def __str__(self) -> str:
        return "DECIMAL"


@dataclass(frozen=True, slots=True)
class AnyType(SqlType):
    """Every type, each argument its own."""

    def __str__(self) -> str:
        return "ANY"


@dataclass(frozen=True, slots=True)
class Lambda(SqlType):
    """A function from `parameters` to `result`; only ever the type of a parameter."""

    parameters: tuple[SqlType, ...]
    result: SqlType

    def __str__(self) -> str:
        return f"LAMBDA({', '.join(map(str, self.parameters))}) -> {self.result}"


@dataclass(frozen=True, slots=True)
class LambdaArgument:
    """A lambda in a call: its variables, and what its body's type is once theirs are known."""

    parameters: tuple[str, ...]
    body_type: Callable[[tuple[SqlType, ...]], SqlType]

    def __str__(self) -> str:
        return "LAMBDA"


Argument = SqlType | LambdaArgument
Bindings = dict[str, SqlType]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: SqlType
    variadic: bool = False

    def __str__(self) -> str:
        return f"{self.type}{'...' if self.variadic else ''} {self.name}"


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and gives. Invariant: at most one parameter is variadic."""

    parameters: tuple[Parameter, ...]
    returns: SqlType

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parameters))}) -> {self.returns}"

    @property
    def variadic_index(self) -> int:
        """Where the variadic parameter stands, or -1."""
        return next((i for i, parameter in enumerate(self.parameters) if parameter.variadic), -1)

    @property
    def generic_count(self) -> int:
        """How many parameters hold a type variable."""
        return sum(has_variables(parameter.type) for parameter in self.parameters)

    def expand(self, count: int) -> tuple[Parameter, ...] | None:
        """One parameter per argument of a call with `count` arguments; None where the number does not fit."""
        index = self.variadic_index
        if index < 0:
            return self.parameters if count == len(self.parameters) else None
        repeated = count - (len(self.parameters) - 1)
        if repeated < 0:
            return None
        before, after = self.parameters[:index], self.parameters[index + 1 :]
        return before + (self.parameters[index],) * repeated + after

    def accepts(self, arguments: Sequence[Argument], *, casts: bool) -> bool:
        """Whether a call with these arguments may mean this signature."""
        parameters = self.expand(len(arguments))
        if parameters is None:
            return False
        bindings: Bindings = {}
        return all(
            _accepts(parameter.type, argument, bindings, casts=casts)
            for parameter, argument in zip(parameters, arguments, strict=True)
        )


def can_widen(source: SqlType, target: SqlType) -> bool:
    """Whether ksqlDB turns a value of `source` into `target` without CAST, as for a function's argument."""
    if source == target:
        return True
    ranks = _number_rank(source), _number_rank(target)
    if ranks[0] is not None and ranks[1] is not None:
        return ranks[0] <= ranks[1]
    return source == STRING and target in (TIME, DATE, TIMESTAMP, BYTES)


def _number_rank(type_: SqlType) -> int | None:
    if isinstance(type_, Decimal | AnyDecimal):
        return 2
    ranks: dict[SqlType, int] = {INTEGER: 0, BIGINT: 1, DOUBLE: 3}
    return ranks.get(type_)


def has_variables(type_: SqlType) -> bool:
    match type_:
        case Variable():
            return True
        case Array(element=element):
            return has_variables(element)
        case Map(key=key, value=value):
            return has_variables(key) or has_variables(value)
        case Struct(fields=fields):
            return any(has_variables(field.type) for field in fields)
        case Lambda(parameters=parameters, result=result):
            return any(map(has_variables, parameters)) or has_variables(result)
        case _:
            return False


def _accepts(wanted: SqlType, given: Argument, bindings: Bindings, *, casts: bool) -> bool:
    if isinstance(given, LambdaArgument):
        return isinstance(wanted, Lambda) and len(wanted.parameters) == len(given.parameters)
    if isinstance(wanted, Lambda):
        return False
    if given == INTERVAL_UNIT or wanted == INTERVAL_UNIT:
        return given == wanted
    if given == NULL or isinstance(wanted, AnyType):
        return True
    if has_variables(wanted):
        return bind(wanted, given, bindings)
    return _fits(wanted, given, casts=casts)


def _fits(wanted: SqlType, given: SqlType, *, casts: bool) -> bool:
    match wanted, given:
        case Array(element=inner), Array(element=element):
            return element == NULL or _fits(inner, element, casts=casts)
        case Map(key=key, value=value), Map(key=given_key, value=given_value):
            return _fits(key, given_key, casts=casts) and (
                given_value == NULL or _fits(value, given_value, casts=casts)
            )
        case AnyDecimal(), Decimal():
            return True
        case _:
            return wanted == given or (casts and can_widen(given, wanted))


def bind(wanted: SqlType, given: SqlType, bindings: Bindings) -> bool:
    """Find what the variables of `wanted` stand for; False where the shapes differ or a variable is already another."""
    if given == NULL:
        return True
    match wanted, given:
        case Variable(name=name), _:
            return bindings.setdefault(name, given) == given
        case Array(element=inner), Array(element=element):
            return bind(inner, element, bindings)
        case Map(key=key, value=value), Map(key=given_key, value=given_value):
            return bind(key, given_key, bindings) and bind(value, given_value, bindings)
        case _:
            return wanted == given or (isinstance(wanted, AnyDecimal) and isinstance(given, Decimal))


def substitute(type_: SqlType, bindings: Bindings) -> SqlType:
    """`type_` with its variables replaced; one that nothing bound (only NULLs were given) is NULL."""
    match type_:
        case Variable(name=name):
            return bindings.get(name, NULL)
        case Array(element=element):
            return Array(substitute(element, bindings))
        case Map(key=key, value=value):
            return Map(substitute(key, bindings), substitute(value, bindings))
        case Struct(fields=fields):
            return Struct(tuple(Field(field.name, substitute(field.type, bindings)) for field in fields))
        case _:
            return type_


# ------------------------------------------------------------------ the text

_PLAIN: dict[str, SqlType] = {
    "BOOLEAN": BOOLEAN, "INTEGER": INTEGER, "BIGINT": BIGINT, "DOUBLE": DOUBLE, "STRING": STRING, "BYTES": BYTES,
    "TIME": TIME, "DATE": DATE, "TIMESTAMP": TIMESTAMP, "NULL": NULL, "INTERVALUNIT": INTERVAL_UNIT, "ANY": AnyType(),
}  # fmt: skip
_TOKEN = re.compile(r"\s*(\.\.\.|->|`(?:[^`]|``)*`|\w+|[(),<>])")


@cache
def parse_signature(text: str) -> Signature:
    """The signature that `text` writes; a mistake in it is ours, so it fails an assertion."""
    reader = _Reader(text)
    reader.expect("(")
    parameters: list[Parameter] = []
    while not reader.skip(")"):
        name = reader.take()
        type_ = reader.type()
        parameters.append(Parameter(name, type_, reader.skip("...")))
        reader.skip(",")
    reader.expect("->")
    signature = Signature(tuple(parameters), reader.type())
    reader.end()
    assert sum(parameter.variadic for parameter in signature.parameters) <= 1, text
    return signature


@lru_cache(maxsize=4096)
def parse_type(text: str) -> SqlType:
    """The type that `str(type)` writes.

    >>> str(parse_type("MAP<STRING, ARRAY<STRUCT<`a b` DECIMAL(4, 2)>>>"))
    'MAP<STRING, ARRAY<STRUCT<`a b` DECIMAL(4, 2)>>>'
    """
    reader = _Reader(text)
    type_ = reader.type()
    reader.end()
    return type_


class _Reader:
    """The tokens of a signature, from the left."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._next = 0

    def peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def take(self) -> str:
        token = self.peek()
        assert token, f"the signature ends early: {self._text}"
        self._next += 1
        return token

    def skip(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self._next += 1
        return True

    def expect(self, token: str) -> None:
        assert self.skip(token), f"expected {token} before {self.peek()!r} in: {self._text}"

    def end(self) -> None:
        assert not self.peek(), f"unexpected {self.peek()!r} in: {self._text}"

    def type(self) -> SqlType:
        name = self.take()
        if name == "ARRAY":
            self.expect("<")
            element = self.type()
            self.expect(">")
            return Array(element)
        if name == "MAP":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return Map(key, value)
        if name == "STRUCT":
            return self._struct()
        if name == "DECIMAL":
            return self._decimal()
        if name == "LAMBDA":
            return self._lambda()
        if name in _PLAIN:
            return _PLAIN[name]
        assert len(name) == 1 and name.isupper(), f"unknown type {name!r} in: {self._text}"
        return Variable(name)

    def _struct(self) -> SqlType:
        self.expect("<")
        fields: list[Field] = []
        while not self.skip(">"):
            name = self.take()
            fields.append(Field(name[1:-1].replace("``", "`") if name[0] == "`" else name, self.type()))
            self.skip(",")
        return Struct(tuple(fields))

    def _decimal(self) -> SqlType:
        if not self.skip("("):
            return AnyDecimal()
        precision = int(self.take())
        self.expect(",")
        scale = int(self.take())
        self.expect(")")
        return Decimal(precision, scale)

    def _lambda(self) -> SqlType:
        self.expect("(")
        parameters: list[SqlType] = []
        while not self.skip(")"):
            parameters.append(self.type())
            self.skip(",")
        self.expect("->")
        return Lambda(tuple(parameters), self.type())
