"""DELIMITED: a line of values. NULL is read back as an empty text or 0."""

from __future__ import annotations

from collections.abc import Sequence

from ...sql.types import Array, Map, Struct
from ..schema import Column
from .format import Format, unsupported


def _refusal(columns: Sequence[Column], part: str) -> str | None:
    refused = next((column for column in columns if isinstance(column.type, Array | Map | Struct)), None)
    return None if refused is None else f"{unsupported('DELIMITED', refused.type)}, column: `{refused.name}`"


DELIMITED = Format(
    "DELIMITED",
    "Comma-separated values; no nested types.",
    wraps=False,
    unwraps=True,
    refusal=_refusal,
    options=frozenset({"delimiter"}),
    holds_null=False,
    same_bytes=lambda wrapped: True,
)
