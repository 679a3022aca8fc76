"""Formats whose records name the schema with which they were written: AVRO and PROTOBUF, with or without a registry."""

from __future__ import annotations

from typing import Any, Protocol

from ...planner.formats import FORMATS
from ...planner.formats.format import SchemaKind
from ...planner.schemas.registry import InvalidSchema
from ...planner.specs import FormatSpec, RecordSchema
from .coding import RecordPart, find_coding
from .record_codec import RecordCoding, RecordReader
from .wire import SchemaLookup, Unreadable, schema_id_of


class RecordCodec(Protocol):
    """Turns plain values into bytes and back, with one schema."""

    def read(self, data: bytes) -> Any: ...

    def write(self, value: Any) -> bytes: ...


class SchemaCoding(RecordCoding):
    """A format that has a codec for each schema."""

    def codec(self, spec: FormatSpec, schema: RecordSchema) -> RecordCodec:
        """Raises `InvalidSchema`."""
        raise AssertionError(f"{type(self).__name__} has no codec")

    def reader(self, part: RecordPart) -> SchemaReader:
        return SchemaReader(self, part.spec, part.schemas)

    def writer(self, part: RecordPart) -> RecordCodec:
        assert part.spec.schema is not None, "the planner gives every source of this format a schema"
        return self.codec(part.spec, part.spec.schema)

    def encode_one(self, part: RecordPart, value: Any) -> bytes:
        return super().encode_one(part, value) if part.spec.schema is None else self.writer(part).write(value)

    def decode_one(self, part: RecordPart, data: bytes) -> Any:
        return self.reader(part).read(data)


class SchemaReader(RecordReader):
    """Reads each record with the schema that it names, or with the format's own one if the format uses no registry."""

    def __init__(self, coding: SchemaCoding, spec: FormatSpec, schemas: SchemaLookup) -> None:
        self._coding = coding
        self._spec = spec
        self._schemas = schemas
        self._kind: SchemaKind | None = FORMATS[spec.name].schema_kind
        self._codecs: dict[int, RecordCodec] = {}
        self._unnamed: int | None = None  # the schema of records that name none
        if not FORMATS[spec.name].registered:
            assert spec.schema is not None, "the planner gives every source of this format a schema"
            self._unnamed = spec.schema.id
        if spec.schema is not None and spec.schema.kind == self._kind:
            self._codecs[spec.schema.id] = coding.codec(spec, spec.schema)

    def read(self, data: bytes) -> Any:
        schema_id = schema_id_of(data) if self._unnamed is None else self._unnamed
        codec = self._codecs.get(schema_id)
        if codec is None:
            codec = self._codecs[schema_id] = self._codec(schema_id)
        return codec.read(data)

    def schema(self, schema_id: int) -> RecordSchema | None:
        own = self._spec.schema
        return own if own is not None and own.id == schema_id else self._schemas(schema_id)

    def _codec(self, schema_id: int) -> RecordCodec:
        schema = check_kind(schema_id, self._schemas(schema_id), self._kind)
        try:
            return self._coding.codec(self._spec, schema)
        except InvalidSchema as error:
            raise Unreadable(str(error)) from None


def check_kind(schema_id: int, schema: RecordSchema | None, kind: SchemaKind | None) -> RecordSchema:
    """The schema with the id that a record names. Raises `Unreadable` if there is none, or if it is of another kind."""
    if schema is None:
        raise Unreadable(f"the record names the schema {schema_id}, which the schema registry does not have")
    if schema.kind != kind:
        raise Unreadable(f"the record names the schema {schema_id}, which is {schema.kind}, not {kind}")
    return schema


def codec_of(spec: FormatSpec, schema: RecordSchema) -> RecordCodec:
    """Raises `InvalidSchema`."""
    coding = find_coding(spec.name)
    assert isinstance(coding, SchemaCoding), f"records of {spec.name} name no schema"
    return coding.codec(spec, schema)
