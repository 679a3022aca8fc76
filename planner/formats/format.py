"""The properties of a format that the planner needs. Its module in `executor/formats/` decodes and encodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...sql.types import STRING, Array, Map, SqlType, Struct
from ..schema import Column

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]
Refusal = Callable[[Sequence[Column], str], str | None]
"""Why the format cannot hold these columns as a Key or a Value; None if it can."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format of keys and values. The modules beside this one define them.

    `wraps`: a single column can be written inside an object; `unwraps`: it can be written bare.
    `refusal`: tells why it cannot hold columns.
    `schema_kind`: the kind of the schemas that records are written with. The registry keeps them (`registered`), or
    they follow from the columns.
    `options`: its options in WITH.
    `holds_null`: NULL is read back as NULL; `holds_bare_null`: also that of a bare single column.
    `holds_no_columns`: a value without columns differs from a tombstone.
    `columnar`: a topic holds whole batches, which not every log can store.
    `moves`: its values may be grouped and joined.
    `same_bytes`: whether equal keys have equal bytes for every name of the column; in: whether a single column is
    wrapped.
    `codes_more`: it also reads and writes columns that statements may not declare: the JSON of any column determines
    its partition, and columns of ARROW are shown as JSON.
    `by_name`: the fields of a value are found by the names of their columns, so a column may be removed without effect
    on the others.
    """

    name: str
    doc: str
    wraps: bool
    unwraps: bool
    refusal: Refusal
    schema_kind: SchemaKind | None = None
    registered: bool = True
    codes_more: bool = False
    options: frozenset[str] = frozenset()
    holds_null: bool = True
    holds_bare_null: bool = True
    holds_no_columns: bool = False
    columnar: bool = False
    moves: bool = True
    by_name: bool = False
    same_bytes: Callable[[bool], bool] = lambda wrapped: False


def only_text_map_keys(reason: str) -> Refusal:
    """Refuses columns that hold a MAP whose keys are not STRINGs, for this reason."""

    def refusal(columns: Sequence[Column], part: str) -> str | None:
        return reason if any(_has_non_text_map_key(column.type) for column in columns) else None

    return refusal


def unsupported(name: str, type_: SqlType) -> str:
    kind = str(type_).split("<")[0].split("(")[0]
    return f"The '{name}' format does not support type '{kind}'"


def contains_map(type_: SqlType) -> bool:
    return any(isinstance(inner, Map) for inner in nested_types(type_))


def _has_non_text_map_key(type_: SqlType) -> bool:
    return any(isinstance(inner, Map) and inner.key != STRING for inner in nested_types(type_))


def nested_types(type_: SqlType) -> list[SqlType]:
    """The type and the types inside it."""
    match type_:
        case Array(element=element):
            return [type_, *nested_types(element)]
        case Map(key=key, value=value):
            return [type_, *nested_types(key), *nested_types(value)]
        case Struct(fields=fields):
            return [type_, *(inner for field in fields for inner in nested_types(field.type))]
        case _:
            return [type_]
