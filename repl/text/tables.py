"""Rows of text as an aligned table, with numbers to the right, within a given width."""

from __future__ import annotations

import decimal
import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Final, cast

_COLUMN_MIN: Final = 8  # columns are not cut below this, unless the screen is very narrow
_COLUMN_MIN_NARROW: Final = 3
_MORE: Final = "| …"  # replaces columns that do not fit
_AMBIGUOUS: Final = re.compile(r"'*(?:null|<gone>)'*", re.IGNORECASE)
_JOINERS: Final = "\u200c\u200d"
_DIM, _BOLD, _RESET = "\033[2m", "\033[1m", "\033[0m"
_NUMBERS: Final = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL")
_TYPICAL: Final = {"BOOLEAN": 7, "INTEGER": 10, "BIGINT": 14, "DOUBLE": 14, "DATE": 10, "TIME": 12, "TIMESTAMP": 23}
_TYPICAL_OTHER: Final = 20


class Word(str):
    """The text of a cell that is not a value, such as the text for NULL."""


NULL: Final = Word("null")
GONE: Final = Word("<gone>")


class Table:
    """The titles and widths of a table's columns; makes the lines of the table.

    In: `widths`: the widths of the cells. There may be fewer than titles (`fit`); `…` then replaces the other columns.
    `cut`: whether a wider value is cut with `…` or moves the other columns. `colour`: whether it is for a terminal.
    """

    def __init__(
        self, titles: Sequence[str], widths: Sequence[int], numeric: Sequence[bool], *, cut: bool, colour: bool = False
    ) -> None:
        self._titles = [printable(title) for title in titles]
        self._widths = list(widths)
        self._numeric = list(numeric)
        self._cut = cut
        self._colour = colour
        self._more = _MORE if len(self._widths) < len(self._titles) else ""

    def head(self) -> list[str]:
        """The titles, and the line below them."""
        rule = "+".join("-" * (width + 2) for width in self._widths)
        titles = self.row(self._titles)
        return [f"{_BOLD}{titles}{_RESET}" if self._colour else titles, rule + ("+--" if self._more else "")]

    def row(self, cells: Sequence[str]) -> str:
        shown = zip(cells, self._widths, self._numeric, strict=False)
        line = "|".join(f" {self._cell(text, width, numeric)} " for text, width, numeric in shown)
        return (line + self._more).rstrip()

    def _cell(self, text: str, width: int, numeric: bool) -> str:
        shown = cut_to(text, width) if self._cut and text_width(text) > width else text
        padding = " " * (width - text_width(shown))
        if self._colour and isinstance(text, Word):
            shown = f"{_DIM}{shown}{_RESET}"
        return padding + shown if numeric else shown + padding


def render_table(
    titles: Sequence[str], rows: Sequence[Sequence[Any]], width_max: int | None, *, colour: bool = False
) -> list[str]:
    """The lines of a table whose rows are all known. In: `width_max`: None for no limit."""
    cells = [[cell_text(value) for value in row] for row in rows]
    table = fitted_table(titles, rows, cells, width_max, colour=colour)
    return [*table.head(), *map(table.row, cells)]


def fitted_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[Any]],
    cells: Sequence[Sequence[str]],
    width_max: int | None,
    *,
    colour: bool = False,
) -> Table:
    """A table as wide as these rows need. In: `cells`: the texts of the rows."""
    columns = [[row[index] for row in cells] for index in range(len(titles))]
    widths = [
        max([text_width(printable(title)), *map(text_width, column)])
        for title, column in zip(titles, columns, strict=True)
    ]
    numeric = [bool(rows) and all(_is_aligned_right(row[index]) for row in rows) for index in range(len(titles))]
    return Table(titles, fit(widths, width_max), numeric, cut=width_max is not None, colour=colour)


def streaming_table(
    titles: Sequence[str], types: Sequence[str], width_max: int | None, *, colour: bool = False
) -> Table:
    """A table whose rows are not known yet: as wide as values of these types usually are."""
    widths = [
        max(text_width(title), _TYPICAL.get(type_, _TYPICAL_OTHER)) for title, type_ in zip(titles, types, strict=True)
    ]
    numeric = [is_numeric_type(type_) for type_ in types]
    return Table(titles, fit(widths, width_max), numeric, cut=width_max is not None, colour=colour)


