"""PROTOBUF and PROTOBUF_NOSR: turn one message's bytes into plain values and back.

With a registry, a record names its schema, and the message in the schema by indexes. Without one, the format determines
the message. Google's wrappers, dates and times, and Confluent's decimals become the values in them; an enum becomes its
name, and a oneof a struct in which one field has a value.
"""

from __future__ import annotations

import binascii
import datetime
import functools
from collections.abc import Callable
from decimal import Context, InvalidOperation
from decimal import Decimal as Number
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from ...planner.formats.protobuf import PROTOBUF, PROTOBUF_NOSR
from ...planner.schemas import protobuf_text
from ...planner.schemas.protobuf_schemas import DECIMAL, WRAPPERS, is_map, is_synthetic, oneof_name
from ...planner.schemas.registry import InvalidSchema
from ...planner.specs import FormatSpec, RecordSchema
from .coding import codes
from .reading import describe, fold
from .schema_records import SchemaCoding
from .wire import HEADER_BYTES, Unreadable, Unwritable, header

Read = Callable[[Any], Any]
Fill = Callable[[Any, Any], None]

_WIDE = Context(prec=100)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_INDEXES_MAX = 100
_JSON_DEPTH_MAX = 100


@functools.lru_cache(maxsize=256)
def protobuf_codec(schema: RecordSchema, *, framed: bool) -> ProtobufCodec:
    """The codec of a schema. In: `framed`: records begin with the header and message indexes. Raises
    `InvalidSchema`."""
    return ProtobufCodec(schema, framed)


