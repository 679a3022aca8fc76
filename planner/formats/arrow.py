"""ARROW: whole batches as columns, in an envelope that Kafka's clients can skip. Keys are additional columns."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Column
from .format import Format


def _refusal(columns: Sequence[Column], part: str) -> str | None:
    return "The 'ARROW' format holds values, not keys" if part == "Key" and columns else None


ARROW = Format(
    "ARROW",
    "Whole batches as Arrow columns, for topics that Millstream reads.",
    wraps=True,
    unwraps=False,
    refusal=_refusal,
    holds_no_columns=True,
    columnar=True,
)
