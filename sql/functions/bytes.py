"""Functions from BYTES to numbers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from ..types import BIGINT, DOUBLE, INTEGER, SqlType
from .function import Function, scalar
from .udf import by_typed_row

bytes_function = partial(scalar, category="CONVERSIONS")

_LETTERS: dict[SqlType, str] = {INTEGER: "i", BIGINT: "q", DOUBLE: "d"}
_ORDERS = {"BIG_ENDIAN": ">", "LITTLE_ENDIAN": "<"}


@by_typed_row
def number_from_bytes(_parameters: tuple[SqlType, ...], returns: SqlType) -> Callable[..., int | float]:
    letter = _LETTERS[returns]

    def read(value: bytes, order: str = "BIG_ENDIAN") -> int | float:
        return struct.unpack(_ORDERS[order.upper()] + letter, value)[0]

    return read


def _from_bytes(name: str, type_: str, count: int, examples: dict[str, str]) -> Function:
    return bytes_function(
        name,
        signatures=[f"(value BYTES) -> {type_}", f"(value BYTES, byte_order STRING) -> {type_}"],
        doc=f"The {type_} in {count} bytes, 'BIG_ENDIAN' (the default) or 'LITTLE_ENDIAN'; NULL for other lengths.",
        python=number_from_bytes,
        examples={**examples, f"{name.upper()}(CAST(NULL AS BYTES))": "NULL"},
    )


FUNCTIONS: tuple[Function, ...] = (
    _from_bytes(
        "bigint_from_bytes", "BIGINT", 8, {"BIGINT_FROM_BYTES(TO_BYTES('000000012A05F200', 'hex'))": "5000000000"}
    ),
    _from_bytes(
        "double_from_bytes", "DOUBLE", 8, {"DOUBLE_FROM_BYTES(TO_BYTES('4080A6FD9BC9F582', 'hex'))": "532.8738323"}
    ),
    _from_bytes(
        "int_from_bytes",
        "INTEGER",
        4,
        {
            "INT_FROM_BYTES(TO_BYTES('000007E5', 'hex'))": "2021",
            "INT_FROM_BYTES(TO_BYTES('E5070000', 'hex'), 'LITTLE_ENDIAN')": "2021",
            "INT_FROM_BYTES(TO_BYTES('E507', 'hex'))": "NULL",
        },
    ),
)
