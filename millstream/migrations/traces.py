"""Whether a statement has run, judged by its effect on the server's catalog, if it has one."""

from __future__ import annotations

from typing import Any

from millstream.server.client import Client
from millstream.sql import ast
from millstream.sql.tokens import tokenize


def has_run(statement: ast.Statement, text: str, client: Client) -> bool | None:
    """True or False if the catalog shows it, or False if running it again is harmless; None if it is unknown."""
    match statement:
        case ast.CreateSource() | ast.CreateAsSelect():
            return any(
                _same(source["statement"], text) for source in _described(client) if source["name"] == statement.name
            )
        case ast.InsertInto():
            (queries,) = client.execute("SHOW QUERIES;")
            return any(_same(query["queryString"], text) for query in queries["queries"])
        case ast.DropSource():
            return statement.name not in {source["name"] for source in _described(client)}
        case ast.AlterSource():
            return _is_altered(statement, client)
        case ast.CreateType():
            return statement.name in client.execute("SHOW TYPES;")[0]["types"]
        case ast.DropType():
            return statement.name not in client.execute("SHOW TYPES;")[0]["types"]
        case ast.CreateFunction():
            return statement.name in _functions(client)
        case ast.DropFunction():
            return statement.name not in _functions(client)
        case ast.ControlQuery(action="TERMINATE", query_id=str(query_id)):
            (queries,) = client.execute("SHOW QUERIES;")
            return query_id.upper() not in {query["id"].upper() for query in queries["queries"]}
        case ast.CreateConnector() | ast.CreateMirror() | ast.CreateSecret():
            return statement.name in _named_like(statement, client)
        case ast.DropConnector() | ast.DropSecret() | ast.ControlMirror(action="DROP"):
            return statement.name not in _named_like(statement, client)
        case ast.CreateFromConnector():
            return statement.name in {source["name"] for source in _described(client)}
        case ast.InsertValues():
            return None
        case _:
            return False  # idempotent


def _is_altered(statement: ast.AlterSource, client: Client) -> bool:
    """ALTER is atomic, so one of its changes is enough."""
    described = {source["name"]: source for source in _described(client)}
    change = statement.changes[-1]
    if isinstance(change, ast.RenameSource):
        return change.to in described and statement.name not in described
    names = [each.to for each in statement.changes if isinstance(each, ast.RenameSource)]
    source = described.get(names[-1] if names else statement.name)
    fields = set[str]() if source is None else {field["name"] for field in source["fields"]}
    match change:
        case ast.ColumnDefinition():
            return change.name in fields
        case ast.DropColumn():
            return source is not None and change.name not in fields
        case ast.RenameColumn():
            return change.to in fields and change.name not in fields


def _described(client: Client) -> list[dict[str, Any]]:
    streams, tables = client.execute("DESCRIBE STREAMS; DESCRIBE TABLES;")
    return [*streams["sourceDescriptions"], *tables["sourceDescriptions"]]


def _named_like(statement: ast.Statement, client: Client) -> set[str]:
    """The names of all connectors, mirrors or secrets, depending on what the statement is about."""
    match statement:
        case ast.CreateConnector() | ast.DropConnector():
            kind = "connectors"
        case ast.CreateMirror() | ast.ControlMirror():
            kind = "mirrors"
        case _:
            kind = "secrets"
    return {line["name"] for line in client.execute(f"SHOW {kind.upper()};")[0][kind]}


def _functions(client: Client) -> set[str]:
    return {line["name"] for line in client.execute("SHOW FUNCTIONS;")[0]["functions"]}


def _same(one: str, other: str) -> bool:
    """Whether two texts have the same tokens."""
    return _words(one) == _words(other)


def _words(text: str) -> list[str]:
    return [str(token) for token in tokenize(text) if token.type != "SEMICOLON"]
