"""MSGPACK: MessagePack, the binary sibling of JSON."""

from __future__ import annotations

from .format import Format, only_text_map_keys

MSGPACK = Format(
    "MSGPACK",
    "One MessagePack map per record; a single key column is written bare.",
    wraps=True,
    unwraps=True,
    refusal=only_text_map_keys("MSGPACK only supports MAP types with STRING keys"),
    holds_no_columns=True,
    by_name=True,
    same_bytes=lambda wrapped: not wrapped,
)
