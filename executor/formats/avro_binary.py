"""The AVRO schema by which fastavro reads and writes bytes: plain numbers and bytes, and unions whose branch is known.

fastavro finds the branch of a value by its Python type, and so takes the first of two records, or an int for a long. In
the schema given to it each branch of such a union is a record of its own with one field, whose bytes are those of the
branch: then a value comes with the name of its branch, and is written with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, cast

from ...planner.schemas import avro_schemas

BRANCH_VALUE: Final = "v"


Convert = Callable[[Any], Any]


class SchemaWalk(ABC):
    """Makes the function that converts the values of a schema: each kind of type has a method. It visits each record
    once, so a record may contain itself."""

    def __init__(self, names: dict[str, Any], binary: BinarySchema) -> None:
        self._names = names
        self._binary = binary
        self._open: dict[int, list[Any]] = {}
        self._full_names = {id(node): name for name, node in sorted(names.items(), key=lambda each: len(each[0]))}

    def convert(self, node: Any) -> Convert | None:
        """None if the values stay as they are."""
        node = self._resolve(node)
        if isinstance(node, list):
            return self._union(cast(list[Any], node))
        match _kind(node):
            case "record" | "error":
                return self._known_record(node)
            case "array":
                return self._array(self.convert(node["items"]))
            case "map":
                return self._map(self.convert(node["values"]))
            case kind:
                return self._leaf(kind, node)

    def _known_record(self, node: dict[str, Any]) -> Convert | None:
        if id(node) in self._open:  # it contains itself: its function is looked up when it is called
            holder = self._open[id(node)]
            return lambda value: value if holder[0] is None else holder[0](value)
        made: list[Convert | None] = [None]
        self._open[id(node)] = made
        made[0] = self._record(node)
        return made[0]

    @abstractmethod
    def _union(self, branches: list[Any]) -> Convert | None: ...

    @abstractmethod
    def _record(self, node: dict[str, Any]) -> Convert | None: ...

    @abstractmethod
    def _array(self, item: Convert | None) -> Convert | None: ...

    @abstractmethod
    def _map(self, member: Convert | None) -> Convert | None: ...

    @abstractmethod
    def _leaf(self, kind: str, node: Any) -> Convert | None: ...

    def _full_name(self, branch: Any) -> str:
        """The name of a union's branch in Avro's JSON encoding."""
        node = self._resolve(branch)
        return node if isinstance(node, str) else str(self._full_names.get(id(node), node["type"]))

    def _resolve(self, node: Any) -> Any:
        while True:
            if isinstance(node, str) and node in self._names:
                node = self._names[node]
            elif isinstance(node, dict) and isinstance(node.get("type"), (dict, list)):
                node = node["type"]
            else:
                return node


def _kind(node: Any) -> str:
    """The name of a type. In: `node`: no union."""
    return str(node if isinstance(node, str) else node["type"])


def unchanged(value: Any) -> Any:
    return value


class BinarySchema:
    """State: `branches`: for each union with several branches besides null, by `id`, the names of these."""

    def __init__(self) -> None:
        self.branches: dict[int, tuple[str, ...]] = {}
        self._count = 0

    def of(self, node: Any, namespace: str = "") -> Any:
        """The schema for fastavro."""
        if isinstance(node, list):
            return self._union(cast(list[Any], node), namespace)
        if not isinstance(node, dict):
            return node
        kept = {name: member for name, member in cast(dict[str, Any], node).items() if name != "logicalType"}
        if "name" in kept and kept.get("type") in avro_schemas.NAMED:
            name = str(kept["name"])
            namespace = name.rpartition(".")[0] if "." in name else str(kept.get("namespace", namespace))
        for member in ("type", "items", "values"):
            if member in kept:
                kept[member] = self.of(kept[member], namespace)
        if "fields" in kept:
            kept["fields"] = [self._field(field, namespace) for field in kept["fields"]]
        return kept

    def _field(self, field: dict[str, Any], namespace: str) -> dict[str, Any]:
        found = {**field, "type": self.of(field["type"], namespace)}
        union = field["type"]
        if field.get("default") is not None and id(union) in self.branches:  # a default is of the first branch
            found["default"] = (self.branches[id(union)][0], {BRANCH_VALUE: field["default"]})
        return found

    def _union(self, union: list[Any], namespace: str) -> list[Any]:
        if sum(branch != "null" for branch in union) < 2:
            return [self.of(branch, namespace) for branch in union]
        branches: list[Any] = []
        names: list[str] = []
        for branch in union:
            if branch == "null":
                branches.append(branch)
                continue
            self._count += 1
            name = f"millstream_branch_{self._count}"
            names.append(f"{namespace}.{name}" if namespace else name)
            value = {"name": BRANCH_VALUE, "type": self.of(branch, namespace)}
            branches.append({"type": "record", "name": name, "namespace": namespace, "fields": [value]})
        self.branches[id(union)] = tuple(names)
        return branches
