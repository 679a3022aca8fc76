"""What DBeaver, Metabase and Grafana ask when they connect and look for tables and columns, and the queries that they
make for tables and charts: the statements in `tools/`, each over a connection of its own protocol."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from millstream.server.service import Service

psycopg = pytest.importorskip("psycopg")

_HEAD: Final = re.compile(r"^--@ ([^:]+): ([^;\n]+)(?:; ([^\n]+))?\n(.*?)(?=^--@|\Z)", re.MULTILINE | re.DOTALL)
_PUBLIC: Final = 2200
_DAY: Final = datetime.datetime(2020, 1, 2)


@dataclass(frozen=True, slots=True)
class ToolStatement:
    """`parameters`: what each of them is, as `VALUES` calls it."""

    tool: str
    name: str
    parameters: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.name}"


def read_statements() -> Iterator[ToolStatement]:
    for path in sorted((Path(__file__).parent / "tools").glob("*.sql")):
        for name, _, parameters, text in _HEAD.findall(path.read_text()):
            parts = tuple(part.strip() for part in parameters.split(",")) if parameters else ()
            yield ToolStatement(path.stem, name, parts, text.strip())


STATEMENTS: Final = list(read_statements())
VALUES: Final[Mapping[str, Any]] = {
    "database": "millstream", "user": "ana", "schema": _PUBLIC, "name of the schema": "public", "name": "totals",
    "setting": "server_version_num", "type": 1043, "mask": "%TOTAL%", "mask of a column": "%NAME%", "zero": 0, "one": 1,
    "pattern": "^pg_", "not this schema": "information_schema",
}  # fmt: skip
OIDS: Final = {"table": 0, "index": 1, "constraint": 2}  # after the one of the table

_COLUMNS: Final = (
    ("user_id", "text"), ("userName", "text"), ("n", "bigint"), ("i", "integer"), ("f", "double precision"),
    ("ok", "boolean"), ("amount", "numeric"), ("b", "bytea"), ("d", "date"), ("t", "time without time zone"),
    ("ts", "timestamp without time zone"), ("tags", "ARRAY"), ("nums", "ARRAY"), ("m", "json"), ("s", "json"),
)  # fmt: skip
_UDT: Final = "text text int8 int4 float8 bool numeric bytea date time timestamp _text _int4 json json".split()
_TYPE_OIDS: Final = (25, 25, 20, 23, 701, 16, 1700, 17, 1082, 1083, 1114, 1009, 1007, 114, 114)
_COMMENTS: Final = {"clicks": "STREAM on topic clicks", "totals": "TABLE on topic totals"}

ROWS: Final[Mapping[str, tuple[str, list[tuple[Any, ...]]]]] = {
    "dbeaver: database": ("current_database", [("millstream",)]),
    "dbeaver: databases": ("datname datallowconn", [("millstream", True)]),
    "dbeaver: settings": ("name setting", [("server_version_num", "150000")]),
    "dbeaver: sizes of databases": ("datname", [("millstream",)]),
    "dbeaver: session": ("current_schema session_user", [("public", "ana")]),
    "dbeaver: search path": ("search_path", [('"$user", public',)]),
    "dbeaver: schemas": ("nspname", [("information_schema",), ("pg_catalog",), ("public",)]),
    "dbeaver: roles": ("rolname rolcanlogin", [("ana", True)]),
    "dbeaver: access methods": ("amname", [("heap",), ("btree",)]),
    "dbeaver: a type": ("typname base_type_name", [("varchar", None)]),
    "dbeaver: an object": ("relkind", [("r",)]),
    "dbeaver: a schema": ("schema_id", [(_PUBLIC,)]),
    "dbeaver: columns": (
        "attname attnum atttypid attnotnull",
        [(name, at, oid, at == 1) for at, ((name, _), oid) in enumerate(zip(_COLUMNS, _TYPE_OIDS, strict=True), 1)],
    ),
    "dbeaver: indexes": ("relname tabrelname indisprimary keys", [("totals_pkey", "totals", True, [1])]),
    "dbeaver: a constraint's text": ("pg_get_constraintdef", [("PRIMARY KEY (user_id)",)]),
    "dbeaver: an index's text": (
        "pg_get_indexdef", [("CREATE UNIQUE INDEX totals_pkey ON public.totals USING btree (user_id)",)],
    ),
    "dbeaver: tables by mask": ("relname relkind", [("totals", "r")]),
    "dbeaver: columns by mask": ("attname", [("userName",)]),
    "dbeaver: rows": ("user_id n", [("ada", 3), ("nil", None)]),
    "dbeaver: number of rows": ("count", [(2,)]),
    "metabase: time zone": ("timezone", [("UTC",)]),
    "metabase: columns": (
        "name database-type database-position table-schema table-name pk? database-required database-is-auto-increment",
        [(name, udt, at, "public", "totals", at == 0, at == 0, False)
         for at, ((name, _), udt) in enumerate(zip(_COLUMNS, _UDT, strict=True))],
    ),
    "metabase: rows": ("user_id userName n", [("ada", "Ada", 3), ("nil", None, None)]),
    "metabase: values of a field": ("user_id", [("ada",), ("bo",), ("cy",)]),
    "metabase: a sum": ("user_id sum count", [("cy", 3, 1), ("bo", 2, 1)]),
    "metabase: counts by day": ("ts count", [(_DAY, 1)]),
    "metabase: by date": ("ts count", [(_DAY.date(), 1)]),
    "metabase: a fingerprint": ("substring1 f", [("ada", 1.5), ("nil", None)]),
    "grafana: version": ("version", [(1500,)]),
    "grafana: schemas": ("name", [("public",)]),
    "grafana: columns": (
        "column type", [(f'"{name}"' if name != name.lower() else name, type_) for name, type_ in _COLUMNS],
    ),
    "grafana: columns of a schema's table": ("column type", [("user_id", "text"), ("size", "integer")]),
    "grafana: a time series": ("time n", [(datetime.datetime(2020, 1, 2, 3, 4, 5, 678000), 3)]),
    "grafana: a grouped time series": ("time value", [(1577934000, 3)]),
    "grafana: a series by seconds": ("time value", [(0, 1)]),
    "grafana: values of a variable": ("user_id", [("ada",), ("bo",), ("cy",)]),
}  # fmt: skip
"""The columns to look at, and all of their rows."""

SOME_ROWS: Final[Mapping[str, tuple[str, set[tuple[Any, ...]]]]] = {
    "dbeaver: types": ("typname typcategory", {("int8", "N"), ("text", "S"), ("bool", "B"), ("timestamp", "D")}),
    "dbeaver: tables": (
        "relname relkind relnamespace description", {(name, "r", _PUBLIC, said) for name, said in _COMMENTS.items()},
    ),
    "dbeaver: constraints": ("conname contype tabrelname", {("totals_pkey", "p", "totals")}),
    "dbeaver: grants": ("table_schema table_name privilege_type", {("public", "totals", "SELECT")}),
    "metabase: tables": (
        "schema name type description", {("public", name, "TABLE", said) for name, said in _COMMENTS.items()},
    ),
    "metabase: privileges": (
        "schema table select insert update delete", {("public", name, True, True, False, True) for name in _COMMENTS},
    ),
    "metabase: indexes": ("table-schema table-name field-name", {("public", "totals", "user_id")}),
    "grafana: tables": ("table", {("clicks",), ("totals",)}),
    "grafana: tables of a schema": ("table", {("clicks",), ("totals",)}),
}  # fmt: skip
"""Other tests of the module create streams and tables, too."""

NO_ROWS: Final = {
    "dbeaver: comment of a database", "dbeaver: encodings", "dbeaver: foreign data wrappers", "dbeaver: event triggers",
    "dbeaver: extensions", "dbeaver: a column that there may be", "dbeaver: enums", "dbeaver: functions",
    "dbeaver: aggregates", "dbeaver: inheritance", "dbeaver: triggers", "dbeaver: rules", "dbeaver: policies",
    "dbeaver: grants of functions", "dbeaver: sessions", "metabase: enums", "metabase: foreign keys",
    "metabase: a table that may be read", "grafana: TimescaleDB",
}  # fmt: skip
ANY_ROWS: Final = {"dbeaver: version", "dbeaver: languages", "dbeaver: tablespaces", "dbeaver: sizes of tables"}
NOT_QUERIES: Final = {
    "dbeaver: new search path", "metabase: read only", "metabase: new time zone", "grafana: health",
}  # fmt: skip


def test_each_statement_is_expected_to_answer_something() -> None:
    wanted = [*ROWS, *SOME_ROWS, *NO_ROWS, *ANY_ROWS, *NOT_QUERIES]
    assert sorted(wanted) == sorted(map(str, STATEMENTS))


@pytest.mark.parametrize("statement", STATEMENTS, ids=str)
def test_a_statement_of_a_tool_is_answered(dsn: str, service: Service, statement: ToolStatement) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        first = connection.execute("SELECT 'totals'::regclass::oid").fetchone()[0]
        values = [VALUES[each] if each in VALUES else first + OIDS[each] for each in statement.parameters]
        for found in _answers(connection, statement, values):
            if str(statement) in NOT_QUERIES:
                assert found is None
            else:
                assert found is not None
                _check(str(statement), *found)


def _answers(
    connection: Any, statement: ToolStatement, values: list[Any]
) -> Iterator[tuple[list[str], list[tuple[Any, ...]]] | None]:
    """Grafana's server sends simple queries, JDBC drivers prepare and bind: their answers in text and in binary."""
    if statement.tool == "grafana":
        cursor = connection.cursor()
        results = [connection.execute(statement.text)]
    else:
        results = []
        for binary in (False, True):
            cursor = psycopg.RawCursor(connection)
            results.append(cursor.execute(statement.text.rstrip("; "), values, prepare=True, binary=binary))
    for cursor in results:
        if cursor.description is None:
            yield None
        else:
            yield [column.name for column in cursor.description], cursor.fetchall()


def _check(name: str, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    looked_at, wanted = ROWS.get(name) or SOME_ROWS.get(name) or ("", [])
    places = [columns.index(each) for each in looked_at.split()]
    found = [tuple(row[place] for place in places) for row in rows]
    if name in ROWS:
        assert found == wanted
    elif name in SOME_ROWS:
        assert set(wanted) <= set(found)
    elif name in NO_ROWS:
        assert rows == []
    else:
        assert len(rows) > 0
