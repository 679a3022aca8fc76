"""When two texts are the same schema: if they have the same form.

The canonical form ignores what clients in different languages write differently: white space, and in AVRO also the
order of attributes and the place of a namespace. The normal form, which clients can ask for (`normalize=true`), also
ignores the order of JSON's members, and everything in a .proto file that has no effect on records.
"""

from __future__ import annotations

import functools
import json
from typing import Any, Final, cast

from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from ..formats.format import SchemaKind
from . import protobuf_text
from .invalid_schema import InvalidSchema
from .protobuf_meta import meta_in, put_meta

_NAMED: Final = ("record", "error", "enum", "fixed")
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@functools.lru_cache(maxsize=4096)
def canonical(kind: SchemaKind, text: str) -> str:
    """The canonical form. Raises `InvalidSchema` for invalid JSON.

    >>> canonical("AVRO", '{"namespace": "a", "name": "F", "size": 2, "type": "fixed"}')
    '{"name":"a.F","size":2,"type":"fixed"}'
    """
    match kind:
        case "PROTOBUF":
            return " ".join(text.split())
        case "JSON":
            return _written(_loaded(kind, text))
        case "AVRO":
            return _written(_avro(_loaded(kind, text), ""), sort=True)


@functools.lru_cache(maxsize=4096)
def normal(kind: SchemaKind, text: str, references: tuple[tuple[str, str], ...]) -> str:
    """The normal form. In: `references`: the name and text of all that the schema imports. Raises `InvalidSchema` for
    invalid JSON."""
    match kind:
        case "AVRO":
            return canonical(kind, text)
        case "JSON":
            return _written(_loaded(kind, text), sort=True)
        case "PROTOBUF":
            try:
                return _protobuf(protobuf_text.load(text, references).descriptor)
            except InvalidSchema:
                return canonical(kind, text)


def _loaded(kind: SchemaKind, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        if kind == "AVRO" and text.strip().isidentifier():
            return text.strip()  # a primitive's bare name
        raise InvalidSchema(f"the {kind} schema is not valid JSON: {text[:80]}") from None


def _written(node: Any, *, sort: bool = False) -> str:
    return json.dumps(node, separators=(",", ":"), sort_keys=sort)


def _avro(node: Any, namespace: str) -> Any:
    """The schema with full names. Anything that is not a schema stays as it is, since other code reports that."""
    if isinstance(node, str):
        return node if node in _PRIMITIVES else _full_name(node, namespace)
    if isinstance(node, list):
        return [_avro(branch, namespace) for branch in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    made = dict(cast("dict[str, Any]", node))
    kind = made.get("type")
    if not isinstance(kind, (str, list, dict)):
        return made
    if set(made) == {"type"} and not _complex(kind):
        return _avro(kind, namespace)
    if kind in _NAMED and isinstance(made.get("name"), str):
        namespace = _name(made, namespace)
    elif not _complex(kind):
        made["type"] = _avro(kind, namespace)
    for inner in ("items", "values"):
        if inner in made:
            made[inner] = _avro(made[inner], namespace)
    if isinstance(made.get("fields"), list):
        made["fields"] = [_avro_field(field, namespace) for field in made["fields"]]
    return made


def _complex(kind: Any) -> bool:
    return isinstance(kind, str) and kind in (*_NAMED, "array", "map")


def _name(made: dict[str, Any], namespace: str) -> str:
    """Gives the type its full name, and returns the namespace of the types inside it."""
    own = made.pop("namespace", namespace)
    made["name"] = _full_name(made["name"], own if isinstance(own, str) else namespace)
    space = made["name"].rpartition(".")[0]
    if isinstance(made.get("aliases"), list):
        made["aliases"] = [_full_name(alias, space) for alias in made["aliases"]]
    return space


def _avro_field(field: Any, namespace: str) -> Any:
    if not isinstance(field, dict) or "type" not in field:
        return field
    return {**cast("dict[str, Any]", field), "type": _avro(field["type"], namespace)}


def _full_name(name: Any, namespace: str) -> Any:
    return f"{namespace}.{name}" if namespace and isinstance(name, str) and "." not in name else name


def _protobuf(file: descriptor_pb2.FileDescriptorProto) -> str:
    """The normal form of a .proto file. Of the options it has only those that the loader reads from a text."""
    kept = descriptor_pb2.FileDescriptorProto(package=file.package, syntax=file.syntax or "proto2")
    kept.enum_type.extend(file.enum_type)
    kept.message_type.extend(file.message_type)
    for enum in kept.enum_type:
        _plain_enum(enum)
    for message in kept.message_type:
        _plain_message(message)
    return kept.SerializeToString(deterministic=True).hex()


def _plain_message(message: descriptor_pb2.DescriptorProto) -> None:
    for ignored in ("reserved_range", "reserved_name", "extension_range", "extension"):
        message.ClearField(ignored)
    _plain_options(message, "map_entry")
    for field in message.field:
        field.ClearField("json_name")
        _plain_options(field, "packed")
    for enum in message.enum_type:
        _plain_enum(enum)
    for nested in message.nested_type:
        _plain_message(nested)


def _plain_enum(enum: descriptor_pb2.EnumDescriptorProto) -> None:
    for ignored in ("reserved_range", "reserved_name"):
        enum.ClearField(ignored)
    _plain_options(enum, "allow_alias")
    for value in enum.value:
        value.ClearField("options")


def _plain_options(described: Any, option: str) -> None:
    """Keeps only one of Protobuf's own options, and for a field Confluent's metadata."""
    if not described.HasField("options"):
        return
    before: Message = described.options
    found, meta = getattr(before, option), meta_in(before)
    said = before.HasField(option)
    described.ClearField("options")
    if said:
        setattr(described.options, option, found)
    if meta and isinstance(described, descriptor_pb2.FieldDescriptorProto):
        put_meta(described.options, meta)
