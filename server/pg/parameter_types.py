"""The types of parameters that a client does not declare, inferred from their context: the column that a parameter is
compared with or inserted into, a cast, LIMIT."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from sqlglot import exp

from millstream.errors import StatementError

from ...planner.catalog import Catalog
from ...planner.schema import PSEUDO
from ...sql.ast import InsertValues, Node, SelectColumn, Statement, unwrapped
from ...sql.parser import parse
from ...sql.types import BIGINT, STRING, Array, SqlType
from .dialect.pg_dialect import our_text
from .dialect.pg_quantified import quantified_parameters
from .pg_parameters import sql_type_named
from .pg_statements import PgStatement
from .pg_tokens import PgToken
from .texts.expression_types import ExpressionTypes
from .texts.typed_literals import is_json

_MARK: Final = "\ue000parameter "
_MARKED: Final = re.compile(rf"{_MARK}(\d+)")
_COUNTS: Final = ("LIMIT", "OFFSET", "FIRST", "NEXT")


def parameter_types(statement: PgStatement, catalog: Catalog, databases: Iterable[str]) -> dict[int, SqlType]:
    """The types by parameter number, without parameters that nothing is known about. For a statement that cannot be
    parsed only LIMIT's are known; its error is reported when it runs."""
    counts = {
        int(token.text[1:])
        for before, token in zip(statement.tokens, statement.tokens[1:], strict=False)
        if token.kind == "parameter" and before.upper in _COUNTS
    }
    marks = {number: f"'{_MARK}{number}'" for number in range(1, statement.parameter_count + 1)}
    marks |= dict.fromkeys(counts, "1")
    arrays = quantified_parameters(statement.tokens)
    marks |= {number: f"ARRAY[{marks[number]}]" for number in arrays}
    found: dict[int, SqlType] = dict.fromkeys(counts, BIGINT)
    try:
        (parsed,) = parse(our_text(statement.text, statement.tokens, catalog, marks, databases).text)
    except (StatementError, ValueError):
        return found
    types = _types_of_names(parsed, _columns(statement, catalog))
    for literal in _expressions(parsed, exp.Literal):
        number = _number(literal)
        type_ = None if number is None else _type_beside(literal, types)
        if number is not None and type_ is not None:
            found[number] = Array(type_) if number in arrays else type_
    if isinstance(parsed, InsertValues):
        found |= _inserted(parsed, catalog)
    return found


def cast_types(statement: PgStatement) -> dict[int, SqlType]:
    """The types of parameters followed by a cast: `$1::int`."""
    found: dict[int, SqlType] = {}
    tokens = statement.tokens
    for at, (parameter, sign) in enumerate(pairwise(tokens)):
        if parameter.kind == "parameter" and sign.text == "::":
            named, after = _type_name(tokens[at + 2 : at + 6])
            type_ = sql_type_named(named)
            if type_ is not None:
                found[int(parameter.text[1:])] = Array(type_) if after == "[" else type_
    return found


def _type_name(tokens: Sequence[PgToken]) -> tuple[str, str]:
    """The name that the tokens begin with, without its schema, and the token after it."""
    texts = [token.named or token.text for token in tokens]
    if texts[:2] == ["pg_catalog", "."]:
        del texts[:2]
    name, after, *_ = [*texts, "", ""]
    return name, after


def _types_of_names(parsed: Statement, columns: Mapping[str, SqlType]) -> ExpressionTypes:
    """With the names that queries inside give to their items, from the inside out: each may use those of others."""
    known = dict(columns)
    items = [item for item in _expressions(parsed, SelectColumn) if item.alias is not None and item.alias not in known]
    for item in reversed(items):
        type_ = ExpressionTypes(known).of(item.expression)
        if type_ is not None:
            known[item.alias] = type_
    return ExpressionTypes(known)


def inserts_json(statement: PgStatement, catalog: Catalog) -> bool:
    """Whether it is an INSERT into a source that has columns whose values are JSON for the client."""
    is_insert = bool(statement.tokens) and statement.tokens[0].upper == "INSERT"
    return is_insert and any(map(is_json, _columns(statement, catalog).values()))


def _columns(statement: PgStatement, catalog: Catalog) -> dict[str, SqlType]:
    """The column types of all sources that the statement names; if columns have the same name, any of their types."""
    said = {name.upper() for token in statement.tokens if (name := token.named) is not None}
    sources = [source for source in catalog.sources.values() if source.name.upper() in said]
    pseudo = {name: type_ for name, (_, type_) in PSEUDO.items()}
    return pseudo | {column.name: column.type for source in sources for column in source.schema}


def _type_beside(literal: exp.Literal, types: ExpressionTypes) -> SqlType | None:
    node: Any = literal
    parent: Any = literal.parent
    while isinstance(parent, exp.Paren | exp.Neg):
        node, parent = parent, parent.parent
    match parent:
        case exp.Cast():
            return parent.meta.get("to")
        case exp.Like():
            return STRING
        case exp.Anonymous(this="ARRAY_CONTAINS", expressions=[array, value]) if value is node:
            searched = types.of(array)
            return searched.element if isinstance(searched, Array) else None
        case exp.Binary() | exp.Between() | exp.In():
            others = [child for child in parent.iter_expressions() if child is not node]
            return next((type_ for other in others if (type_ := types.of(other)) is not None), None)
        case _:
            return None


def _inserted(statement: InsertValues, catalog: Catalog) -> dict[int, SqlType]:
    source = catalog.sources.get(statement.target)
    if source is None:
        return {}
    types = {column.name: column.type for column in source.schema} | {"ROWTIME": BIGINT}
    names = statement.columns or tuple(column.name for column in source.schema)
    found: dict[int, SqlType] = {}
    for row in statement.rows:
        for name, expression in zip(names, row, strict=False):
            number = _number(unwrapped(expression))
            if number is not None and name in types:
                found[number] = types[name]
    return found


def _number(node: Any) -> int | None:
    found = _MARKED.fullmatch(node.this) if isinstance(node, exp.Literal) and node.is_string else None
    return None if found is None else int(found[1])


def _expressions(value: Any, kind: type[Any]) -> Iterator[Any]:
    """All expressions of a kind in a statement, including its subqueries."""
    match value:
        case _ if isinstance(value, kind):
            yield value
        case exp.Expression():
            yield from value.find_all(kind)
            for inside in value.find_all(exp.Subquery):
                yield from _expressions(inside.meta.get("query"), kind)
        case Statement() | Node():
            for name in type(value).__dataclass_fields__:
                yield from _expressions(getattr(value, name), kind)
        case tuple():
            for item in value:
                yield from _expressions(item, kind)
        case _:
            return
