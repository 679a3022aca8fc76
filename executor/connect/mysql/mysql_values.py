"""Converts values of MySQL and MariaDB to the JSON values that Debezium documents.

A column has two readers, which return equal values. One reads the bytes of a row event. The other reads the results of
a query: text, or bytes for binary columns. The session's time zone is UTC, and FLOAT is selected with all its digits.
"""

from __future__ import annotations

import base64
import socket
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from ..cdc.civil_days import date_of, days_of
from ..cdc.exact_decimals import integer_text, unscaled_text
from ..connector_errors import ConnectorFailed
from .binary_json import decimal_size, decimal_text, json_of_binary

BinaryReader = Callable[[bytes, int], tuple[Any, int]]
"""In: the data, and where the value begins. Out: the value, and the place after it."""
TextReader = Callable[[Any], Any]

_DAY_US: Final = 86_400_000_000
_INTS: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
_CODECS: Final = {
    "utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "ascii": "ascii", "latin1": "latin1",
    "latin2": "iso8859-2", "latin5": "iso8859-9", "latin7": "iso8859-13", "greek": "iso8859-7", "hebrew": "iso8859-8",
    "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "cp932": "cp932", "cp1250": "cp1250", "cp1251": "cp1251",
    "cp1256": "cp1256", "cp1257": "cp1257", "koi8r": "koi8_r", "koi8u": "koi8_u", "macce": "mac_latin2",
    "macroman": "mac_roman", "tis620": "tis_620", "big5": "big5", "gbk": "gbk", "gb2312": "gb2312",
    "gb18030": "gb18030", "sjis": "shift_jis", "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "euc_kr",
    "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MySqlModes:
    """The modes, with the values of the corresponding settings."""

    decimals: str = "number"
    times: str = "adaptive_time_microseconds"
    unsigned_bigints: str = "long"


@dataclass(frozen=True, slots=True)
class MySqlColumn:
    """`kind`: int, year, decimal, float, double, bit, date, time, datetime, timestamp, enum, set, json, text, binary,
    geometry, point, uuid, inet4 or inet6.

    `size`: for an int, enum or set: bytes; for a decimal: digits; for times: digits of the fraction; for bits: their
    number; for BINARY: the length. `length_bytes`: the bytes of the length before a text in the binary log. `items`:
    the items of an enum or set."""

    name: str
    kind: str
    size: int = 0
    scale: int = 0
    unsigned: bool = False
    nullable: bool = True
    charset: str = "utf8mb4"
    items: tuple[str, ...] = ()
    length_bytes: int = 1


def codec_of(charset: str) -> str | None:
    return _CODECS.get(charset)


def decoder_of(column: MySqlColumn) -> Callable[[bytes], str]:
    """A function that decodes texts of the column. Raises `ConnectorFailed` for a character set that Python does not
    have."""
    codec = codec_of(column.charset)
    if codec is None:
        raise ConnectorFailed(
            f"the column {column.name} has the character set {column.charset}, which cannot be read",
            hint="Name it in column.exclude.list, or ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4.",
        )
    return _latin1 if codec == "latin1" else lambda data: data.decode(codec)


def _latin1(data: bytes) -> str:
    """Decodes MySQL's latin1, which is cp1252, except that the five bytes without a character there are control
    characters."""
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in data)


# ------------------------------------------------------------------ from the binary log


