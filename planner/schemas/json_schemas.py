"""JSON schemas and columns: the SQL types of a schema of the registry, and the schema for columns.

`connect.type`, `connect.index` and the titles of Kafka Connect add what JSON's own types lack.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

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
from .registry import InvalidSchema

Rename = Callable[[str], str]

_CONNECT = "org.apache.kafka.connect.data."
_TITLES: dict[str, SqlType] = {f"{_CONNECT}Date": DATE, f"{_CONNECT}Time": TIME, f"{_CONNECT}Timestamp": TIMESTAMP}
_NUMBERS: dict[str, SqlType] = {
    "int8": INTEGER, "int16": INTEGER, "int32": INTEGER, "int64": BIGINT, "float32": DOUBLE, "float64": DOUBLE,
    "integer": BIGINT, "number": DOUBLE,
}  # fmt: skip
_CHOICES = ("oneOf", "anyOf", "allOf")
_UNION_FIELD = "connect_union_field_"
_INDEX_DIGITS_MAX = 9  # of a place in a list
_WRITTEN: dict[str, dict[str, Any]] = {
    "BOOLEAN": {"type": "boolean"},
    "INTEGER": {"type": "integer", "connect.type": "int32"},
    "BIGINT": {"type": "integer", "connect.type": "int64"},
    "DOUBLE": {"type": "number", "connect.type": "float64"},
    "STRING": {"type": "string"},
    "BYTES": {"type": "string", "connect.type": "bytes"},
    "DATE": {"type": "integer", "title": f"{_CONNECT}Date", "connect.version": 1, "connect.type": "int32"},
    "TIME": {"type": "integer", "title": f"{_CONNECT}Time", "connect.version": 1, "connect.type": "int32"},
    "TIMESTAMP": {"type": "integer", "title": f"{_CONNECT}Timestamp", "connect.version": 1, "connect.type": "int64"},
}


def load(text: str) -> Mapping[str, Any]:
    """The schema as JSON. Raises `InvalidSchema`."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidSchema(f"the JSON schema is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidSchema("a JSON schema is an object")
    _check(found, "$")
    return cast(dict[str, Any], found)


def _check(node: Any, path: str) -> None:
    """Checks the parts of a schema that are read. Raises `InvalidSchema`, which names the path."""
    if isinstance(node, bool):
        return
    if not isinstance(node, dict):
        raise _invalid(path, "a schema is an object, true or false")
    schema = cast(dict[str, Any], node)
    kinds = schema.get("type", [])
    if not isinstance(kinds, str) and not _is_texts(kinds):
        raise _invalid(f"{path}.type", "the name of a type, or a list of such names, is needed")
    if not _is_texts(schema.get("required", [])):
        raise _invalid(f"{path}.required", "a list of names is needed")
    members = schema.get("properties", {})
    if not isinstance(members, dict):
        raise _invalid(f"{path}.properties", "an object of schemas is needed")
    for name, child in cast(dict[str, Any], members).items():
        _check(child, f"{path}.{name}")
    for name in _CHOICES:
        branches = schema.get(name, [])
        if not isinstance(branches, list):
            raise _invalid(f"{path}.{name}", "a list of schemas is needed")
        for number, branch in enumerate(cast(list[Any], branches)):
            _check(branch, f"{path}.{name}[{number}]")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            _check(schema[name], f"{path}.{name}")


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast(list[Any], value))


def _invalid(path: str, why: str) -> InvalidSchema:
    return InvalidSchema(f"the JSON schema cannot be used: at {path}: {why}")


def sql_type(text: str, rename: Rename, references: Sequence[tuple[str, str]] = ()) -> SqlType | None:
    """The type of a whole schema; None if SQL has no type for it. Members without an SQL type are left out."""
    root = load(text)
    return _Reader(root, {name: load(referred) for name, referred in references}, rename).type(root, ())


