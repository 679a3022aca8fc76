"""Answers queries on `pg_catalog` and `information_schema`, and queries that read nothing (SELECT 1), with DuckDB in
memory. They are real queries over real tables, which contain only what the user sees.

Client input reaches DuckDB only as a checked tree, rendered again: a SELECT over the tables and functions that are
listed here. In addition, the connection is restricted (no files, no network, no settings, little memory), and a query
that takes too long is interrupted.
"""

from __future__ import annotations

import datetime
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millstream.errors import StatementError

from ...planner.catalog import Catalog
from .dialect.known_names import shown_name
from .pg_parameters import NO_VALUE, text_array
from .pg_settings import SERVER_VERSION, PgSettings
from .pg_statements import PgStatement
from .pg_tokens import PgToken
from .sqlstates import NOT_SUPPORTED, SYNTAX, PgRefused
from .system_functions import ALLOWED, MACROS, OURS, RENAMED
from .system_tables import CATALOG, INFORMATION, SYSTEM_NAMES, SYSTEM_OIDS, make_tables, relation_oids, type_oids

_KEPT_MAX: Final = 8
_SECONDS_MAX: Final = 30.0
_ROWS_MAX: Final = 200_000
_CHARACTERS_MAX: Final = 200_000
_LOCKED: Final = {"memory_limit": "256MB", "threads": 1, "max_temp_directory_size": "0KB",
                  "enable_external_access": False, "autoload_known_extensions": False,
                  "autoinstall_known_extensions": False, "integer_division": True}  # fmt: skip
_STATEMENTS: Final = (exp.Select, exp.SetOperation, exp.Values, exp.Subquery)
_REG: Final = ("regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole", "regoper", "regoperator")
_PG_ONLY_TYPES: Final = {
    "oid": "bigint", "xid": "bigint", "cid": "bigint", "tid": "text", "name": "text", "char": "text", "bpchar": "text",
    "pg_node_tree": "text", "aclitem": "text", "int2vector": "int[]", "oidvector": "bigint[]", "unknown": "text",
    "cstring": "text", "pg_lsn": "text", "information_schema.sql_identifier": "text", "sql_identifier": "text",
    "character_data": "text", "cardinal_number": "int", "yes_or_no": "text", "jsonb": "text", "json": "text",
    "inet": "text", "citext": "text", "bytea": "text", "uuid": "text",
}  # fmt: skip


class CatalogQuestion(StatementError):
    """A query on the catalogs that cannot be answered."""

    code = "PG_CATALOG"


@dataclass(slots=True)
class _Kept:
    catalog: Catalog
    connection: duckdb.DuckDBPyConnection


