"""The DECIMAL that a schema of any kind declares."""

from __future__ import annotations

from ...sql.types import PRECISION_MAX, Decimal

_DIGITS_MAX = 4  # of what is read as a number


def declared_decimal(precision: object, scale: object) -> Decimal | None:
    """None if there is no such type: the field is left out. In: numbers, or texts of numbers, from a schema.

    >>> declared_decimal(10, "2"), declared_decimal(4, 10), declared_decimal("many", 0)
    (Decimal(precision=10, scale=2), None, None)
    """
    digits, after_point = _whole(precision), _whole(scale)
    if digits is None or after_point is None or not after_point <= digits <= PRECISION_MAX or digits == 0:
        return None
    return Decimal(digits, after_point)


def _whole(value: object) -> int | None:
    text = value if isinstance(value, str) else str(value) if isinstance(value, int) and abs(value) < 10_000 else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None
