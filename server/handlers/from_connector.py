"""CREATE STREAM|TABLE name FROM CONNECTOR connector TABLE 'table': the source system defines the columns.

The statement becomes an ordinary CREATE STREAM|TABLE with columns and topic, which the catalog keeps and DESCRIBE
shows. A column that is added in the source system later changes nothing here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from millstream.errors import InvalidProperty, InvalidStatement, MillstreamError, Span, StatementError

from ...executor.connect.connector import SourceColumn, SourceConnector, SourceTable, TaskInfo
from ...executor.connect.connector_secrets import Secrets
from ...executor.connect.connectors import resolved_settings
from ...executor.connect.converters import converter_of
from ...executor.connect.source_runner import new_partitions
from ...executor.connect.transforms import named_transforms
from ...planner.formats.debezium import DEBEZIUM
from ...planner.formats.json import JSON
from ...planner.formats.kafka import KAFKA
from ...sql.ast import CreateFromConnector, CreateSource
from ...sql.identifiers import quote_identifier
from ...sql.parser import parse
from ..engine.entities import Entity, Warned
from ..engine.request import Request
from .connectors import found_connector
from .create import create_source

_FROM_THE_CONNECTOR = ("KAFKA_TOPIC", "FORMAT", "KEY_FORMAT", "VALUE_FORMAT")
_PLAIN_KEYS = ("integer", "long", "double", "string")


class NoSourceTable(InvalidStatement):
    """The connector cannot provide this table; the message says why."""

    code = "NO_SOURCE_TABLE"


def create_from_connector(statement: CreateFromConnector, request: Request) -> list[Entity]:
    """CREATE [OR REPLACE] STREAM|TABLE [IF NOT EXISTS] name FROM CONNECTOR connector TABLE 'table' [WITH (…)]. It asks
    the other system without the engine's lock, because that may be slow."""
    existing = request.catalog.sources.get(statement.name)
    if existing is not None and statement.if_not_exists:
        kind, its_kind = statement.kind.lower(), existing.kind.lower()
        message = f"Cannot add {kind} `{statement.name}`: A {its_kind} with the same name already exists."
        return [Warned(statement_text=statement.text, message=message)]
    table, config = _described(statement, request)
    try:
        made = _statement(statement, table, config, request)
        with request.lock:
            return create_source(made, request)
    except StatementError as error:
        error.span, error.text = statement.span, None  # they referred to the generated text, which the user never saw
        raise


def _described(statement: CreateFromConnector, request: Request) -> tuple[SourceTable, Mapping[str, str]]:
    info = found_connector(statement.connector, request, statement.span)
    if info.kind != "SOURCE":
        raise NoSourceTable(f"{info.name} is a sink: it takes records out", span=statement.span)
    secrets = Secrets(request.connectors.known_secrets)
    try:
        plugin, settings, resolved = resolved_settings(info, secrets)
        loaded = plugin.load()
        assert issubclass(loaded, SourceConnector)
        return loaded.table(settings, TaskInfo(info.name), statement.table), resolved
    except MillstreamError as error:
        hint = None if error.hint is None else secrets.scrub(error.hint)
        raise NoSourceTable(secrets.scrub(error.message), span=statement.span, hint=hint) from None


def _statement(
    statement: CreateFromConnector, table: SourceTable, config: Mapping[str, str], request: Request
) -> CreateSource:
    """The ordinary CREATE statement. Raises `NoSourceTable` if a table would have no key, or if the connector changes
    the records."""
    if statement.kind == "TABLE" and not table.key:
        raise NoSourceTable(
            f"{statement.table} has no primary key, so its rows cannot be told apart",
            span=statement.span,
            hint=f"Add one, or CREATE STREAM {statement.name} FROM CONNECTOR ….",
        )
    for name in _FROM_THE_CONNECTOR:
        if name in statement.properties:
            raise InvalidProperty(f"{name} comes from the connector", span=statement.span, hint="Leave it out.")
    properties: dict[str, object] = {"KAFKA_TOPIC": table.topic, **_formats(table, config, statement.span)}
    if request.log.topic(table.topic) is None:
        properties["PARTITIONS"] = new_partitions(config)
    texts = ", ".join(f"{name}={_constant(value)}" for name, value in {**properties, **statement.properties}.items())
    replaces = " OR REPLACE" if statement.or_replace else ""
    columns = _columns(table, "PRIMARY KEY" if statement.kind == "TABLE" else "KEY")
    text = f"CREATE{replaces} {statement.kind} {quote_identifier(statement.name)} ({columns}) WITH ({texts});"
    (made,) = parse(text)
    assert isinstance(made, CreateSource)
    return made


def _columns(table: SourceTable, key_words: str) -> str:
    """The columns, key first. A name in lower case needs no quotes in the source system, and so gets none here."""
    upper = Counter(column.name.upper() for column in table.columns)

    def written(column: SourceColumn) -> str:
        plain = column.name == column.name.lower() and upper[column.name.upper()] == 1
        name = quote_identifier(column.name.upper() if plain else column.name)
        return f"{name} {column.type}{f' {key_words}' if column.name in table.key else ''}"

    return ", ".join(map(written, sorted(table.columns, key=lambda column: column.name not in table.key)))


def _formats(table: SourceTable, config: Mapping[str, str], span: Span | None) -> dict[str, str]:
    """The formats in the topic, after the connector's transforms and converters."""
    key, value = converter_of(config, "key").name, converter_of(config, "value").name
    kinds = named_transforms(config)
    extracts = [kind for kind in kinds if kind == "ExtractField$Key"]
    unwraps = "ExtractNewRecordState" in kinds
    others = [kind for kind in kinds if kind not in ("ExtractField$Key", "ExtractNewRecordState", "Filter")]
    if others or value != "json" or (extracts and len(table.key) != 1) or _rewrites(config):
        what = f"transforms ({', '.join(others)})" if others else "settings"
        raise NoSourceTable(
            f"the {what} of the connector change what is in the topic {table.topic}",
            span=span,
            hint="Declare the columns: CREATE STREAM or CREATE TABLE … WITH (kafka_topic=…).",
        )
    if not table.key:
        key_format = KAFKA
    elif extracts and key in _PLAIN_KEYS:
        key_format = KAFKA
    elif key == "json":
        key_format = JSON if extracts else DEBEZIUM
    else:
        raise NoSourceTable(
            f"the key of {table.topic} is an object, which key.converter={key} cannot write",
            span=span,
            hint="Leave key.converter out, or take the field of the key with ExtractField$Key.",
        )
    return {"KEY_FORMAT": key_format.name, "VALUE_FORMAT": (JSON if unwraps else DEBEZIUM).name}


def _rewrites(config: Mapping[str, str]) -> bool:
    return any(
        name.endswith(".delete.tombstone.handling.mode") and value != "tombstone" for name, value in config.items()
    )


def _constant(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
