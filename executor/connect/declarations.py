"""The types of a topic's columns, as streams and tables of the catalog declare them, because JSON has no such types.

A declaration applies unless the transforms of the sink change the shape of the records. If several streams and tables
are declared on a topic, the one whose query writes the topic applies, else the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import pyarrow as pa

from ...planner.catalog import Catalog
from ...planner.formats.arrow import ARROW
from ...planner.formats.avro import AVRO
from ...planner.formats.debezium import DEBEZIUM
from ...planner.formats.json import JSON, JSON_SR
from ...planner.formats.protobuf import PROTOBUF
from ...planner.schema import Column
from ...planner.source_info import SourceInfo
from ...sql.types import Array, Map, SqlType, Struct
from .converters import converter_name
from .declared_columns import Declarations, DeclaredColumns
from .transforms import Reshaped, reshaped

_ROW_FORMATS: Final = (JSON.name, ARROW.name, AVRO.name, PROTOBUF.name, JSON_SR.name)
_CONVERTED: Final = {
    "integer": pa.int32(), "long": pa.int64(), "double": pa.float64(), "string": pa.string(), "bytes": pa.binary(),
}  # fmt: skip


def declarations_of(catalog: Callable[[], Catalog], config: Mapping[str, str]) -> Declarations:
    """The declarations for a sink with this configuration. Raises `InvalidConnector`."""
    change = reshaped(config)
    converted = _CONVERTED.get(converter_name(config, "key"))

    def declared(topic: str) -> DeclaredColumns:
        sources = [source for source in catalog().sources.values() if source.topic == topic]
        sources.sort(key=lambda source: source.created_by is None)
        rows = next((source for source in sources if _gives_rows(source, change)), None)
        keyed = next((source for source in sources if source.key_window is None and source.schema.key), None)
        value = {} if rows is None else _types(rows.schema.value)
        return DeclaredColumns(
            _key(keyed, converted, change),
            {name: type_ for name, type_ in value.items() if name.lower() not in change.replaced},
        )

    return declared


def _gives_rows(source: SourceInfo, change: Reshaped) -> bool:
    if change.value:
        return False
    return source.value_format.name == DEBEZIUM.name if change.unwraps else source.value_format.name in _ROW_FORMATS


def _key(source: SourceInfo | None, converted: pa.DataType | None, change: Reshaped) -> dict[str, pa.DataType]:
    types = {} if source is None else _types(source.schema.key)
    if change.extracts_key is not None:
        return {name: type_ for name, type_ in types.items() if name.lower() == change.extracts_key.lower()}
    if change.key:
        return {}
    return types or ({} if converted is None else {"": converted})


def _types(columns: Iterable[Column]) -> dict[str, pa.DataType]:
    return {column.name: _type_of(column.type) for column in columns if column.role != "HEADERS"}


def _type_of(type_: SqlType) -> pa.DataType:
    """The Arrow type. The fields of structs have the names that they have in the records."""
    match type_:
        case Array(element=element):
            return pa.list_(_type_of(element))
        case Map(key=key, value=value):
            return pa.map_(_type_of(key), _type_of(value))
        case Struct(fields=fields):
            return pa.struct([(field.name, _type_of(field.type)) for field in fields])
        case _:
            return type_.arrow