class _Reader:
    def __init__(self, root: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]], rename: Rename) -> None:
        self._root = root
        self._others = others
        self._rename = rename

    def type(self, node: Mapping[str, Any] | bool, above: tuple[str, ...]) -> SqlType | None:
        if isinstance(node, bool):
            return None  # it allows anything, or nothing
        if "$ref" in node:
            target = str(node["$ref"])
            return None if target in above else self.type(self._referred(target), (*above, target))
        for choice in _CHOICES:
            if choice in node:
                return self._choice(node[choice], above)
        kind = node.get("type", "object" if "properties" in node else "string" if "enum" in node else None)
        if isinstance(kind, list):
            return self._choice([{**node, "type": one} for one in cast(list[str], kind)], above)
        match kind:
            case "object":
                return self._object(node, above)
            case "array":
                return self._array(node, above)
            case "integer" | "number":
                return _number(node)
            case "string":
                return BYTES if node.get("connect.type") == "bytes" else STRING
            case _:
                return BOOLEAN if kind == "boolean" else None

    def _referred(self, target: str) -> Mapping[str, Any] | bool:
        name, _, path = target.partition("#")
        node: Any = self._root if not name else self._others.get(name)
        for step in path.strip("/").split("/") if path.strip("/") else ():
            node = _below(node, unquote(step).replace("~1", "/").replace("~0", "~"))
        if node is None:
            raise InvalidSchema(f'the JSON schema refers to "{target}", which does not exist')
        _check(node, target)
        return cast("Mapping[str, Any] | bool", node)

    def _choice(self, branches: Sequence[Mapping[str, Any] | bool], above: tuple[str, ...]) -> SqlType | None:
        others = [branch for branch in branches if isinstance(branch, bool) or branch.get("type") != "null"]
        if len(others) == 1:
            return self.type(others[0], above)
        fields = [(f"{_UNION_FIELD}{number}", self.type(branch, above)) for number, branch in enumerate(others)]
        return self._struct(fields)

    def _object(self, node: Mapping[str, Any], above: tuple[str, ...]) -> SqlType | None:
        rest = node.get("additionalProperties")
        if "properties" not in node and isinstance(rest, Mapping):
            value = self.type(cast(Mapping[str, Any], rest), above)
            return None if value is None else Map(STRING, value)
        members = list(enumerate(cast(Mapping[str, Mapping[str, Any] | bool], node.get("properties", {})).items()))
        members.sort(key=lambda member: _place(member[1][1], member[0]))
        return self._struct([(name, self.type(child, above)) for _, (name, child) in members])

    def _array(self, node: Mapping[str, Any], above: tuple[str, ...]) -> SqlType | None:
        items = node.get("items")
        element = self.type(cast(Mapping[str, Any], items), above) if isinstance(items, Mapping) else None
        if element is None:
            return None
        if node.get("connect.type") == "map" and isinstance(element, Struct) and len(element.fields) == 2:
            return Map(element.fields[0].type, element.fields[1].type)
        return Array(element)

    def _struct(self, fields: Sequence[tuple[str, SqlType | None]]) -> SqlType | None:
        kept = tuple(Field(self._rename(name), type_) for name, type_ in fields if type_ is not None)
        return Struct(kept) if kept else None


def is_choice(type_: Struct) -> bool:
    """Whether the type stands for a value of one of several types: it has a field for each of them."""
    return bool(type_.fields) and all(field.name.lower().startswith(_UNION_FIELD) for field in type_.fields)


def _below(node: Any, step: str) -> Any:
    """The node that a step of a JSON pointer leads to; None if there is none."""
    if isinstance(node, list):
        items = cast("list[Any]", node)
        is_index = step.isdecimal() and len(step) <= _INDEX_DIGITS_MAX and int(step) < len(items)
        return items[int(step)] if is_index else None
    return cast("Mapping[str, Any]", node).get(step) if isinstance(node, Mapping) else None


def _place(node: Mapping[str, Any] | bool, number: int) -> int:
    """The position of a member among the others: Connect's index, or else `number`."""
    index = number if isinstance(node, bool) else node.get("connect.index", number)
    return index if isinstance(index, int) else number


def _number(node: Mapping[str, Any]) -> SqlType | None:
    """Connect's type if the node has one, else JSON's."""
    title, connect = str(node.get("title")), str(node.get("connect.type"))
    if title == f"{_CONNECT}Decimal":
        return _decimal(node.get("connect.parameters", {}))
    return _TITLES.get(title) or _NUMBERS.get(connect) or _NUMBERS[str(node["type"])]


