"""Protobuf schemas and columns: the SQL types of a message, and the message for columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from millstream.errors import FormatError

from ...sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    PRECISION_MAX,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    Primitive,
    SqlType,
    Struct,
)
from ..schema import Column
from .declared_decimals import declared_decimal
from .protobuf_text import ProtobufFile

Rename = Callable[[str], str]

DEFAULT_MESSAGE = "ConnectDefault1"
DECIMAL = "confluent.type.Decimal"
WRAPPERS: dict[str, SqlType] = {
    "google.protobuf.DoubleValue": DOUBLE,
    "google.protobuf.FloatValue": DOUBLE,
    "google.protobuf.Int64Value": BIGINT,
    "google.protobuf.UInt64Value": BIGINT,
    "google.protobuf.Int32Value": INTEGER,
    "google.protobuf.UInt32Value": BIGINT,
    "google.protobuf.BoolValue": BOOLEAN,
    "google.protobuf.StringValue": STRING,
    "google.protobuf.BytesValue": BYTES,
}
_TIMES: dict[str, SqlType] = {
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.type.Date": DATE,
    "google.type.TimeOfDay": TIME,
}
_SCALARS: dict[int, SqlType] = {
    FieldDescriptor.TYPE_DOUBLE: DOUBLE,
    FieldDescriptor.TYPE_FLOAT: DOUBLE,
    FieldDescriptor.TYPE_INT32: INTEGER,
    FieldDescriptor.TYPE_SINT32: INTEGER,
    FieldDescriptor.TYPE_SFIXED32: INTEGER,
    FieldDescriptor.TYPE_UINT32: BIGINT,
    FieldDescriptor.TYPE_FIXED32: BIGINT,
    FieldDescriptor.TYPE_INT64: BIGINT,
    FieldDescriptor.TYPE_SINT64: BIGINT,
    FieldDescriptor.TYPE_SFIXED64: BIGINT,
    FieldDescriptor.TYPE_UINT64: BIGINT,
    FieldDescriptor.TYPE_FIXED64: BIGINT,
    FieldDescriptor.TYPE_BOOL: BOOLEAN,
    FieldDescriptor.TYPE_STRING: STRING,
    FieldDescriptor.TYPE_BYTES: BYTES,
    FieldDescriptor.TYPE_ENUM: STRING,
}


# ------------------------------------------------------------------ from a message to types


def sql_type(file: ProtobufFile, message: Descriptor, rename: Rename, *, nullable: str = "") -> SqlType | None:
    """The type of a message; None if SQL has no type for any of its fields.

    `nullable`: with WRAPPER, Google's wrapper messages have the types of the values in them.
    """
    return _Reader(file, rename, nullable == "WRAPPER").message(message, ())


class _Reader:
    def __init__(self, file: ProtobufFile, rename: Rename, unwrap: bool) -> None:
        self._file = file
        self._rename = rename
        self._unwrap = unwrap

    def message(self, message: Descriptor, above: tuple[str, ...]) -> SqlType | None:
        if message.full_name in above:
            return None  # a type cannot contain itself
        inside = (*above, message.full_name)
        fields: list[tuple[str, SqlType | None]] = [
            (
                oneof_name(choice.name, choice.index),
                self._struct([(f.name, self._field(f, inside)) for f in choice.fields]),
            )
            for choice in message.oneofs
            if not is_synthetic(choice.fields[0])
        ]
        fields += [
            (f.name, self._field(f, inside)) for f in message.fields if f.containing_oneof is None or is_synthetic(f)
        ]
        return self._struct(fields)

    def _struct(self, fields: Sequence[tuple[str, SqlType | None]]) -> SqlType | None:
        kept = tuple(Field(self._rename(name), type_) for name, type_ in fields if type_ is not None)
        return Struct(kept) if kept else None

    def _field(self, f: FieldDescriptor, above: tuple[str, ...]) -> SqlType | None:
        if is_map(f) and f.message_type is not None:
            entry = f.message_type.fields_by_name
            key, value = self._single(entry["key"], above, f), self._single(entry["value"], above, f)
            return None if key != STRING or value is None else Map(STRING, value)
        single = self._single(f, above, f)
        return Array(single) if single is not None and f.is_repeated else single

    def _single(self, f: FieldDescriptor, above: tuple[str, ...], declared: FieldDescriptor) -> SqlType | None:
        """The type of one value of the field. `declared`: the field that has its options; for a map that is the map."""
        if f.message_type is None:
            return _SCALARS.get(f.type)
        name = f.message_type.full_name
        if name in _TIMES:
            return _TIMES[name]
        if name == DECIMAL:
            return self._decimal(declared)
        if self._unwrap and name in WRAPPERS:
            return WRAPPERS[name]
        return self.message(f.message_type, above)

    def _decimal(self, f: FieldDescriptor) -> SqlType | None:
        said = self._file.parameters.get((_message_of(f), f.name), {})
        return declared_decimal(said.get("precision", PRECISION_MAX), said.get("scale", 0))


def _message_of(f: FieldDescriptor) -> str:
    return "" if f.containing_type is None else f.containing_type.full_name


def is_map(f: FieldDescriptor) -> bool:
    return f.message_type is not None and f.message_type.GetOptions().map_entry


def is_synthetic(f: FieldDescriptor) -> bool:
    """Whether the field has a oneof only because it is `optional`."""
    choice = f.containing_oneof
    return choice is not None and len(choice.fields) == 1 and choice.name == f"_{f.name}" and f.has_presence


def oneof_name(name: str, index: int) -> str:
    """The name of the struct that represents a oneof."""
    return f"{name}_{index}"


# ------------------------------------------------------------------ from columns to a message

_NAMES = {
    "BOOLEAN": "bool",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "DOUBLE": "double",
    "STRING": "string",
    "BYTES": "bytes",
    "DATE": "google.type.Date",
    "TIME": "google.type.TimeOfDay",
    "TIMESTAMP": "google.protobuf.Timestamp",
}
_WRAPPER_NAMES = {
    "BOOLEAN": "google.protobuf.BoolValue",
    "INTEGER": "google.protobuf.Int32Value",
    "BIGINT": "google.protobuf.Int64Value",
    "DOUBLE": "google.protobuf.DoubleValue",
    "STRING": "google.protobuf.StringValue",
    "BYTES": "google.protobuf.BytesValue",
}
_IMPORTS = {
    "google.type.Date": "google/type/date.proto",
    "google.type.TimeOfDay": "google/type/timeofday.proto",
    "google.protobuf.Timestamp": "google/protobuf/timestamp.proto",
    **dict.fromkeys(_WRAPPER_NAMES.values(), "google/protobuf/wrappers.proto"),
}


def write_schema(columns: Sequence[Column], full_name: str = "", nullable: str = "") -> str:
    """The .proto text for these columns: a message with this full name, whose package is all but the last word.

    `nullable`: how fields that may be NULL are marked, OPTIONAL or WRAPPER. Raises `FormatError`.
    """
    package, _, name = (full_name or DEFAULT_MESSAGE).rpartition(".")
    writer = _Writer(nullable)
    body = writer.message(name, [(column.name, column.type) for column in columns], "")
    parts = ['syntax = "proto3";\n']
    if package:
        parts.append(f"package {package};\n")
    if writer.imports:
        parts.append("".join(f'import "{found}";\n' for found in sorted(writer.imports)))
    return "\n".join([*parts, body])


@dataclass(slots=True)
class _Writer:
    nullable: str
    imports: set[str] = field(default_factory=set[str])
    count: int = 1  # of messages: nested ones are called ConnectDefault2, …

    def message(self, name: str, fields: Sequence[tuple[str, SqlType]], indent: str) -> str:
        lines: list[str] = []
        nested: list[str] = []
        for number, (field_name, type_) in enumerate(fields, start=1):
            _check_name(field_name)
            lines.append(f"{indent}  {self._field(field_name, type_, number, nested, f'{indent}  ')}\n")
        inner = "".join(f"\n{text}" for text in nested)
        return f"{indent}message {name} {{\n{''.join(lines)}{inner}{indent}}}\n"

    def _field(self, name: str, type_: SqlType, number: int, nested: list[str], indent: str) -> str:
        match type_:
            case Array():
                label, text = "repeated ", self._type(type_.element, nested, indent)
            case Map():
                label, text = "", f"map<string, {self._type(type_.value, nested, indent)}>"
            case Primitive(name=primitive) if self.nullable == "WRAPPER" and primitive in _WRAPPER_NAMES:
                label, text = "", self._imported(_WRAPPER_NAMES[primitive])
            case Primitive() | Struct() | Decimal() if self.nullable == "OPTIONAL":
                label, text = "optional ", self._type(type_, nested, indent)
            case _:
                label, text = "", self._type(type_, nested, indent)
        return f"{label}{text} {name} = {number}{self._options(type_)};"

    def _type(self, type_: SqlType, nested: list[str], indent: str) -> str:
        match type_:
            case Primitive():
                return self._imported(_NAMES[type_.name])
            case Decimal():
                self.imports |= {"confluent/type/decimal.proto", "confluent/meta.proto"}
                return DECIMAL
            case Struct():
                self.count += 1
                name = f"ConnectDefault{self.count}"
                nested.append(self.message(name, [(f.name, f.type) for f in type_.fields], indent))
                return name
            case _:
                raise FormatError(
                    f"PROTOBUF cannot hold an array or a map directly inside another one: {type_}",
                    hint="Put a STRUCT with one field between them.",
                )

    def _imported(self, name: str) -> str:
        if name in _IMPORTS:
            self.imports.add(_IMPORTS[name])
        return name

    def _options(self, type_: SqlType) -> str:
        inner = type_.element if isinstance(type_, Array) else type_.value if isinstance(type_, Map) else type_
        if not isinstance(inner, Decimal):
            return ""
        pairs = (("precision", inner.precision), ("scale", inner.scale))
        listed = ", ".join(f'{{ value: "{value}", key: "{key}" }}' for key, value in pairs)
        return f" [(confluent.field_meta) = {{ params: [{listed}] }}]"


def _check_name(name: str) -> None:
    if name.isidentifier() and name.isascii():
        return
    raise FormatError(
        f"Schema is not compatible with Protobuf: Illegal field name: {name}",
        hint="Give the column another name with AS.",
    )
