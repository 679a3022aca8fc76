"""Whether a text is an Avro schema: checks structure and names, as Avro's specification defines them.

The codec checks the rest (names that refer to other types, default values).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from .registry import InvalidSchema

Check = Callable[[dict[str, Any], str], None]


def check(node: Any, path: str = "$") -> None:
    """In: a schema as json.loads returns it, and its path. Raises `InvalidSchema`, which names the path."""
    if isinstance(node, str):
        return
    if isinstance(node, list):
        for number, branch in enumerate(cast("list[Any]", node)):
            if isinstance(branch, list):
                raise _invalid(f"{path}[{number}]", "a union holds no union")
            check(branch, f"{path}[{number}]")
        return
    if not isinstance(node, dict):
        raise _invalid(path, "a schema is the name of a type, an object with a type, or a list of schemas (a union)")
    of_kind = cast("dict[str, Any]", node)
    kind = _member(of_kind, "type", path, "the name of a type", str)
    if kind in _CHECKS:
        _CHECKS[kind](of_kind, path)


def _record(node: dict[str, Any], path: str) -> None:
    _check_name(node, path)
    names: set[str] = set()
    for number, field in enumerate(_member(node, "fields", path, "a list", list)):
        place = f"{path}.fields[{number}]"
        if not isinstance(field, dict):
            raise _invalid(place, "a field is an object with a name and a type")
        named = cast("dict[str, Any]", field)
        name = _member(named, "name", place, "a name", str)
        _check_word(name, place)
        if name in names:
            raise _invalid(place, f'there are two fields "{name}"')
        names.add(name)
        check(_member(named, "type", place, "a type", object), f"{path}.{name}")


def _enum(node: dict[str, Any], path: str) -> None:
    _check_name(node, path)
    for symbol in _member(node, "symbols", path, "a list", list):
        if not isinstance(symbol, str) or not symbol.isidentifier():
            raise _invalid(f"{path}.symbols", f"{symbol!r} is no name (letters, digits and _)")


def _fixed(node: dict[str, Any], path: str) -> None:
    _check_name(node, path)
    if isinstance(node.get("size"), bool) or _member(node, "size", path, "a number", int) < 0:
        raise _invalid(f"{path}.size", "a size is a number from 0")


def _array(node: dict[str, Any], path: str) -> None:
    check(_member(node, "items", path, "a schema", object), f"{path}.items")


def _map(node: dict[str, Any], path: str) -> None:
    check(_member(node, "values", path, "a schema", object), f"{path}.values")


_CHECKS: Final[dict[str, Check]] = {
    "record": _record, "error": _record, "enum": _enum, "fixed": _fixed, "array": _array, "map": _map,
}  # fmt: skip


def _member(node: dict[str, Any], name: str, path: str, what: str, types: type) -> Any:
    if name not in node:
        raise _invalid(path, f'"{name}" is missing')
    if not isinstance(node[name], types):
        raise _invalid(f"{path}.{name}", f"{what} is needed, not {node[name]!r:.80}")
    return node[name]


def _check_name(node: dict[str, Any], path: str) -> None:
    """Checks the name of a type. Its namespace may be anything, as for Java's clients: those of nested classes ended
    with $."""
    _check_word(_member(node, "name", path, "a name", str).rpartition(".")[2], path)


def _check_word(name: str, path: str) -> None:
    if not name.isidentifier():
        raise _invalid(f"{path}.name", f"{name!r:.80} is no name (letters, digits and _, not first a digit)")


def _invalid(path: str, why: str) -> InvalidSchema:
    return InvalidSchema(f"the AVRO schema cannot be used: at {path}: {why}")
