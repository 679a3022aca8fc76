"""A SQL function: one entry with its signatures, its DuckDB SQL, and examples.

`scalar` and `table_function` create the entries (see the category files in this folder); `catalog.py` collects them. A
function is defined in SQL (`sql=`, a template), or in Python (`python=`) if SQL cannot express it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from millstream.errors import Span, TypeMismatch

from ..types import BIGINT, INTEGER, INTERVAL_UNIT, NULL, Array, Decimal, SqlType
from .signature import (
    BIGINT_AS_DECIMAL,
    INTEGER_AS_DECIMAL,
    AnyDecimal,
    AnyType,
    Argument,
    Bindings,
    Lambda,
    LambdaArgument,
    Parameter,
    Signature,
    bind,
    parse_signature,
    substitute,
)
from .template import fill
from .udf import PythonFunction, Udf

Kind = Literal["scalar", "aggregate", "table"]
Returns = Callable[[tuple[SqlType, ...]], SqlType]
Render = Callable[["BoundCall", list[exp.Expression]], exp.Expression | None]


@dataclass(frozen=True, slots=True)
class Variant:
    """One signature and what it becomes: the first of `render`, `sql`, `python` that is set.

    sql:    a template, or a function from the call (its types) to a template
    render: from the arguments' trees to a tree, or None to fall through to the next
    """

    signature: Signature
    sql: str | Callable[[BoundCall], str] | None = None
    python: PythonFunction | None = None
    render: Render | None = None
    returns: Returns | None = None
    volatile: bool = False  # whether two calls may differ, as RANDOM's do


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A function with the types of one call decided."""

    function: Function
    variant: Variant
    parameters: tuple[Parameter, ...]  # one per argument
    parameter_types: tuple[SqlType, ...]  # what each argument must be cast to; NULL for a lambda
    lambda_types: tuple[tuple[SqlType, ...], ...]  # per argument, the types of a lambda's variables
    return_type: SqlType  # of a table function, the type of a row; it renders an ARRAY of those

    @property
    def volatile(self) -> bool:
        """Whether two calls may differ, as RANDOM's do. DuckDB refuses TRY around those."""
        return self.variant.volatile

    @property
    def udfs(self) -> tuple[str, ...]:
        """The signature's own Python function. All that a rendered tree calls are in `udfs_in(tree)`."""
        return (self._udf.name,) if self.variant.python is not None else ()

    @property
    def _udf(self) -> Udf:
        assert self.variant.python is not None
        returns = Array(self.return_type) if self.function.kind == "table" else self.return_type
        return Udf(self.variant.python, self.parameter_types, returns)

    def render(self, arguments: list[exp.Expression]) -> exp.Expression:
        """The DuckDB expression, from the arguments' (already cast); a lambda comes as `exp.Lambda`."""
        assert len(arguments) == len(self.parameters), f"{self.function.name} was resolved for another call"
        if self.variant.render is not None:
            tree = self.variant.render(self, arguments)
            if tree is not None:
                return tree
        if self.variant.sql is not None:
            text = self.variant.sql if isinstance(self.variant.sql, str) else self.variant.sql(self)
            return fill(text, self._filling(arguments))
        return self._udf.call(arguments)

    def _filling(self, arguments: list[exp.Expression]) -> dict[str, exp.Expression | list[exp.Expression]]:
        filling: dict[str, exp.Expression | list[exp.Expression]] = {
            parameter.name: [] for parameter in self.variant.signature.parameters if parameter.variadic
        }
        for parameter, argument in zip(self.parameters, arguments, strict=True):
            if parameter.variadic:
                several = filling[parameter.name]
                assert isinstance(several, list)
                several.append(argument)
                filling[f"{parameter.name}{len(several)}"] = argument
            else:
                filling[parameter.name] = argument
        return filling


