"""MySQL's binary JSON, of bytes made by the rules of its documentation, and packed decimals."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest

from millstream.executor.connect.mysql.binary_json import decimal_size, decimal_text, json_of_binary


def binary(value: Any, *, large: bool = False) -> bytes:
    kind, data = _encoded(value, large)
    return bytes([kind]) + data


def _encoded(value: Any, large: bool) -> tuple[int, bytes]:
    match value:
        case None | True | False:
            return 4, bytes([{None: 0, True: 1, False: 2}[value]])
        case int():
            for kind, form in ((5, "<h"), (6, "<H"), (7, "<i"), (8, "<I"), (9, "<q"), (10, "<Q")):
                try:
                    return kind, struct.pack(form, value)
                except struct.error:
                    continue
            raise AssertionError
        case float():
            return 11, struct.pack("<d", value)
        case str():
            data = value.encode()
            size = len(data)
            length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
            return 12, length + data
        case bytes():
            return 15, value
        case list():
            return 3 if large else 2, _container([], value, large)
        case _:
            return 1 if large else 0, _container([key.encode() for key in value], list(value.values()), large)


def _container(keys: list[bytes], values: list[Any], large: bool) -> bytes:
    form, width = ("<I", 4) if large else ("<H", 2)
    at = 2 * width + len(keys) * (width + 2) + len(values) * (width + 1)
    key_entries = value_entries = body = b""
    for key in keys:
        key_entries += struct.pack(form + "H", at, len(key))
        body, at = body + key, at + len(key)
    for value in values:
        kind, data = _encoded(value, large)
        if kind in ((4, 5, 6, 7, 8) if large else (4, 5, 6)):
            value_entries += bytes([kind]) + data.ljust(width, b"\0")
        else:
            value_entries += bytes([kind]) + struct.pack(form, at)
            body, at = body + data, at + len(data)
    return struct.pack(form, len(values)) + struct.pack(form, at) + key_entries + value_entries + body


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -32768, 65535, -(2**31), 2**32 - 1, -(2**63), 2**64 - 1, 0.5, -1.5, "", "ü\"\\\n",
     "x" * 5000, [], {}, [1, "a", None, [2.5, {}]], {"a": {"b": [True, "long" * 40]}, "ü": -70000, "c": 3000000000}],
)  # fmt: skip
def test_each_value_is_its_text(value: Any, large: bool) -> None:
    text = json_of_binary(binary(value, large=large))
    assert json.loads(text) == value
    assert text == json.dumps(value, ensure_ascii=False)  # with MySQL's spaces


def test_values_of_sql_are_texts_and_numbers() -> None:
    def opaque(kind: int, data: bytes) -> bytes:
        return b"\x0f" + bytes([kind, len(data)]) + data

    date = ((2024 * 13 + 2) << 5 | 29) << 17
    moment = date | (1 << 12 | 2 << 6 | 3)
    assert json_of_binary(opaque(10, struct.pack("<q", date << 24))) == '"2024-02-29"'
    assert json_of_binary(opaque(12, struct.pack("<q", moment << 24 | 4))) == '"2024-02-29 01:02:03.000004"'
    assert json_of_binary(opaque(11, struct.pack("<q", -((1 << 12 | 2 << 6 | 3) << 24)))) == '"-01:02:03.000000"'
    assert json_of_binary(opaque(246, b"\x03\x02" + b"\x81\x17")) == "1.23"
    assert json_of_binary(opaque(252, b"\0\1")) == '"base64:type252:AAE="'
    assert json_of_binary(b"") == "null"


def test_garbage_is_an_error() -> None:
    chance = random.Random(4)
    good = binary({"a": [1, "text", {"b": 2.5}], "c": None})
    for _ in range(2000):
        data = bytearray(good[: chance.randrange(1, len(good) + 1)])
        data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            json_of_binary(bytes(data))
        except ValueError:
            pass
    endless = b"\x02" + struct.pack("<HHBH", 1, 7, 2, 0)  # an array whose element is itself
    with pytest.raises(ValueError, match="too deep"):
        json_of_binary(endless)


@pytest.mark.parametrize(
    ("data", "precision", "scale", "text"),
    [("810dfb38d204d2", 14, 4, "1234567890.1234"), ("7ef204c72dfb2d", 14, 4, "-1234567890.1234"), ("8000", 3, 1, "0.0"),
     ("80", 2, 0, "0"), ("81", 2, 0, "1"), ("7e", 2, 0, "-1"), ("8005", 2, 2, None)],
)  # fmt: skip
def test_packed_decimals(data: str, precision: int, scale: int, text: str | None) -> None:
    if text is None:
        assert decimal_size(precision, scale) == 1
    else:
        assert decimal_text(bytes.fromhex(data), precision, scale) == text
