"""The schema that records of a source are written with: the one that the statement names, the topic's latest one, or a
new one for its columns, which must then be registered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from millstream.errors import InvalidStatement, Span

from ..formats import FORMAT_KINDS, FORMATS
from ..schema import Column, Schema
from ..schemas import avro_schemas, json_schemas, protobuf_schemas
from ..schemas.compatibility import incompatibilities
from ..schemas.registry import GivenSchema, Registry, Version, subject_of
from ..source_info import SourceInfo
from ..specs import FormatSpec, RecordSchema
from .inference import Inference, columns_of, find_version, refuse_schema_id
from .with_properties import SchemaProperties, SourceProperties, read_properties


@dataclass(frozen=True, slots=True)
class SchemaTarget:
    """A stream or table with known formats, whose schemas are still to be found."""

    name: str
    topic: str
    schema: Schema
    key_format: FormatSpec
    value_format: FormatSpec

    def columns(self, part: Literal["key", "value"]) -> tuple[Column, ...]:
        """The columns that the key's or the value's format encodes."""
        if part == "key":
            return self.schema.key
        return tuple(column for column in self.schema.value if column.role == "VALUE")


@dataclass(frozen=True, slots=True)
class WithSchemas:
    """The formats with their schemas, and the versions to register for them, in this order."""

    key_format: FormatSpec
    value_format: FormatSpec
    versions: tuple[Version, ...]


def with_schemas(
    target: SchemaTarget, given: SourceProperties, registry: Registry, *, renew: bool = False
) -> WithSchemas:
    """The formats of `target` with schemas. `renew`: register the columns' schema even if the topic has one already
    (CREATE … AS).

    Raises `InvalidStatement` if the registry would refuse the schema, and `FormatError` for names that are not allowed
    in the format.
    """
    specs: list[FormatSpec] = []
    versions: list[Version] = []
    parts: tuple[tuple[Literal["key", "value"], FormatSpec, SchemaProperties], ...] = (
        ("key", target.key_format, given.key_schema),
        ("value", target.value_format, given.value_schema),
    )
    for part, spec, asked in parts:
        columns = target.columns(part)
        if FORMATS[spec.name].schema_kind and not FORMATS[spec.name].registered:
            text = protobuf_schemas.write_schema(columns, asked.full_name, spec.nullable)
            specs.append(replace(spec, schema=RecordSchema(0, "PROTOBUF", text)))
        elif spec.name in FORMAT_KINDS and columns:
            version = _version(part, target, spec, asked, registry, renew)
            if (version.subject, version.version) not in registry.versions:
                registry = registry.with_version(version)
                versions.append(version)
            message = asked.full_name if version.kind == "PROTOBUF" else ""
            schema = registry.record_schema(version, message, given=asked.id is not None)
            specs.append(replace(spec, schema=schema))
        else:
            specs.append(spec)
    return WithSchemas(specs[0], specs[1], tuple(versions))


def with_new_schemas(source: SourceInfo, registry: Registry) -> tuple[SourceInfo, tuple[Version, ...]]:
    """A source whose columns changed, with a schema for them, and the versions to register. A schema that the statement
    gave stays. Raises the same errors as `with_schemas`."""
    old = source.value_format.schema
    if old is None or old.given:
        return source, ()
    asked = replace(_NOTHING_GIVEN, value_schema=SchemaProperties(full_name=_record_name(old)))
    target = SchemaTarget(source.name, source.topic, source.schema, source.key_format, source.value_format)
    made = with_schemas(target, asked, registry, renew=True)
    versions = tuple(version for version in made.versions if version.subject == subject_of(source.topic, "value"))
    return replace(source, value_format=made.value_format), versions


def _record_name(schema: RecordSchema) -> str:
    if schema.kind != "AVRO":
        return schema.message
    node = avro_schemas.load(schema.text)
    namespace, name = node.get("namespace"), node.get("name", "")
    return f"{namespace}.{name}" if namespace and "." not in name else name


_NOTHING_GIVEN = read_properties({}, create=True)


def check_given_schemas(target: SchemaTarget, given: SourceProperties, registry: Registry, span: Span | None) -> None:
    """Checks a CREATE … AS with a schema id: the query's columns must be the first columns of the schema.

    Raises `InvalidStatement` and `InvalidProperty`.
    """
    parts: tuple[tuple[Literal["key", "value"], FormatSpec, SchemaProperties], ...] = (
        ("key", target.key_format, given.key_schema),
        ("value", target.value_format, given.value_schema),
    )
    for part, spec, asked in parts:
        if asked.id is None:
            continue
        columns = target.columns(part)
        inference = Inference(part, target.topic, spec.name, asked, spec.wrap_single)
        if spec.name not in FORMAT_KINDS:
            refuse_schema_id(inference, span)
        version = find_version(inference, registry, span)
        known = columns_of(inference, version, registry, span)
        if part == "key" and not spec.wrap_single and len(columns) == len(known) == 1:
            known = (replace(known[0], name=columns[0].name),)
        changed = [column for i, column in enumerate(columns) if i >= len(known) or not _same(column, known[i])]
        if changed:
            raise InvalidStatement(
                f"The following {part} columns are changed, missing or reordered: [{_listed(changed)}]. "
                f"Schema from schema registry is [{_listed(known)}]",
                span=span,
            )


def _same(column: Column, known: Column) -> bool:
    return column.name == known.name and column.type == known.type


def _listed(columns: Sequence[Column]) -> str:
    return ", ".join(map(str, columns))


def _version(
    part: Literal["key", "value"],
    target: SchemaTarget,
    spec: FormatSpec,
    asked: SchemaProperties,
    registry: Registry,
    renew: bool,
) -> Version:
    subject, kind = subject_of(target.topic, part), FORMAT_KINDS[spec.name]
    if asked.id is not None:
        found = find_version(Inference(part, target.topic, spec.name, asked, spec.wrap_single), registry, None)
        version = registry.new_version(subject, found.given, found.id)
        _check_mode(version, registry)
        return version
    latest = registry.latest(subject)
    if latest is not None and latest.kind == kind and not renew:
        return latest
    version = registry.new_version(subject, GivenSchema(kind, _text(part, target, spec, asked)))
    _check_mode(version, registry)
    if (subject, version.version) not in registry.versions:
        problems = incompatibilities(version, registry)
        if problems:
            raise InvalidStatement(
                f"Could not register schema for topic {target.topic}: the new {part} schema is not "
                f"{registry.level(subject)} compatible with the earlier ones of subject {subject}: {problems[0]}",
                hint="Use another topic, or change the subject's compatibility level.",
            )
    return version


def _check_mode(version: Version, registry: Registry) -> None:
    if (version.subject, version.version) not in registry.versions:
        registry.check_mode(version.subject, "READWRITE")


def _text(part: str, target: SchemaTarget, spec: FormatSpec, asked: SchemaProperties) -> str:
    columns = target.columns("key" if part == "key" else "value")
    match FORMAT_KINDS[spec.name]:
        case "AVRO":
            default = avro_schemas.key_name(target.name) if part == "key" else avro_schemas.VALUE_NAME
            return avro_schemas.write_schema(columns, asked.full_name or default, wrapped=spec.wrap_single)
        case "JSON":
            return json_schemas.write_schema(columns, wrapped=spec.wrap_single)
        case "PROTOBUF":
            return protobuf_schemas.write_schema(columns, asked.full_name, spec.nullable)