@dataclass(frozen=True, slots=True)
class Function:
    """An entry of the catalog. `spelling` is the name as ksqlDB writes it in messages; SQL knows no cases."""

    spelling: str
    kind: Kind
    doc: str
    variants: tuple[Variant, ...]
    examples: Mapping[str, str] = field(default_factory=dict)
    category: str = "OTHER"
    deprecated: str | None = None  # what to use instead

    @property
    def name(self) -> str:
        """The name in upper case."""
        return self.spelling.upper()

    @property
    def signatures(self) -> tuple[str, ...]:
        """The signatures as text, as in `LPAD(STRING text, INTEGER length, STRING padding)`."""
        return tuple(self._spelled(variant.signature) for variant in self.variants)

    def takes_interval_unit(self, position: int) -> bool:
        """Whether the argument there, counted from 0, may be a unit such as MINUTES, which is written like a column."""
        return any(p.type == INTERVAL_UNIT for v in self.variants for p in v.signature.parameters[position:][:1])

    def resolve(self, arguments: Sequence[Argument], span: Span | None = None) -> BoundCall:
        """The signature that a call with these argument types means.

        Raises `TypeMismatch` where none fits, or several do equally well.
        """
        variant = self._choose(arguments, span)
        parameters = variant.signature.expand(len(arguments))
        assert parameters is not None
        bindings: Bindings = {}
        types: list[SqlType] = []
        lambdas: list[tuple[SqlType, ...]] = []
        for parameter, argument in zip(parameters, arguments, strict=True):
            lambdas.append(self._bind(parameter, argument, bindings, span))
        for parameter, argument in zip(parameters, arguments, strict=True):
            types.append(
                NULL if isinstance(argument, LambdaArgument) else _parameter_type(parameter, argument, bindings)
            )
        if variant.returns is not None:
            returns = variant.returns(tuple(types))
        else:
            returns = substitute(variant.signature.returns, bindings)
        return BoundCall(self, variant, parameters, tuple(types), tuple(lambdas), returns)

    def _choose(self, arguments: Sequence[Argument], span: Span | None) -> Variant:
        for casts in (False, True):
            fitting = [v for v in self.variants if v.signature.accepts(arguments, casts=casts)]
            if not fitting:
                continue
            ranked = sorted(fitting, key=lambda v: _rank(v.signature), reverse=True)
            if len(ranked) > 1 and _rank(ranked[0].signature) == _rank(ranked[1].signature):
                raise TypeMismatch(
                    f"Function '{self.spelling}' cannot be resolved due to ambiguous method parameters "
                    f"{_spell_types(arguments)}.\nUse CAST() to explicitly cast your parameters to one of the "
                    f"supported function calls.\nValid function calls are:\n{self._alternatives()}",
                    span=span,
                )
            return ranked[0]
        raise TypeMismatch(
            f"Function '{self.spelling}' does not accept parameters {_spell_types(arguments)}.\n"
            f"Valid alternatives are:\n{self._alternatives()}",
            span=span,
            hint=f"Run DESCRIBE FUNCTION {self.name}; for what it does.",
        )

    def _bind(
        self, parameter: Parameter, argument: Argument, bindings: Bindings, span: Span | None
    ) -> tuple[SqlType, ...]:
        """Bind the variables in a parameter's type; of a lambda, give the types of its variables."""
        if not isinstance(argument, LambdaArgument):
            bind(parameter.type, argument, bindings)
            return ()
        wanted = parameter.type
        assert isinstance(wanted, Lambda)
        variables = tuple(substitute(type_, bindings) for type_ in wanted.parameters)
        body = argument.body_type(variables)
        if not bind(wanted.result, body, bindings):
            raise TypeMismatch(
                f"Function '{self.spelling}' needs a lambda that gives {substitute(wanted.result, bindings)}, "
                f"but it gives {body}",
                span=span,
                hint="Cast the lambda's result.",
            )
        return variables

    def _alternatives(self) -> str:
        return "\n".join(self.signatures)

    def _spelled(self, signature: Signature) -> str:
        return f"{self.name}({', '.join(map(str, signature.parameters))})"


def _rank(signature: Signature) -> tuple[int, int, int, int]:
    """How much a signature is preferred among those that fit."""
    variadic = signature.variadic_index
    return (int(variadic < 0), len(signature.parameters), -signature.generic_count, variadic)


def _parameter_type(parameter: Parameter, argument: SqlType, bindings: Bindings) -> SqlType:
    if isinstance(parameter.type, AnyType):
        return argument
    if isinstance(parameter.type, AnyDecimal):
        if argument == INTEGER:
            return INTEGER_AS_DECIMAL
        if argument == BIGINT:
            return BIGINT_AS_DECIMAL
        return argument if isinstance(argument, Decimal) else Decimal(1, 0)
    return substitute(parameter.type, bindings)


def _spell_types(arguments: Sequence[Argument]) -> str:
    return f"({', '.join('null' if argument == NULL else str(argument) for argument in arguments)})"


def variant(
    signature: str,
    *,
    sql: str | Callable[[BoundCall], str] | None = None,
    python: PythonFunction | None = None,
    render: Render | None = None,
    returns: Returns | None = None,
    volatile: bool = False,
) -> Variant:
    """One of several signatures of a function."""
    return Variant(parse_signature(signature), sql, python, render, returns, volatile)


def scalar(
    name: str,
    *,
    doc: str,
    examples: Mapping[str, str],
    signature: str | None = None,
    signatures: Sequence[str | Variant] = (),
    sql: str | Callable[[BoundCall], str] | None = None,
    python: PythonFunction | None = None,
    render: Render | None = None,
    returns: Returns | None = None,
    category: str,
    deprecated: str | None = None,
) -> Function:
    """The entry of a scalar function. What is said here of a body holds for signatures that have none of their own."""
    given = [*([signature] if signature is not None else []), *signatures]
    variants = tuple(
        entry if isinstance(entry, Variant) else variant(entry, sql=sql, python=python, render=render, returns=returns)
        for entry in given
    )
    assert variants and all(v.sql or v.python or v.render for v in variants), f"{name} lacks a signature or a body"
    return Function(name, "scalar", doc, variants, dict(examples), category, deprecated)


def table_function(
    name: str,
    *,
    doc: str,
    examples: Mapping[str, str],
    signature: str,
    sql: str | None = None,
    python: PythonFunction | None = None,
) -> Function:
    """The entry of a table function: its return type is a row's, what it renders is an ARRAY of rows."""
    return Function(name, "table", doc, (variant(signature, sql=sql, python=python),), dict(examples), "TABLE")
