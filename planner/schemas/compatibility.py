"""Whether the subject's compatibility level allows a new version of a schema after the earlier ones.

BACKWARD: readers with the new schema can read records of the old one. FORWARD: the opposite. FULL: both.
The TRANSITIVE levels compare with all earlier versions, the others only with the latest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from . import avro_schemas, json_schemas, protobuf_text
from .registry import Registry, Version

_WIDENS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_WIRE_GROUPS = (
    {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64,
     FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM},
    {FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64},
    {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES},
    {FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32},
    {FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64},
)  # fmt: skip


def incompatibilities(new: Version, registry: Registry, *, level: str | None = None) -> list[str]:
    """Why `new` may not follow the subject's versions; empty if it may."""
    level = level or registry.level(new.subject)
    earlier = registry.of_subject(new.subject)
    if level == "NONE" or not earlier:
        return []
    compared = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    problems: list[str] = []
    for old in compared:
        if level.startswith(("BACKWARD", "FULL")):
            problems += _cannot_read(new, old, registry)
        if level.startswith(("FORWARD", "FULL")):
            problems += _cannot_read(old, new, registry)
    return problems


def _cannot_read(reader: Version, writer: Version, registry: Registry) -> list[str]:
    """Why records that were written with `writer` cannot be read with `reader`; empty if they can."""
    if reader.kind != writer.kind:
        return [f"version {writer.version} is {writer.kind}, not {reader.kind}"]
    match reader.kind:
        case "AVRO":
            return _Avro(reader, writer, registry).problems()
        case "JSON":
            return _json(json_schemas.load(reader.text), json_schemas.load(writer.text), "$")
        case "PROTOBUF":
            new = protobuf_text.load(reader.text, registry.resolve(reader.references)).messages
            old = protobuf_text.load(writer.text, registry.resolve(writer.references)).messages
            by_name = {message.full_name: message for message in new}
            compared: set[tuple[str, str]] = set()
            return [
                problem
                for message in old
                for problem in (
                    _protobuf(by_name[message.full_name], message, compared)
                    if message.full_name in by_name
                    else [f"the message {message.full_name} is missing"]
                )
            ]


# ------------------------------------------------------------------ Avro's schema resolution


