"""AVRO's JSON encoding, as the REST proxy takes and gives it: bytes are Latin-1 texts, and a value of a union is an
object with the name of its type, as in `{"string": "x"}`."""

from __future__ import annotations

import math
from typing import Any, cast

from .avro_binary import BRANCH_VALUE, Convert, SchemaWalk, unchanged
from .avro_leaves import of_type, real, sized, symbol, unwanted, whole
from .reading import describe
from .wire import Unwritable

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NOT_FINITE_TEXTS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class JsonReading(SchemaWalk):
    """From fastavro's values to JSON."""

    def _array(self, item: Convert | None) -> Convert | None:
        return item and (lambda value: [item(member) for member in value])

    def _map(self, member: Convert | None) -> Convert | None:
        return member and (lambda value: {key: member(inner) for key, inner in value.items()})

    def _leaf(self, kind: str, node: Any) -> Convert | None:
        match kind:
            case "bytes" | "fixed":
                return lambda value: value.decode("latin-1")
            case "float" | "double":
                return lambda value: value if math.isfinite(value) else _NOT_FINITE_TEXTS[str(value)]
            case _:
                return None

    def _union(self, branches: list[Any]) -> Convert:
        others = [branch for branch in branches if branch != "null"]
        named = [(self._full_name(branch), self.convert(branch) or unchanged) for branch in others]
        keys = self._binary.branches.get(id(branches))
        if keys is None:
            return lambda value: None if value is None else {named[0][0]: named[0][1](value)}
        known = dict(zip(keys, named, strict=True))

        def convert(value: Any) -> Any:
            if value is None:
                return None
            key, wrapped = value
            name, inner = known[key]
            return {name: inner(wrapped[BRANCH_VALUE])}

        return convert

    def _record(self, node: dict[str, Any]) -> Convert:
        fields = [(field["name"], self.convert(field["type"]) or unchanged) for field in node["fields"]]
        return lambda value: {name: inner(value[name]) for name, inner in fields}


class JsonWriting(SchemaWalk):
    """From JSON to fastavro's values. The functions raise `Unwritable`."""

    def _array(self, item: Convert | None) -> Convert:
        each = item or unchanged
        return lambda value: [each(member) for member in of_type(list, value, "an array")]

    def _map(self, member: Convert | None) -> Convert:
        each = member or unchanged
        return lambda value: {key: each(inner) for key, inner in of_type(dict, value, "an object").items()}

    def _leaf(self, kind: str, node: Any) -> Convert:
        return _leaf(kind, node)

    def _union(self, branches: list[Any]) -> Convert:
        others = [branch for branch in branches if branch != "null"]
        converts = [self.convert(branch) or unchanged for branch in others]
        named = {self._full_name(branch): (number, converts[number]) for number, branch in enumerate(others)}
        nullable, keys = len(others) < len(branches), self._binary.branches.get(id(branches))

        def convert(value: Any) -> Any:
            if value is None and nullable:
                return None
            if not isinstance(value, dict) or len(cast(dict[str, Any], value)) != 1:
                told = f'a value of a union carries the name of its type, as in {{"{next(iter(named), "null")}": …}}'
                raise Unwritable(f"{told}; {describe(value)} came")
            ((name, member),) = cast(dict[str, Any], value).items()
            if name not in named:
                raise Unwritable(f'a union of the AVRO schema has {", ".join(named)}, and no "{name}"')
            number, inner = named[name]
            return inner(member) if keys is None else (keys[number], {BRANCH_VALUE: inner(member)})

        return convert

    def _record(self, node: dict[str, Any]) -> Convert:
        fields = [(f["name"], self.convert(f["type"]) or unchanged, "default" in f) for f in node["fields"]]

        def convert(value: Any) -> dict[str, Any]:
            given: dict[str, Any] = of_type(dict, value, "an object")
            found: dict[str, Any] = {}
            for name, inner, defaulted in fields:
                if name in given:
                    try:
                        found[name] = inner(given[name])
                    except Unwritable as error:
                        raise Unwritable(f"in the field {name}, {error}") from None
                elif not defaulted:  # fastavro writes the default
                    raise Unwritable(f"the field {name} has no value, and the AVRO schema has no default for it")
            return found

        return convert


def _leaf(kind: str, node: Any) -> Convert:
    match kind:
        case "null":
            return _null
        case "boolean":
            return lambda value: of_type(bool, value, "a boolean")
        case "int" | "long":
            return lambda value: whole(kind, _numeral(value))
        case "float" | "double":
            return lambda value: real(kind, _real(value))
        case "bytes":
            return _bytes
        case "fixed":
            return lambda value: sized(node, _bytes(value))
        case "enum":
            return lambda value: symbol(node, of_type(str, value, "a text"))
        case _:
            return lambda value: of_type(str, value, "a text")


def _null(value: Any) -> None:
    if value is not None:
        raise unwanted("null", value)


def _numeral(value: Any) -> Any:
    """JSON's numbers; texts of numbers are none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise unwanted("a number", value)
    return value


def _real(value: Any) -> Any:
    return _NOT_FINITE[value] if isinstance(value, str) and value in _NOT_FINITE else _numeral(value)


def _bytes(value: Any) -> bytes:
    try:
        return str(of_type(str, value, "bytes, as a text of Latin-1")).encode("latin-1")
    except UnicodeEncodeError:
        raise unwanted("bytes, as a text of Latin-1", value) from None
