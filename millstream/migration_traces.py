"""Whether a statement has run: what it leaves behind on the server says so, if it leaves anything."""

from __future__ import annotations

from typing import Any

from millstream.server.client import Client
from millstream.sql import ast
from millstream.sql.tokens import tokenize


def has_run(statement: ast.Statement, text: str, client: Client) -> bool | None:
    """True or False where the server can tell, or where it does no harm to run it again; None where nobody knows."""
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
            columns = {
                field["name"]
                for source in _described(client)
                if source["name"] == statement.name
                for field in source["fields"]
            }
            return columns >= {column.name for column in statement.columns}
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
        case ast.InsertValues():
            return None
        case _:
            return False  # to run it twice is to run it once


def _described(client: Client) -> list[dict[str, Any]]:
    streams, tables = client.execute("DESCRIBE STREAMS; DESCRIBE TABLES;")
    return [*streams["sourceDescriptions"], *tables["sourceDescriptions"]]


def _functions(client: Client) -> set[str]:
    return {line["name"] for line in client.execute("SHOW FUNCTIONS;")[0]["functions"]}


def _same(one: str, other: str) -> bool:
    """Whether two texts have the same words."""
    return _words(one) == _words(other)


def _words(text: str) -> list[str]:
    return [str(token) for token in tokenize(text) if token.type != "SEMICOLON"]
