"""Protobuf schemas as descriptors: their .proto text, and the descriptor in a text.

Some clients (Confluent's for Python and JavaScript) register and request the bytes of a FileDescriptorProto in Base64.
The registry keeps the .proto text, which all others read.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError, Message

from .protobuf_meta import meta_in, quoted

_Field: Final = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in _Field.Type.items()
    if number not in (_Field.TYPE_MESSAGE, _Field.TYPE_ENUM, _Field.TYPE_GROUP)
}
_LABELS: Final = {_Field.LABEL_REPEATED: "repeated ", _Field.LABEL_REQUIRED: "required "}
_FIELD_NUMBER_END: Final = 1 << 29
_ENUM_NUMBER_MAX: Final = (1 << 31) - 1


def descriptor_in(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """The descriptor, if a schema's text is one in Base64; None if it is a .proto text.

    >>> descriptor_in("CgFhIgNNc2c="), descriptor_in('syntax = "proto3"; message M {}')
    (None, None)
    """
    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    return found if found.message_type or found.enum_type else None


def base64_of(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def text_of(file: descriptor_pb2.FileDescriptorProto) -> str:
    """The .proto text, without the file's name and without comments."""
    return "".join(f"{line}\n" for line in _file(file))


def _file(file: descriptor_pb2.FileDescriptorProto) -> Iterator[str]:
    proto3 = file.syntax == "proto3"
    yield f'syntax = "{"proto3" if proto3 else "proto2"}";'
    if file.package:
        yield f"package {file.package};"
    for number, name in enumerate(file.dependency):
        yield f"import {'public ' if number in file.public_dependency else ''}{quoted(name)};"
    for option in _options(file.options, "file"):
        yield f"option {option};"
    for enum in file.enum_type:
        yield from _enum(enum, "")
    for message in file.message_type:
        yield from _message(message, f".{file.package}" if file.package else "", "", proto3)
    yield from _extensions(file.extension, "", proto3)
    for service in file.service:
        yield from _service(service)


def _message(message: descriptor_pb2.DescriptorProto, scope: str, indent: str, proto3: bool) -> Iterator[str]:
    full_name, inner = f"{scope}.{message.name}", f"{indent}  "
    entries = {f"{full_name}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
    yield f"{indent}message {message.name} {{"
    for option in _options(message.options, "message"):
        yield f"{inner}option {option};"
    yield from _reserved(message, inner)
    nested = iter(message.nested_type)
    for choice, members in itertools.groupby(message.field, _choice):
        if choice is None:
            for f in members:
                if f.type_name in entries:
                    yield from _nested(nested, full_name, inner, proto3)
                yield f"{inner}{_field(f, entries, proto3)}"
        else:
            yield f"{inner}oneof {message.oneof_decl[choice].name} {{"
            yield from (f"{inner}  {_field(f, entries, proto3)}" for f in members)
            yield f"{inner}}}"
    for _ in message.nested_type:
        yield from _nested(nested, full_name, inner, proto3)
    for enum in message.enum_type:
        yield from _enum(enum, inner)
    yield from _extensions(message.extension, inner, proto3)
    yield f"{indent}}}"


def _nested(nested: Iterator[descriptor_pb2.DescriptorProto], scope: str, indent: str, proto3: bool) -> Iterator[str]:
    """The messages before the next map's. Records contain the position of their message among the nested ones, and maps
    count for that."""
    for message in itertools.takewhile(lambda found: not found.options.map_entry, nested):
        yield from _message(message, scope, indent, proto3)


def _choice(f: descriptor_pb2.FieldDescriptorProto) -> int | None:
    return f.oneof_index if f.HasField("oneof_index") and not f.proto3_optional else None


def _field(
    f: descriptor_pb2.FieldDescriptorProto, entries: dict[str, descriptor_pb2.DescriptorProto], proto3: bool
) -> str:
    options = ", ".join(_field_options(f))
    rest = f"{f.name} = {f.number}{f' [{options}]' if options else ''};"
    if f.type_name in entries:
        key, value = entries[f.type_name].field
        return f"map<{_type(key)}, {_type(value)}> {rest}"
    label = _LABELS.get(f.label, "")
    if not label and (f.proto3_optional or (not proto3 and _choice(f) is None)):
        label = "optional "
    return f"{label}{_type(f)} {rest}"


def _type(f: descriptor_pb2.FieldDescriptorProto) -> str:
    return f.type_name or _TYPES[f.type]


def _field_options(f: descriptor_pb2.FieldDescriptorProto) -> Iterator[str]:
    if f.HasField("default_value"):
        text = f.type in (_Field.TYPE_STRING, _Field.TYPE_BYTES)
        yield f"default = {quoted(f.default_value) if text else f.default_value}"
    if f.json_name and f.json_name != _json_name(f.name):
        yield f"json_name = {quoted(f.json_name)}"
    yield from _options(f.options, "field")


def _json_name(name: str) -> str:
    """The JSON name that protoc gives to a field.

    >>> _json_name("unit_price")
    'unitPrice'
    """
    first, *words = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in words)


def _options(options: Message, of: str) -> Iterator[str]:
    """Protobuf's own options, and Confluent's metadata."""
    for known, value in options.ListFields():
        if known.message_type is not None or known.is_repeated:
            continue
        yield f"{known.name} = {_literal(known, value)}"
    meta = meta_in(options)
    if meta:
        yield f"(confluent.{of}_meta) = {meta.text()}"


def _literal(known: Any, value: Any) -> str:
    if known.enum_type is not None:
        return known.enum_type.values_by_number[value].name
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str | bytes) else str(value)


def _reserved(message: descriptor_pb2.DescriptorProto, indent: str) -> Iterator[str]:
    for found in message.reserved_range:
        yield f"{indent}reserved {_range(found.start, found.end - 1, _FIELD_NUMBER_END - 1)};"
    if message.reserved_name:
        yield f"{indent}reserved {', '.join(map(quoted, message.reserved_name))};"
    for extended in message.extension_range:
        yield f"{indent}extensions {_range(extended.start, extended.end - 1, _FIELD_NUMBER_END - 1)};"


def _range(first: int, last: int, end: int) -> str:
    return str(first) if first == last else f"{first} to {'max' if last >= end else last}"


def _enum(enum: descriptor_pb2.EnumDescriptorProto, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    for option in _options(enum.options, "enum"):
        yield f"{indent}  option {option};"
    for found in enum.reserved_range:
        yield f"{indent}  reserved {_range(found.start, found.end, _ENUM_NUMBER_MAX)};"
    if enum.reserved_name:
        yield f"{indent}  reserved {', '.join(map(quoted, enum.reserved_name))};"
    for value in enum.value:
        options = ", ".join(_options(value.options, "enum_value"))
        yield f"{indent}  {value.name} = {value.number}{f' [{options}]' if options else ''};"
    yield f"{indent}}}"


def _extensions(fields: Sequence[descriptor_pb2.FieldDescriptorProto], indent: str, proto3: bool) -> Iterator[str]:
    for f in fields:
        yield f"{indent}extend {f.extendee} {{"
        yield f"{indent}  {_field(f, {}, proto3)}"
        yield f"{indent}}}"


def _service(service: descriptor_pb2.ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    for method in service.method:
        taken = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        given = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        yield f"  rpc {method.name} ({taken}) returns ({given});"
    yield "}"
