"""Converts MySQL's binary JSON to the text that MySQL itself writes.

So rows of the binary log and rows of queries are equal. MariaDB has no binary JSON: its JSON is text.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Final

_LITERALS: Final = {0: "null", 1: "true", 2: "false"}
_NUMBERS: Final = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_INLINE_SMALL: Final = (4, 5, 6)
_INLINE_LARGE: Final = (4, 5, 6, 7, 8)
_DECIMAL, _DATE, _TIME, _DATETIMES = 246, 10, 11, (7, 12)
_DEPTH_MAX: Final = 100


def json_of_binary(data: bytes) -> str:
    """The text of binary JSON. Raises ValueError for invalid bytes."""
    try:
        return _value(data[0], data, 1, 0) if data else "null"
    except (IndexError, struct.error, KeyError) as error:
        raise ValueError(f"broken binary JSON: {error}") from None


def _value(kind: int, data: bytes, at: int, depth: int) -> str:
    if depth > _DEPTH_MAX:
        raise ValueError("binary JSON is nested too deep")
    match kind:
        case 0 | 1 | 2 | 3:
            return _container(data, at, large=kind in (1, 3), is_object=kind < 2, depth=depth)
        case 4:
            return _LITERALS[data[at]]
        case 5 | 6 | 7 | 8 | 9 | 10:
            return str(struct.unpack_from(_NUMBERS[kind], data, at)[0])
        case 11:
            return _double(struct.unpack_from("<d", data, at)[0])
        case 12:
            length, start = _length(data, at)
            return json.dumps(data[start : start + length].decode(), ensure_ascii=False)
        case 15:
            length, start = _length(data, at + 1)
            return _opaque(data[at], data[start : start + length])
        case _:
            raise ValueError(f"binary JSON has an unknown type {kind}")


def _container(data: bytes, base: int, *, large: bool, is_object: bool, depth: int) -> str:
    form, width = ("<I", 4) if large else ("<H", 2)
    (count,) = struct.unpack_from(form, data, base)
    keys_at = base + 2 * width
    values_at = keys_at + (count * (width + 2) if is_object else 0)
    inline = _INLINE_LARGE if large else _INLINE_SMALL
    items: list[str] = []
    for index in range(count):
        entry = values_at + index * (width + 1)
        kind = data[entry]
        at = entry + 1 if kind in inline else base + struct.unpack_from(form, data, entry + 1)[0]
        item = _value(kind, data, at, depth + 1)
        if is_object:
            key_entry = keys_at + index * (width + 2)
            (key_at,) = struct.unpack_from(form, data, key_entry)
            (length,) = struct.unpack_from("<H", data, key_entry + width)
            key = data[base + key_at : base + key_at + length].decode()
            item = f"{json.dumps(key, ensure_ascii=False)}: {item}"
        items.append(item)
    inner = ", ".join(items)
    return f"{{{inner}}}" if is_object else f"[{inner}]"


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length with seven bits per byte, and the place after it."""
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return length, at


def _double(value: float) -> str:
    text = repr(value)
    return text.replace("e+", "e") if "e" in text else text


def _opaque(kind: int, data: bytes) -> str:
    """A SQL value for which JSON has no type."""
    if kind == _DECIMAL:
        return decimal_text(data[2:], data[0], data[1])
    if kind in (_DATE, _TIME, *_DATETIMES):
        (packed,) = struct.unpack("<q", data)
        return json.dumps(_time_text(kind, packed))
    return json.dumps(f"base64:type{kind}:{base64.b64encode(data).decode()}")


def _time_text(kind: int, packed: int) -> str:
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    whole, us = packed >> 24, packed & 0xFFFFFF
    if kind == _TIME:
        return f"{sign}{whole >> 12 & 0x3FF:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{us:06d}"
    month, day = whole >> 22, whole >> 17 & 31
    date = f"{month // 13:04d}-{month % 13:02d}-{day:02d}"
    if kind == _DATE:
        return date
    clock = whole & 0x1FFFF
    return f"{date} {clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{us:06d}"


_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_size(precision: int, scale: int) -> int:
    """The size of a DECIMAL in bytes."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def decimal_text(data: bytes, precision: int, scale: int) -> str:
    """The text of a packed DECIMAL, as MySQL writes it: nine digits in four bytes; the first bit is the sign.

    >>> decimal_text(bytes.fromhex("810dfb38d204d2"), 14, 4)
    '1234567890.1234'
    """
    positive = data[0] & 0x80
    raw = (
        bytes([data[0] ^ 0x80]) + data[1:] if positive else bytes([data[0] ^ 0x7F, *(byte ^ 0xFF for byte in data[1:])])
    )
    whole = precision - scale
    digits: list[str] = []
    at = 0
    for count in (whole % 9, *(9,) * (whole // 9), *(9,) * (scale // 9), scale % 9):
        size = _DIGIT_BYTES[count]
        if size:
            digits.append(str(int.from_bytes(raw[at : at + size], "big")).zfill(count))
            at += size
    text = "".join(digits)
    head = text[:whole].lstrip("0") or "0"
    return f"{'' if positive else '-'}{head}{'.' + text[whole:] if scale else ''}"
