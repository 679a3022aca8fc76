"""Reads requests: JSON whose members are checked before anything is done."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

import orjson
from starlette.requests import Request

from ...sql.settings.property import says_true
from ..http.requests import read_json
from .proxy_errors import BAD_REQUEST, CONSTRAINT, INVALID_PAYLOAD, ProxyRefusal

_LONG_NUMBER: Final = re.compile(rb"\d{19}")


def parse_json(data: bytes | bytearray) -> Any:
    """Parses JSON; integers of any size stay exact. Raises `ProxyRefusal`."""
    try:
        return orjson.loads(data) if _LONG_NUMBER.search(data) is None else _exact(data)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ProxyRefusal(BAD_REQUEST, f"Bad Request: the body is not valid JSON: {reason}") from None


def _exact(data: bytes | bytearray) -> Any:
    """orjson checks that the data is JSON, but rounds integers of more than 64 bits; json keeps them."""
    orjson.loads(data)
    return json.loads(data, parse_constant=_no_constant)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def dump_json(value: Any) -> bytes:
    """Raises ValueError for texts that UTF-8 cannot encode."""
    try:
        return orjson.dumps(value)
    except TypeError:  # more than 64 bits
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


async def read_body(request: Request, body_bytes_max: int, *, needed: bool = True) -> tuple[str, dict[str, Any]]:
    """Content type and JSON object. In: `needed`: if False, the body may be missing; the object is empty then. Raises
    `ProxyRefusal`, `RequestRefused`."""
    content_type, data = await read_json(request, body_bytes_max)
    if not data.strip():
        if needed:
            raise ProxyRefusal(INVALID_PAYLOAD, "Payload error. Request body is empty. Data is required.")
        return content_type, {}
    value = parse_json(data)
    if value is None and not needed:
        return content_type, {}
    if not isinstance(value, dict):
        raise ProxyRefusal(BAD_REQUEST, "Bad Request: the body is not a JSON object")
    return content_type, value


def text_in(body: dict[str, Any], *names: str) -> str | None:
    """The first of these members that exists. Raises `ProxyRefusal` if it is not a text."""
    return _member(body, names, lambda value: isinstance(value, str), "a text")


def number_in(body: dict[str, Any], *names: str, least: int = 0, most: int = 2**63 - 1) -> int | None:
    """A number, or a text of digits. Raises `ProxyRefusal`."""
    name = next((name for name in names if body.get(name) is not None), None)
    if name is None:
        return None
    return whole_number(body[name], name, least, most)


def whole_number(value: Any, name: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """Raises `ProxyRefusal`."""
    number = _number(value)
    if number is None:
        raise ProxyRefusal(BAD_REQUEST, f'Bad Request: "{name}" is not a whole number')
    if not least <= number <= most:
        raise ProxyRefusal(CONSTRAINT, f'"{name}" must be between {least} and {most}')
    return number


def _number(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        return int(value)
    return None


def flag_in(body: dict[str, Any], name: str) -> bool:
    """Raises `ProxyRefusal`."""
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return says_true(value)
    raise ProxyRefusal(BAD_REQUEST, f'Bad Request: "{name}" is not true or false')


def objects_in(body: dict[str, Any], name: str, most: int, *, needed: bool = True) -> list[dict[str, Any]]:
    """A list of at most `most` objects. Raises `ProxyRefusal`."""
    value = body.get(name)
    if value is None and not needed:
        return []
    if value is None:
        raise ProxyRefusal(CONSTRAINT, f"{name} may not be null")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ProxyRefusal(BAD_REQUEST, f'Bad Request: "{name}" is not a list of objects')
    if len(value) > most:
        raise ProxyRefusal(CONSTRAINT, f"{name} has more than {most} entries")
    return value


def _member(body: dict[str, Any], names: tuple[str, ...], fits: Callable[[Any], bool], what: str) -> Any:
    value = next((body[name] for name in names if body.get(name) is not None), None)
    if value is not None and not fits(value):
        raise ProxyRefusal(BAD_REQUEST, f'Bad Request: "{names[0]}" is not {what}')
    return value
