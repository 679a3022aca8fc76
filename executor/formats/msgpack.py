"""MSGPACK: a record is a MessagePack map from the names of columns to their values, or the value of its only column.

If MessagePack has a fitting type, it is used: BYTES is bin, TIMESTAMP is the timestamp extension. DECIMAL is text with
all its digits, DATE the days since 1970, TIME the milliseconds since midnight. Reading also accepts what other writers
use: numbers for DECIMAL, milliseconds for TIMESTAMP, and numbers as keys of maps, which become text.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal as Number
from typing import Any, cast

import msgpack

from ...planner.formats.msgpack import MSGPACK
from ...planner.schema import Column
from ...sql.types import STRING, TIMESTAMP, Array, Decimal, Field, Map, SqlType, Struct
from .coding import RecordPart, codes
from .json_text import Real
from .reading import Convert, Mismatch, fold
from .reading import converter as text_converter
from .record_codec import RecordCoding, RecordReader
from .typed_values import converter
from .wire import Unreadable, Unwritable

_BAD_UTF8 = "surrogateescape"  # invalid UTF-8 is reported later, by the conversion to text, which knows the path


class MsgpackReader(RecordReader):
    """Reads maps as dicts with text keys; of equal keys the last one counts."""

    def read(self, data: bytes, *, bad_utf8: str = _BAD_UTF8) -> Any:
        try:
            return msgpack.unpackb(
                data, strict_map_key=False, object_pairs_hook=_map_of, unicode_errors=bad_utf8, timestamp=0
            )
        except msgpack.ExtraData as error:
            raise Unreadable(f"{len(error.extra)} bytes are left after the MessagePack value") from None
        except msgpack.StackError:
            raise Unreadable("the MessagePack value is nested too deeply") from None
        except msgpack.FormatError:
            raise Unreadable("the bytes are not MessagePack: one is 0xc1, which begins no value") from None
        except UnicodeDecodeError as error:
            raise Unreadable(f"a text is no UTF-8 at its byte {error.start}") from None
        except (ValueError, OverflowError, MemoryError) as error:
            raise Unreadable(f"the {len(data)} bytes are not MessagePack: {_said(error)}") from None


def _said(error: Exception) -> str:
    """The library's message. For missing bytes it has two ("incomplete", or a length that exceeds the possible one);
    both become one message."""
    text = str(error) or type(error).__name__
    return "they end inside a value" if "incomplete" in text or "exceeds max_" in text else text


def _map_of(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    return {key if type(key) is str else _key_text(key): value for key, value in pairs}


def _key_text(key: Any) -> str:
    """The text of a key that is a number, a boolean or bytes. Raises `Unreadable`."""
    if isinstance(key, bytes):
        return key.decode(errors=_BAD_UTF8)
    if isinstance(key, (bool, int, float)):
        return _as_text(key)
    raise Unreadable(f"a key of a MessagePack map is {'nil' if key is None else type(key).__name__}, not text")


class MsgpackWriter:
    def write(self, value: Any) -> bytes:
        try:
            return cast(bytes, msgpack.packb(value, default=_digits))
        except (ValueError, TypeError, OverflowError) as error:
            raise Unwritable(f"MessagePack cannot hold a value: {error}") from None


def _digits(value: Any) -> str:
    if isinstance(value, Number):
        return f"{value:f}"
    raise TypeError(f"{type(value).__name__} is no type of MessagePack")


# ------------------------------------------------------------------ types

_as_text = converter(STRING)
_as_moment = converter(TIMESTAMP)


def _read_text(value: Any) -> str | None:
    text = _as_text(value)
    if text is not None and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Mismatch("STRING wanted, text that is no UTF-8 came") from None
    return text


def _read_moment(value: Any) -> int | None:
    return _as_moment(_milliseconds(value) if isinstance(value, msgpack.Timestamp) else value)


def _read_decimal(type_: Decimal) -> Convert:
    as_number, exact = converter(type_), text_converter(type_)

    def convert(value: Any) -> Number | None:
        """Text has the exact digits; a float becomes the shortest decimal number that gives the same float."""
        if isinstance(value, str):
            return exact(value)
        finite = isinstance(value, float) and value - value == 0
        return exact(Real(repr(value))) if finite else as_number(value)

    return convert


def _milliseconds(moment: Any) -> int:
    return moment.seconds * 1000 + moment.nanoseconds // 1_000_000


def _moment(milliseconds: int) -> Any:
    seconds, rest = divmod(milliseconds, 1000)
    return msgpack.Timestamp(seconds, rest * 1_000_000)


@codes(MSGPACK.name)
class MsgpackCoding(RecordCoding):
    def reader(self, part: RecordPart) -> MsgpackReader:
        return MsgpackReader()

    def writer(self, part: RecordPart) -> MsgpackWriter:
        return MsgpackWriter()

    def reads(self, type_: SqlType) -> Convert | None:
        if isinstance(type_, Decimal):
            return _read_decimal(type_)
        if type_ == STRING:
            return _read_text
        return _read_moment if type_ == TIMESTAMP else None

    def writes(self, type_: SqlType) -> Convert | None:
        if isinstance(type_, Decimal):
            return _digits
        return _moment if type_ == TIMESTAMP else None

    def encode_one(self, part: RecordPart, value: Any) -> bytes:
        return MsgpackWriter().write(value)

    def decode_one(self, part: RecordPart, data: bytes) -> Any:
        value = MsgpackReader().read(data, bad_utf8="strict")
        return _shown(value, part.held[0].type) if part.bare else _shown_fields(value, part.held)


# ------------------------------------------------------------------ plain values


def _shown(value: Any, type_: SqlType | None = None) -> Any:
    """A value in a form for people and tools: times as milliseconds, DECIMAL as a number."""
    if isinstance(value, dict):
        if isinstance(type_, Struct):
            return _shown_fields(value, type_.fields)
        inner = type_.value if isinstance(type_, Map) else None
        return {key: _shown(member, inner) for key, member in value.items()}
    if isinstance(value, list):
        element = type_.element if isinstance(type_, Array) else None
        return [_shown(member, element) for member in value]
    if isinstance(value, msgpack.Timestamp):
        return _milliseconds(value)
    if isinstance(value, msgpack.ExtType):
        return f"extension type {value.code}: {value.data.hex()}"
    return _shown_number(value, type_) if isinstance(type_, Decimal) else value


def _shown_fields(value: Any, fields: Sequence[Column | Field]) -> Any:
    if not isinstance(value, dict):
        return _shown(value)
    types = {fold(field.name): field.type for field in fields} | {field.name: field.type for field in fields}
    return {name: _shown(member, types.get(name, types.get(fold(name)))) for name, member in value.items()}


def _shown_number(value: Any, type_: Decimal) -> Any:
    try:
        return _read_decimal(type_)(value)
    except Mismatch:
        return value
