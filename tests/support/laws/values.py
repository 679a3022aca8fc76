"""Columns, random values for them, and their bytes in the formats that queries read."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

DUCKDB_TYPES = {
    "INT": "INTEGER",
    "BIGINT": "BIGINT",
    "DOUBLE": "DOUBLE",
    "DECIMAL(9, 2)": "DECIMAL(9, 2)",
    "STRING": "VARCHAR",
    "BOOLEAN": "BOOLEAN",
    "ARRAY<INT>": "INTEGER[]",
    "ARRAY<STRING>": "VARCHAR[]",
    "STRUCT<A INT, B STRING>": "STRUCT(A INTEGER, B VARCHAR)",
}
SCALARS = ("INT", "BIGINT", "DOUBLE", "DECIMAL(9, 2)", "STRING", "BOOLEAN")
NESTED = ("ARRAY<INT>", "ARRAY<STRING>", "STRUCT<A INT, B STRING>")
NUMBERS = ("INT", "BIGINT", "DOUBLE", "DECIMAL(9, 2)")

_TEXTS = ("", "a", "A", "b", "ab", " a ", "é", '"', "x,y", "x'y", "null", "7", "-1", "\\", "a\tb")
_EXTREMES: dict[str, Sequence[Any]] = {
    "INT": (-(2**31), 2**31 - 1, 0, -1),
    "BIGINT": (-(2**63), 2**63 - 1, 2**53 + 1, 0),
    "DOUBLE": (1.7976931348623157e308, -1e-300, 5e-324, 1 / 3, -0.0, 1e16),
    "DECIMAL(9, 2)": (Decimal("9999999.99"), Decimal("-9999999.99"), Decimal("0.01")),
    "STRING": ("x" * 300, "ÿ", "🎈", "\u0000x", "日本"),
}


class CaseRandom(Random):
    """`reckless`: expressions may compute with extreme values, whatever comes out."""

    reckless = False


@dataclass(frozen=True, slots=True)
class Col:
    """`wild`: may hold extreme values, so arithmetic on it would overflow."""

    name: str
    type: str
    wild: bool = False

    @property
    def duckdb(self) -> str:
        return DUCKDB_TYPES[self.type]


def random_value(rng: Random, col: Col, null_share: float = 0.15) -> Any:
    if rng.random() < null_share:
        return None
    if col.wild and col.type in _EXTREMES and rng.random() < 0.4:
        return rng.choice(_EXTREMES[col.type])
    match col.type:
        case "INT" | "BIGINT":
            return rng.randint(-4, 4)
        case "DOUBLE":
            return rng.randint(-8, 8) / 4
        case "DECIMAL(9, 2)":
            return Decimal(rng.randint(-300, 300)) / 100
        case "STRING":
            return rng.choice(_TEXTS)
        case "BOOLEAN":
            return rng.random() < 0.5
        case "ARRAY<INT>":
            return [random_value(rng, Col("", "INT")) for _ in range(rng.randint(0, 3))]
        case "ARRAY<STRING>":
            return [random_value(rng, Col("", "STRING")) for _ in range(rng.randint(0, 3))]
        case _:
            return {"A": random_value(rng, Col("", "INT")), "B": random_value(rng, Col("", "STRING"))}


def encode_key(format_: str, cols: Sequence[Col], key: Sequence[Any]) -> bytes | None:
    """None where all of the key is NULL."""
    if not cols or all(part is None for part in key):
        return None
    if format_ == "KAFKA":
        return _kafka(cols[0], key[0])
    if format_ == "DELIMITED":
        return _delimited(key)
    if len(cols) == 1:
        return _json(key[0])
    return _json({col.name: part for col, part in zip(cols, key, strict=True)})


def encode_value(format_: str, cols: Sequence[Col], value: Mapping[str, Any] | None, rng: Random) -> bytes | None:
    if value is None:
        return None
    if format_ == "KAFKA":
        return _kafka(cols[0], value[cols[0].name])
    if format_ == "DELIMITED":
        return _delimited([value[col.name] for col in cols])
    # An absent field is NULL, as one that says so; names are not case-sensitive; order does not matter.
    names = [col.name for col in cols if value[col.name] is not None or rng.random() < 0.5]
    rng.shuffle(names)
    return _json({name: value[name] for name in names})


def malformed_value(format_: str, cols: Sequence[Col], rng: Random) -> bytes:
    """Bytes that no record with these columns can have."""
    match format_:
        case "KAFKA":
            return b"\x01\x02\x03"
        case "DELIMITED":
            return b"1"
        case _:
            return rng.choice((b"{oops", b"[1]", b'{"a": 1', b"\xff\xfe", b"7 8"))


def _kafka(col: Col, value: Any) -> bytes | None:
    if value is None:
        return None
    match col.type:
        case "INT":
            return struct.pack(">i", value)
        case "BIGINT":
            return struct.pack(">q", value)
        case "DOUBLE":
            return struct.pack(">d", value)
        case _:
            return value.encode()


def _delimited(values: Sequence[Any]) -> bytes:
    out = io.StringIO()
    texts = [str(value).lower() if isinstance(value, bool) else value for value in values]
    csv.writer(out, lineterminator="").writerow(["" if text is None else text for text in texts])
    return out.getvalue().encode()


def _json(value: Any) -> bytes:
    return _json_text(value).encode()


def _json_text(value: Any) -> str:
    match value:
        case dict():
            return "{" + ",".join(f"{json.dumps(name)}:{_json_text(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_json_text, value)) + "]"
        case Decimal():
            return format(value, "f")
        case _:
            return json.dumps(value, ensure_ascii=False)
