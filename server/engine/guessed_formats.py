"""Guesses the formats of a topic without a declared stream or table, for PRINT.

Bytes are ambiguous: eight bytes may be a BIGINT or a DOUBLE, and four letters could be a number. So text wins over
numbers, and PRINT shows which format it assumed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from ...executor.formats import decode_logical
from ...executor.formats.json_text import InvalidJson, parse_json
from ...executor.formats.wire import SchemaLookup, Unreadable, schema_id_of
from ...planner.formats import FORMATS
from ...planner.specs import FormatSpec

UNDECODABLE: Final = (ValueError, ArithmeticError, struct.error, InvalidJson, Unreadable)
"""The errors that decoding raises for bytes of another format."""

_NOTHING_SEEN: Final = "¯\\_(ツ)_/¯ - no data processed"
_UNKNOWN: Final = "¯\\_(ツ)_/¯ - bytes"
_WHITE: Final = "\t\n\r"
_NUMBERS: Final = {4: (">i", "KAFKA_INT"), 8: (">q", "KAFKA_BIGINT or KAFKA_DOUBLE")}


@dataclass(frozen=True, slots=True)
class Guess:
    """`format`: the name that PRINT shows. `value`: as in `decode_logical`; JSON and all other texts are unchanged."""

    format: str
    value: Any


def guess(data: bytes, schemas: SchemaLookup) -> Guess:
    """In: `schemas`: looks up the schemas whose ids are in records."""
    unknown = Guess(_UNKNOWN, data.decode(errors="replace"))
    return _by_schema(data, schemas) or _text(data) or _number(data) or unknown


def common_format(formats: Iterable[str]) -> str:
    """One name for the formats of several records."""
    found = set(formats)
    if len(found) > 1:
        return "MIXED"
    return found.pop() if found else _NOTHING_SEEN


def _by_schema(data: bytes, schemas: SchemaLookup) -> Guess | None:
    """The guess for a record that contains the id of a schema of the registry, and matches that schema; else None."""
    try:
        schema = schemas(schema_id_of(data))
        if schema is None:
            return None
        name = next(name for name, kind in FORMATS.items() if kind.registered and kind.schema_kind == schema.kind)
        return Guess(name, decode_logical(FormatSpec(name), (), data, schemas))
    except UNDECODABLE:
        return None


def _text(data: bytes) -> Guess | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if not all(letter.isprintable() or letter in _WHITE for letter in text):
        return None
    try:
        parse_json(data)
    except InvalidJson:
        return Guess("KAFKA_STRING", text)
    return Guess("JSON or KAFKA_STRING", text)


def _number(data: bytes) -> Guess | None:
    if len(data) not in _NUMBERS:
        return None
    layout, name = _NUMBERS[len(data)]
    return Guess(name, struct.unpack(layout, data)[0])
