"""Functions on texts and bytes that are implemented in Python: encodings, masks, searching, padding, splitting."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

from .bounds import count_bytes
from .casts.cast_functions import decode_base64
from .udf import PythonFunction, by_row

# ------------------------------------------------------------------ encodings

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")


def _from_hex(text: str) -> bytes:
    if not _HEX.fullmatch(text):
        raise ValueError("not hexadecimal")
    return bytes.fromhex(text)


def _stripped_hex(text: str) -> bytes:
    """Also 0x… and X'…'; an odd number of digits after 0x gets a zero before them."""
    if text.startswith("0x"):
        return _from_hex("0" * (len(text) % 2) + text[2:])
    if re.fullmatch(r"[xX]'.*'", text):
        return _from_hex(text[2:-1])
    return _from_hex(text)


def _from_any_base64(text: str) -> bytes:
    """Whatever is no base64 digit is left out; the URL-safe digits count."""
    digits = re.sub(r"[^A-Za-z0-9+/]", "", text.replace("-", "+").replace("_", "/"))
    digits = digits[:-1] if len(digits) % 4 == 1 else digits
    return base64.b64decode(digits + "=" * (-len(digits) % 4))


def _to_ascii(text: str) -> bytes:
    return text.encode("ascii", errors="replace")


def _of_ascii(value: bytes) -> str:
    return "".join(chr(byte) if byte < 128 else "\ufffd" for byte in value)


_READ: dict[str, Callable[[str], bytes]] = {
    "hex": _stripped_hex, "base64": _from_any_base64, "ascii": _to_ascii, "utf8": str.encode,
}  # fmt: skip
_WRITE: dict[str, Callable[[bytes], str]] = {
    "hex": bytes.hex, "base64": lambda value: base64.b64encode(value).decode(), "ascii": _of_ascii,
    "utf8": lambda value: value.decode(errors="replace"),
}  # fmt: skip


@by_row
def encode(text: str, source: str, target: str) -> str:
    source, target = source.lower(), target.lower()
    if source == target:
        raise ValueError("the encodings must differ")
    return _WRITE[target](_READ[source](text))


@by_row
def to_bytes(text: str, encoding: str) -> bytes:
    strict = {"hex": _from_hex, "base64": decode_base64}
    name = encoding.lower()
    return strict[name](text) if name in strict else _READ[name](text)


@by_row
def from_bytes(value: bytes, encoding: str) -> str:
    text = _WRITE[encoding.lower()](value)
    return text.upper() if encoding.lower() == "hex" else text


# ------------------------------------------------------------------ masks


class _Mask(dict[int, int | str]):
    """What each character becomes, found out when it is first met; None in `marks` leaves a kind as it is."""

    def __init__(self, marks: tuple[str | None, str | None, str | None, str | None]) -> None:
        super().__init__()
        if any(mark is not None and len(mark) != 1 for mark in marks):
            raise ValueError("a mask is one character")
        self._marks = dict(zip(("Lu", "Ll", "Nd", "other"), marks, strict=True))

    def __missing__(self, code: int) -> int | str:
        kind = unicodedata.category(chr(code))
        mark = self._marks[kind if kind in self._marks else "other"]
        self[code] = code if mark is None else mark
        return self[code]


_mask = lru_cache(maxsize=256)(_Mask)
_DEFAULT_MARKS = ("X", "x", "n", "-")


def masker(name: str, split: Callable[[str, int], int], *, masks_left: bool) -> PythonFunction:
    """Mask what is left or right of where `split` cuts a text."""

    def mask(text: str | None, count: int | None, *marks: str | None) -> str | None:
        if text is None:
            return None
        if count is None or count < 0:
            raise ValueError("a number of characters is not negative")
        at = split(text, count)
        table = _mask(marks or _DEFAULT_MARKS)
        return text[:at].translate(table) + text[at:] if masks_left else text[:at] + text[at:].translate(table)

    mask.__name__ = name
    return by_row(mask, nulls=True)


@by_row
def mask_all(text: str) -> str:
    return text.translate(_mask(_DEFAULT_MARKS))


def mask_with(text: str | None, *marks: str | None) -> str | None:
    return None if text is None else text.translate(_mask(marks))


MASK_WITH = by_row(mask_with, nulls=True)
# ------------------------------------------------------------------ parts of texts and bytes


@by_row
def initcap(text: str) -> str:
    words: list[str] = re.findall(r"[^\s]+\s*", text.lower(), re.ASCII)
    return "".join(word[0].upper() + word[1:] for word in words)


@by_row
def unescape(code: str) -> str | None:
    r"""The characters of `\u004b`, or of a pair of such."""
    if len(code) < 6 or not code.startswith("\\u"):
        return None
    units = re.sub(r"\\u+([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), code)
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


def find_nth(text: str | None, part: str | None, position: int, occurrence: int = 1) -> int:
    """1-based; from the end where `position` is negative."""
    if text is None or part is None:
        return 0
    if abs(position) > len(text):
        return 0
    if position < 0:
        found = _nth(text[::-1][-position - 1 :], part[::-1], occurrence)
        return 0 if found < 0 else len(text) + position - found - len(part) + 2
    start = position - 1 if position > 0 else len(text) - 1
    found = _nth(text[start:], part, occurrence)
    return 0 if found < 0 else found + position


def _nth(text: str, part: str, occurrence: int) -> int:
    at = -1
    if occurrence < 1:
        return -1
    for _ in range(occurrence):
        at = text.find(part, at + 1)
        if at < 0:
            return -1
    return at


FIND_NTH = by_row(find_nth, nulls=True)


def _pad(make: Callable[[bytes, bytes, int], bytes], name: str) -> PythonFunction:
    def pad(value: bytes, length: int, padding: bytes) -> bytes | None:
        if length < 0 or not padding:
            return None
        if len(value) >= length:
            return value[:length]
        missing = length - len(value)
        count_bytes(length)
        return make(value, (padding * (missing // len(padding) + 1))[:missing], length)

    pad.__name__ = name
    return by_row(pad)


LPAD_BYTES = _pad(lambda value, padding, _length: padding + value, "lpad_bytes")
RPAD_BYTES = _pad(lambda value, padding, _length: value + padding, "rpad_bytes")


@by_row
def substring_bytes(value: bytes, position: int, length: int | None = None) -> bytes:
    size = len(value)
    start = max(size + position, 0) if position < 0 else max(min(position - 1, size), 0)
    return value[start:] if length is None else value[start : max(start + length, start)]


@by_row
def split_bytes(value: bytes, delimiter: bytes) -> list[bytes]:
    if delimiter or not value:
        return value.split(delimiter) if delimiter else [value]
    return [value[i : i + 1] for i in range(len(value))]


@by_row
def split_to_map(text: str, entry_delimiter: str, key_delimiter: str) -> list[tuple[str, str]] | None:
    if not entry_delimiter or not key_delimiter or entry_delimiter == key_delimiter:
        return None
    entries = (entry.split(key_delimiter) for entry in text.split(entry_delimiter) if key_delimiter in entry)
    return list({entry[0]: entry[1] for entry in entries}.items())


def _joined(separator: bytes, values: Sequence[bytes | None]) -> bytes:
    present = [value for value in values if value is not None]
    count_bytes(sum(map(len, present)) + len(separator) * max(0, len(present) - 1))
    return separator.join(present)


def concat_bytes(*values: bytes | None) -> bytes:
    return _joined(b"", values)


CONCAT_BYTES = by_row(concat_bytes, nulls=True)


def join_bytes(separator: bytes | None, *values: bytes | None) -> bytes | None:
    return None if separator is None else _joined(separator, values)


JOIN_BYTES = by_row(join_bytes, nulls=True)
