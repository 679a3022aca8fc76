"""JSON: one object per record, or the bare value of a single column.

As in ksqlDB: names match in any case, missing fields are NULL, numbers become text for STRING, text is parsed as a
number for number types, whole numbers drop fractions, decimals are never rounded. `reading.py` has the rules by type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...planner.formats.json import JSON
from ...planner.schema import Column
from ...sql.compiling.loops import read_only
from .codec import Decoder, Encoder
from .coding import Coding, RecordPart, codes
from .compiled import scan
from .compiled.spans import Bytes, FieldNames, Positions, find_fields
from .json_text import InvalidJson, parse_json, write_json
from .logical import typed_value
from .reading import FieldReader, Mismatch, convert_fields, converter, describe
from .text_decoder import TextDecoder, UnreadableRow
from .text_encoder import BareValue, JsonObject, TextEncoder


class WrappedJson:
    """Objects whose fields are the columns."""

    words = False

    def __init__(self, columns: Sequence[Column]) -> None:
        self._names = [column.name for column in columns]
        self._reader = FieldReader(self._names)
        self._converters = [converter(column.type) for column in columns]
        self._scanned = FieldNames.of(self._names)

    def read_row(self, data: bytes) -> list[Any] | None:
        value = _parse(data)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise UnreadableRow(f"$: an object wanted, {describe(value)} came")
        try:
            return convert_fields(self._names, self._converters, self._reader.read(value))
        except Mismatch as error:
            raise UnreadableRow(str(error)) from None

    def scan(
        self, data: Bytes, starts: Positions, ends: Positions, status: Bytes, wide: Bytes
    ) -> tuple[Positions, Positions, Bytes]:
        return find_fields(data, starts, ends, self._scanned, status, wide)


class BareJson:
    """The value of the only column, without an object around it. In: `read`: whether the column is needed."""

    words = False

    def __init__(self, column: Column, read: bool) -> None:
        self._convert = converter(column.type)
        self._read = read

    def read_row(self, data: bytes) -> list[Any] | None:
        value = _parse(data)
        if value is None:
            return None
        try:
            return [self._convert(value)] if self._read else []
        except Mismatch as error:
            raise UnreadableRow(str(error)) from None

    def scan(
        self, data: Bytes, starts: Positions, ends: Positions, status: Bytes, wide: Bytes
    ) -> tuple[Positions, Positions, Bytes]:
        count = len(starts)
        start, end, kind = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.uint8)
        scan.scan_values(data, starts, ends, start, end, kind, status, wide)
        status[(status == scan.OK) & (kind == scan.NULL)] = scan.NULL_ROW
        return read_only(start)[None], read_only(end)[None], read_only(kind)[None]


def _parse(data: bytes) -> Any:
    try:
        return parse_json(data)
    except InvalidJson as error:
        raise UnreadableRow(str(error)) from None


@codes(JSON.name)
class JsonCoding(Coding):
    def decoder(self, part: RecordPart) -> Decoder:
        style = BareJson(part.held[0], bool(part.read)) if part.bare else WrappedJson(part.read)
        return TextDecoder(style, part.columns, part.wanted)

    def encoder(self, part: RecordPart) -> Encoder:
        style = BareValue() if part.bare else JsonObject([column.name for column in part.held])
        return TextEncoder(style, part.held, part.numbers)

    def encode_one(self, part: RecordPart, value: Any) -> bytes:
        return write_json(value).encode()

    def decode_one(self, part: RecordPart, data: bytes) -> Any:
        return typed_value(parse_json(data), part.held, bare=part.bare)
