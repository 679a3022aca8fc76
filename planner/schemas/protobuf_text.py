"""From the text of a .proto file to the descriptors of its messages.

Imports are looked up among the schema's references and the well-known files below. Only options that change the bytes
or the SQL type are read (`packed`, `default`, the precision and scale of decimals).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool

from ...sql.compiling.later import LaterModule
from ...sql.settings.property import says_true
from .invalid_schema import InvalidSchema
from .protobuf_meta import meta_of_literals, put_meta

# ANTLR takes a sixth of a second to import, and few servers ever read a Protobuf schema.
if TYPE_CHECKING:
    from proto_schema_parser import ast, parser
else:
    ast = LaterModule("proto_schema_parser.ast")
    parser = LaterModule("proto_schema_parser.parser")

_COMPILED = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2,
        api_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
        descriptor_pb2,
    )
}
_WELL_KNOWN = {
    "google/type/date.proto": 'syntax = "proto3"; package google.type; '
    "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/timeofday.proto": 'syntax = "proto3"; package google.type; '
    "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type; '
    "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "confluent/meta.proto": 'syntax = "proto3"; package confluent; '
    "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }",
}
_MAIN = "schema.proto"
_Message = descriptor_pb2.DescriptorProto
_FieldProto = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    name: getattr(_FieldProto, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
        "sfixed32", "sfixed64", "sint32", "sint64",
    )
}  # fmt: skip

_LABELS: Final[dict[str, Any]] = {"REPEATED": _FieldProto.LABEL_REPEATED, "REQUIRED": _FieldProto.LABEL_REQUIRED}

_QUOTED_OR_NOT_SAID = re.compile(
    r"""(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|//[^\n]*|/\*.*?\*/|[\f\v]""", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class ProtobufFile:
    """`messages`: those at the top level, in order; none for a file that is only imported for its enums.
    `descriptor`: that of the file, with resolved names and the options that are read here. `parameters`: the precision
    and scale of decimal fields, by the message's full name and the field's name."""

    messages: tuple[Descriptor, ...]
    descriptor: descriptor_pb2.FileDescriptorProto
    parameters: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict[tuple[str, str], dict[str, str]])

    def message(self, full_name: str) -> Descriptor | None:
        """The message with this name, at any level; for an empty name the first one of the file."""
        if not full_name:
            return self.messages[0] if self.messages else None
        return next((found for found in _all_messages(self.messages) if found.full_name == full_name), None)

    def at(self, indexes: Sequence[int]) -> Descriptor | None:
        """The message that the message indexes in a record lead to."""
        level, found = list(self.messages), None
        for index in indexes:
            if not 0 <= index < len(level):
                return None
            found = level[index]
            level = list(found.nested_types)
        return found

    def indexes(self, message: Descriptor) -> tuple[int, ...]:
        """The indexes that lead to `message`: the inverse of `at`."""
        above = message.containing_type
        siblings = list(self.messages) if above is None else list(above.nested_types)
        place = [found.full_name for found in siblings].index(message.full_name)
        return (place,) if above is None else (*self.indexes(above), place)


def _all_messages(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _all_messages(message.nested_types)


@functools.lru_cache(maxsize=256)
def load(text: str, references: tuple[tuple[str, str], ...] = ()) -> ProtobufFile:
    """The messages of a schema. Raises `InvalidSchema`."""
    loader = _Loader(references)
    name = loader.add(_MAIN, text)
    try:
        file = loader.pool.FindFileByName(name)
    except (KeyError, TypeError) as error:
        raise InvalidSchema(f"the PROTOBUF schema cannot be used: {error}") from None
    proto = descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)
    messages = tuple(file.message_types_by_name[message.name] for message in proto.message_type)
    if not messages and not proto.enum_type:
        raise InvalidSchema("the PROTOBUF schema has no message")
    return ProtobufFile(messages, proto, loader.parameters)


def _without_comments(text: str) -> str:
    """Replaces comments by spaces, and keeps line breaks: the grammar allows comments only between whole elements, and
    less white space than protoc."""

    def blank(found: re.Match[str]) -> str:
        return found.group() if found["quoted"] else re.sub(r"[^\n]", " ", found.group())

    return _QUOTED_OR_NOT_SAID.sub(blank, text)


class _Strict:
    """Raises ANTLR's errors. ANTLR itself would print them and continue with a guess."""

    def syntaxError(self, recognizer: Any, symbol: Any, line: int, column: int, said: str, error: Any) -> None:
        del recognizer, symbol, error
        said = said.partition(" expecting {")[0]
        raise InvalidSchema(f"the PROTOBUF schema cannot be parsed: line {line}, column {column + 1}: {said}")

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Ignores ANTLR's other reports, which are about ambiguous grammar, not about the schema."""
        return lambda *_: None


def _strictly(recognizer: Any) -> None:
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_Strict())