def binary_reader(column: MySqlColumn, modes: MySqlModes) -> BinaryReader:
    """The reader for bytes of the binary log. Raises `ConnectorFailed` for a type that cannot be read."""
    match column.kind:
        case "int":
            return _int_reader(column, modes)
        case "year":
            return lambda data, at: (data[at] + 1900 if data[at] else 0, at + 1)
        case "decimal":
            return _decimal_reader(column, modes)
        case "float":
            return lambda data, at: (shortest(struct.unpack_from("<f", data, at)[0]), at + 4)
        case "double":
            return lambda data, at: (struct.unpack_from("<d", data, at)[0], at + 8)
        case "bit":
            return _sized((column.size + 7) // 8, _bits(column))
        case "date" | "time" | "datetime" | "timestamp":
            return _time_reader(column, modes)
        case "enum":
            return _sized(column.size, _member(column))
        case "set":
            return _sized(column.size, _members(column))
        case "json":
            return _prefixed(column.length_bytes, json_of_binary)
        case "text":
            return _prefixed(column.length_bytes, decoder_of(column))
        case "binary":
            return _prefixed(column.length_bytes, lambda data: _base64(data.ljust(column.size, b"\0")))
        case "geometry" | "point":
            return _prefixed(column.length_bytes, _geometry_of(column.kind))
        case "uuid" | "inet4" | "inet6":
            return _prefixed(column.length_bytes, _text_of(column))
        case _:
            raise ConnectorFailed(
                f"the column {column.name} has a type that cannot be read: {column.kind}",
                hint="Name it in column.exclude.list.",
            )


def _int_reader(column: MySqlColumn, modes: MySqlModes) -> BinaryReader:
    size = column.size
    if size == 3:
        signed = not column.unsigned
        return lambda data, at: (int.from_bytes(data[at : at + 3], "little", signed=signed), at + 3)
    form = _INTS[size]
    unpack = struct.Struct("<" + (form.upper() if column.unsigned else form)).unpack_from
    if size == 8 and column.unsigned and modes.unsigned_bigints == "precise":
        return lambda data, at: (integer_text(unpack(data, at)[0]), at + 8)
    return lambda data, at: (unpack(data, at)[0], at + size)


def _decimal_reader(column: MySqlColumn, modes: MySqlModes) -> BinaryReader:
    size, convert = decimal_size(column.size, column.scale), _decimal(column, modes)
    return lambda data, at: (convert(decimal_text(data[at : at + size], column.size, column.scale)), at + size)


def _sized(size: int, convert: Callable[[bytes], Any]) -> BinaryReader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        if at + size > len(data):
            raise IndexError("the row ends in the middle of a value")
        return convert(data[at : at + size]), at + size

    return read


def _prefixed(length_bytes: int, convert: Callable[[bytes], Any]) -> BinaryReader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        start = at + length_bytes
        end = start + int.from_bytes(data[at:start], "little")
        if end > len(data):
            raise IndexError("the row ends in the middle of a value")
        return convert(data[start:end]), end

    return read


def _member(column: MySqlColumn) -> Callable[[bytes], str]:
    """Decodes an ENUM. The number 0 is the empty text, which represents an invalid value."""
    items = ("", *column.items)
    return lambda data: items[int.from_bytes(data, "little")]


def _members(column: MySqlColumn) -> Callable[[bytes], str]:
    items = column.items

    def read(data: bytes) -> str:
        mask = int.from_bytes(data, "little")
        return ",".join(item for index, item in enumerate(items) if mask >> index & 1)

    return read


def _time_reader(column: MySqlColumn, modes: MySqlModes) -> BinaryReader:
    convert = _times(column, modes)
    fraction_bytes = (column.size + 1) // 2
    scale = 10 ** (6 - 2 * fraction_bytes)

    def fraction(data: bytes, at: int) -> int:
        return int.from_bytes(data[at : at + fraction_bytes], "big") * scale

    def date(data: bytes, at: int) -> tuple[Any, int]:
        packed = int.from_bytes(data[at : at + 3], "little")
        return convert((packed >> 9, packed >> 5 & 15, packed & 31, 0)), at + 3

    def time(data: bytes, at: int) -> tuple[Any, int]:
        size = 3 + fraction_bytes
        packed = int.from_bytes(data[at : at + size], "big") - (1 << 8 * size - 1)
        sign, packed = (-1, -packed) if packed < 0 else (1, packed)
        us = (packed & (1 << 8 * fraction_bytes) - 1) * scale
        whole = packed >> 8 * fraction_bytes
        seconds = (whole >> 12 & 0x3FF) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
        return convert(sign * (seconds * 1_000_000 + us)), at + size

    def datetime(data: bytes, at: int) -> tuple[Any, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - (1 << 39)
        month, clock = packed >> 22, packed & 0x1FFFF
        us = ((clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)) * 1_000_000 + fraction(data, at + 5)
        return convert((month // 13, month % 13, packed >> 17 & 31, us)), at + 5 + fraction_bytes

    def timestamp(data: bytes, at: int) -> tuple[Any, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        us = seconds * 1_000_000 + fraction(data, at + 4)
        days, of_day = divmod(us, _DAY_US)
        moment = (0, 0, 0, 0) if us == 0 else (*date_of(days), of_day)
        return convert(moment), at + 4 + fraction_bytes

    return {"date": date, "time": time, "datetime": datetime, "timestamp": timestamp}[column.kind]


def _text_of(column: MySqlColumn) -> Callable[[bytes], str]:
    """Decodes types of MariaDB that are bytes without trailing zeros in the binary log, and text in a query."""
    if column.kind == "uuid":
        return lambda data: str(uuid.UUID(bytes=data.ljust(16, b"\0")))
    family = socket.AF_INET if column.kind == "inet4" else socket.AF_INET6
    return lambda data: socket.inet_ntop(family, data.ljust(column.size, b"\0"))


# ------------------------------------------------------------------ from queries


def text_reader(column: MySqlColumn, modes: MySqlModes) -> TextReader:
    """The reader for values of a query. Raises `ConnectorFailed` for a type that cannot be read."""
    match column.kind:
        case "int":
            precise = column.size == 8 and column.unsigned and modes.unsigned_bigints == "precise"
            return (lambda text: integer_text(int(text))) if precise else int
        case "year":
            return int
        case "decimal":
            return _decimal(column, modes)
        case "float":
            return lambda text: shortest(float(text))
        case "double":
            return float
        case "bit":
            return _bits(column)
        case "date" | "datetime" | "timestamp":
            convert = _times(column, modes)
            return lambda text: convert(_moment(text))
        case "time":
            clock = _times(column, modes)
            return lambda text: clock(_clock_us(text))
        case "enum" | "set" | "json" | "text" | "uuid" | "inet4" | "inet6":
            return lambda text: text
        case "binary":
            return lambda data: _base64(data)
        case "geometry" | "point":
            return _geometry_of(column.kind)
        case _:
            raise ConnectorFailed(
                f"the column {column.name} has a type that cannot be read: {column.kind}",
                hint="Name it in column.exclude.list.",
            )


def _moment(text: str) -> tuple[int, int, int, int]:
    """Year, month, day and microseconds of the day of `2024-05-06[ 07:08:09[.5]]`."""
    date, _, clock = text.partition(" ")
    year, month, day = date.split("-")
    return int(year), int(month), int(day), _clock_us(clock) if clock else 0


def _clock_us(text: str) -> int:
    """The microseconds of `[-]hhh:mm:ss[.ffffff]`."""
    negative = text.startswith("-")
    whole, _, fraction = text.lstrip("-").partition(".")
    hours, minutes, seconds = whole.split(":")
    us = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000 + int(fraction.ljust(6, "0") or 0)
    return -us if negative else us


# ------------------------------------------------------------------ for both


def _decimal(column: MySqlColumn, modes: MySqlModes) -> Callable[[str], Any]:
    match modes.decimals:
        case "string":
            return lambda text: text
        case "double":
            return float
        case "precise":
            return lambda text: unscaled_text(Decimal(text), column.scale)
        case _:
            return Decimal


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def shortest(value: float) -> float:
    """The number with the fewest digits that equals this FLOAT: 0.1, not 0.10000000149011612."""
    single = struct.pack("<f", value)
    for digits in range(6, 9):
        candidate = float(f"{value:.{digits}g}")
        if struct.pack("<f", candidate) == single:
            return candidate
    return float(f"{value:.9g}")


def _bits(column: MySqlColumn) -> Callable[[bytes], Any]:
    """Converts bits. In: big-endian bytes; Debezium's are little-endian."""
    if column.size == 1:
        return lambda data: data != b"\0"
    return lambda data: _base64(data[::-1])


def _geometry_of(kind: str) -> Callable[[bytes], dict[str, Any]]:
    """Converts geometries. In: the number of the reference system (0 for none), then well-known binary."""

    def read(data: bytes) -> dict[str, Any]:
        srid, wkb = int.from_bytes(data[:4], "little") or None, data[4:]
        found: dict[str, Any] = {}
        if kind == "point":
            x, y = struct.unpack_from("<dd" if wkb[0] == 1 else ">dd", wkb, 5)
            found = {"x": x, "y": y}
        return {**found, "wkb": _base64(wkb), "srid": srid}

    return read


def _times(column: MySqlColumn, modes: MySqlModes) -> Callable[[Any], Any]:
    """Converts dates and times. In: year, month, day and microseconds of the day; for a TIME, microseconds. A date that
    contains a zero becomes NULL, or 1970-01-01 if the column cannot be NULL."""
    if column.kind == "time":
        return _time_of_day(column, modes)
    zero = (1970, 1, 1, 0)
    iso, coarse = modes.times == "isostring", modes.times == "connect" or column.size <= 3
    digits = column.size

    def text(year: int, month: int, day: int, us: int) -> str:
        seconds, rest = divmod(us, 1_000_000)
        fraction = f".{rest:06d}"[: digits + 1] if digits else ""
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
        return f"{year:04d}-{month:02d}-{day:02d}T{clock}Z"

    def convert(moment: tuple[int, int, int, int]) -> Any:
        year, month, day, us = moment
        if not month or not day or not year:
            if column.nullable:
                return None
            year, month, day, us = zero
        if column.kind == "date":
            return f"{year:04d}-{month:02d}-{day:02d}" if iso else days_of(year, month, day)
        if column.kind == "timestamp" or iso:
            return text(year, month, day, us)
        whole = days_of(year, month, day) * _DAY_US + us
        return whole // 1000 if coarse else whole

    return convert


def _time_of_day(column: MySqlColumn, modes: MySqlModes) -> Callable[[int], Any]:
    if modes.times == "connect":
        return lambda us: us // 1000 if us >= 0 else -(-us // 1000)
    if modes.times != "isostring":
        return lambda us: us

    def text(us: int) -> str:
        seconds, rest = divmod(abs(us), 1_000_000)
        fraction = f".{rest:06d}"[: column.size + 1] if column.size else ""
        sign = "-" if us < 0 else ""
        return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"

    return text
