"""KAFKA: one value, as Kafka's own serializers write it. NULL is no bytes at all."""

from __future__ import annotations

from collections.abc import Sequence

from ...sql.types import BIGINT, BYTES, DOUBLE, INTEGER, STRING
from ..schema import Column
from .format import Format, unsupported

_SUPPORTED = (INTEGER, BIGINT, DOUBLE, STRING, BYTES)


def _refusal(columns: Sequence[Column], part: str) -> str | None:
    if len(columns) > 1:
        return f"The 'KAFKA' format only supports a single field. Got: [{', '.join(map(str, columns))}]"
    return next((unsupported("KAFKA", column.type) for column in columns if column.type not in _SUPPORTED), None)


KAFKA = Format(
    "KAFKA",
    "One INT, BIGINT, DOUBLE, STRING or BYTES, as Kafka's serializers write it.",
    wraps=False,
    unwraps=True,
    refusal=_refusal,
    holds_bare_null=False,
    moves=False,
    same_bytes=lambda wrapped: True,
)
