"""External JSON: pointers into it (RFC 6901), and decoding it with all digits."""

from __future__ import annotations

from typing import Any, Final

import orjson

from ..connector_errors import InvalidConnector
from ..converters import converter_of, may_be_rounded

NOTHING: Final = object()
_JSON: Final = converter_of({}, "value")


def checked_pointer(pointer: str | None, name: str) -> None:
    """Checks the pointer. In: `name`: the name of the setting. Raises `InvalidConnector`."""
    if pointer and not pointer.startswith("/"):
        raise InvalidConnector(f'{name} is "{pointer}", but a JSON pointer begins with /', setting=name)


def pointed_at(value: Any, pointer: str) -> Any:
    """The value at the pointer; `NOTHING` if there is none.

    >>> pointed_at({"a/b": [1, {"c": 2}]}, "/a~1b/1/c")
    2
    """
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isascii() and name.isdecimal() and int(name[:9]) < len(value):
            value = value[int(name[:9])]
        else:
            return NOTHING
    return value


def exact_json(data: bytes) -> Any:
    """Decodes JSON; fractions, numbers with an exponent and integers of more than 64 bits become decimals. Raises
    ValueError, also for NaN, lone surrogates and too deep nesting."""
    checked = orjson.loads(data)
    return _JSON.from_bytes(data) if may_be_rounded(data) else checked
