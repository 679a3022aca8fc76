"""JSON, and JSON_SR, whose schemas are in the schema registry."""

from __future__ import annotations

from dataclasses import replace

from .format import Format, only_text_map_keys

JSON = Format(
    "JSON",
    "One JSON object per record; a single key column is written bare.",
    wraps=True,
    unwraps=True,
    refusal=only_text_map_keys("JSON only supports MAP types with STRING keys"),
    holds_no_columns=True,
    codes_more=True,
    by_name=True,
    same_bytes=lambda wrapped: not wrapped,
)
JSON_SR = replace(
    JSON,
    name="JSON_SR",
    doc="JSON, whose schemas the schema registry keeps.",
    schema_kind="JSON",
    holds_no_columns=False,
    same_bytes=lambda wrapped: False,
)
