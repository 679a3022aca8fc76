"""The display of values: in the HTML of a result, and in the rows for a live widget."""

from __future__ import annotations

import base64
import datetime
import json
import math
from html import escape
from typing import Any, Final

_EXACT_IN_JAVASCRIPT: Final = 2**53
NUMBERS: Final = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL")


def is_number(sql_type: str) -> bool:
    """
    >>> is_number("DECIMAL(4, 2)"), is_number("ARRAY<INTEGER>")
    (True, False)
    """
    return sql_type.startswith(NUMBERS)


def cell_text(value: Any) -> str:
    """
    >>> [cell_text(value) for value in (None, True, "x", b"ab", [1, None], {"a": datetime.date(2026, 1, 2)})]
    ['NULL', 'true', 'x', 'YWI=', '[1, null]', '{"a": "2026-01-02"}']
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
        case list() | tuple() | dict():
            return json.dumps(value, ensure_ascii=False, default=cell_text)
        case _:
            return str(value)


def page_cell(value: Any) -> bool | int | float | str | None:
    """The value for JavaScript: numbers that JavaScript represents exactly stay numbers, other values become text.

    >>> [page_cell(value) for value in (None, 1, 2**60, 0.5, [1, 2])]
    [None, 1, '1152921504606846976', 0.5, '[1, 2]']
    """
    match value:
        case None | bool():
            return value
        case int() if abs(value) < _EXACT_IN_JAVASCRIPT:
            return value
        case float() if math.isfinite(value):
            return value
        case _:
            return cell_text(value)


def html_cell(value: Any) -> str:
    """
    >>> html_cell("<b>"), html_cell(None)
    ('&lt;b&gt;', '<span style="opacity:.5">NULL</span>')
    """
    return '<span style="opacity:.5">NULL</span>' if value is None else escape(cell_text(value))
