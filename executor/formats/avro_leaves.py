"""Single values as AVRO's types take them. Whatever they cannot hold exactly is `Unwritable`, said in plain words."""

from __future__ import annotations

import math
import struct
from decimal import Decimal as Number
from typing import Any, Final

from .reading import describe
from .wire import Unwritable

_BOUNDS: Final = {"int": 2**31, "long": 2**63}
_FLOAT: Final = struct.Struct("<f")


def unwanted(what: str, value: Any) -> Unwritable:
    return Unwritable(f"the AVRO schema wants {what}, {describe(value)} came")


def of_type(wanted: type, value: Any, what: str) -> Any:
    if isinstance(value, wanted):
        return value
    raise unwanted(what, value)


def number_of(value: Any) -> Number:
    """A number, or the text of one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Number, str)):
        raise unwanted("a number", value)
    try:
        number = Number(value)
    except ArithmeticError:
        raise unwanted("a number", value) from None
    if number.is_snan():  # no float holds it
        raise unwanted("a number", value)
    return number


def whole(kind: str, value: Any) -> int:
    """In: `kind`: int or long."""
    number = value if type(value) is int else number_of(value)
    if not isinstance(number, int) and (not number.is_finite() or number != number.to_integral_value()):
        raise unwanted("a whole number", value)
    bound = _BOUNDS[kind]
    if not -bound <= number < bound:
        raise Unwritable(f"the AVRO schema wants a number of type {kind}, {describe(value)} is out of its range")
    return int(number)


def real(kind: str, value: Any) -> float:
    """In: `kind`: float or double."""
    number = value if type(value) is float else float(number_of(value))
    try:
        if kind == "float":
            _FLOAT.pack(number)
        if math.isinf(number) and not (isinstance(value, float) or number_of(value).is_infinite()):
            raise OverflowError
    except OverflowError:
        raise Unwritable(
            f"the AVRO schema wants a number of type {kind}, {describe(value)} is out of its range"
        ) from None
    return number


def sized(node: dict[str, Any], value: bytes) -> bytes:
    """In: `node`: of a type "fixed"."""
    if len(value) != node["size"]:
        raise Unwritable(f"the AVRO schema wants {node['size']} bytes, {len(value)} bytes came")
    return value


def symbol(node: dict[str, Any], value: str) -> str:
    """In: `node`: of an enum."""
    if value not in node["symbols"]:
        symbols = ", ".join(node["symbols"])
        raise Unwritable(f"the AVRO enum {node['name']} has {symbols}, {describe(value)} came")
    return value
