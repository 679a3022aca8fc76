"""Debezium's form of exact decimals: the unscaled value, as the base64 of its big-endian bytes."""

from __future__ import annotations

import base64
from decimal import Context, Decimal
from typing import Final

_ALL_DIGITS: Final = Context(prec=200_000)  # PostgreSQL's NUMERIC has up to 147,455; Python's default is 28


def unscaled_text(value: Decimal, scale: int) -> str:
    """The text for a value whose column has this scale.

    >>> unscaled_text(Decimal("12.50"), 2), unscaled_text(Decimal(12300), -2)
    ('BOI=', 'ew==')
    """
    return integer_text(int(value.scaleb(scale, _ALL_DIGITS)))


def integer_text(value: int) -> str:
    """The text for an unscaled value."""
    return base64.b64encode(value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)).decode()