def _decimal(parameters: Any) -> SqlType | None:
    given = cast(Mapping[str, Any], parameters) if isinstance(parameters, Mapping) else {}
    return declared_decimal(given.get("connect.decimal.precision", PRECISION_MAX), given.get("scale", 0))


@dataclass(frozen=True, slots=True)
class ObjectMember:
    """A member of the objects that a schema describes. `default`: a number, a text or a truth value. `needs_value`: it
    is required, and has no default and no null. `takes_null`: null is a value of it. `members`: if it is an object."""

    name: str
    default: int | float | str | None
    needs_value: bool
    takes_null: bool
    members: tuple[ObjectMember, ...] = ()


def members_of(text: str) -> tuple[ObjectMember, ...]:
    """The members of a whole schema's objects; none if it does not list them itself."""
    return _members(load(text))


def _members(node: Mapping[str, Any]) -> tuple[ObjectMember, ...]:
    """Those of an object, or of the only branch of a choice that is one."""
    branches = [branch for choice in ("oneOf", "anyOf") for branch in cast(list[Any], node.get(choice, []))]
    objects = [branch for branch in branches if isinstance(branch, Mapping) and "properties" in branch]
    if "properties" not in node and len(objects) == 1:
        return _members(cast(Mapping[str, Any], objects[0]))
    required = frozenset(cast(list[str], node.get("required", [])))
    return tuple(
        _member(name, child, name in required)
        for name, child in cast(Mapping[str, Mapping[str, Any] | bool], node.get("properties", {})).items()
    )


def _member(name: str, node: Mapping[str, Any] | bool, required: bool) -> ObjectMember:
    if isinstance(node, bool):
        return ObjectMember(name, None, False, True)
    default = node.get("default")
    return ObjectMember(
        name,
        default if isinstance(default, int | float | str) and _fits(default) else None,
        required and "default" not in node and not _takes_null(node),
        _takes_null(node),
        _members(node),
    )


def _fits(default: float | str) -> bool:
    return not isinstance(default, int) or -(2**63) <= default < 2**63


def _takes_null(node: Mapping[str, Any] | bool) -> bool:
    """Whether null, as far as the schema tells without following references, is a value of it."""
    if isinstance(node, bool):
        return True
    branches = [branch for choice in ("oneOf", "anyOf") for branch in cast(list[Any], node.get(choice, []))]
    kinds = node.get("type", [] if branches else ["null"])
    return "null" in ([kinds] if isinstance(kinds, str) else kinds) or any(map(_takes_null, branches))


def write_schema(columns: Sequence[Column], *, wrapped: bool) -> str:
    """The schema of these columns as JSON text."""
    if not wrapped and len(columns) == 1:
        return json.dumps(_nullable(columns[0].type), separators=(",", ":"))
    return json.dumps(_object([(column.name, column.type) for column in columns]), separators=(",", ":"))


def _object(fields: Sequence[tuple[str, SqlType]]) -> dict[str, Any]:
    properties = {name: {"connect.index": number, **_nullable(type_)} for number, (name, type_) in enumerate(fields)}
    return {"type": "object", "properties": properties}


def _nullable(type_: SqlType) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _node(type_)]}


def _node(type_: SqlType) -> dict[str, Any]:
    match type_:
        case Primitive():
            return _WRITTEN[type_.name]
        case Decimal():
            parameters = {"scale": str(type_.scale), "connect.decimal.precision": str(type_.precision)}
            return {"type": "number", "title": f"{_CONNECT}Decimal", "connect.version": 1, "connect.type": "bytes",
                    "connect.parameters": parameters}  # fmt: skip
        case Array():
            return {"type": "array", "items": _nullable(type_.element)}
        case Map():
            return {"type": "object", "connect.type": "map", "additionalProperties": _nullable(type_.value)}
        case Struct():
            return _object([(field.name, field.type) for field in type_.fields])
        case _:
            raise AssertionError(f"no column has the type {type_}")
