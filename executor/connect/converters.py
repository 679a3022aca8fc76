"""Converts keys and values of records to bytes and back: Kafka Connect's converters, without embedded schemas."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import orjson

from ...sql.settings.property import says_true
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
        except (TypeError, ValueError, struct.error) as error:
            raise ConnectorFailed(
                f"the {self.name} converter cannot write a value of type {type(value).__name__}: {error}",
                hint="Set key.converter or value.converter, or take one field with the transform ExtractField.",
            ) from None

    def from_bytes(self, data: bytes | None) -> Any:
        """Raises ValueError."""
        return None if data is None else self.decode(data)


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


_DECIMALS: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant)
"""Made once, because `json.loads` makes a decoder for each text, which takes longer than decoding a small text."""


def _json_value(data: bytes) -> Any:
    """Decodes JSON. Fractions become decimals, because a float would lose digits."""
    if b"." not in data:
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


_CONVERTERS: Final = {
    "json": Converter("json", _json, _json_value),
    "string": Converter("string", _text, lambda data: data.decode()),
    "integer": Converter("integer", *_integer(">i")),
    "long": Converter("long", *_integer(">q")),
    "double": Converter("double", *_integer(">d")),
    "bytes": Converter("bytes", lambda value: value, lambda data: data),
}
CONVERTER_NAMES: Final = tuple(_CONVERTERS)
_CLASSES: Final = {
    "JsonConverter": "json",
    "StringConverter": "string",
    "IntegerConverter": "integer",
    "LongConverter": "long",
    "DoubleConverter": "double",
    "ByteArrayConverter": "bytes",
}


def converter_of(config: Mapping[str, str], part: str) -> Converter:
    """The converter for keys or values. In: `part`: "key" or "value". Raises `InvalidConnector`."""
    name = f"{part}.converter"
    given = config.get(name, "json")
    found = _CONVERTERS.get(_CLASSES.get(given.rpartition(".")[2], given))
    if found is None:
        raise InvalidConnector(f'{name} is "{given}", but must be one of {", ".join(_CONVERTERS)}', setting=name)
    if says_true(config.get(f"{name}.schemas.enable", "false")):
        raise InvalidConnector(
            f"{name}.schemas.enable is true, but records carry no schemas here",
            setting=f"{name}.schemas.enable",
            hint="Leave it out: the columns of CREATE STREAM or CREATE TABLE are the schema.",
        )
    return found
