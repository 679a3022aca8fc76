"""Messages without records, with schemas from kio. Each schema is loaded when it is first needed.

A message is a mapping of field names to values, with the names of the protocol's specification. One mapping works for
every version: a version takes the fields that it has, and uses defaults for missing ones.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import typing
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final, NamedTuple

from ...error_codes import ErrorCode
from .apis import Api
from .entities import read_entity

Fields = Mapping[str, Any]

_NO_TIME: Final = timedelta(0)


def read_request(api: Api, version: int, message: memoryview, position: int) -> Any:
    """The request, as an object with the fields of this version. Raises `MalformedMessage`."""
    return read_entity(_schema(api, version, "request").entity, message, position)


def read_response(api: Api, version: int, message: memoryview, position: int) -> Any:
    return read_entity(_schema(api, version, "response").entity, message, position, is_answer=True)


def write_request(api: Api, version: int, fields: Fields) -> bytes:
    return _write(_schema(api, version, "request"), fields)


def write_response(api: Api, version: int, fields: Fields) -> bytes:
    return _write(_schema(api, version, "response"), fields)


def build_request(api: Api, version: int, fields: Fields) -> Any:
    """The object that `read_request` returns for the bytes of `write_request`."""
    return _schema(api, version, "request").build(fields)


def build_response(api: Api, version: int, fields: Fields) -> Any:
    """The object that `read_response` returns for the bytes of `write_response`."""
    return _schema(api, version, "response").build(fields)


def request_class(api: Api, version: int) -> type[Any]:
    """kio's class for it."""
    return _schema(api, version, "request").entity


class _Schema(NamedTuple):
    entity: type[Any]
    write: Callable[[Any, Any], None]
    build: Callable[[Fields], Any]


@cache
def _schema(api: Api, version: int, side: str) -> _Schema:
    module = importlib.import_module(f"kio.schema.{api.name.lower()}.v{version}.{side}")
    entity = getattr(module, api.name.title().replace("_", "") + side.title())
    write = importlib.import_module("kio.serial").entity_writer(entity)
    return _Schema(entity, write, _builder(entity))


def _write(schema: _Schema, fields: Fields) -> bytes:
    out = io.BytesIO()
    schema.write(out, schema.build(fields))
    return out.getvalue()


def _builder(entity: type[Any]) -> Callable[[Fields], Any]:
    """Creates an entity from a mapping, and nested structs from nested mappings and sequences of them."""
    convert: dict[str, Callable[[Any], Any]] = {}
    otherwise: dict[str, Any] = {}
    for field in dataclasses.fields(entity):
        convert[field.name] = _converter(field)
        if field.default is dataclasses.MISSING:
            otherwise[field.name] = _zero(field)

    def build(fields: Fields) -> Any:
        given = {name: convert[name](value) for name, value in fields.items() if name in convert}
        return entity(**{**otherwise, **given})

    return build


def _converter(field: dataclasses.Field[Any]) -> Callable[[Any], Any]:
    arguments = typing.get_args(field.type)
    nested = [kind for kind in _flat(field.type) if dataclasses.is_dataclass(kind)]
    if not nested:
        return tuple if Ellipsis in arguments else _same
    build = _builder(typing.cast("type[Any]", nested[0]))
    if not _is_array(field.type):
        return lambda value: None if value is None else build(value)
    return lambda values: None if values is None else tuple(build(value) for value in values)


def _is_array(kind: Any) -> bool:
    return typing.get_origin(kind) is tuple or any(typing.get_origin(part) is tuple for part in typing.get_args(kind))


def _flat(kind: Any) -> list[Any]:
    """The types inside a type: for `tuple[X, ...] | None`, they include X."""
    arguments = typing.get_args(kind)
    return [part for argument in arguments for part in _flat(argument)] if arguments else [kind]


def _same(value: Any) -> Any:
    return value


def _zero(field: dataclasses.Field[Any]) -> Any:
    """The value of a field without a default: the empty value of its type."""
    if type(None) in typing.get_args(field.type):
        return None
    if typing.get_origin(field.type) is tuple:
        return ()
    match field.metadata.get("kafka_type"):
        case "timedelta_i32" | "timedelta_i64":
            return _NO_TIME
        case "error_code":
            return ErrorCode.none
        case "string":
            return ""
        case "bool":
            return False
        case _:
            return 0