class ProtobufCodec:
    """Reads and writes records of one schema."""

    def __init__(self, schema: RecordSchema, framed: bool) -> None:
        self._file = protobuf_text.load(schema.text, schema.references)
        message = self._file.message(schema.message)
        if message is None:
            raise InvalidSchema(f"the PROTOBUF schema {schema.id} has no message {schema.message}".rstrip())
        self._framed = framed
        self._message = message
        self._start = header(schema.id) + _indexes_to_bytes(self._file.indexes(message)) if framed else b""
        self._readers: dict[str, tuple[type[Message], Read]] = {}
        self._fill = _filler(message, {})

    def read(self, data: bytes) -> Any:
        """The plain value of the message. Raises `Unreadable`."""
        message, position = self._message, 0
        if self._framed:
            indexes, position = _read_indexes(data, HEADER_BYTES)
            message = (
                self._message if indexes == (0,) and self._start[HEADER_BYTES:] == b"\0" else self._file.at(indexes)
            )
            if message is None:
                raise Unreadable(f"the record's PROTOBUF schema has no message at {list(indexes)}")
        known = self._readers.get(message.full_name)
        if known is None:
            known = self._readers[message.full_name] = (GetMessageClass(message), _reader(message, {}))
        try:
            return known[1](known[0].FromString(data[position:]))
        except InvalidOperation:
            raise Unreadable("a decimal of the PROTOBUF record has a scale that no number has") from None
        except (DecodeError, UnicodeDecodeError, ValueError, OverflowError) as error:
            raise Unreadable(f"the bytes do not fit their PROTOBUF schema: {error}") from None

    def write(self, value: Any) -> bytes:
        """The bytes of a plain value; fields are found by name, in any case. Raises `Unwritable`."""
        message = GetMessageClass(self._message)()
        try:
            self._fill(message, value)
        except (ValueError, TypeError, OverflowError, ArithmeticError, AttributeError) as error:
            raise Unwritable(f"a value does not fit the PROTOBUF schema: {error}") from None
        return self._start + message.SerializeToString(deterministic=True)

    def json_of(self, data: bytes) -> Any:
        """The message in Protobuf's JSON mapping, including fields without presence. Raises `Unreadable`."""
        indexes, position = _read_indexes(data, HEADER_BYTES)
        message = self._file.at(indexes)
        if message is None:
            raise Unreadable(f"the record's PROTOBUF schema has no message at {list(indexes)}")
        try:
            found = GetMessageClass(message).FromString(data[position:])
            return json_format.MessageToDict(found, always_print_fields_with_no_presence=True)
        except (DecodeError, UnicodeDecodeError, ValueError, TypeError, json_format.Error) as error:
            raise Unreadable(f"the bytes do not fit their PROTOBUF schema: {error}") from None

    def from_json(self, value: Any) -> bytes:
        """The header, the message indexes and the bytes of a message that is in Protobuf's JSON mapping. Raises
        `Unwritable`."""
        if not isinstance(value, dict):
            raise Unwritable(f"the PROTOBUF schema wants a message, {describe(value)} came")
        message = GetMessageClass(self._message)()
        try:
            json_format.ParseDict(value, message, max_recursion_depth=_JSON_DEPTH_MAX)
        except (json_format.Error, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise Unwritable(f"a value does not fit the PROTOBUF schema: {error}") from None
        return self._start + message.SerializeToString(deterministic=True)


# ------------------------------------------------------------------ message indexes


def _indexes_to_bytes(indexes: tuple[int, ...]) -> bytes:
    """The path to the message: the number of indexes, then each index. For the first message it is a single zero."""
    if indexes == (0,):
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))  # zigzag


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    count, position = _read_varint(data, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= _INDEXES_MAX:
        raise Unreadable(f"the record has {count} message indexes")
    found: list[int] = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        found.append(index)
    return tuple(found), position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(data) or shift > 35:
            raise Unreadable("the record ends inside its message indexes")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position


# ------------------------------------------------------------------ reading


def _reader(message: Descriptor, seen: dict[str, list[Read]]) -> Read:
    """A function from a message to a dict. In: `seen`: the readers that are being made."""
    special = _SPECIAL_READERS.get(message.full_name)
    if special is not None:
        return special
    if message.full_name in WRAPPERS:
        return lambda value: value.value
    if message.full_name in seen:
        holder = seen[message.full_name]
        return lambda value: holder[0](value)
    holder = seen[message.full_name] = []
    choices = [
        (oneof_name(choice.name, choice.index), [(f.name, _field_reader(f, seen)) for f in choice.fields], choice.name)
        for choice in message.oneofs
        if not is_synthetic(choice.fields[0])
    ]
    fields = [(f.name, _field_reader(f, seen)) for f in message.fields if f.containing_oneof is None or is_synthetic(f)]

    def read(value: Any) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, members, choice in choices:
            chosen = value.WhichOneof(choice)
            given = None if chosen is None else {m: (get(value) if m == chosen else None) for m, get in members}
            result[name] = given
        for name, get in fields:
            result[name] = get(value)
        return result

    holder.append(read)
    return read


def _field_reader(f: FieldDescriptor, seen: dict[str, list[Read]]) -> Read:
    """A function from a message to one field's plain value."""
    name = f.name
    if is_map(f) and f.message_type is not None:
        convert = _single_reader(f.message_type.fields_by_name["value"], seen)
        if convert is None:
            return lambda message: dict(getattr(message, name))
        return lambda message: {key: convert(member) for key, member in getattr(message, name).items()}
    convert = _single_reader(f, seen)
    if f.is_repeated:
        if convert is None:
            return lambda message: list(getattr(message, name))
        return lambda message: [convert(member) for member in getattr(message, name)]
    if f.has_presence and (f.message_type is not None or is_synthetic(f) or f.containing_oneof is None):
        if convert is None:
            return lambda message: getattr(message, name) if message.HasField(name) else None
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    if convert is None:
        return lambda message: getattr(message, name)
    return lambda message: convert(getattr(message, name))


def _single_reader(f: FieldDescriptor, seen: dict[str, list[Read]]) -> Read | None:
    """A function from one value of the field to a plain value; None if they are the same."""
    if f.message_type is not None:
        return _reader(f.message_type, seen)
    if f.enum_type is not None:
        names = {number: value.name for number, value in f.enum_type.values_by_number.items()}
        return lambda value: names.get(value, str(value))
    return None


def _read_decimal(message: Any) -> Number:
    unscaled = int.from_bytes(message.value, "big", signed=True)
    return Number(unscaled).scaleb(-message.scale, _WIDE)


def _read_date(message: Any) -> int:
    return datetime.date(message.year, message.month, message.day).toordinal() - _EPOCH_DAY


def _read_time(message: Any) -> int:
    return ((message.hours * 60 + message.minutes) * 60 + message.seconds) * 1000 + message.nanos // 1_000_000


_SPECIAL_READERS: dict[str, Read] = {
    DECIMAL: _read_decimal,
    "google.type.Date": _read_date,
    "google.type.TimeOfDay": _read_time,
    "google.protobuf.Timestamp": lambda message: message.seconds * 1000 + message.nanos // 1_000_000,
}


# ------------------------------------------------------------------ writing


def _filler(message: Descriptor, seen: dict[str, list[Fill]]) -> Fill:
    """A function that puts a plain value into a message."""
    special = _SPECIAL_FILLERS.get(message.full_name)
    if special is not None:
        return special
    if message.full_name in WRAPPERS:
        inner = _scalar_writer(message.fields_by_name["value"])
        return lambda target, value: _set_value(target, inner(value))
    if message.full_name in seen:
        holder = seen[message.full_name]
        return lambda target, value: holder[0](target, value)
    holder = seen[message.full_name] = []
    fields = [
        (f.name, fold(f.name), _field_filler(f, seen))
        for f in message.fields
        if f.containing_oneof is None or is_synthetic(f)
    ]
    for choice in message.oneofs:
        if not is_synthetic(choice.fields[0]):
            name = oneof_name(choice.name, choice.index)
            fields.append((name, fold(name), _choice_filler([(f.name, _field_filler(f, seen)) for f in choice.fields])))

    def fill(target: Any, value: Any) -> None:
        if not isinstance(value, dict):
            raise Unwritable(f"the PROTOBUF schema wants a message, {describe(value)} came")
        folded: dict[str, Any] | None = None
        for name, folded_name, put in fields:
            member = value.get(name)
            if member is None:
                if folded is None:
                    folded = {fold(str(key)): inner for key, inner in value.items()}
                member = folded.get(folded_name)
            if member is not None:
                put(target, member)

    holder.append(fill)
    return fill


def _choice_filler(members: list[tuple[str, Fill]]) -> Fill:
    def fill(target: Any, value: Any) -> None:
        given = {fold(str(key)): member for key, member in value.items() if member is not None}
        for name, put in members:
            if fold(name) in given:
                put(target, given[fold(name)])

    return fill


def _field_filler(f: FieldDescriptor, seen: dict[str, list[Fill]]) -> Fill:
    name = f.name
    if f.message_type is not None and is_map(f):
        return _map_filler(f.name, f.message_type, seen)
    if f.message_type is not None:
        inner = _filler(f.message_type, seen)
        if f.is_repeated:
            return lambda target, value: _fill_each(getattr(target, name), inner, value)
        return lambda target, value: _fill_present(getattr(target, name), inner, value)
    scalar = _scalar_writer(f)
    if f.is_repeated:
        return lambda target, value: getattr(target, name).extend([scalar(_element(member)) for member in value])
    return lambda target, value: setattr(target, name, scalar(value))


def _map_filler(name: str, entries: Descriptor, seen: dict[str, list[Fill]]) -> Fill:
    entry = entries.fields_by_name
    key = _scalar_writer(entry["key"])
    if entry["value"].message_type is not None:
        inner = _filler(entry["value"].message_type, seen)

        def fill_messages(target: Any, value: Any) -> None:
            members = getattr(target, name)
            for label, member in value.items():
                _fill_present(members[key(label)], inner, _element(member))

        return fill_messages
    scalar = _scalar_writer(entry["value"])

    def fill(target: Any, value: Any) -> None:
        members = getattr(target, name)
        for label, member in value.items():
            members[key(label)] = scalar(_element(member))

    return fill


def _element(value: Any) -> Any:
    if value is None:
        raise Unwritable("PROTOBUF holds no NULL inside an array or a map")
    return value


def _fill_each(target: Any, inner: Fill, value: Any) -> None:
    for member in value:
        inner(target.add(), _element(member))


def _fill_present(target: Any, inner: Fill, value: Any) -> None:
    target.SetInParent()
    inner(target, value)


def _set_value(target: Any, value: Any) -> None:
    target.value = value


_INTEGER_TYPES = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}


