"""The formats of keys and values inside requests and responses: JSON to a record's bytes, and back."""

from __future__ import annotations

import binascii
from base64 import b64encode
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import orjson

from ...executor.formats.avro import avro_codec
from ...executor.formats.protobuf import protobuf_codec
from ...executor.formats.wire import HEADER_BYTES, Unreadable, Unwritable, header, schema_id_of
from ...planner.formats.format import SchemaKind
from ...planner.specs import RecordSchema
from .proxy_errors import BAD_REQUEST, ProxyRefusal
from .proxy_requests import dump_json


class EmbeddedFormat(StrEnum):
    """The values are v3's; v2 has them in lower case, and has no STRING."""

    BINARY = "BINARY"
    JSON = "JSON"
    STRING = "STRING"
    AVRO = "AVRO"
    JSONSCHEMA = "JSONSCHEMA"
    PROTOBUF = "PROTOBUF"

    @property
    def kind(self) -> SchemaKind | None:
        """The kind of its schemas; None if its records have no schema id."""
        return _KINDS.get(self)

    @property
    def media_type(self) -> str:
        return f"application/vnd.kafka.{self.value.lower()}.v2+json"


_KINDS: Final[dict[EmbeddedFormat, SchemaKind]] = {
    EmbeddedFormat.AVRO: "AVRO",
    EmbeddedFormat.JSONSCHEMA: "JSON",
    EmbeddedFormat.PROTOBUF: "PROTOBUF",
}
FORMAT_OF_KIND: Final = {kind: format for format, kind in _KINDS.items()}
V2_FORMATS: Final = tuple(format for format in EmbeddedFormat if format is not EmbeddedFormat.STRING)

SchemaLookup = Callable[[int], RecordSchema | None]


def encode(format: EmbeddedFormat, value: Any, schema: RecordSchema | None = None) -> bytes | None:
    """The bytes of a record's key or value; None for null. In: `schema`: if the format has schemas. Raises
    `ProxyRefusal`, `Unwritable`, `InvalidSchema`."""
    if value is None:
        return None
    match format:
        case EmbeddedFormat.BINARY:
            return decode_base64(value)
        case EmbeddedFormat.STRING:
            if not isinstance(value, str):
                raise ProxyRefusal(BAD_REQUEST, "Bad Request: the data is not a string")
            return _utf8(value)
        case EmbeddedFormat.JSON:
            return _json(value)
        case EmbeddedFormat.AVRO:
            return avro_codec(_given(schema)).from_json(value)
        case EmbeddedFormat.PROTOBUF:
            return protobuf_codec(_given(schema), framed=True).from_json(value)
        case EmbeddedFormat.JSONSCHEMA:
            return header(_given(schema).id) + _json(value)


def _given(schema: RecordSchema | None) -> RecordSchema:
    assert schema is not None, "the routes ask for a schema first"
    return schema


def decode_base64(value: Any) -> bytes:
    """Raises `ProxyRefusal`."""
    try:
        if isinstance(value, str):
            return binascii.a2b_base64(value, strict_mode=True)
    except (binascii.Error, ValueError):
        pass
    raise ProxyRefusal(BAD_REQUEST, "Bad Request: the data is not a valid base64 string")


def _json(value: Any) -> bytes:
    try:
        return dump_json(value)
    except (ValueError, TypeError, RecursionError):
        raise Unwritable("a text has a lone surrogate, or it is nested too deeply") from None


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Unwritable("a text has a lone surrogate") from None


def decode(format: EmbeddedFormat, data: bytes | None, schemas: SchemaLookup) -> Any:
    """A record's key or value as JSON. Raises `Unreadable`."""
    if data is None:
        return None
    match format:
        case EmbeddedFormat.BINARY:
            return b64encode(data).decode()
        case EmbeddedFormat.STRING:
            return data.decode(errors="replace")
        case EmbeddedFormat.JSON:
            return _parsed(data)
        case EmbeddedFormat.JSONSCHEMA:
            schema_id_of(data)
            return _parsed(data[HEADER_BYTES:])
        case EmbeddedFormat.AVRO:
            return avro_codec(_schema(data, "AVRO", schemas)).json_of(data)
        case EmbeddedFormat.PROTOBUF:
            return protobuf_codec(_schema(data, "PROTOBUF", schemas), framed=True).json_of(data)


def _parsed(data: bytes) -> orjson.Fragment:
    """Valid JSON is copied into the response without changes."""
    try:
        orjson.loads(data)
    except ValueError as error:
        raise Unreadable(f"it is not JSON: {error}") from None
    return orjson.Fragment(data)


def _schema(data: bytes, kind: SchemaKind, schemas: SchemaLookup) -> RecordSchema:
    schema_id = schema_id_of(data)
    schema = schemas(schema_id)
    if schema is None or schema.kind != kind:
        raise Unreadable(f"it names the schema {schema_id}, and the schema registry has no {kind} schema of that id")
    return schema


def check_usable(format: EmbeddedFormat, schema: RecordSchema) -> None:
    """Raises `InvalidSchema` if no record can be written with the schema."""
    if format is EmbeddedFormat.AVRO:
        avro_codec(schema)
    elif format is EmbeddedFormat.PROTOBUF:
        protobuf_codec(schema, framed=True)
