"""Rows of text as a table: aligned, numbers to the right, no wider than it may be."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Final

_COLUMN_MIN: Final = 8  # no column is cut below this
_NUMBERS: Final = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL")
_TYPICAL: Final = {"BOOLEAN": 7, "INTEGER": 10, "BIGINT": 14, "DOUBLE": 14, "DATE": 10, "TIME": 12, "TIMESTAMP": 23}
_TYPICAL_OTHER: Final = 20


class Table:
    """Column titles and how wide each column is; it gives lines.

    In: `widths`: of the cells; `cut`: whether a wider value is cut with `…` or pushes the others aside.
    """

    def __init__(self, titles: Sequence[str], widths: Sequence[int], numeric: Sequence[bool], *, cut: bool) -> None:
        self._titles = [printable(title) for title in titles]
        self._widths = list(widths)
        self._numeric = list(numeric)
        self._cut = cut

    def head(self) -> list[str]:
        """Titles and the line below them."""
        rule = "+".join("-" * (width + 2) for width in self._widths)
        return [self.row(self._titles), rule]

    def row(self, cells: Sequence[str]) -> str:
        shown = zip(cells, self._widths, self._numeric, strict=True)
        return "|".join(f" {self._cell(text, width, numeric)} " for text, width, numeric in shown).rstrip()

    def _cell(self, text: str, width: int, numeric: bool) -> str:
        if self._cut and text_width(text) > width:
            text = cut_to(text, width)
        padding = " " * (width - text_width(text))
        return padding + text if numeric else text + padding


def render_table(titles: Sequence[str], rows: Iterable[Sequence[Any]], width_max: int | None) -> list[str]:
    """The lines of a table that is known as a whole. In: `width_max`: None for as wide as it takes."""
    cells = [[cell_text(value) for value in row] for row in rows]
    raw = [list(row) for row in rows] if isinstance(rows, list) else []
    columns = [[row[index] for row in cells] for index in range(len(titles))]
    widths = [
        max([text_width(printable(title)), *map(text_width, column)])
        for title, column in zip(titles, columns, strict=True)
    ]
    numeric = [
        bool(raw) and all(value is None or is_number(value) for value in (row[index] for row in raw))
        for index in range(len(titles))
    ]
    table = Table(titles, fit(widths, width_max), numeric, cut=width_max is not None)
    return [*table.head(), *map(table.row, cells)]


def streaming_table(titles: Sequence[str], types: Sequence[str], width_max: int | None) -> Table:
    """A table whose rows are still to come: as wide as values of these types usually are."""
    widths = [
        max(text_width(title), _TYPICAL.get(type_, _TYPICAL_OTHER)) for title, type_ in zip(titles, types, strict=True)
    ]
    numeric = [type_.startswith(_NUMBERS) for type_ in types]
    return Table(titles, fit(widths, width_max), numeric, cut=width_max is not None)


def fit(widths: Sequence[int], width_max: int | None) -> list[int]:
    """Takes from the widest columns until the whole, with its lines, is `width_max` wide.

    >>> fit([10, 100, 40], 80)
    [10, 31, 31]
    """
    fitted = list(widths)
    if width_max is None:
        return fitted
    room = width_max - 3 * len(fitted) + 1
    while sum(fitted) > room:
        widest = max(fitted)
        if widest <= _COLUMN_MIN:
            break
        second = max([width for width in fitted if width < widest], default=_COLUMN_MIN)
        at_widest = [index for index, width in enumerate(fitted) if width == widest]
        excess = -(-(sum(fitted) - room) // len(at_widest))  # rounded up
        for index in at_widest:
            fitted[index] = max(widest - excess, min(second, widest - 1), _COLUMN_MIN)
    return fitted


def cell_text(value: Any) -> str:
    """A JSON value as a cell shows it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return printable(value)
        case list() | dict() | tuple():
            return printable(json.dumps(value, ensure_ascii=False, default=str))
        case _:
            return printable(str(value))


def is_number(value: object) -> bool:
    return not isinstance(value, bool | str | list | dict | tuple) and value is not None


def printable(text: str) -> str:
    """The text without what would move a terminal's cursor or change its colours: data is not to be trusted.

    >>> printable("a\\x1b[31mb\\nc")
    'a\\\\x1b[31mb\\\\nc'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def text_width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def cut_to(text: str, width: int) -> str:
    """The beginning of the text and `…`, together `width` columns wide at most."""
    taken, room = "", width - 1
    for character in text:
        room -= _width(character)
        if room < 0:
            break
        taken += character
    return taken + "…"


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
