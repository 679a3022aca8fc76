"""CREATE STREAM|TABLE name (columns) WITH (…): from the statement to the source that it declares."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from millstream.errors import InvalidProperty, InvalidStatement, SourceExists, Span, UnknownColumn, did_you_mean

from ...sql.ast import ColumnDefinition, CreateSource
from ...sql.functions.java.java_time import InvalidTimePattern, compile_pattern
from ...sql.types import BIGINT, BYTES, STRING, TIMESTAMP, Array, Field, SqlType, Struct
from ..expressions.scope import resolve_type
from ..formats import check_storable
from ..limits import within_depth
from ..planning import NewTopic, PlannedSource, PlanningContext
from ..schema import PSEUDO, Column, Schema
from ..source_info import SourceInfo
from ..specs import FormatSpec
from .inference import Inference, infer_columns, refuse_schema_id
from .record_schemas import SchemaTarget, with_schemas
from .topics import topic_config, topic_of_statement
from .with_properties import SourceProperties, check_ttl, format_specs, read_properties

_HEADERS_TYPE = Array(Struct((Field("KEY", STRING), Field("VALUE", BYTES))))


@within_depth
def plan_create_source(statement: CreateSource, context: PlanningContext) -> PlannedSource:
    """What the statement declares, and the topic to create for it.

    Raises `SourceExists`, `InvalidStatement`, `InvalidProperty`, `FormatError`, `UnknownType`.
    """
    _check_replacement(statement, context)
    properties = read_properties(statement.properties, create=True)
    check_ttl(statement.kind, properties.ttl_ms)
    schema = _schema(statement, properties, context)
    key_format, value_format, key_features, value_features = format_specs(
        properties, default_formats(context), schema.key, schema.value, context.settings.wraps_single_values
    )
    if not schema.key and properties.key_format is None:
        key_format = replace(key_format, name="KAFKA")
    if not [column for column in schema.value if column.role == "VALUE"] and not schema.columns:
        raise InvalidStatement(
            "The statement does not define any columns.",
            span=statement.span,
            hint="Write them in parentheses after the name.",
        )
    if properties.key_window is not None and not schema.key:
        raise InvalidStatement(
            "Windowed sources require a key column.",
            span=statement.span,
            hint="A window is a part of the key: declare the key, or leave out WINDOW_TYPE.",
        )
    _check_timestamp(properties, schema)
    check_storable(value_format.name, columnar_topics=context.columnar_topics)
    topic_name = topic_of_statement(statement, context.settings)
    existing = context.topics.get(topic_name)
    new_topic = None
    if existing is None:
        if properties.partition_count is None:
            raise InvalidProperty(
                f"Topic '{topic_name}' does not exist.",
                hint="If you want to create a new topic for the stream/table, please re-run the statement "
                "providing the required 'PARTITIONS' configuration in the WITH clause.",
            )
        config = topic_config(statement.kind, properties, windowed=properties.key_window is not None)
        new_topic = NewTopic(topic_name, properties.partition_count, config, properties.replicas or 0)
    elif properties.partition_count not in (None, existing):
        raise InvalidProperty(
            f"A Kafka topic with the name '{topic_name}' already exists, with different partition/replica "
            f"configuration than required. PARTITIONS={properties.partition_count} does not match {existing}."
        )
    schemas = with_schemas(
        SchemaTarget(statement.name, topic_name, schema, key_format, value_format), properties, context.registry
    )
    source = SourceInfo(
        name=statement.name,
        kind=statement.kind,
        topic=topic_name,
        schema=schema,
        key_format=schemas.key_format,
        value_format=schemas.value_format,
        key_window=properties.key_window,
        timestamp_column=properties.timestamp_column,
        timestamp_format=properties.timestamp_format,
        partition_count=existing or (new_topic.partition_count if new_topic else 1),
        read_only=statement.read_only,
        statement=statement.text,
        key_features=key_features,
        value_features=value_features,
        ttl_ms=properties.ttl_ms,
    )
    return PlannedSource(source, new_topic, schemas.versions)


def default_formats(context: PlanningContext) -> dict[str, FormatSpec]:
    """The formats of a source whose WITH clause names none, as the session's properties set them. Values have a default
    only if a property sets it; that of keys is KAFKA."""
    found = {"key": FormatSpec(context.settings.key_format)}
    if context.settings.value_format:
        found["value"] = FormatSpec(context.settings.value_format)
    return found


def check_name_is_free(kind: str, name: str, context: PlanningContext, *, or_replace: bool, span: Span | None) -> None:
    """Raises `SourceExists`, or `InvalidStatement` if OR REPLACE cannot replace the existing source."""
    existing = context.catalog.sources.get(name)
    if existing is None:
        return
    if not or_replace:
        raise SourceExists(
            f"Cannot add {kind.lower()} '{name}': A {existing.kind.lower()} with the same name already exists.",
            span=span,
            hint=f"DROP {existing.kind} {name}; first, or write CREATE OR REPLACE.",
        )
    if existing.read_only:
        raise InvalidStatement(
            f"Cannot add {kind.lower()} '{name}': CREATE OR REPLACE is not supported on source "
            f"{existing.kind.lower()}s.",
            span=span,
        )
    if existing.kind != kind:
        raise InvalidStatement(
            f"Cannot add {kind.lower()} '{name}': A {existing.kind.lower()} with the same name already exists.",
            span=span,
        )


def _check_replacement(statement: CreateSource, context: PlanningContext) -> None:
    if statement.read_only and statement.or_replace:
        raise InvalidStatement(
            f"Cannot add {statement.kind.lower()} '{statement.name}': CREATE OR REPLACE is not supported on source "
            f"{statement.kind.lower()}s.",
            span=statement.span,
        )
    if not statement.if_not_exists:
        check_name_is_free(
            statement.kind, statement.name, context, or_replace=statement.or_replace, span=statement.span
        )


def _schema(statement: CreateSource, properties: SourceProperties, context: PlanningContext) -> Schema:
    written = tuple(_column(definition, statement, context) for definition in statement.columns)
    columns = _with_inferred(written, statement, properties, context)
    for column in columns:
        _refuse_reserved(column.name, statement.span)
    duplicates = [name for name, count in Counter(column.name for column in columns).items() if count > 1]
    if duplicates:
        raise InvalidStatement(f"Duplicate column names: {', '.join(duplicates)}", span=statement.span)
    if statement.kind == "TABLE" and columns and not any(column.role == "KEY" for column in columns):
        raise InvalidStatement(
            "Tables require a PRIMARY KEY. Please define the PRIMARY KEY.",
            span=statement.span,
            hint="Write PRIMARY KEY after the type of the key column.",
        )
    if not columns:
        raise InvalidStatement(
            "No columns supplied. The statement does not define any columns.",
            span=statement.span,
            hint="Write them in parentheses after the name, or use a format whose schemas the schema registry has.",
        )
    _refuse_repeated_headers(columns, statement.span)
    return Schema(columns)


def _refuse_repeated_headers(columns: tuple[Column, ...], span: Span | None) -> None:
    """Raises for a second column of the same header, and for a column that comes after the one with all headers."""
    seen: set[str | None] = set()
    for column in columns:
        if column.role != "HEADERS":
            continue
        if None in seen:
            raise InvalidStatement("Schema already contains a HEADERS column.", span=span)
        if column.header_key in seen:
            raise InvalidStatement(f"Schema already contains a HEADER('{column.header_key}') column.", span=span)
        seen.add(column.header_key)


def _with_inferred(
    written: tuple[Column, ...], statement: CreateSource, properties: SourceProperties, context: PlanningContext
) -> tuple[Column, ...]:
    """The columns, with those from the registry's schemas if the statement lists no columns of the key or the value."""
    defaults = default_formats(context)
    wrap = properties.wrap_single_value
    wraps = context.settings.wraps_single_values if wrap is None else wrap
    columns = {role: tuple(column for column in written if column.role == role) for role in ("KEY", "VALUE", "HEADERS")}
    topic = topic_of_statement(statement, context.settings)
    for role, name, schema, wrapped in (
        ("KEY", properties.key_format, properties.key_schema, False),
        ("VALUE", properties.value_format, properties.value_schema, wraps),
    ):
        part = "key" if role == "KEY" else "value"
        name = name or (defaults[part].name if part in defaults else "NONE")
        asked = Inference(part, topic, name, schema, wrapped)
        if columns[role]:
            refuse_schema_id(asked, statement.span)
        else:
            columns[role] = infer_columns(asked, context.registry, statement.span)
    if not columns["KEY"] or not any(column.role == "KEY" for column in written):
        written = (*columns["KEY"], *written)
    if any(column.role == "VALUE" for column in written):
        return written
    headers = columns["HEADERS"]
    return (*(column for column in written if column.role == "KEY"), *columns["VALUE"], *headers)