class SystemCatalogs:
    """State: the databases of recently queried catalogs. Any thread may call it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    def asking(
        self,
        statement: PgStatement,
        literals: Mapping[int, str],
        catalog: Catalog,
        settings: PgSettings,
        user: str,
        database: str,
    ) -> Asking:
        """In: `catalog` as the user sees it."""
        around = Around(catalog, settings, user, database)
        return Asking(lambda: self._connection(around), lambda: duckdb_text(statement, literals, around))

    def close(self) -> None:
        with self._guard:
            for kept in self._kept.values():
                kept.connection.close()
            self._kept.clear()

    def _connection(self, around: Around) -> duckdb.DuckDBPyConnection:
        key = (around.user, around.database)
        with self._guard:
            kept = self._kept.get(key)
            if kept is None or not _same(kept.catalog, around.catalog):
                kept = self._kept[key] = _Kept(around.catalog, _database(around))
                while len(self._kept) > _KEPT_MAX:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return kept.connection.cursor()


@dataclass(frozen=True, slots=True)
class Around:
    """The user who asks, and the catalog and settings."""

    catalog: Catalog
    settings: PgSettings
    user: str
    database: str


class Asking:
    """One query. `run` blocks; `interrupt` ends it from another thread."""

    def __init__(self, connect: Callable[[], duckdb.DuckDBPyConnection], text: Callable[[], str]) -> None:
        self._connect = connect
        self._text = text
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._interrupted = False

    def run(self) -> pa.Table:
        """Raises `CatalogQuestion`, `PgRefused`."""
        text = self._text()
        connection = self._connect()
        self._connection = connection
        timer = threading.Timer(_SECONDS_MAX, self.interrupt)
        timer.daemon = True
        timer.start()
        try:
            if self._interrupted:
                raise CatalogQuestion("the query was cancelled")
            table = connection.sql(text).limit(_ROWS_MAX + 1).to_arrow_table()
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0][:300]
            raise CatalogQuestion(f"this catalog query cannot be answered: {reason}") from error
        finally:
            timer.cancel()
            connection.close()
        if table.num_rows > _ROWS_MAX:
            raise CatalogQuestion(f"the answer has more than {_ROWS_MAX} rows")
        return table

    def interrupt(self) -> None:
        self._interrupted = True
        if self._connection is not None:
            self._connection.interrupt()


def _same(one: Catalog, other: Catalog) -> bool:
    return one is other or dict(one.sources) == dict(other.sources)


def _database(around: Around) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=dict(_LOCKED))
    make_tables(connection, around.catalog, around.settings, around.user, around.database)
    for macro in MACROS:
        connection.execute(macro)
    connection.execute("SET lock_configuration = true")
    return connection


# From PostgreSQL's text to DuckDB's


def duckdb_text(statement: PgStatement, literals: Mapping[int, str], around: Around) -> str:
    """Raises `PgRefused` for anything that is not listed, `CatalogQuestion` if the query cannot be parsed."""
    text = _plain_text(statement, literals)
    if len(text) > _CHARACTERS_MAX:
        raise CatalogQuestion("the query is too long")
    try:
        trees = sqlglot.parse(text, dialect="postgres")
    except (SqlglotError, RecursionError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise PgRefused(SYNTAX, f"syntax error: {reason}") from None
    if len(trees) != 1 or not isinstance(trees[0], _STATEMENTS):
        raise PgRefused(SYNTAX, "this is not a query")
    tree: Any = exp.maybe_copy(trees[0])
    try:
        tree = _Rewriting(around, tree).result()
        return tree.sql(dialect="duckdb")
    except (SqlglotError, RecursionError) as error:
        raise CatalogQuestion("the query is nested too deep, or invalid") from error


def _plain_text(statement: PgStatement, literals: Mapping[int, str]) -> str:
    """The text without syntax that only PostgreSQL's own parser understands."""
    tokens = list(statement.tokens)
    pieces: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.upper == "OPERATOR" and _texts(tokens, at + 1, 3)[:2] == ["(", "pg_catalog"]:
            pieces.append(tokens[at + 4].text)
            at += 6
        elif token.upper == "COLLATE":
            at += 4 if _texts(tokens, at + 2, 1) == ["."] else 2
        elif token.named == "pg_catalog" and _texts(tokens, at + 1, 1) == ["."]:
            at += 2
        elif token.upper == "SELECT" and at and tokens[at - 1].upper == "AS":
            pieces.append('"select"')  # an alias; WITH has a parenthesis before its query
            at += 1
        elif token.text == "::" or (token.upper == "AS" and _is_type(tokens, at + 1)):
            written, at = _cast_type(tokens, at)
            pieces.append(written)
        else:
            pieces.append(_written(token, literals))
            at += 1
    return " ".join(pieces)


def _is_type(tokens: Sequence[PgToken], at: int) -> bool:
    """Whether this is the type in CAST(x AS oid): an alias is never both followed by `)` and named like a type."""
    name = tokens[at].named if at < len(tokens) else None
    return name in _PG_ONLY_TYPES and _texts(tokens, at + 1, 1) in ([")"], ["["])


def _cast_type(tokens: Sequence[PgToken], at: int) -> tuple[str, int]:
    sign = tokens[at].text
    at += 1
    if _texts(tokens, at, 2) in (["pg_catalog", "."], ["information_schema", "."]):
        at += 2
    name = tokens[at].named if at < len(tokens) else None
    if name is None:
        return sign, at
    ours = _PG_ONLY_TYPES.get(name)
    if ours is None:
        return sign, at
    at += 1
    if _texts(tokens, at, 1) == ["("]:
        at += 3
    return f"{sign} {ours}", at


def _texts(tokens: Sequence[PgToken], at: int, count: int) -> list[str]:
    return [token.text.lower() for token in tokens[at : at + count]]


def _written(token: PgToken, literals: Mapping[int, str]) -> str:
    if token.kind == "parameter":
        return literals.get(int(token.text[1:]), "NULL")
    if token.kind == "string":
        return "'" + token.value.replace("'", "''") + "'"
    return token.text