class _Loader:
    def __init__(self, references: tuple[tuple[str, str], ...]) -> None:
        self.pool = DescriptorPool()
        self.parameters: dict[tuple[str, str], dict[str, str]] = {}
        self._texts = {**_WELL_KNOWN, **dict(references)}
        self._added: set[str] = set()

    def add(self, name: str, text: str) -> str:
        self._added.add(name)
        try:
            parsed = parser.Parser(setup_lexer=_strictly, setup_parser=_strictly).parse(_without_comments(text))
        except InvalidSchema:
            raise
        except Exception as error:  # the parser passes on any error of its grammar
            raise InvalidSchema(f"the PROTOBUF schema cannot be parsed: {str(error).splitlines()[0]}") from None
        file = self._file(name, parsed)
        try:
            self.pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError) as error:
            raise InvalidSchema(f"the PROTOBUF schema cannot be used: {error}") from None
        return name

    def _import(self, name: str) -> None:
        if name in self._added:
            return
        if name in _COMPILED:
            self._added.add(name)
            for needed in descriptor_pb2.FileDescriptorProto.FromString(_COMPILED[name]).dependency:
                self._import(needed)
            self.pool.AddSerializedFile(_COMPILED[name])
        elif name in self._texts:
            self.add(name, self._texts[name])
        else:
            raise InvalidSchema(
                f'the PROTOBUF schema imports "{name}", which is unknown', hint="Register it as a reference."
            )

    def _file(self, name: str, parsed: ast.File) -> descriptor_pb2.FileDescriptorProto:
        file = descriptor_pb2.FileDescriptorProto(name=name, syntax=parsed.syntax or "proto2")
        if parsed.edition:
            raise InvalidSchema(f"the PROTOBUF schema has edition {parsed.edition}; proto2 and proto3 can be read")
        for element in parsed.file_elements:
            match element:
                case ast.Package():
                    file.package = element.name
                case ast.Import():
                    self._import(element.name)
                    file.dependency.append(element.name)
                    if element.public:
                        file.public_dependency.append(len(file.dependency) - 1)
                case ast.Message():
                    proto3 = file.syntax == "proto3"
                    file.message_type.append(self._message(element, _join(file.package, element.name), proto3))
                case ast.Enum():
                    file.enum_type.append(_enum(element))
                case _:
                    pass
        return file

    def _message(self, message: ast.Message, full_name: str, proto3: bool) -> _Message:
        proto = _Message(name=message.name)
        optional: list[_FieldProto] = []
        for element in message.elements:
            match element:
                case ast.Field():
                    made = self._field(element, full_name)
                    proto.field.append(made)
                    if proto3 and element.cardinality == ast.FieldCardinality.OPTIONAL:
                        optional.append(proto.field[-1])
                case ast.MapField():
                    self._map(element, proto, full_name)
                case ast.OneOf():
                    proto.oneof_decl.add(name=element.name)
                    for member in element.elements:
                        if isinstance(member, ast.Field):
                            made = self._field(member, full_name)
                            made.oneof_index = len(proto.oneof_decl) - 1
                            proto.field.append(made)
                case ast.Message():
                    proto.nested_type.append(self._message(element, _join(full_name, element.name), proto3))
                case ast.Enum():
                    proto.enum_type.append(_enum(element))
                case ast.Group():
                    raise InvalidSchema(f"the PROTOBUF schema has the group {element.name}; groups cannot be read")
                case _:
                    pass
        for made in optional:  # each optional field of proto3 has a oneof of its own; those come last
            made.proto3_optional = True
            made.oneof_index = len(proto.oneof_decl)
            proto.oneof_decl.add(name=f"_{made.name}")
        return proto

    def _field(self, element: ast.Field, full_name: str) -> _FieldProto:
        made = _FieldProto(name=element.name, number=element.number)
        made.label = _LABELS.get(element.cardinality.name if element.cardinality else "", _FieldProto.LABEL_OPTIONAL)
        _set_type(made, element.type)
        for option in element.options:
            name = option.name.strip("()")
            if name == "packed":
                made.options.packed = says_true(option.value)
            elif name == "default":
                made.default_value = _default(option.value)
            elif name.lstrip(".").startswith("confluent.field_meta"):
                meta = meta_of_literals(_members(name, option.value))
                self.parameters.setdefault((full_name, element.name), {}).update(meta.parameters)
                put_meta(made.options, meta)
            elif name == "json_name":
                made.json_name = str(option.value)
        return made

    def _map(self, element: ast.MapField, proto: _Message, full_name: str) -> None:
        entry = f"{''.join(word[:1].upper() + word[1:] for word in element.name.split('_'))}Entry"
        nested = proto.nested_type.add(name=entry)
        nested.options.map_entry = True
        for number, (name, type_) in enumerate((("key", element.key_type), ("value", element.value_type)), start=1):
            _set_type(nested.field.add(name=name, number=number, label=_FieldProto.LABEL_OPTIONAL), type_)
        made = proto.field.add(name=element.name, number=element.number, label=_FieldProto.LABEL_REPEATED)
        made.type = _FieldProto.TYPE_MESSAGE
        made.type_name = f".{full_name}.{entry}"


def _set_type(made: _FieldProto, name: str) -> None:
    if name in _SCALARS:
        made.type = _SCALARS[name]
    else:
        made.type_name = name  # a message or an enum: the pool determines which


def _enum(element: ast.Enum) -> descriptor_pb2.EnumDescriptorProto:
    proto = descriptor_pb2.EnumDescriptorProto(name=element.name)
    for value in element.elements:
        if isinstance(value, ast.EnumValue):
            proto.value.add(name=value.name, number=value.number)
        elif isinstance(value, ast.Option) and value.name == "allow_alias":
            proto.options.allow_alias = says_true(value.value)
    return proto


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    name = getattr(value, "name", None)
    return str(value if name is None else name)


def _members(name: str, literal: Any) -> dict[str, Any]:
    """The members of an option that is a message, or that names one of its members: `(confluent.field_meta).tags`."""
    member = name.rpartition(").")[2] if ")." in name else ""
    if member:
        return {member: literal}
    elements = literal.elements if isinstance(literal, ast.MessageLiteral) else ()
    return {element.name: element.value for element in elements if not isinstance(element, ast.Comment)}


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