def _column(definition: ColumnDefinition, statement: CreateSource, context: PlanningContext) -> Column:
    _refuse_reserved(definition.name, definition.span)
    if definition.role == "KEY" and definition.primary != (statement.kind == "TABLE"):
        right, wrong = ("KEY", "PRIMARY KEY") if statement.kind == "STREAM" else ("PRIMARY KEY", "KEY")
        raise InvalidStatement(
            f"Column `{definition.name}` is a '{wrong}' column: please use '{right}' for {statement.kind.lower()}s.",
            span=definition.span,
        )
    type_ = resolve_type(definition.type, context.catalog.types, definition.span)
    if definition.role == "HEADERS":
        _check_header(definition, type_)
    return Column(definition.name, type_, definition.role, definition.header_key)


def _refuse_reserved(name: str, span: Span | None) -> None:
    if name in PSEUDO:
        raise InvalidStatement(
            f"'{name}' is a reserved column name. You cannot use it as a name for a column.", span=span
        )


def _check_header(definition: ColumnDefinition, type_: SqlType) -> None:
    wanted: SqlType = _HEADERS_TYPE if definition.header_key is None else BYTES
    if type_ != wanted:
        what = "HEADERS" if definition.header_key is None else f"HEADER('{definition.header_key}')"
        raise InvalidStatement(f"Invalid type for {what} column: expected {wanted}, got {type_}", span=definition.span)


