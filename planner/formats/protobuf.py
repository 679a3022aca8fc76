"""PROTOBUF with a schema of the registry, PROTOBUF_NOSR with one that follows from the columns; no field is NULL."""

from __future__ import annotations

from dataclasses import replace

from .format import Format, only_text_map_keys

PROTOBUF = Format(
    "PROTOBUF",
    "Protobuf messages, whose schemas the registry keeps.",
    wraps=True,
    unwraps=False,
    refusal=only_text_map_keys("PROTOBUF format only supports MAP types with STRING keys"),
    schema_kind="PROTOBUF",
    codes_more=True,
    options=frozenset({"fullSchemaName", "nullableRepresentation"}),
    holds_null=False,
)
PROTOBUF_NOSR = replace(
    PROTOBUF,
    name="PROTOBUF_NOSR",
    doc="Protobuf messages, whose fields are the columns in order.",
    registered=False,
    options=frozenset({"nullableRepresentation"}),
)
