"""Columns that a statement does not list: they come from the schema of a topic's keys or values in the registry.

Names become upper case, as if the statement had them without quotes. They stay as they are if the statement gives the
id of the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millstream.errors import InvalidProperty, InvalidStatement, Span

from ...sql.types import SqlType, Struct
from ..formats import FORMAT_KINDS, format_rules
from ..schema import Column
from ..schemas import avro_schemas, json_schemas, protobuf_schemas, protobuf_text
from ..schemas.registry import InvalidSchema, Registry, Version, subject_of
from .with_properties import SchemaProperties

KEY_COLUMN = "ROWKEY"  # the column of a bare key
VALUE_COLUMN = "ROWVAL"  # the column of a bare value


@dataclass(frozen=True, slots=True)
class Inference:
    """Asks for the columns of a topic's keys or values in this format. `wrapped`: a value is a record."""

    part: Literal["key", "value"]
    topic: str
    format: str
    schema: SchemaProperties
    wrapped: bool


def infer_columns(asked: Inference, registry: Registry, span: Span | None) -> tuple[Column, ...]:
    """The columns; none if the format has no schemas. Raises `InvalidStatement` and `InvalidProperty`."""
    if asked.format.upper() not in FORMAT_KINDS:
        refuse_schema_id(asked, span)
        return ()
    version = find_version(asked, registry, span)
    return columns_of(asked, version, registry, span)


def refuse_schema_id(asked: Inference, span: Span | None) -> None:
    """Raises `InvalidProperty` for a schema id from which no columns can be inferred."""
    if asked.schema.id is None:
        return
    part = asked.part.upper()
    if asked.format.upper() not in FORMAT_KINDS:
        raise InvalidProperty(
            f"{part}_FORMAT should support schema inference when {part}_SCHEMA_ID is provided. "
            f"Current format is {asked.format.upper()}.",
            span=span,
            hint=f"The formats with schemas are {', '.join(FORMAT_KINDS)}.",
        )
    raise InvalidProperty(
        f"Table elements and {part}_SCHEMA_ID cannot both exist for create statement.",
        span=span,
        hint=f"Leave out the {asked.part} columns or the id.",
    )


def find_version(asked: Inference, registry: Registry, span: Span | None) -> Version:
    """The schema that the statement names, or the latest one of the topic. Raises `InvalidStatement`."""
    subject = subject_of(asked.topic, asked.part)
    wanted = asked.schema.id
    version = registry.latest(subject) if wanted is None else registry.by_id(wanted)
    if version is None:
        which = f"Schema for message {asked.part}s on topic '{asked.topic}'"
        with_id = "" if wanted is None else f" with id {wanted}"
        raise InvalidStatement(
            f"{which}{with_id} does not exist in the Schema Registry.\nSubject: {subject}",
            span=span,
            hint=f"Register it, or write the {asked.part} columns in the statement."
            if wanted is None
            else f"Register it, or leave out {asked.part.upper()}_SCHEMA_ID.",
        )
    if version.kind != FORMAT_KINDS[asked.format.upper()]:
        raise InvalidStatement(
            f"The {asked.part} schema with id {version.id} is {version.kind}, the format is {asked.format.upper()}.",
            span=span,
        )
    return version


def columns_of(asked: Inference, version: Version, registry: Registry, span: Span | None) -> tuple[Column, ...]:
    """The schema's columns. Raises `InvalidStatement` if it has none."""
    rename = str.upper if asked.schema.id is None else str
    type_ = _type_of(asked, version, registry, rename)
    bare = format_rules(asked.format).unwraps and (asked.part == "key" or not asked.wrapped)
    role = "KEY" if asked.part == "key" else "VALUE"
    if bare and type_ is not None:
        return (Column(KEY_COLUMN if role == "KEY" else VALUE_COLUMN, type_, role),)
    if isinstance(type_, Struct):
        return tuple(Column(field.name, field.type, role) for field in type_.fields)
    if type_ is None:
        raise InvalidStatement(
            f"Schema {version.id} does not include any columns with types that SQL supports: {version.text[:200]}",
            span=span,
        )
    raise InvalidStatement(
        "Schema returned from schema registry is anonymous type. To use this schema with ksqlDB, set "
        "'WRAP_SINGLE_VALUE=false' in the WITH clause properties.",
        span=span,
    )


def _type_of(asked: Inference, version: Version, registry: Registry, rename: avro_schemas.Rename) -> SqlType | None:
    references = registry.resolve(version.references)
    match version.kind:
        case "AVRO":
            return avro_schemas.sql_type(version.text, rename, references)
        case "JSON":
            return json_schemas.sql_type(version.text, rename, references)
        case "PROTOBUF":
            file = protobuf_text.load(version.text, references)
            message = file.message(asked.schema.full_name)
            if message is None:
                names = ", ".join(found.full_name for found in file.messages)
                raise InvalidSchema(
                    f"the PROTOBUF schema {version.id} has no message {asked.schema.full_name}", hint=f"It has: {names}"
                )
            return protobuf_schemas.sql_type(file, message, rename, nullable=asked.schema.nullable)