class _Avro:
    def __init__(self, reader: Version, writer: Version, registry: Registry) -> None:
        self._reader, self._reader_names = self._load(reader, registry)
        self._writer, self._writer_names = self._load(writer, registry)
        self._compared: dict[tuple[int, int], list[str]] = {}  # pairs of records, with the problems of their fields

    def problems(self) -> list[str]:
        return self._compare(self._reader, self._writer, "$")

    @staticmethod
    def _load(version: Version, registry: Registry) -> tuple[Any, dict[str, Any]]:
        names: dict[str, Any] = {}
        for _, text in registry.resolve(version.references):
            avro_schemas.named_types(avro_schemas.load(text), names)
        node = avro_schemas.load(version.text)
        return node, avro_schemas.named_types(node, names)

    def _compare(self, reader: Any, writer: Any, path: str) -> list[str]:
        reader, writer = _resolved(reader, self._reader_names), _resolved(writer, self._writer_names)
        if isinstance(writer, list):
            return [p for branch in cast(list[Any], writer) for p in self._compare(reader, branch, path)]
        if isinstance(reader, list):
            tried = [self._compare(branch, writer, path) for branch in cast(list[Any], reader)]
            return [] if not all(tried) else [f"{path}: no branch of the union takes {_kind(writer)}"]
        kind, old = _kind(reader), _kind(writer)
        if kind != old:
            return [] if kind in _WIDENS.get(old, ()) else [f"{path}: {old} cannot be read as {kind}"]
        match kind:
            case "record" | "error":
                return self._records(reader, writer, path)
            case "array":
                return self._compare(reader["items"], writer["items"], f"{path}[]")
            case "map":
                return self._compare(reader["values"], writer["values"], f"{path}{{}}")
            case "enum":
                missing = set(writer["symbols"]) - set(reader["symbols"])
                return (
                    [f"{path}: the symbols {sorted(missing)} are missing"]
                    if missing and "default" not in reader
                    else []
                )
            case "fixed":
                return [] if reader["size"] == writer["size"] else [f"{path}: the size differs"]
            case _:
                return []

    def _records(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
        """Compares each pair once. Inside of itself, a pair is taken to be compatible; if it is not, what was found to
        be compatible meanwhile has to be compared again."""
        short = [str(node["name"]).rsplit(".", 1)[-1] for node in (reader, writer)]
        if short[0] != short[1] and str(writer["name"]) not in reader.get("aliases", ()):
            return [f"{path}: the record {short[1]} is called {short[0]}"]
        pair = (id(reader), id(writer))
        if pair in self._compared:
            return self._compared[pair]
        before = len(self._compared)
        self._compared[pair] = []
        if problems := list(dict.fromkeys(self._fields(reader, writer, path))):
            self._compared[pair] = problems
            for inner in list(self._compared)[before + 1 :]:
                if not self._compared[inner]:
                    del self._compared[inner]
        return problems

    def _fields(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
        written = {field["name"]: field for field in writer["fields"]}
        problems: list[str] = []
        for field in reader["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            old = next((written[name] for name in names if name in written), None)
            inside = f"{path}.{field['name']}"
            if old is not None:
                problems += self._compare(field["type"], old["type"], inside)
            elif "default" not in field:
                problems.append(f"{inside}: the field is new and has no default")
        return problems


def _resolved(node: Any, names: Mapping[str, Any]) -> Any:
    while True:
        if isinstance(node, str) and node in names:
            node = names[node]
        elif isinstance(node, dict) and isinstance(node.get("type"), (dict, list)):
            node = node["type"]
        else:
            return node


def _kind(node: Any) -> str:
    return str(node["type"]) if isinstance(node, dict) else str(node)


# ------------------------------------------------------------------ JSON


def _json(reader: Mapping[str, Any] | bool, writer: Mapping[str, Any] | bool, path: str) -> list[str]:
    """Types may widen, and members may be added and removed. A member that becomes required must have been required
    before, or have a default. A schema that is true or false says nothing about types."""
    if isinstance(reader, bool) or isinstance(writer, bool):
        return []
    new, old = _json_types(reader), _json_types(writer)
    if "integer" in old and "number" in new:
        new = new | {"integer"}
    if new and old and not old <= new:
        return [f"{path}: {', '.join(sorted(old - new))} cannot be read as {', '.join(sorted(new))}"]
    reader, writer = _json_body(reader), _json_body(writer)
    mine: Mapping[str, Mapping[str, Any] | bool] = reader.get("properties", {})
    theirs: Mapping[str, Mapping[str, Any] | bool] = writer.get("properties", {})
    problems = [
        f"{path}.{name}: the member became required"
        for name in reader.get("required", ())
        if name not in writer.get("required", ()) and not _has_default(mine.get(name, True))
    ]
    for name, member in theirs.items():
        if name in mine:
            problems += _json(mine[name], member, f"{path}.{name}")
        elif reader.get("additionalProperties") is False:
            problems.append(f"{path}.{name}: the member is missing")
    if isinstance(reader.get("items"), Mapping) and isinstance(writer.get("items"), Mapping):
        problems += _json(reader["items"], writer["items"], f"{path}[]")
    return problems


def _has_default(node: Mapping[str, Any] | bool) -> bool:
    return not isinstance(node, bool) and "default" in node


def _json_types(node: Mapping[str, Any] | bool) -> set[str]:
    if isinstance(node, bool):
        return set()
    for choice in ("oneOf", "anyOf"):
        if choice in node:
            return {name for branch in node[choice] for name in _json_types(branch)}
    kind = node.get("type")
    return set(cast(list[str], kind)) if isinstance(kind, list) else {kind} if kind else set()


def _json_body(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """The only branch of a nullable schema that is not null, else the schema itself."""
    for choice in ("oneOf", "anyOf"):
        others = [branch for branch in node.get(choice, ()) if isinstance(branch, bool) or branch.get("type") != "null"]
        if len(others) == 1 and not isinstance(others[0], bool):
            return others[0]
    return node


# ------------------------------------------------------------------ Protobuf


def _protobuf(reader: Descriptor, writer: Descriptor, compared: set[tuple[str, str]]) -> list[str]:
    """Fields are identified by their numbers. Those in both messages must have types with the same bytes. Each pair of
    messages is compared once: `compared`."""
    pair = (reader.full_name, writer.full_name)
    if pair in compared:
        return []
    compared.add(pair)
    problems: list[str] = []
    for old in writer.fields:
        new = reader.fields_by_number.get(old.number)
        if new is None:
            continue
        path = f"{writer.full_name}.{old.name}"
        if (new.message_type is None) != (old.message_type is None) or not _same_wire(new.type, old.type):
            problems.append(f"{path}: the type changed")
        elif new.is_repeated != old.is_repeated and new.message_type is None:
            problems.append(f"{path}: it is repeated in one version only")
        elif new.message_type is not None and old.message_type is not None:
            problems += _protobuf(new.message_type, old.message_type, compared)
    return problems


def _same_wire(new: int, old: int) -> bool:
    return new == old or any(new in group and old in group for group in _WIRE_GROUPS)
