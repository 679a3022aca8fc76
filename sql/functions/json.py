"""Functions about JSON in texts. As in Jackson, what follows a complete value in a text is ignored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal as PythonDecimal
from functools import lru_cache, partial
from typing import Any

import orjson

from ..types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, STRING, SqlType
from .function import Function, scalar
from .java.java_text import json_text, quoted
from .udf import by_row, by_typed_row

json_function = partial(scalar, category="JSON")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_float=PythonDecimal, parse_constant=_refuse, strict=True)
_BLANK = re.compile(r"[ \t\r\n]*")
_EXPONENT_MAX = 1000


def _parse(text: str) -> Any:
    """The first JSON value in the text; numbers with a fraction keep their digits. Raises `ValueError`."""
    blank = _BLANK.match(text)
    value, end = _DECODER.raw_decode(text, blank.end() if blank else 0)
    after = text[end : end + 1]  # behind texts, objects and arrays it does not matter, as in Java's Jackson
    if _is_number(value) and after not in ("", " ", "\t", "\n", "\r"):
        raise ValueError("the number does not end")
    if (value is None or isinstance(value, bool)) and (after.isalnum() or after in ("_", "$")):
        raise ValueError("the word does not end")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | PythonDecimal) and not isinstance(value, bool)


def _written(value: Any, *, plain: bool = False) -> str:
    """The value as compact JSON; `plain`: numbers without exponents."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case list():
            return f"[{','.join(_written(item, plain=plain) for item in value)}]"
        case dict():
            return f"{{{','.join(f'{quoted(k)}:{_written(v, plain=plain)}' for k, v in value.items())}}}"
        case PythonDecimal() if plain:
            if abs(value.adjusted()) > _EXPONENT_MAX:
                raise ValueError("the number is too long to write")
            return f"{value:f}"
        case _:
            return str(value)


# ------------------------------------------------------------------ paths

_STEP = re.compile(r'\.([\w:@]+)|\[(\w+)\]|\["((?:[^"\\]|\\["\\])*)"\]')


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[str, ...]:
    """The names and indexes of `$.a.b[0]["c d"]`. Raises `ValueError`."""
    if not path.startswith("$"):
        raise ValueError(f"invalid JSON path: {path}")
    steps: list[str] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise ValueError(f"invalid JSON path: {path}")
        text = match[1] or match[2]
        steps.append(text if text is not None else re.sub(r'\\(["\\])', r"\1", match[3]))
        at = match.end()
    return tuple(steps)


_MISSING = object()


def _at(value: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step, _MISSING)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return _MISSING
    return value


@by_row
def json_extract(text: str, path: str) -> str | None:
    steps = _steps(path)
    try:
        found = _at(orjson.loads(text), steps)
    except orjson.JSONDecodeError:
        found = 0.0
    if isinstance(found, (float, list, dict)):  # the fast parser does not keep digits, nor reads all that Jackson does
        found = _at(_parse(text), steps)
    if found is _MISSING:
        return None
    return found if isinstance(found, str) else _written(found)


# ------------------------------------------------------------------ whole values


@by_row
def json_array_length(text: str) -> int | None:
    value = _parse(text)
    return len(value) if isinstance(value, list) else None


@by_row
def json_keys(text: str) -> list[str] | None:
    value = _parse(text)
    return list(value) if isinstance(value, dict) else None


@by_row
def json_records(text: str) -> list[tuple[str, str]] | None:
    value = _parse(text)
    if not isinstance(value, dict):
        return None
    return [(key, member if isinstance(member, str) else _written(member)) for key, member in value.items()]


@by_row
def json_items(text: str) -> list[str] | None:
    value = _parse(text)
    return [_written(item) for item in value] if isinstance(value, list) else None


def json_concat(*texts: str | None) -> str | None:
    if not texts or any(text is None for text in texts):
        return None
    values = [_parse(text) for text in texts if text is not None]
    if all(isinstance(value, dict) for value in values):
        merged: dict[str, Any] = {}
        for value in values:
            merged.update(value)
        return _written(merged, plain=True)
    if len(values) == 1:
        return _written(values[0], plain=True)
    items = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return _written(items, plain=True)


def is_json(text: str | None) -> bool:
    if text is None:
        return False
    try:
        _parse(text)
    except (ValueError, RecursionError):
        return False
    return True


_KINDS: dict[SqlType, type] = {INTEGER: int, BIGINT: int, DOUBLE: PythonDecimal, STRING: str, BOOLEAN: bool}


