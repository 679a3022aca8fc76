"""Resolves names in an expression: the columns of the sources in FROM, and the arguments of lambdas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millstream.errors import (
    AmbiguousColumn,
    InvalidStatement,
    Span,
    UnknownAlias,
    UnknownColumn,
    UnknownType,
    did_you_mean,
)

from ...sql.ast import span_of
from ...sql.build_types import TYPE_NAMES
from ...sql.foreign_names import function_hint, type_hint
from ...sql.identifiers import quote_identifier
from ...sql.printing import print_expression
from ...sql.types import Array, Field, Map, NamedType, SqlType, Struct
from ..schema import PSEUDO, WINDOW_BOUNDS
from ..select.naming import joined
from .typed import Typed, column

_PLAIN_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class ScopeSource:
    """A source under its alias: the column's name as the user writes it → (its name in the plan, its type)."""

    alias: str
    columns: Mapping[str, tuple[str, SqlType]]


@dataclass(frozen=True, slots=True)
class Scope:
    """`clause`: where the expression is, for messages: SELECT, WHERE, …."""

    sources: tuple[ScopeSource, ...]
    types: Mapping[str, SqlType] = field(default_factory=dict)
    clause: str = "SELECT"
    lambdas: Mapping[str, tuple[str, SqlType]] = field(default_factory=dict)

    def resolve(self, node: exp.Column) -> Typed:
        """Raises `UnknownAlias`, `UnknownColumn`, and `AmbiguousColumn` for a name that several sources have."""
        if not node.table and node.name in self.lambdas:
            name, type_ = self.lambdas[node.name]
            return Typed(exp.to_identifier(name), type_, total=True)
        candidates = [source for source in self.sources if not node.table or source.alias == node.table]
        if node.table and not candidates:
            raise UnknownAlias(
                f"'{node.table}' is not a valid stream/table name or alias. {self.clause} column "
                f"'{node.table}.{node.name}' cannot be resolved.",
                span=span_of(node),
                hint=self._field_hint(node)
                or did_you_mean(node.table, [source.alias for source in self.sources])
                or f"FROM calls its sources {', '.join(source.alias for source in self.sources)} here.",
            )
        found = [source for source in candidates if node.name in source.columns]
        if len(found) > 1:
            could = " or ".join(f"{source.alias}.{node.name}" for source in found)
            raise AmbiguousColumn(
                f"Column '{node.name}' is ambiguous. Could be {could}.",
                span=span_of(node),
                hint=f"Write which one is meant, as in {found[0].alias}.{node.name}.",
            )
        if not found:
            written = f"{node.table}.{node.name}" if node.table else node.name
            names = [name for source in candidates for name in source.columns]
            if node.name in WINDOW_BOUNDS and self.clause == "GROUP BY":
                raise UnknownColumn(
                    f"Window bounds column {node.name} can only be used in the SELECT clause of windowed aggregations",
                    span=span_of(node),
                )
            why = ""
            if node.name in WINDOW_BOUNDS and self.clause == "WHERE":
                why = f" Error in WHERE expression: Unknown column {node.name}."
            if self.clause == "PARTITION BY":
                why = f" '{written}' must be a column in the source schema since PARTITION BY is applied on the input."
            raise UnknownColumn(
                f"{self.clause} column '{written}' cannot be resolved.{why}",
                span=span_of(node),
                hint=_hint_of(node, names),
            )
        return column(*found[0].columns[node.name])

    def _field_hint(self, node: exp.Column) -> str | None:
        """A hint for a user who wrote a field of a struct with a dot."""
        having = [source.columns[node.table] for source in self.sources if node.table in source.columns]
        if len(having) != 1 or not isinstance(type_ := having[0][1], Struct) or not type_.fields:
            return None
        names = [field.name for field in type_.fields]
        struct = quote_identifier(node.table)
        if node.name not in names:
            return f"{struct} is a struct, with the fields {joined(names)}: write {struct}->… for one of them."
        return f"{struct} is a struct: write {struct}->{quote_identifier(node.name)} for its field."

    def qualified(self, node: exp.Expression) -> exp.Expression:
        """A copy in which every column names its source."""
        return node.transform(self._with_source)

    def _with_source(self, node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column) or node.table:
            return node
        having = [source.alias for source in self.sources if source.alias and node.name in source.columns]
        return exp.column(node.this.copy(), table=exp.to_identifier(having[0], quoted=True)) if having else node

    def in_plan(self, node: exp.Expression) -> str:
        """The expression as text, with columns by their names in the plan: `I1_BAR` for `i1.bar` of a join."""
        return print_expression(node.transform(self._by_plan_name))

    def _by_plan_name(self, node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column) or "written" in node.meta:
            return node
        having = [s for s in self.sources if node.table in ("", s.alias) and node.name in s.columns]
        return exp.column(exp.to_identifier(having[0].columns[node.name][0], quoted=True)) if having else node

    def within(self, clause: str) -> Scope:
        return replace(self, clause=clause)

    def check_lambda(self, names: tuple[str, ...], span: Span | None) -> None:
        """Raises `InvalidStatement` for an argument with the name of a column, or of an argument of an outer lambda."""
        columns = {name for source in self.sources for name in source.columns if name not in PSEUDO}
        taken = next((name for name in names if name in columns), None)
        if taken is not None:
            raise InvalidStatement(
                f"Lambda function argument can't be a column name: {taken}",
                span=span,
                hint="Give the argument another name: every column can be used in the lambda as it is.",
            )
        if len(set(names)) < len(names) or any(name in self.lambdas for name in names):
            raise InvalidStatement(
                "Reusing lambda arguments in nested lambda is not allowed",
                span=span,
                hint="The arguments of a lambda, and of those around it, need different names.",
            )

    def with_lambda(self, names: tuple[str, ...], types: tuple[SqlType, ...]) -> Scope:
        """The scope of a lambda's body."""
        if len(names) != len(types):
            raise InvalidStatement(f"this lambda needs {len(types)} arguments, not {len(names)}")
        depth = len(self.lambdas)
        added = {name: (f"l{depth + i}", type_) for i, (name, type_) in enumerate(zip(names, types, strict=True))}
        return replace(self, lambdas={**self.lambdas, **added})

    def lambda_name(self, name: str) -> str:
        """The generated name of a lambda's variable."""
        return self.lambdas[name][0]

    def type(self, type_: SqlType, span: Span | None = None) -> SqlType:
        """The type with custom types looked up. Raises `UnknownType`."""
        return resolve_type(type_, self.types, span)


