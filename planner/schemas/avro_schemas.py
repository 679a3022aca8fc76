"""Avro schemas and columns: the SQL types of a schema of the registry, and the schema for columns.

The schemas that we write are the same as those that Kafka Connect's converter writes for ksqlDB: every field may be
null, nested records have names made from the path to them, and `connect.name` repeats the full name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from millstream.errors import FormatError

from ...sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
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
from .avro_check import check
from .declared_decimals import declared_decimal
from .registry import InvalidSchema

Rename = Callable[[str], str]
Node = Any  # a schema as json.loads returns it

NAMESPACE = "io.confluent.ksql.avro_schemas"
VALUE_NAME = f"{NAMESPACE}.KsqlDataSourceSchema"

_PRIMITIVES: dict[str, SqlType] = {
    "boolean": BOOLEAN, "int": INTEGER, "long": BIGINT, "float": DOUBLE, "double": DOUBLE, "string": STRING,
    "bytes": BYTES, "enum": STRING, "fixed": BYTES,
}  # fmt: skip
_LOGICAL: dict[tuple[str, str], SqlType] = {
    ("int", "date"): DATE,
    ("int", "time-millis"): TIME,
    ("long", "timestamp-millis"): TIMESTAMP,
}
_WRITTEN: dict[str, Node] = {
    "BOOLEAN": "boolean",
    "INTEGER": "int",
    "BIGINT": "long",
    "DOUBLE": "double",
    "STRING": "string",
    "BYTES": "bytes",
    "DATE": {"type": "int", "connect.version": 1, "connect.name": "org.apache.kafka.connect.data.Date",
             "logicalType": "date"},
    "TIME": {"type": "int", "connect.version": 1, "connect.name": "org.apache.kafka.connect.data.Time",
             "logicalType": "time-millis"},
    "TIMESTAMP": {"type": "long", "connect.version": 1, "connect.name": "org.apache.kafka.connect.data.Timestamp",
                  "logicalType": "timestamp-millis"},
}  # fmt: skip
NAMED = ("record", "error", "enum", "fixed")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def load(text: str) -> Node:
    """The schema as JSON. A primitive type may be just its name. Raises `InvalidSchema`."""
    try:
        node = json.loads(text)
    except ValueError:
        if text.strip() in _PRIMITIVES:
            return text.strip()
        raise InvalidSchema(f"the AVRO schema is not valid JSON: {text[:80]}") from None
    check(node)
    return node


def named_types(node: Node, found: dict[str, Node] | None = None, namespace: str = "") -> dict[str, Node]:
    """The records, enums and fixed types in a schema, by full and by short name. Short names of types in the same
    namespace become full ones in the schema: another namespace may have a type of that name."""
    found = {} if found is None else found
    if isinstance(node, list):
        branches = cast(list[Node], node)
        for number, branch in enumerate(branches):
            branches[number] = _with_full_name(branch, found, namespace)
            named_types(branch, found, namespace)
    elif isinstance(node, dict):
        _name_types(cast(dict[str, Any], node), found, namespace)
    return found


def _name_types(node: dict[str, Any], found: dict[str, Node], namespace: str) -> None:
    if "name" in node and node.get("type") in NAMED:
        name, own = str(node["name"]), str(node.get("namespace", namespace))
        if "." in name:
            own, name = name.rsplit(".", 1)
        namespace = own
        found.setdefault(name, node)
        found[f"{own}.{name}" if own else name] = node
    for member in ("type", "items", "values"):
        if isinstance(node.get(member), (dict, list)):
            named_types(node[member], found, namespace)
        elif member in node:
            node[member] = _with_full_name(node[member], found, namespace)
    if node.get("type") in ("record", "error"):
        for field in node["fields"]:
            named_types(field["type"], found, namespace)
            field["type"] = _with_full_name(field["type"], found, namespace)


def _with_full_name(node: Node, found: Mapping[str, Node], namespace: str) -> Node:
    if not isinstance(node, str) or not namespace:
        return node
    full = f"{namespace}.{node}"
    return full if full in found else node


# ------------------------------------------------------------------ from a schema to types


def sql_type(text: str, rename: Rename, references: Sequence[tuple[str, str]] = ()) -> SqlType | None:
    """The type of a whole schema; None if SQL has no type for it. Fields without an SQL type are left out."""
    found: dict[str, Node] = {}
    for _, referred in references:
        named_types(load(referred), found)
    node = load(text)
    return _type(node, named_types(node, found), rename, ())


def _type(node: Node, names: Mapping[str, Node], rename: Rename, above: tuple[int, ...]) -> SqlType | None:
    if isinstance(node, str):
        if node in _PRIMITIVES or node == "null":
            return _PRIMITIVES.get(node)
        known = names.get(node)
        if known is None:
            raise InvalidSchema(f'the AVRO schema names the type "{node}", which it does not define')
        return _type(known, names, rename, above)
    if isinstance(node, list):
        return _union(cast(list[Node], node), names, rename, above)
    kind = node["type"]
    if isinstance(kind, (dict, list)) or kind in names:
        return _type(kind, names, rename, above)
    match kind:
        case "record" | "error":
            if id(node) in above:
                return None  # a type cannot contain itself
            fields = [(str(f["name"]), _type(f["type"], names, rename, (*above, id(node)))) for f in node["fields"]]
            return _struct(fields, rename)
        case "array":
            return _array(node, names, rename, above)
        case "map":
            value = _type(node["values"], names, rename, above)
            return None if value is None else Map(STRING, value)
        case _:
            return _scalar(node)


def _scalar(node: Mapping[str, Any]) -> SqlType | None:
    kind, logical = node["type"], node.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return declared_decimal(node.get("precision", 0), node.get("scale", 0))
    return _LOGICAL.get((kind, str(logical)), _PRIMITIVES.get(kind))


def _struct(fields: Sequence[tuple[str, SqlType | None]], rename: Rename) -> SqlType | None:
    kept = tuple(Field(rename(name), type_) for name, type_ in fields if type_ is not None)
    return Struct(kept) if kept else None


def _array(
    node: Mapping[str, Any], names: Mapping[str, Node], rename: Rename, above: tuple[int, ...]
) -> SqlType | None:
    element = _type(node["items"], names, rename, above)
    return None if element is None else Array(element)


def _union(branches: list[Node], names: Mapping[str, Node], rename: Rename, above: tuple[int, ...]) -> SqlType | None:
    """A union of null and one other branch has that branch's type. Several others become a struct with a field each."""
    others = [branch for branch in branches if branch != "null"]
    if len(others) == 1:
        return _type(others[0], names, rename, above)
    fields = [(branch_name(branch), _type(branch, names, rename, above)) for branch in others]
    return _struct(fields, rename)


