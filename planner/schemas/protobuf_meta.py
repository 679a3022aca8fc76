"""Confluent's metadata of a Protobuf file, message, field or enum: `(confluent.field_meta)` and similar options.

In descriptors it is an extension of the options, with the same number everywhere. Other code need not know it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

_NUMBER: Final = 1088
_Field: Final = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True, slots=True)
class Meta:
    """`parameters`: the precision and scale of a decimal. `tags`: words that rules refer to."""

    doc: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    tags: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.doc or self.parameters or self.tags)

    def text(self) -> str:
        """The text in a .proto file: `{ params: [{ value: "10", key: "precision" }] }`."""
        pairs = ", ".join(f"{{ value: {quoted(value)}, key: {quoted(key)} }}" for key, value in self.parameters.items())
        parts = [f"doc: {quoted(self.doc)}"] if self.doc else []
        parts += [f"params: [{pairs}]"] if pairs else []
        parts += [f"tags: [{', '.join(map(quoted, self.tags))}]"] if self.tags else []
        return f"{{ {', '.join(parts)} }}"


def quoted(text: str | bytes) -> str:
    """The text as a literal of a .proto file.

    >>> print(quoted('a"b'), quoted(b"\\xff"))
    "a\\"b" "\\377"
    """
    data = text.encode() if isinstance(text, str) else text
    plain = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n"}
    readable = "".join(plain.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in data)
    return f'"{readable}"'


def meta_in(options: Message) -> Meta:
    """The metadata in the options of a descriptor."""
    holder = _holder()()
    try:
        holder.MergeFromString(options.SerializeToString())
    except DecodeError:
        return Meta()
    found = cast("Any", holder).meta
    return Meta(found.doc, dict(sorted((pair.key, pair.value) for pair in found.params)), tuple(found.tags))


def put_meta(options: Message, meta: Meta) -> None:
    holder = cast("Any", _holder()())
    holder.meta.doc = meta.doc
    for key, value in sorted(meta.parameters.items()):
        holder.meta.params.add(key=key, value=value)
    holder.meta.tags.extend(meta.tags)
    options.MergeFromString(holder.SerializeToString())


def meta_of_literals(literals: Mapping[str, Any]) -> Meta:
    """The metadata in literals. In: `doc`, `params` and `tags`, as the parser returns them."""
    tags = literals.get("tags", ())
    named = [tags] if isinstance(tags, str) else tags
    doc = literals.get("doc", "")
    return Meta(
        doc if isinstance(doc, str) else "",
        dict(sorted(_pairs(literals.get("params")))),
        tuple(tag for tag in named if isinstance(tag, str)),
    )


def _pairs(literal: Any) -> Iterator[tuple[str, str]]:
    """The pairs in a literal: a list of { key, value }, or only one of them."""
    for entry in cast("list[Any]", literal) if isinstance(literal, list) else [literal]:
        elements = cast("list[Any]", getattr(entry, "elements", ()))
        found = {str(e.name): e.value for e in elements if hasattr(e, "value")}
        if isinstance(found.get("key"), str):
            yield str(found["key"]), str(found.get("value", ""))


@functools.cache
def _holder() -> type[Message]:
    """The type of a message that has only the extension."""
    file = descriptor_pb2.FileDescriptorProto(name="holder.proto", package="holder", syntax="proto2")
    pair = file.message_type.add(name="Pair")
    _add(pair, "key", 1)
    _add(pair, "value", 2)
    meta = file.message_type.add(name="Meta")
    _add(meta, "doc", 1)
    _add(meta, "params", 2, ".holder.Pair", repeated=True)
    _add(meta, "tags", 3, repeated=True)
    _add(file.message_type.add(name="Holder"), "meta", _NUMBER, ".holder.Meta")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("holder.Holder"))


def _add(
    message: descriptor_pb2.DescriptorProto, name: str, number: int, of: str = "", *, repeated: bool = False
) -> None:
    message.field.add(
        name=name,
        number=number,
        label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
        type=_Field.TYPE_MESSAGE if of else _Field.TYPE_STRING,
        type_name=of or None,
    )
