"""Converts keys and values of records to bytes and back: Kafka Connect's converters, without embedded schemas.

Those of AVRO, PROTOBUF and JSON_SR only read, for sinks. They give the values that the same columns have in JSON.
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import orjson

from ...planner.formats import FORMAT_KINDS
from ...planner.formats.format import SchemaKind
from ...planner.specs import FormatSpec
from ...sql.settings.property import says_true
from ..formats.coding import RecordPart, find_coding
from ..formats.schema_records import SchemaCoding, check_kind
from ..formats.wire import HEADER_BYTES, SchemaLookup, Unreadable, schema_id_of
from ..formats.writing import double_text
from .connector_errors import ConnectorFailed, InvalidConnector


@dataclass(frozen=True, slots=True)
class Converter:
    """`encode` takes a JSON value, `decode` takes bytes; neither is called with None."""

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def to_bytes(self, value: Any) -> bytes | None:
        """Raises `ConnectorFailed` for a value that this converter cannot encode."""
        if value is None or isinstance(value, bytes):
            return value
        try:
            return self.encode(value)
        except (TypeError, ValueError, ArithmeticError, struct.error) as error:
            raise ConnectorFailed(
                f"the {self.name} converter cannot write a value of type {type(value).__name__}: {error}",
                hint="Set key.converter or value.converter, or take one field with the transform ExtractField.",
            ) from None

    def from_bytes(self, data: bytes | None) -> Any:
        """Raises ValueError."""
        try:
            return None if data is None else self.decode(data)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def _integer(form: str) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    def decode(data: bytes) -> Any:
        try:
            return struct.unpack(form, data)[0]
        except struct.error as error:
            raise ValueError(str(error)) from None

    return (lambda value: struct.pack(form, value)), decode


def _text(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else _json(value)


def _json(value: Any) -> bytes:
    return orjson.dumps(value, _exact, orjson.OPT_NON_STR_KEYS)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError("it writes bytes and texts")
    return value.encode()


def json_text(value: Any) -> str:
    """The text of a JSON value; decimals have all their digits."""
    return _json(value).decode()


def readable(value: Any) -> bytes | None:
    """A readable form of a value that cannot be converted: as JSON if possible, else its Python `repr`."""
    if value is None or isinstance(value, bytes):
        return value
    try:
        return _json(value)
    except (TypeError, ValueError):
        return repr(value).encode()


_EXPONENT_MAX: Final = 400


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _json_integer(text: str) -> Any:
    """An int if orjson can write it, otherwise a decimal."""
    if len(text) <= _DIGITS_MAX and _LEAST_INTEGER <= (number := int(text)) <= _LARGEST_INTEGER:
        return number
    return Decimal(text)


_LEAST_INTEGER: Final = -(2**63)
_LARGEST_INTEGER: Final = 2**64 - 1
_DIGITS_MAX: Final = 20  # of an integer that orjson reads and writes, its sign included
_DIGITS_AS_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_ROUNDED: Final = (b"0" * 20, b"-" + b"0" * 19, b"0e", b"0E")
"""Numbers, all their digits replaced by zeros, that orjson may read as a DOUBLE. The last two also occur in texts."""
_DECIMALS: Final = json.JSONDecoder(parse_float=Decimal, parse_int=_json_integer, parse_constant=_no_constant)
"""Made once, because `json.loads` makes a decoder for each text, which takes longer than decoding a small text."""


def may_be_rounded(data: bytes) -> bool:
    """Whether the JSON may have a number that orjson rounds: a fraction, one with an exponent, or an integer of more
    than 64 bits.

    >>> [may_be_rounded(data) for data in (b'{"a": 0.5}', b"12345678901234567890", b"12e3", b'{"e": 1234567890}')]
    [True, True, True, False]
    """
    if b"." in data:
        return True
    digits = data.translate(_DIGITS_AS_ZERO)
    return any(each in digits for each in _ROUNDED)


def _json_value(data: bytes) -> Any:
    """Decodes JSON. Fractions, numbers with an exponent and integers of more than 64 bits become decimals: a float
    would lose digits."""
    if not may_be_rounded(data):
        return orjson.loads(data)
    try:
        return _DECIMALS.decode(data.decode("utf-8", "surrogatepass"))
    except InvalidOperation:
        raise ValueError("a number has an exponent that no decimal has") from None


def _exact(value: Any) -> Any:
    """Encodes a decimal as a JSON number with all its digits."""
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value) if is_far_from_one(value) else format(value, "f"))
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


def is_far_from_one(number: Decimal) -> bool:
    """Whether the exponent is larger than any exponent of a DOUBLE. Without an exponent, a few bytes such as
    1.0e999999999 would become a text with that many digits."""
    return number.is_finite() and abs(number.adjusted()) > _EXPONENT_MAX


# ------------------------------------------------------------------ records that name their schema

_FORMAT_OF: Final = {name.lower(): name for name in FORMAT_KINDS}
_NAME_OF_KIND: Final = {kind: name.lower() for name, kind in FORMAT_KINDS.items()}


def _schema_converter(name: str, schemas: SchemaLookup) -> Converter:
    """State: what reads the records of each schema."""
    format_name = _FORMAT_OF[name]
    coding = find_coding(format_name)
    if isinstance(coding, SchemaCoding):
        read = _record_reader(coding, format_name, schemas)
    else:  # its records need no schema to be read
        read = _json_after_id(FORMAT_KINDS[format_name], schemas)

    def decode(data: bytes) -> Any:
        try:
            return read(data)
        except (Unreadable, ArithmeticError) as error:
            raise ValueError(str(error)) from None

    return Converter(name, _refused, decode)


def _refused(value: Any) -> bytes:
    raise TypeError("it only reads")


def _record_reader(coding: SchemaCoding, format_name: str, schemas: SchemaLookup) -> Callable[[bytes], Any]:
    reader = coding.reader(RecordPart(FormatSpec(format_name), (), schemas))
    return lambda data: plain_json(reader.read(data))


def _json_after_id(kind: SchemaKind, schemas: SchemaLookup) -> Callable[[bytes], Any]:
    known: set[int] = set()

    def read(data: bytes) -> Any:
        schema_id = schema_id_of(data)
        if schema_id not in known:
            check_kind(schema_id, schemas(schema_id), kind)
            known.add(schema_id)
        return _json_value(data[HEADER_BYTES:])

    return read


def plain_json(value: Any) -> Any:
    """A plain value of a record as it is after it was written as JSON and read again: bytes are base64, doubles are
    decimals with the shortest digits."""
    convert = _BY_TYPE.get(type(value))
    return value if convert is None else convert(value)


def _double(value: float) -> Any:
    if 1e-3 <= value < 1e7 or -1e7 < value <= -1e-3:
        return Decimal(repr(value))  # the same digits as those of `double_text`
    text = double_text(value)
    return Decimal(text) if math.isfinite(value) else text


def _decimal(value: Decimal) -> Any:
    exponent = value.as_tuple().exponent
    is_whole = isinstance(exponent, int) and exponent >= 0 and not is_far_from_one(value)
    return _json_integer(format(value, "f")) if is_whole else value


def _object(value: dict[Any, Any]) -> dict[str, Any]:
    return {name if type(name) is str else _text(name).decode(): plain_json(member) for name, member in value.items()}


_BY_TYPE: Final[dict[type, Callable[[Any], Any]]] = {
    dict: _object,
    list: lambda value: [plain_json(member) for member in value],
    float: _double,
    Decimal: _decimal,
    bytes: lambda value: b64encode(value).decode(),
}


# ------------------------------------------------------------------ the converters of a connector

_CONVERTERS: Final = {
    "json": Converter("json", _json, _json_value),
    "string": Converter("string", _text, lambda data: data.decode()),
    "integer": Converter("integer", *_integer(">i")),
    "long": Converter("long", *_integer(">q")),
    "double": Converter("double", *_integer(">d")),
    "bytes": Converter("bytes", _bytes, lambda data: data),
}
CONVERTER_NAMES: Final = tuple(_CONVERTERS)
SINK_CONVERTER_NAMES: Final = (*_CONVERTERS, *_FORMAT_OF)
_CLASSES: Final = {
    "JsonConverter": "json",
    "StringConverter": "string",
    "IntegerConverter": "integer",
    "LongConverter": "long",
    "DoubleConverter": "double",
    "ByteArrayConverter": "bytes",
    "AvroConverter": "avro",
    "ProtobufConverter": "protobuf",
    "JsonSchemaConverter": "json_sr",
}


def converter_name(config: Mapping[str, str], part: str) -> str:
    """The name of the converter for keys or values. In: `part`: "key" or "value". Raises `InvalidConnector`."""
    name = f"{part}.converter"
    given = config.get(name, "json")
    found = _CLASSES.get(given.rpartition(".")[2], given)
    if found not in SINK_CONVERTER_NAMES:
        known = ", ".join(SINK_CONVERTER_NAMES)
        raise InvalidConnector(f'{name} is "{given}", but must be one of {known}', setting=name)
    if says_true(config.get(f"{name}.schemas.enable", "false")):
        raise InvalidConnector(
            f"{name}.schemas.enable is true, but records carry no schemas here",
            setting=f"{name}.schemas.enable",
            hint="Leave it out: the columns of CREATE STREAM or CREATE TABLE are the schema.",
        )
    return found


def converter_of(config: Mapping[str, str], part: str) -> Converter:
    """The converter with which a source writes keys or values. Raises `InvalidConnector`."""
    found = converter_name(config, part)
    if found in _FORMAT_OF:
        name, format_ = f"{part}.converter", _FORMAT_OF[found]
        raise InvalidConnector(
            f'{name} is "{config[name]}", but a source writes no {format_}: its records have no schema',
            setting=name,
            hint=f"Leave {name} out, declare a stream on the topic with {part}_format='JSON', and convert it:"
            f" CREATE STREAM … WITH ({part}_format='{format_}') AS SELECT * FROM ….",
        )
    return _CONVERTERS[found]


def sink_converter_of(config: Mapping[str, str], part: str, schemas: SchemaLookup) -> Converter:
    """The converter with which a sink reads keys or values; it looks up each schema once. Raises
    `InvalidConnector`."""
    found = converter_name(config, part)
    return _schema_converter(found, schemas) if found in _FORMAT_OF else _CONVERTERS[found]


def converter_hint(part: str, converter: Converter, data: bytes | None, schemas: SchemaLookup) -> str:
    """What a user can do about bytes that the converter does not read."""
    given = f"{part}.converter"
    try:
        schema_id = schema_id_of(data or b"")
    except Unreadable:
        return f"Set {given} to the format of the topic; it is {converter.name}."
    schema = schemas(schema_id)
    if schema is not None and _NAME_OF_KIND[schema.kind] != converter.name:
        return f"Set {given}='{_NAME_OF_KIND[schema.kind]}': the {part} names a schema of that format."
    if schema is None and converter.name in _FORMAT_OF:
        return f"Register the schema under the id {schema_id} (with the mode IMPORT), and RESTART the connector."
    return f"Set {given} to the format of the topic; it is {converter.name}."