def json_array_contains(parameters: tuple[SqlType, ...], _returns: SqlType) -> Callable[..., bool]:
    type_ = parameters[1]
    kind = _KINDS.get(type_, type(None))

    def contains(text: str | None, value: Any) -> bool:
        if text is None:
            raise ValueError("there is no JSON")
        try:
            items = _parse(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(items, list):
            return False
        if value is None:
            return None in items
        return any(type(item) is kind and (float(item) if type_ == DOUBLE else item) == value for item in items)

    return contains


def to_json(parameters: tuple[SqlType, ...], _returns: SqlType) -> Callable[[Any], str]:
    type_ = STRING if parameters[0] == NULL else parameters[0]
    return lambda value: json_text(value, type_)


FUNCTIONS: tuple[Function, ...] = (
    json_function(
        "extractjsonfield",
        signature="(text STRING, path STRING) -> STRING",
        doc="What is at a path like `$.log.items[0]` in a JSON text: a text as it is, anything else as JSON.",
        python=json_extract,
        examples={
            """EXTRACTJSONFIELD('{"log": {"cloud": "gcp"}}', '$.log.cloud')""": "'gcp'",
            """EXTRACTJSONFIELD('{"a": [1.50]}', '$.a[0]')""": "'1.50'",
            """EXTRACTJSONFIELD('{"a": 1}', '$.b')""": "NULL",
            "EXTRACTJSONFIELD(NULL, '$.a')": "NULL",
        },
    ),
    json_function(
        "IS_JSON_STRING",
        signature="(text STRING) -> BOOLEAN",
        doc="Whether the text is JSON.",
        python=by_row(is_json, nulls=True),
        examples={
            "IS_JSON_STRING('[1, 2]')": "true",
            "IS_JSON_STRING('abc')": "false",
            "IS_JSON_STRING('01')": "false",
            "IS_JSON_STRING('truth')": "false",
            "IS_JSON_STRING(NULL)": "false",
        },
    ),
    json_function(
        "JSON_ARRAY_CONTAINS",
        signature="(text STRING, value T) -> BOOLEAN",
        doc="Whether the JSON array in `text` has the element `value`; false if there is no array.",
        python=by_typed_row(json_array_contains, nulls=True),
        examples={
            "JSON_ARRAY_CONTAINS('[1, 2, 3]', 3)": "true",
            "JSON_ARRAY_CONTAINS('[1, null]', CAST(NULL AS INTEGER))": "true",
            "JSON_ARRAY_CONTAINS('1', 1)": "false",
            "JSON_ARRAY_CONTAINS(CAST(NULL AS STRING), 1)": "NULL",
        },
    ),
    json_function(
        "JSON_ARRAY_LENGTH",
        signature="(text STRING) -> INTEGER",
        doc="The number of elements of the JSON array in `text`; NULL if there is none.",
        python=json_array_length,
        examples={
            "JSON_ARRAY_LENGTH('[1, [1, [2]], 3]')": "3",
            "JSON_ARRAY_LENGTH('{}')": "NULL",
            "JSON_ARRAY_LENGTH(NULL)": "NULL",
        },
    ),
    json_function(
        "JSON_CONCAT",
        signature="(texts STRING...) -> STRING",
        doc="JSON objects merged (the last of equal keys counts); other values joined as arrays.",
        python=by_row(json_concat, nulls=True),
        examples={
            """JSON_CONCAT('{"a": 1}', '{"b": 2}')""": """'{"a":1,"b":2}'""",
            "JSON_CONCAT('[1, 2]', '3')": "'[1,2,3]'",
            "JSON_CONCAT('[1, 2]', NULL)": "NULL",
        },
    ),
    json_function(
        "JSON_ITEMS",
        signature="(text STRING) -> ARRAY<STRING>",
        doc="The elements of the JSON array in `text`, each as JSON; NULL if there is none.",
        python=json_items,
        examples={
            """JSON_ITEMS('[1, "a", {"b": 2}]')""": """ARRAY['1', '"a"', '{"b":2}']""",
            "JSON_ITEMS(NULL)": "NULL",
        },
    ),
    json_function(
        "JSON_KEYS",
        signature="(text STRING) -> ARRAY<STRING>",
        doc="The keys of the JSON object in `text`; NULL if there is none.",
        python=json_keys,
        examples={
            """JSON_KEYS('{"a": 1, "b": 2}')""": "ARRAY['a', 'b']",
            "JSON_KEYS('[]')": "NULL",
            "JSON_KEYS(NULL)": "NULL",
        },
    ),
    json_function(
        "JSON_RECORDS",
        signature="(text STRING) -> MAP<STRING, STRING>",
        doc="The keys and values of the JSON object in `text`, values other than texts as JSON.",
        python=json_records,
        examples={
            """JSON_RECORDS('{"a": "abc", "b": {"c": "a"}}')""": """MAP('a' := 'abc', 'b' := '{"c":"a"}')""",
            "JSON_RECORDS(NULL)": "NULL",
        },
    ),
    json_function(
        "TO_JSON_STRING",
        signature="(value T) -> STRING",
        doc="Any value as JSON; NULL as the text 'null'.",
        python=by_typed_row(to_json, nulls=True),
        examples={
            "TO_JSON_STRING(ARRAY[1, 2])": "'[1,2]'",
            "TO_JSON_STRING(STRUCT(name := 'A', id := 1))": """'{"ID":1,"NAME":"A"}'""",
            "TO_JSON_STRING(PARSE_DATE('2021-10-11', 'yyyy-MM-dd'))": """'"2021-10-11"'""",
            "TO_JSON_STRING(CAST(NULL AS INTEGER))": "'null'",
        },
    ),
)