class _Rewriting:
    """Checks a tree, and rewrites it in place."""

    def __init__(self, around: Around, tree: Any) -> None:
        self._around = around
        self._tree = tree
        self._ctes = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
        self._types = type_oids()

    def result(self) -> Any:
        self._refuse()
        _name_columns(self._tree)
        for dot in list(self._tree.find_all(exp.Dot)):  # a function with a schema: information_schema._pg_expandarray()
            if isinstance(dot.this, exp.Identifier) and isinstance(dot.expression, exp.Func):
                dot.replace(dot.expression)
        for table in list(self._tree.find_all(exp.Table)):
            self._table(table)
        for text in list(self._tree.find_all(exp.Literal)):
            if text.is_string and text.this.startswith("{") and _is_compared_with_all(text):
                text.replace(_array_of(text.this))
        for cast in reversed(list(self._tree.find_all(exp.Cast))):  # inner casts first
            self._cast(cast)
        for call in reversed(list(self._tree.find_all(exp.Func))):
            self._function(call)
        for column in list(self._tree.find_all(exp.Column)):
            if column.name.lower() == "tableoid":
                column.replace(exp.Literal.number(0))
            elif column.name.lower() == "user" and not column.table and not column.this.quoted:
                column.replace(exp.Literal.string(self._around.user))
            elif column.name.lower() in _FUNCTION_COLUMNS:
                _compare_with_name(column)
        for lock in list(self._tree.find_all(exp.Lock)):
            lock.pop()
        return self._tree

    def _refuse(self) -> None:
        for kind in (exp.DDL, exp.DML, exp.Command, exp.Into, exp.Placeholder, exp.Parameter, exp.Pivot):
            found = self._tree.find(kind)
            if found is not None and not isinstance(found, _STATEMENTS):
                raise PgRefused(NOT_SUPPORTED, f"{kind.__name__.upper()} is not supported in a query here")

    def _table(self, table: exp.Table) -> None:
        if isinstance(table.this, exp.Func):
            _name_column_of_call(table)
            return  # checked as a function
        name, schema = table.name.lower(), table.db.lower()
        if not schema and name in self._ctes:
            return
        place = INFORMATION if schema == "information_schema" else CATALOG
        if schema not in ("", "pg_catalog", "information_schema") or name not in SYSTEM_NAMES[place]:
            shown = f"{schema}.{name}" if schema else name
            raise PgRefused("42P01", f'relation "{shown}" does not exist')
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
        table.set("this", exp.to_identifier(name))
        table.set("db", exp.to_identifier(place))
        table.set("catalog", None)

    # Casts to types that name objects

    def _cast(self, cast: exp.Cast) -> None:
        kind = cast.to.sql(dialect="postgres").lower()
        value: Any = cast.this
        if cast.to.is_type("array") and isinstance(value, exp.Literal) and value.this.startswith("{"):
            cast.set("this", _array_of(value.this))
        if kind not in _REG:
            return
        if isinstance(value, exp.Literal) and kind in ("regproc", "regprocedure") and _names_function(cast):
            cast.replace(exp.Literal.string(value.this.rpartition(".")[2]))  # those columns contain the names
        elif isinstance(value, exp.Literal):
            cast.replace(exp.Literal.number(self._named(kind, value.this)))
            return
        if kind == "regclass" and isinstance(value, _TEXTS):
            value = exp.func("pgf_regclass_of", value.copy())
        as_number = isinstance(cast.parent, exp.Predicate) or (
            isinstance(cast.parent, exp.Cast) and cast.parent.to.is_type("bigint", "int")
        )
        cast.replace(value if as_number else exp.func(f"pgf_{kind}_name", value.copy()))

    def _named(self, kind: str, text: str) -> int:
        """The OID of the object that a text names. Raises `PgRefused`."""
        if text.isdecimal():
            return int(text)
        name = text.rpartition(".")[2].strip().strip('"')
        if kind == "regclass":
            oids = relation_oids(self._around.catalog)
            shown = {shown_name(each): oid for each, oid in oids.items()}
            found = shown.get(name, SYSTEM_OIDS.get(name))
        elif kind == "regtype":
            found = self._types.get(name) or self._types.get(_REGTYPES.get(text.lower(), ""))
        elif kind == "regnamespace":
            found = {"public": 2200, "pg_catalog": 11, "information_schema": 13_000}.get(name)
        else:
            found = 0
        if found is None:
            what = {"regclass": "relation", "regtype": "type"}.get(kind, "schema")
            raise PgRefused("42P01" if kind == "regclass" else "42704", f'{what} "{text}" does not exist')
        return found

    # Functions

    def _function(self, call: Any) -> None:
        name = (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()
        known = _formatted(call) if name == "format" else self._constant(name, call)
        if known is not None:
            call.replace(known)
        elif name in RENAMED:
            call.replace(exp.Anonymous(this=RENAMED[name], expressions=[each.copy() for each in call.expressions]))
        elif name in OURS:
            arguments = call.expressions if isinstance(call, exp.Anonymous) else list(call.iter_expressions())
            call.replace(exp.Anonymous(this=f"pgf_{name}", expressions=[each.copy() for each in arguments]))
        elif not (isinstance(call, ALLOWED) or name in _ALLOWED_NAMES or name.startswith("pgf_reg")):
            raise PgRefused("42883", f"function {name}() does not exist", hint="Few of the catalogs' are.")

    def _constant(self, name: str, call: Any) -> Any:
        around = self._around
        match name:
            case "version" | "current_version":
                return exp.Literal.string(f"PostgreSQL {SERVER_VERSION} (Millstream)")
            case "current_user" | "session_user" | "user" | "current_role":
                return exp.Literal.string(around.user)
            case "current_database" | "current_catalog":
                return exp.Literal.string(around.database)
            case "current_schema":
                return exp.Literal.string("public")
            case "current_setting" if isinstance(next(iter(call.expressions), None), exp.Literal):
                return self._setting(call)
            case "set_config" if all(isinstance(each, exp.Literal) for each in call.expressions[:2]):
                return self._set(call)
            case "now" | "current_timestamp" | "localtimestamp" | "transaction_timestamp" | "statement_timestamp":
                now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
                return exp.cast(exp.Literal.string(now.isoformat(" ")), "timestamp")
            case "to_regclass" | "to_regtype" | "to_regnamespace":
                try:
                    return exp.Literal.number(self._named(name.removeprefix("to_"), self._text(call)))
                except PgRefused:
                    return exp.Null()
            case _:
                return None

    def _setting(self, call: Any) -> Any:
        """Raises `PgRefused` for an unknown setting, unless a second argument says that it may be missing."""
        try:
            return exp.Literal.string(self._around.settings.get(self._text(call)))
        except PgRefused:
            if len(call.expressions) > 1 and call.expressions[1] == exp.true():
                return exp.cast(exp.Null(), "text")
            raise

    def _set(self, call: Any) -> Any:
        """Sets it for the session, or as SET LOCAL if the third argument is true. Raises `PgRefused`."""
        name, value = call.expressions[0].this, call.expressions[1].this
        if self._around.settings.own_property(name) is not None:
            raise PgRefused(NOT_SUPPORTED, f"set_config does not set {name}", hint=f"Write SET {name} = '{value}'.")
        self._around.settings.set(name, value, local=exp.true() in call.expressions[2:])
        return exp.Literal.string(self._around.settings.get(name))

    def _text(self, call: Any) -> str:
        first = next(iter(call.expressions or call.iter_expressions()), None)
        while isinstance(first, exp.Cast):
            first = first.this
        if not isinstance(first, exp.Literal):
            raise PgRefused(NOT_SUPPORTED, "this function takes a text that is written out")
        return first.this


_TEXTS: Final = (exp.Concat, exp.ConcatWs, exp.DPipe, exp.Format)
"""Expressions that are a text, not an OID, when they are cast to `regclass`."""
_SERIES: Final = ("generate_series", "exploding_generate_series", "generate_subscripts", "unnest")
_ROW_FUNCTIONS: Final = ("pg_get_keywords",)
_OTHER_NAMES: Final = {"current_version": "version"}


def _name_columns(tree: Any) -> None:
    """Gives unnamed columns of the answer the names that PostgreSQL gives them."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    if isinstance(tree, exp.Select):
        for item in tree.expressions:
            if not isinstance(item, exp.Alias | exp.Aliases | exp.Column | exp.Star | exp.Subquery):
                item.replace(exp.alias_(item.copy(), _name_of(item), quoted=True))


def _name_of(item: Any) -> str:
    match item:
        case exp.Column() | exp.Dot():
            return item.name
        case exp.Paren() | exp.Window() | exp.Bracket():
            return _name_of(item.this)
        case exp.Cast() if isinstance(item.this, exp.Column | exp.Func) and not isinstance(item.this, exp.Connector):
            return _name_of(item.this)
        case exp.Cast():
            return item.to.sql(dialect="postgres").lower()
        case exp.Case():
            return "case"
        case exp.Anonymous():
            return item.name.lower()
        case exp.Func() if not isinstance(item, exp.Connector):
            name = item.sql_name().lower()
            return _OTHER_NAMES.get(name, name)
        case _:
            return "?column?"


def _name_column_of_call(table: exp.Table) -> None:
    """`generate_series(1, 3) AS i` has a column `i`; a function that returns one value may be in FROM, too."""
    call: Any = table.this
    name = (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()
    alias = table.args.get("alias")
    if name in _ROW_FUNCTIONS or (alias is not None and alias.columns):
        return
    shown = exp.to_identifier(table.alias or name)
    named = exp.TableAlias(this=shown, columns=[shown.copy()])
    if name in _SERIES:
        table.set("alias", named)
    else:
        query = exp.Select(expressions=[exp.alias_(call.copy(), shown.copy())])
        table.replace(exp.Subquery(this=query, alias=named))


_DIRECTIVE: Final = re.compile(r"%([sIL%])")


def _formatted(call: Any) -> Any:
    """`format('%I.%s', a, b)`. Raises `PgRefused` if the template is not a literal, or has other directives."""
    template, *values = call.expressions if isinstance(call, exp.Anonymous) else list(call.iter_expressions())
    if not isinstance(template, exp.Literal):
        raise PgRefused(NOT_SUPPORTED, "format() takes a template that is written out")
    texts = _DIRECTIVE.split(template.this)
    parts: list[Any] = []
    for text, directive in zip(texts[::2], [*texts[1::2], ""], strict=True):
        parts.append(exp.Literal.string(text))
        if directive == "%":
            parts.append(exp.Literal.string("%"))
        elif directive:
            if not values:
                raise PgRefused("22023", "format() has too few arguments")
            value = exp.cast(values.pop(0).copy(), "text")
            parts.append(value if directive == "s" else exp.func(_QUOTING[directive], value))
    if any("%" in text for text in texts[::2]):
        raise PgRefused(NOT_SUPPORTED, "format() takes %s, %I and %L here")
    return exp.Concat(expressions=parts, safe=True, coalesce=True)


_QUOTING: Final = {"I": "pgf_quote_ident", "L": "pgf_quote_literal"}

_FUNCTION_COLUMNS: Final = frozenset(
    "typinput typoutput typreceive typsend typmodin typmodout typanalyze typsubscript amhandler".split()
)
"""Columns of PostgreSQL's type regproc: an OID that is shown as the function's name. Here they contain the name."""
_NO_FUNCTION: Final = "-"


def _names_function(value: Any) -> bool:
    """Whether it is compared with a column that contains a function's name."""
    other = value.parent if isinstance(value.parent, exp.Predicate) else None
    return other is not None and any(
        column.name.lower() in _FUNCTION_COLUMNS for column in other.find_all(exp.Column) if column.parent is other
    )


def _compare_with_name(column: Any) -> None:
    """`typsend != 0`: 0 means that there is no function."""
    parent = column.parent
    if isinstance(parent, (exp.EQ, exp.NEQ)):
        other: Any = parent.expression if parent.this is column else parent.this
        if isinstance(other, exp.Literal) and not other.is_string:
            other.replace(exp.Literal.string(_NO_FUNCTION if other.this == "0" else other.this))


def _is_compared_with_all(text: Any) -> bool:
    """Whether the text is the array of `x = ANY('{a,b}')`, as after the replacement of a parameter."""
    around = text.parent
    while isinstance(around, exp.Paren):
        around = around.parent
    return isinstance(around, exp.Any) or (isinstance(around, exp.Anonymous) and around.name.lower() in ("any", "all"))


def _array_of(text: str) -> Any:
    """Raises `CatalogQuestion`."""
    try:
        return exp.array(
            *(exp.Null() if item is None else exp.Literal.string(item) for item in text_array(text, "text"))
        )
    except NO_VALUE as error:
        raise CatalogQuestion(f"{text[:100]} is no array: {error}") from None


_REGTYPES: Final = {
    "integer": "int4", "int": "int4", "bigint": "int8", "smallint": "int2", "boolean": "bool", "real": "float4",
    "double precision": "float8", "character varying": "varchar", "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz", "decimal": "numeric",
}  # fmt: skip
_ALLOWED_NAMES: Final = frozenset(
    """
    abs all array_agg array_length array_lower array_to_string array_upper bool_and bool_or btrim ceil char_length
    coalesce concat concat_ws count floor format_type generate_series generate_subscripts greatest initcap least left
    length list_contains lower lpad ltrim max md5 min mod nullif octet_length position quote_ident regexp_matches
    regexp_replace replace repeat reverse right round row_number rank dense_rank rpad rtrim split_part starts_with
    string_agg strpos substr substring sum avg to_char translate trim trunc unnest upper
    """.split()
)
