"""Compiles the formats' inner loops before the first large batch needs them.

The compiled code is kept on disk (numba's cache: beside the sources, or in the user's cache folder if those are
read-only). So this takes seconds once per machine and version, and a fifth of a second after that.
"""

from __future__ import annotations

import pyarrow as pa

from ....planner.schema import Column
from ....planner.schemas import avro_schemas
from ....planner.specs import FormatSpec, RecordSchema
from ....sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    INTEGER,
    STRING,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    SqlType,
    Struct,
)
from ..registry import decoder, encoder

_ROWS = 64
_FLAT: dict[str, tuple[SqlType, object]] = {
    "A": (BOOLEAN, True),
    "B": (INTEGER, 1),
    "C": (BIGINT, 1),
    "D": (DOUBLE, 1.5),
    "E": (STRING, "a"),
    "F": (BYTES, b"a"),
    "G": (TIMESTAMP, 1000),
    "H": (Decimal(10, 8), 1),
    "L": (Decimal(38, 8), 10**25),  # more than 64 bits
}
_SCANNED = {name: typed for name, typed in _FLAT.items() if name not in "HL"}  # the scan does not read decimals
_NESTED: dict[str, tuple[SqlType, object]] = {
    "I": (Array(INTEGER), [1]),
    "J": (Map(STRING, INTEGER), [("a", 1)]),
    "K": (Struct((Field("A", STRING),)), {"A": "a"}),
}


def warm_up() -> None:
    """Runs every compiled loop once. It may be called in a separate thread while queries already run."""
    _round_trip(FormatSpec("JSON"), _FLAT | _NESTED)
    _round_trip(FormatSpec("JSON", wrap_single=False), {"C": _FLAT["C"]})
    _round_trip(FormatSpec("DELIMITED"), _FLAT)
    _round_trip(_avro(_SCANNED), _SCANNED)


def _avro(typed: dict[str, tuple[SqlType, object]]) -> FormatSpec:
    columns = [Column(name, type_) for name, (type_, _) in typed.items()]
    text = avro_schemas.write_schema(columns, avro_schemas.VALUE_NAME, wrapped=True)
    return FormatSpec("AVRO", schema=RecordSchema(1, "AVRO", text))


def _round_trip(spec: FormatSpec, typed: dict[str, tuple[SqlType, object]]) -> None:
    columns = [Column(name, type_) for name, (type_, _) in typed.items()]
    arrays = [pa.array([value] * _ROWS, type_.arrow) for type_, value in typed.values()]
    written = encoder(spec, columns).encode(arrays, null_rows=pa.nulls(_ROWS, pa.bool_()).fill_null(False))
    errors = decoder(spec, columns).decode(written).errors
    assert not errors, errors
