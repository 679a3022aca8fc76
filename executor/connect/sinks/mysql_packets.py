"""Refuses rows that are too large for a statement of MySQL, which would close the connection in the middle of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa

from ..converters import json_text
from .record_rows import KeyedRow

_LEAST: Final = 1 << 18  # smaller rows are not checked: no sensible server setting is smaller
_REST: Final = 1 << 16  # reserve for names and numbers


def refuse_large_rows(connection: sa.Connection, rows: Iterable[KeyedRow]) -> None:
    """Raises ValueError if a row is too large."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return
    large = max((size for row in rows if (size := _size(row.values)) > _LEAST), default=0)
    if large and large > (most := connection.execute(sa.text("SELECT @@max_allowed_packet")).scalar_one() - _REST):
        raise ValueError(f"the row is too large: the server's max_allowed_packet takes about {most} bytes")


def _size(values: dict[str, Any] | None) -> int:
    """The size of the texts in a statement."""
    texts = (value if isinstance(value, str) else json_text(value) for value in (values or {}).values())
    return sum(_escaped(text) for text in texts if len(text) > 1000)


def _escaped(text: str) -> int:
    return len(text.encode(errors="replace")) + sum(text.count(sign) for sign in "\0\n\r\x1a\"'\\")
