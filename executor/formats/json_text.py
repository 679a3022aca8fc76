"""Parses and writes JSON exactly: numbers keep all their digits, and hostile input is refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal as Number
from decimal import DecimalException
from typing import Any, NoReturn

from .limits import JSON_DEPTH_MAX

_QUOTED_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)
_ENDLESS = {math.inf: "Infinity", -math.inf: "-Infinity"}
_LONG_INTEGER = 25  # characters; longer ones stay text


class Real(str):
    """The text of a number with a fraction or an exponent, or of a very long integer."""

    __slots__ = ()


class InvalidJson(Exception):
    """The bytes are not one JSON value."""


def _integer(text: str) -> int | Real:
    return int(text) if len(text) <= _LONG_INTEGER else Real(text)


def _refuse(word: str) -> NoReturn:
    raise InvalidJson(f"invalid JSON: {word} is not a JSON value")


_DECODER = json.JSONDecoder(parse_float=Real, parse_int=_integer, parse_constant=_refuse)


def parse_json(data: bytes) -> Any:
    """The one JSON value in `data`: dict (the last of equal keys counts), list, str, int, `Real`, bool or None.

    Raises: InvalidJson.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidJson(f"invalid UTF-8 at byte {error.start}") from None
    if text.count("{") + text.count("[") > JSON_DEPTH_MAX:
        _check_depth(text)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        hint = "" if text.strip() else " (the text is empty)"
        if data.startswith(b"\0"):
            hint = " (the record begins as those with a schema registry do)"
        raise InvalidJson(
            f"invalid JSON at character {error.pos}: {error.msg[:1].lower()}{error.msg[1:]}{hint}"
        ) from None
    except RecursionError:
        raise InvalidJson("JSON is nested too deeply") from None


def _check_depth(text: str) -> None:
    depth = 0
    for match in _QUOTED_OR_BRACKET.finditer(text):
        token = match.group()
        if token in "{[":
            depth += 1
            if depth > JSON_DEPTH_MAX:
                raise InvalidJson(f"JSON is nested more than {JSON_DEPTH_MAX} levels deep")
        elif token in "}]":
            depth -= 1


def number_text(real: Real) -> str:
    """A number in ksqlDB's notation for a STRING column: its digits, with an exponent only if it is necessary."""
    try:
        number = Number(real)
    except DecimalException:
        return str(real)
    return str(number if number else abs(number))


def _no_json(value: Any) -> str:
    raise TypeError(f"{type(value).__name__} is no JSON value")


def write_json(value: Any, text_of: Callable[[Any], str] = _no_json) -> str:
    """Compact JSON of a result of `parse_json`; also of floats and decimals.

    In: `text_of`: the JSON string for a value of any other type; by default other types raise TypeError.
    """
    pieces: list[str] = []
    _write(value, pieces, text_of)
    return "".join(pieces)


def quote(text: str) -> str:
    """A JSON string. Characters outside ASCII are not escaped."""
    return json.encoder.encode_basestring(text)


def _write(value: Any, pieces: list[str], text_of: Callable[[Any], str]) -> None:
    # It uses one Python frame per level, so that the deepest JSON that we read can also be written.
    if value is None:
        pieces.append("null")
    elif isinstance(value, Real):
        pieces.append(number_text(value))
    elif isinstance(value, str):
        pieces.append(quote(value))
    elif value is True:
        pieces.append("true")
    elif value is False:
        pieces.append("false")
    elif isinstance(value, dict):
        separator = "{"
        for key, member in value.items():
            pieces.append(f"{separator}{quote(str(key))}:")
            _write(member, pieces, text_of)
            separator = ","
        pieces.append("}" if separator == "," else "{}")
    elif isinstance(value, list):
        separator = "["
        for member in value:
            pieces.append(separator)
            _write(member, pieces, text_of)
            separator = ","
        pieces.append("]" if separator == "," else "[]")
    elif isinstance(value, float) and not math.isfinite(value):
        pieces.append(f'"{_ENDLESS.get(value, "NaN")}"')
    elif isinstance(value, (int, float, Number)):
        pieces.append(str(value))
    else:
        pieces.append(quote(text_of(value)))