def _check_timestamp(properties: SourceProperties, schema: Schema) -> None:
    check_timestamp_column(properties.timestamp_column, properties.timestamp_format, schema)


def check_timestamp_column(name: str | None, format_: str | None, schema: Schema) -> None:
    """Raises `UnknownColumn` or `InvalidProperty` if WITH (TIMESTAMP=…) cannot be used."""
    if name is None:
        return
    column = schema.find(name)
    if column is None:
        raise UnknownColumn(
            f"The TIMESTAMP column set in the WITH clause does not exist in the schema: '{name}'",
            hint=did_you_mean(name, [c.name for c in schema]),
        )
    if column.type == STRING:
        if format_ is None:
            raise InvalidProperty(
                "A String timestamp field has been specified without also specifying the timestamp_format: "
                f"column `{name}` is a STRING.",
                hint="Say how its texts are written: TIMESTAMP_FORMAT='yyyy-MM-dd HH:mm:ss'.",
            )
        try:
            compile_pattern(format_)
        except InvalidTimePattern as invalid:
            raise InvalidProperty(
                f"TIMESTAMP_FORMAT '{format_}' is no pattern of Java's DateTimeFormatter: {invalid}"
            ) from invalid
    elif column.type not in (BIGINT, TIMESTAMP):
        raise InvalidProperty(
            f"Timestamp column, `{name}`, should be LONG(INT64), TIMESTAMP, or a String with a timestamp_format "
            "specified."
        )
    elif format_ is not None:
        raise InvalidProperty(
            "'TIMESTAMP_FORMAT' set in the WITH clause can only be used when the timestamp column is of type STRING."
        )