def _hint_of(node: exp.Column, names: Iterable[str]) -> str | None:
    """In: the columns that there are. Texts in double quotes are parsed as names."""
    near = did_you_mean(node.name, names, cutoff=0.6 if _PLAIN_NAME.fullmatch(node.name) else 0.75)
    if near is None and not _PLAIN_NAME.fullmatch(node.name):
        return f"Double quotes and backticks hold names. A text stands in single quotes: '{node.name}'."
    return near if node.table else near or function_hint(node.name)


def _type_hint(name: str, types: Mapping[str, SqlType]) -> str | None:
    return did_you_mean(name, types) or type_hint(name) or did_you_mean(name, TYPE_NAMES, cutoff=0.8)


def resolve_type(type_: SqlType, types: Mapping[str, SqlType], span: Span | None = None) -> SqlType:
    """`type_` with every `NamedType` in it replaced by the type of CREATE TYPE. Raises `UnknownType`."""
    match type_:
        case NamedType(name=name):
            if name not in types:
                raise UnknownType(f"Cannot resolve unknown type: {name}", span=span, hint=_type_hint(name, types))
            return types[name]
        case Array(element=element):
            return Array(resolve_type(element, types, span))
        case Map(key=key, value=value):
            return Map(resolve_type(key, types, span), resolve_type(value, types, span))
        case Struct(fields=fields):
            return Struct(tuple(Field(f.name, resolve_type(f.type, types, span)) for f in fields))
        case _:
            return type_
