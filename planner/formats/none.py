"""NONE: no columns, no bytes."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Column
from .format import Format


def _refusal(columns: Sequence[Column], part: str) -> str | None:
    listed = ", ".join(map(str, columns))
    return f"The 'NONE' format can only be used when no columns are defined. Got: [{listed}]" if columns else None


NONE = Format("NONE", "No columns at all, for keys that nobody needs.", wraps=False, unwraps=False, refusal=_refusal)
