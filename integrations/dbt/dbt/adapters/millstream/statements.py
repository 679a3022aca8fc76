"""The statements that the adapter sends, as text made from a model's configuration. It knows nothing of dbt.

What is wrong in a configuration raises `InvalidConfiguration`.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from millstream.sql.tokens import tokenize

OPTIONS: Final = {
    "topic": "KAFKA_TOPIC",
    "format": "FORMAT",
    "key_format": "KEY_FORMAT",
    "value_format": "VALUE_FORMAT",
    "partitions": "PARTITIONS",
    "replicas": "REPLICAS",
    "timestamp": "TIMESTAMP",
    "timestamp_format": "TIMESTAMP_FORMAT",
}
"""Options of WITH that have a config of their own. All others stand in the config `with_options`."""

STREAM: Final = "STREAM"
TABLE: Final = "TABLE"
VALUES_MAX: Final = 3_000  # of one INSERT or DELETE: a statement has 25,000 tokens at most, a request a million bytes
CHARACTERS_MAX: Final = 200_000


class InvalidConfiguration(Exception):
    """A config of a model or a seed that cannot be what was meant."""


def create_as(kind: str, name: str, query: str, config: Mapping[str, Any]) -> str:
    """CREATE STREAM or TABLE … AS.

    >>> print(create_as("TABLE", "n", " SELECT a FROM s; ", {"partitions": 2, "topic": "it's"}))
    CREATE TABLE n WITH (KAFKA_TOPIC='it''s', PARTITIONS=2) AS
    SELECT a FROM s;
    """
    options = with_clause(config)
    return f"CREATE {kind} {name} {options + ' ' if options else ''}AS\n{_without_end(query)};"


def create_source(name: str, columns: str, config: Mapping[str, Any]) -> str:
    """CREATE STREAM or TABLE with columns, over a topic. In: `columns` with or without parentheses.

    >>> print(create_source("s", "id INT KEY", {"value_format": "JSON"}))
    CREATE STREAM s (
    id INT KEY
    ) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');
    """
    kind = str(config.get("kind") or STREAM).upper()
    if kind not in (STREAM, TABLE):
        raise InvalidConfiguration(f"kind is '{config['kind']}'; write 'stream' or 'table'")
    defaults = {"topic": name.strip('`"')}
    text = _without_end(columns)
    if not _in_parentheses(text):
        text = f"(\n{text}\n)"
    return f"CREATE {kind} {name} {text} {with_clause(config, defaults)};"


def create_seed(name: str, columns: Mapping[str, str], config: Mapping[str, Any]) -> str:
    """CREATE TABLE for rows with a key (config `key`: a column or a list), otherwise CREATE STREAM.

    >>> print(create_seed("c", {"id": "BIGINT", "name": "STRING"}, {"key": "ID"}))
    CREATE TABLE c (id BIGINT PRIMARY KEY, name STRING) WITH (KAFKA_TOPIC='c', VALUE_FORMAT='JSON', PARTITIONS=1);
    """
    keys = {key.upper() for key in key_columns(config, columns)}
    role = " PRIMARY KEY" if keys else ""
    listed = ", ".join(
        f"{column} {type_}{role if column.strip('`').upper() in keys else ''}" for column, type_ in columns.items()
    )
    defaults: dict[str, Any] = {"topic": name.strip("`")}
    if not config.get("format"):
        defaults["value_format"] = "JSON"
        if len(keys) > 1:
            defaults["key_format"] = "JSON"
    clause = with_clause(config, {**defaults, "partitions": 1})
    return f"CREATE {TABLE if keys else STREAM} {name} ({listed}) {clause};"


def key_columns(config: Mapping[str, Any], columns: Iterable[str]) -> list[str]:
    """The columns of the config `key`, as they are written among the columns."""
    given = config.get("key") or []
    named = [given] if isinstance(given, str) else list(given)
    written = {column.strip("`").upper(): column for column in columns}
    for name in named:
        if name.strip("`").upper() not in written:
            raise InvalidConfiguration(f"key is '{name}', which is no column; columns are {', '.join(columns)}")
    return [written[name.strip("`").upper()] for name in named]


def with_clause(config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> str:
    """WITH (…), or empty without any option.

    >>> with_clause({"value_format": "JSON", "with_options": {"ttl": "1 DAY", "wrap_single_value": False}})
    "WITH (VALUE_FORMAT='JSON', TTL='1 DAY', WRAP_SINGLE_VALUE=false)"
    """
    given = {**(defaults or {}), **{name: config[name] for name in OPTIONS if config.get(name) is not None}}
    options = {OPTIONS[name]: given[name] for name in OPTIONS if name in given}
    more = config.get("with_options") or {}
    if not isinstance(more, Mapping):
        raise InvalidConfiguration("with_options must be a mapping of names to values, as in {ttl: '1 DAY'}")
    options |= {str(name).upper(): value for name, value in more.items()}
    if not options:
        return ""
    return f"WITH ({', '.join(f'{name}={literal(value)}' for name, value in options.items())})"


def create_sink(name: str, settings: str) -> str:
    """CREATE SINK CONNECTOR. In: `settings` as inside of WITH (…)."""
    text = _without_end(settings)
    return f"CREATE SINK CONNECTOR {name} WITH {text if _in_parentheses(text) else f'({text})'};"


def or_replace(statement: str) -> str:
    """The same CREATE, for something that exists.

    >>> or_replace("CREATE TABLE n AS SELECT a FROM s;")
    'CREATE OR REPLACE TABLE n AS SELECT a FROM s;'
    """
    return statement.replace("CREATE ", "CREATE OR REPLACE ", 1)


def drop(kind: str, name: str, *, cascade: bool = False, delete_topic: bool = False) -> str:
    """
    >>> drop("STREAM", "s", cascade=True, delete_topic=True)
    'DROP STREAM s CASCADE DELETE TOPIC;'
    """
    return f"DROP {kind} {name}{' CASCADE' if cascade else ''}{' DELETE TOPIC' if delete_topic else ''};"


def same_statement(one: str, other: str) -> bool:
    """Whether two texts of CREATE say the same, apart from comments, spaces, the case of words and OR REPLACE.

    >>> same_statement("CREATE OR REPLACE TABLE n AS SELECT a FROM s;", "create table N as -- rows\\n select A from s")
    True
    >>> same_statement("CREATE TABLE n AS SELECT 'a' FROM s;", "CREATE TABLE n AS SELECT 'A' FROM s;")
    False
    """
    return _meaning(one) == _meaning(other)


def insert(name: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """INSERT statements for rows of literals."""
    for part in _parts(rows):
        values = ",\n".join(f"({', '.join(row)})" for row in part)
        yield f"INSERT INTO {name} ({', '.join(columns)}) VALUES\n{values};"


def delete(name: str, keys: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """DELETE statements for rows with these values of the key.

    >>> list(delete("c", ["id"], [("1",), ("2",)]))
    ['DELETE FROM c WHERE (id = 1) OR (id = 2);']
    """
    for part in _parts(rows):
        conditions = (" AND ".join(f"{key} = {value}" for key, value in zip(keys, row, strict=True)) for row in part)
        yield f"DELETE FROM {name} WHERE {' OR '.join(f'({condition})' for condition in conditions)};"


def literal(value: Any, type_: str = "") -> str:
    """The value in SQL. Equal values of a column give equal texts, whether they come from a CSV or from the server.

    In: `type_`: the column's type; by default, that of the value. Raises `InvalidConfiguration` for other values.

    >>> literal("it's"), literal(True), literal(None), literal(decimal.Decimal("3"), "DOUBLE"), literal(7, "STRING")
    ("'it''s'", 'true', 'NULL', '3.0E0', "'7'")
    >>> literal("1.5", "DOUBLE"), literal("True", "BOOLEAN"), literal("7", "INT"), literal(2, "DECIMAL(4, 2)")
    ('1.5E0', 'true', '7', '2.00')
    >>> literal("2024-05-01 10:00:00", "TIMESTAMP"), literal("2024-05-01", "DATE"), literal("10:00", "TIME")
    ("'2024-05-01T10:00:00.000'", "'2024-05-01'", "'10:00:00'")
    """
    if value is None:
        return "NULL"
    kind, _, parameters = type_.upper().partition("(")
    try:
        return _literal(value, kind.strip(), parameters)
    except (ValueError, decimal.InvalidOperation):
        raise InvalidConfiguration(f"'{value}' is no value of the type {type_}") from None


def _literal(value: Any, kind: str, parameters: str) -> str:
    match kind:
        case "" if isinstance(value, bool):
            return "true" if value else "false"
        case "" if isinstance(value, int | float | decimal.Decimal):
            return str(value)
        case "BOOLEAN":
            if str(value).lower() not in ("true", "false"):
                raise ValueError(value)
            return str(value).lower()
        case "INT" | "INTEGER" | "BIGINT":
            return str(int(value))
        case "DOUBLE":
            mantissa = repr(float(value))
            return mantissa if "e" in mantissa else f"{mantissa}E0"
        case "DECIMAL":
            scale = int(parameters.rstrip(")").rpartition(",")[2])
            return f"{decimal.Decimal(str(value)):.{scale}f}"
        case "TIMESTAMP":
            at = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(str(value))
            return f"'{at.isoformat(timespec='milliseconds')}'"
        case "DATE":
            return f"'{datetime.date.fromisoformat(str(value)[:10])}'"
        case "TIME":
            return f"'{datetime.time.fromisoformat(str(value))}'"
        case _:
            return "'" + str(value).replace("'", "''") + "'"


def _parts(rows: Iterable[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    part: list[Sequence[str]] = []
    values = characters = 0
    for row in rows:
        characters += sum(map(len, row))
        values += len(row)
        if part and (values > VALUES_MAX or characters > CHARACTERS_MAX):
            yield part
            part, values, characters = [], len(row), sum(map(len, row))
        part.append(row)
    if part:
        yield part


def _meaning(statement: str) -> list[str]:
    tokens = [token for token in tokenize(statement) if token.type != "SEMICOLON"]
    words = [str(token) if str(token)[:1] in "'\"`$" else str(token).upper() for token in tokens]
    if words[1:3] == ["OR", "REPLACE"]:
        del words[1:3]
    return words


def _without_end(text: str) -> str:
    """The text without spaces around it, and without semicolons at its end."""
    return text.strip().rstrip(";").rstrip()


def _in_parentheses(text: str) -> bool:
    """Whether the parenthesis that opens the text closes at its end."""
    depth = 0
    tokens = [str(token) for token in tokenize(text)]
    for index, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth == 0:
            return index > 0 and index == len(tokens) - 1
    return False
