"""The messages that carry no records: kio has their schemas. Each is loaded when it is first needed.

A message is given as the names and values of its fields, as the protocol's specification names them. One answer serves
every version: a version takes the fields that it has, and fills in defaults for what is not given.
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

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from .apis import Api
from .wire import MalformedMessage

Fields = Mapping[str, Any]

_NO_TIME: Final = timedelta(0)


def read_request(api: Api, version: int, message: memoryview, position: int) -> Any:
    """The request, as an object with the fields of this version. Raises `MalformedMessage`."""
    return _read(_schema(api, version, "request"), message, position)


def read_response(api: Api, version: int, message: memoryview, position: int) -> Any:
    return _read(_schema(api, version, "response"), message, position)


def write_request(api: Api, version: int, fields: Fields) -> bytes:
    return _write(_schema(api, version, "request"), fields)


def write_response(api: Api, version: int, fields: Fields) -> bytes:
    return _write(_schema(api, version, "response"), fields)


class _Schema(NamedTuple):
    read: Callable[[memoryview, int], tuple[Any, int]]
    write: Callable[[Any, Any], None]
    build: Callable[[Fields], Any]


@cache
def _schema(api: Api, version: int, side: str) -> _Schema:
    module = importlib.import_module(f"kio.schema.{api.name.lower()}.v{version}.{side}")
    entity = getattr(module, api.name.title().replace("_", "") + side.title())
    return _Schema(entity_reader(entity), entity_writer(entity), _builder(entity))


def _read(schema: _Schema, message: memoryview, position: int) -> Any:
    try:
        return schema.read(message.toreadonly(), position)[0]
    except (SerialError, ValueError, OverflowError, KeyError) as error:  # KeyError: an unknown tagged field
        raise MalformedMessage(str(error)) from error


def _write(schema: _Schema, fields: Fields) -> bytes:
    out = io.BytesIO()
    schema.write(out, schema.build(fields))
    return out.getvalue()


def _builder(entity: type[Any]) -> Callable[[Fields], Any]:
    """Makes an entity of a mapping: nested structs too, from mappings and sequences of them."""
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
    return lambda values: None if values is None else tuple(build(value) for value in values)


def _flat(kind: Any) -> list[Any]:
    """The types that a type is made of: of `tuple[X, ...] | None`, X among them."""
    arguments = typing.get_args(kind)
    return [part for argument in arguments for part in _flat(argument)] if arguments else [kind]


def _same(value: Any) -> Any:
    return value


def _zero(field: dataclasses.Field[Any]) -> Any:
    """What a field without a default gets: nothing, in its type."""
    if type(None) in typing.get_args(field.type):
        return None
    if typing.get_origin(field.type) is tuple:
        return ()
    match field.metadata.get("kafka_type"):
        case "timedelta_i32" | "timedelta_i64":
            return _NO_TIME
        case "string":
            return ""
        case "bool":
            return False
        case _:
            return 0