def fixed_table(
    titles: Sequence[str], types: Sequence[str], column_width: int, width_max: int | None, *, colour: bool = False
) -> Table:
    """A table whose columns all have the given width; wider values are cut."""
    widths = fit([column_width] * len(titles), width_max)
    return Table(titles, widths, [is_numeric_type(type_) for type_ in types], cut=True, colour=colour)


def fit(widths: Sequence[int], width_max: int | None) -> list[int]:
    """Narrows the widest columns until the whole table, with its lines, is `width_max` wide. If that is not enough,
    removes the last columns.

    >>> fit([10, 100, 40], 80), fit([10, 10, 10], 20), fit([10] * 9, 20)
    ([10, 31, 31], [4, 4, 4], [3, 3, 3])
    """
    if width_max is None or not widths:
        return list(widths)
    for least in (_COLUMN_MIN, _COLUMN_MIN_NARROW):
        fitted = _narrowed(widths, width_max, least)
        if _whole_width(fitted) <= width_max:
            return fitted
    room = width_max - len(_MORE)
    count = max(1, (room + 1) // (_COLUMN_MIN_NARROW + 3))
    return _narrowed(widths[:count], room, 1)


def _narrowed(widths: Sequence[int], width_max: int, least: int) -> list[int]:
    fitted = list(widths)
    while (excess := _whole_width(fitted) - width_max) > 0:
        widest = max(fitted)
        if widest <= least:
            break
        second = max([width for width in fitted if width < widest], default=least)
        at_widest = [index for index, width in enumerate(fitted) if width == widest]
        less = -(-excess // len(at_widest))  # rounded up
        for index in at_widest:
            fitted[index] = max(widest - less, min(second, widest - 1), least)
    return fitted


def _whole_width(widths: Sequence[int]) -> int:
    return sum(widths) + 3 * len(widths) - 1


def cell_text(value: Any) -> str:
    """A JSON value as a cell shows it. NULL is a `Word`; a text that looks like NULL is put in quotes.

    >>> cell_text(None), cell_text("null"), cell_text("'NULL'"), cell_text("nullable")
    ('null', "'null'", "'''NULL'''", 'nullable')
    """
    match value:
        case None:
            return NULL
        case Word():
            return value
        case bool():
            return str(value).lower()
        case str():
            return _quoted(value) if _AMBIGUOUS.fullmatch(value) else printable(value)
        case list() | dict() | tuple():
            return printable(_nested(value))
        case _:
            return printable(str(value))


def _nested(value: Any) -> str:
    """As JSON with spaces. A DECIMAL is a number with all digits of its scale, which the JSON writer cannot express."""
    match value:
        case dict():
            members = cast("dict[str, Any]", value).items()
            return "{" + ", ".join(f"{_nested(name)}: {_nested(member)}" for name, member in members) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_nested, cast("Sequence[Any]", value))) + "]"
        case decimal.Decimal():
            return format(value, "f")
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


def is_number(value: object) -> bool:
    return not isinstance(value, (bool, str, list, dict, tuple)) and value is not None


def is_numeric_type(sql_type: str) -> bool:
    return sql_type.startswith(_NUMBERS)


def printable(text: str) -> str:
    """The text without characters that move a terminal's cursor, change its colours or reorder what it shows, because
    data is not trusted. Spaces of all kinds and the joiners of letters and emoji stay.

    >>> printable("a\\x1b[31mb\\nc"), printable("\\u202eb"), printable("10\\xa0km\\u3000") == "10\\xa0km\\u3000"
    ('a\\\\x1b[31mb\\\\nc', '\\\\u202eb', True)
    """
    if text.isprintable():
        return text
    return "".join(
        character if _is_harmless(character) else character.encode("unicode_escape").decode() for character in text
    )


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"


def text_width(text: str) -> int:
    """The number of terminal columns that the text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def cut_to(text: str, width: int) -> str:
    """The beginning of the text and `…`, together at most `width` columns wide."""
    taken, room = "", width - 1
    for character in text:
        room -= _width(character)
        if room < 0:
            break
        taken += character
    return taken + "…"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _is_aligned_right(value: object) -> bool:
    return value is None or isinstance(value, Word) or is_number(value)


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0  # combines with the character before it
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
