"""One record's key or value as a plain Python value, for tests, tools and the sandbox.

The values are those of the conformance driver: a dict for an object, Decimal with its scale for DECIMAL, days or
milliseconds for times, base64 text for BYTES inside JSON, the whole text for DELIMITED.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...planner.schema import Column
from ...planner.specs import FormatSpec
from ...sql.types import Array, Decimal, Map, Primitive, SqlType, Struct
from .json_text import Real, parse_json, write_json
from .reading import Mismatch, converter, fold
from .record_codec import RECORD_FORMATS, RecordReader, codec_of
from .wire import HEADER_BYTES, SchemaLookup, header, no_schemas, schema_id_of

_FORMATS = {"INTEGER": ">i", "BIGINT": ">q", "DOUBLE": ">d"}


def encode_logical(spec: FormatSpec, columns: Sequence[Column], value: Any) -> bytes | None:
    """The bytes of `value`, taken as it is: JSON is written with all its digits and with its own names, DELIMITED is
    text, KAFKA a number or text by the column's type (text without columns). AVRO and PROTOBUF find fields by name, in
    any case. None is null. Raises: Unwritable where it does not fit the schema."""
    if value is None:
        return None
    if spec.name in RECORD_FORMATS and spec.schema is not None:
        return codec_of(spec, spec.schema).write(value)
    if spec.name == "JSON_SR" and spec.schema is not None:
        return header(spec.schema.id) + write_json(value).encode()
    if spec.name == "JSON":
        return write_json(value).encode()
    if spec.name == "KAFKA" and (type_name := _type_name(columns)) in _FORMATS:
        number = float(value) if type_name == "DOUBLE" else int(value)
        return struct.pack(_FORMATS[type_name], number)
    return value if isinstance(value, bytes) else str(value).encode()


def decode_logical(
    spec: FormatSpec, columns: Sequence[Column], data: bytes | None, schemas: SchemaLookup = no_schemas
) -> Any:
    """The value of the bytes; numbers inside JSON become what their column's type says.

    Raises: InvalidJson, Unreadable, UnicodeDecodeError, struct.error for bytes that the format cannot have written.
    """
    if data is None:
        return None
    if spec.name in RECORD_FORMATS:
        return RecordReader(spec, schemas).read(data)
    if spec.name == "JSON_SR":
        schema_id_of(data)
        return decode_logical(replace(spec, name="JSON"), columns, data[HEADER_BYTES:])
    if spec.name == "JSON":
        held = [column for column in columns if column.role != "HEADERS"]
        value = parse_json(data)
        if not spec.wrap_single and len(held) == 1:
            return _typed(value, held[0].type)
        return _typed_fields(value, {column.name: column.type for column in held})
    if spec.name == "KAFKA" and (type_name := _type_name(columns)) in _FORMATS:
        return struct.unpack(_FORMATS[type_name], data)[0]
    return data if spec.name == "KAFKA" and _type_name(columns) == "BYTES" else data.decode()


def _type_name(columns: Sequence[Column]) -> str:
    return str(columns[0].type) if columns else "STRING"


def _typed(value: Any, type_: SqlType | None) -> Any:
    if isinstance(value, str) and not isinstance(value, Real):
        return value  # a text stays one: "NaN"
    match type_:
        case Decimal() | Primitive(name="DOUBLE"):
            try:
                return converter(type_)(value)
            except Mismatch:
                return _plain(value)
        case Array() if isinstance(value, list):
            return [_typed(member, type_.element) for member in value]  # pyright: ignore[reportUnknownVariableType]
        case Map() if isinstance(value, dict):
            return {key: _typed(member, type_.value) for key, member in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case Struct():
            return _typed_fields(value, {field.name: field.type for field in type_.fields})
        case _:
            return _plain(value)


def _typed_fields(value: Any, types: dict[str, SqlType]) -> Any:
    if not isinstance(value, dict):
        return _plain(value)
    folded = {fold(name): type_ for name, type_ in types.items()}
    return {
        name: _typed(member, types.get(name, folded.get(fold(name))))  # pyright: ignore[reportUnknownArgumentType]
        for name, member in value.items()  # pyright: ignore[reportUnknownVariableType]
    }


def _plain(value: Any) -> Any:
    """Numbers of no known type as float."""
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list):
        return [_plain(member) for member in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value
