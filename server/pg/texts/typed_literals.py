"""Texts and parameters whose type is known, as literals of our dialect that have this type, too: an empty ARRAY or MAP
and NULL have none of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ....sql.identifiers import quote_identifier
from ....sql.printing import literal
from ....sql.types import Array, Map, SqlType, Struct
from ..pg_json_values import json_reader
from ..pg_parameters import NO_VALUE, decoded_value, no_value
from ..pg_types import JSON_OID, oid_of

_JSONB: Final = 3802
_EMPTY: Final = "FILTER(ARRAY["


def is_json(type_: SqlType | None) -> bool:
    """Whether its values are JSON for PostgreSQL's clients."""
    return type_ is not None and oid_of(type_) == JSON_OID


def text_literal(text: str, type_: SqlType) -> str:
    """A text as a value of the type. Raises the errors in `NO_VALUE`."""
    if is_json(type_):
        return typed_literal(json_reader(type_)(text.encode()), type_)
    value = decoded_value(text.encode(), 0, oid_of(type_))
    return typed_literal(value, type_) if isinstance(value, list) else literal(value)


def json_literal(content: bytes | None, format: int, oid: int, type_: SqlType) -> str:
    """A parameter in JSON, whose text it is apart from the first byte of a jsonb. Raises `WrongParameter`."""
    if content is None:
        return "NULL"
    try:
        return text_literal(content[format == 1 and oid == _JSONB :].decode(), type_)
    except NO_VALUE as error:
        raise no_value(str(type_), error) from None


def typed_null(type_: SqlType) -> str:
    return f"CAST(NULL AS {type_})"


def is_empty_array(written: str) -> bool:
    return written.startswith(_EMPTY)


def typed_literal(value: Any, type_: SqlType) -> str:
    """In: `value`: pairs for a MAP, a STRUCT's fields by their names in Arrow."""
    if value is None:
        return typed_null(type_)
    match type_:
        case Array(element):
            return _array(value, element)
        case Map(key, of):
            return _map(value, key, of)
        case Struct():
            return _struct(value, type_)
        case _:
            return literal(value)


def _array(items: Sequence[Any], element: SqlType) -> str:
    if not items:
        return f"{_EMPTY}{typed_null(element)}], ITEM => FALSE)"
    return f"ARRAY[{', '.join(typed_literal(item, element) for item in items)}]"


def _map(pairs: Sequence[tuple[Any, Any]], key: SqlType, of: SqlType) -> str:
    if not pairs:
        return f"FILTER(MAP('' := {typed_null(of)}), (K, V) => FALSE)"
    return f"MAP({', '.join(f'{typed_literal(name, key)} := {typed_literal(item, of)}' for name, item in pairs)})"


def _struct(values: Mapping[str, Any], type_: Struct) -> str:
    fields = zip(type_.engine_names, type_.fields, strict=True)
    written = (
        f"{quote_identifier(field.name)} := {typed_literal(values.get(name), field.type)}" for name, field in fields
    )
    return f"STRUCT({', '.join(written)})"