def branch_name(branch: Node) -> str:
    """The name of this branch in the struct that represents a union."""
    if isinstance(branch, str):
        return branch.rsplit(".", 1)[-1]
    return str(branch.get("name", branch["type"])).rsplit(".", 1)[-1]


# ------------------------------------------------------------------ from columns to a schema


def write_schema(columns: Sequence[Column], name: str, *, wrapped: bool) -> str:
    """The schema of these columns as JSON text. `name`: the record's full name.

    Raises `FormatError` for names that Avro does not allow.
    """
    if not wrapped and len(columns) == 1:
        return _dump(_node(columns[0].type, name))
    return _dump(_record([(column.name, column.type) for column in columns], name))


def key_name(source: str) -> str:
    """The full name of the key record of a stream or table: that of MY_TABLE ends with MyTableKey."""
    return f"{NAMESPACE}.{''.join(word.capitalize() for word in source.split('_'))}Key"


def _record(fields: Sequence[tuple[str, SqlType]], name: str) -> Node:
    namespace, _, short = name.rpartition(".")
    for part in (short, *(field for field, _ in fields)):
        _check_name(part)
    return {
        "type": "record",
        "name": short,
        **({"namespace": namespace} if namespace else {}),
        "fields": [
            {"name": field, "type": ["null", _node(type_, f"{name}_{field}")], "default": None}
            for field, type_ in fields
        ],
        "connect.name": name,
    }


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name):
        return
    initial = not re.match(r"[A-Za-z_]", name)
    what = f"Illegal initial character: {name}" if initial else f"Illegal character in: {name}"
    raise FormatError(f"Schema is not compatible with Avro: {what}", hint="Give the column another name with AS.")


def _node(type_: SqlType, name: str) -> Node:
    match type_:
        case Primitive():
            return _WRITTEN[type_.name]
        case Decimal():
            return _decimal(type_)
        case Array():
            return {"type": "array", "items": ["null", _node(type_.element, name)]}
        case Map() if type_.key == STRING:
            return {"type": "map", "values": ["null", _node(type_.value, f"{name}_MapValue")]}
        case Struct():
            return _record([(field.name, field.type) for field in type_.fields], name)
        case _:
            raise FormatError("Avro only supports MAPs with STRING keys")


def _decimal(type_: Decimal) -> Node:
    return {
        "type": "bytes",
        "scale": type_.scale,
        "precision": type_.precision,
        "connect.version": 1,
        "connect.parameters": {"scale": str(type_.scale), "connect.decimal.precision": str(type_.precision)},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
    }


def _dump(node: Node) -> str:
    return json.dumps(node, separators=(",", ":"))