def _scalar_writer(f: FieldDescriptor) -> Callable[[Any], Any]:
    """A function from a plain value to a value of the field. The message itself checks types and ranges."""
    if f.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return float
    if f.cpp_type in _INTEGER_TYPES:
        return _whole
    if f.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: value if isinstance(value, bytes) else binascii.a2b_base64(value, strict_mode=True)
    if f.type == FieldDescriptor.TYPE_STRING:
        return lambda value: value if isinstance(value, str) else _text(value)
    if f.enum_type is not None:
        numbers = {name: value.number for name, value in f.enum_type.values_by_name.items()}
        return lambda value: _enum_number(numbers, value)
    return lambda value: value


def _whole(value: Any) -> Any:
    """Whole numbers may come as text or as a decimal. Anything else stays for the message to refuse."""
    if not isinstance(value, (Number, str)):
        return value
    try:
        return int(value)
    except (ValueError, ArithmeticError):
        raise Unwritable(f"the PROTOBUF schema wants a whole number, {describe(value)} came") from None


def _enum_number(numbers: dict[str, int], value: Any) -> int:
    if isinstance(value, int):
        return value
    if value not in numbers:
        raise Unwritable(f'the PROTOBUF enum has no value "{value}"')
    return numbers[value]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, Number)):
        return str(value)
    raise Unwritable(f"the PROTOBUF schema wants a text, {describe(value)} came")


def _fill_decimal(target: Any, value: Any) -> None:
    number = value if isinstance(value, Number) else Number(str(value))
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise Unwritable(f"{number} is no decimal")
    scale = max(0, -exponent)
    unscaled = int(number.scaleb(scale, _WIDE))
    target.value = unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    target.precision = max(len(number.as_tuple().digits), scale)
    target.scale = scale


def _fill_date(target: Any, value: Any) -> None:
    date = datetime.date.fromordinal(_whole(value) + _EPOCH_DAY)
    target.year, target.month, target.day = date.year, date.month, date.day


def _fill_time(target: Any, value: Any) -> None:
    seconds, milliseconds = divmod(_whole(value), 1000)
    target.hours, target.minutes, target.seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    target.nanos = milliseconds * 1_000_000


def _fill_timestamp(target: Any, value: Any) -> None:
    target.seconds, milliseconds = divmod(_whole(value), 1000)
    target.nanos = milliseconds * 1_000_000


_SPECIAL_FILLERS: dict[str, Fill] = {
    DECIMAL: _fill_decimal,
    "google.type.Date": _fill_date,
    "google.type.TimeOfDay": _fill_time,
    "google.protobuf.Timestamp": _fill_timestamp,
}


@codes(PROTOBUF.name, PROTOBUF_NOSR.name)
class ProtobufCoding(SchemaCoding):
    def codec(self, spec: FormatSpec, schema: RecordSchema) -> ProtobufCodec:
        return protobuf_codec(schema, framed=spec.name == PROTOBUF.name)
