"""What a statement needs a right for: verbs on the names of streams, tables and topics. Who has them: `access.py`.

A name of a topic counts like one of a stream: else whoever may create streams could read any topic through one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final

from ..planner.catalog import Catalog
from ..sql import ast
from .access import User, Verb
from .http_errors import FORBIDDEN, RequestRefused

Need = tuple[Verb, str]

ANYTHING: Final = "*"  # as a name: of no single one


def permit_of(user: User | None) -> Callable[[ast.Statement, Catalog], None] | None:
    """What a session checks before a statement; None where everybody may do everything."""
    if user is None:
        return None

    def permit(statement: ast.Statement, catalog: Catalog) -> None:
        for verb, name in needs(statement, catalog):
            require(user, verb, name)

    return permit


def require(user: User | None, verb: Verb, name: str) -> None:
    """Raises `RequestRefused` where the user may not."""
    if user is not None and not user.may(verb, name):
        raise forbidden(user, verb, name)


def forbidden(user: User, verb: Verb, name: str) -> RequestRefused:
    if verb == "admin":
        return RequestRefused(FORBIDDEN, f"{user.name} may not do this: it is for administrators")
    return RequestRefused(FORBIDDEN, f'{user.name} has no right "{verb}" on {name}')


def needs(statement: ast.Statement, catalog: Catalog) -> Iterator[Need]:
    """SHOW and DESCRIBE without a name, SET and DEFINE need nothing but a user."""
    match statement:
        case ast.Query():
            yield from _reads(statement, catalog)
        case ast.CreateSource():
            yield "ddl", statement.name
            yield "read", _topic(statement)
        case ast.CreateAsSelect():
            yield "ddl", statement.name
            yield "insert", _topic(statement)
            yield from _reads(statement.query, catalog)
        case ast.InsertInto():
            yield "ddl", statement.target  # it starts a query that goes on
            yield "insert", statement.target
            yield from _reads(statement.query, catalog)
        case ast.InsertValues() | ast.DeleteRows():
            yield "insert", statement.target
        case ast.DropSource() | ast.AlterSource():
            yield "ddl", statement.name
        case ast.CreateType() | ast.DropType():
            yield "ddl", statement.name
        case ast.ControlQuery():
            yield from _control(statement, catalog)
        case ast.Explain():
            yield from _explained(statement, catalog)
        case ast.Describe(what="SOURCE"):
            yield "read", str(statement.name)
        case ast.ShowLineage():
            yield "read", statement.source
        case ast.PrintTopic() | ast.AssertTopic():
            yield "read", statement.topic
        case ast.AssertValues():
            yield "read", statement.source
        case ast.AssertSource():
            yield "read", statement.name
        case (
            ast.Show() | ast.ShowGraph() | ast.Describe() | ast.SetProperty() | ast.UnsetProperty()
            | ast.DefineVariable() | ast.UndefineVariable() | ast.AssertSchema()
        ):  # fmt: skip
            return
        case _:  # functions are code; and what is not known here is not for everybody
            yield "admin", ANYTHING


def _reads(query: ast.Query, catalog: Catalog) -> Iterator[Need]:
    """Every name in FROM. A name of WITH counts too where a source is called the same: which one is meant depends on
    the place."""
    own = {node.name for node in _nodes(query) if isinstance(node, ast.Cte)} - catalog.sources.keys()
    for node in _nodes(query):
        if isinstance(node, ast.SourceName) and node.name not in own:
            yield "read", node.name


def _nodes(value: Any) -> Iterator[ast.Node]:
    if isinstance(value, ast.Node):
        yield value
        for item in dataclasses.fields(value):
            yield from _nodes(getattr(value, item.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)


def _topic(statement: ast.CreateSource | ast.CreateAsSelect) -> str:
    named = statement.properties.get("KAFKA_TOPIC")
    return statement.name if named is None else str(named)


def _control(statement: ast.ControlQuery, catalog: Catalog) -> Iterator[Need]:
    asked = statement.query_id
    query = None if asked is None else catalog.queries.get(asked.upper(), catalog.queries.get(asked))
    yield ("admin", ANYTHING) if query is None else ("ddl", query.sink)


def _explained(statement: ast.Explain, catalog: Catalog) -> Iterator[Need]:
    if statement.statement is not None:
        yield from needs(statement.statement, catalog)
        return
    asked = statement.query_id or ""
    query = catalog.queries.get(asked.upper(), catalog.queries.get(asked))
    for name in () if query is None else (query.sink, *query.sources):
        yield "read", name
