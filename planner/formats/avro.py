"""AVRO: records that follow a schema of the registry. A bare NULL is no bytes at all."""

from __future__ import annotations

from .format import Format, only_text_map_keys

AVRO = Format(
    "AVRO",
    "Avro records, whose schemas the schema registry keeps.",
    wraps=True,
    unwraps=True,
    refusal=only_text_map_keys("Avro only supports MAPs with STRING keys"),
    schema_kind="AVRO",
    codes_more=True,
    options=frozenset({"fullSchemaName"}),
    holds_bare_null=False,
    by_name=True,
)
