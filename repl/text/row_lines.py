"""Rows as lines of text: one function for each output format. `printer` chooses the format, and writes the lines."""

from __future__ import annotations

import csv
import decimal
import io
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

import orjson

from ...server.client import Row, Rows
from .tables import GONE, cell_text, fitted_table, fixed_table, printable, streaming_table, text_width

_PULL_ROWS_ALIGNED: Final = 1000  # the first rows, which set the width of a table


def print_lines(rows: Rows) -> Iterator[str]:
    """The records of PRINT, one on each line."""
    return (printable(str(row.values[0])) for row in rows)


def json_lines(rows: Rows) -> Iterator[str]:
    """One JSON object for each row."""
    return (row_json(rows.column_names, row) for row in rows)


def json_array(rows: Rows) -> Iterator[str]:
    """All rows as one JSON array, with one row on each line."""
    before = "["
    for row in rows:
        yield before + row_json(rows.column_names, row)
        before = ","
    yield "[]" if before == "[" else "]"


def csv_lines(rows: Rows) -> Iterator[str]:
    """RFC 4180 with a line of titles. NULL is an empty field, an empty text is `""`. If the query can delete rows, a
    last column is 1 for deleted rows and 0 for others."""
    keyed = rows.key is not None
    yield csv_line([*rows.column_names, *(["@tombstone"] if keyed else [])])
    for row in rows:
        yield csv_line([*row.values, *([1 if row.tombstone else 0] if keyed else [])])


def markdown_lines(rows: Rows) -> Iterator[str]:
    """A Markdown table."""
    yield from markdown_head(rows.column_names)
    for row in rows:
        yield markdown_row(shown_values(row))


def vertical_lines(rows: Rows) -> Iterator[str]:
    """One line for each column."""
    for number, row in enumerate(rows, 1):
        yield from vertical_record(number, rows.column_names, shown_values(row))


def table_lines(rows: Rows, width_max: int | None, *, colour: bool, column_width: int = 0) -> Iterator[str]:
    """A table. For a pull query, its first rows set the width. In: `column_width`: the width of every column, if it is
    not 0."""
    iterator = iter(rows)
    if column_width:
        table = fixed_table(rows.column_names, rows.column_types, column_width, width_max, colour=colour)
        yield from table.head()
    elif rows.kind == "PUSH":
        table = streaming_table(rows.column_names, rows.column_types, width_max, colour=colour)
        yield from table.head()
    else:
        first = [shown_values(row) for row in islice(iterator, _PULL_ROWS_ALIGNED)]
        cells = [[cell_text(value) for value in values] for values in first]
        table = fitted_table(rows.column_names, first, cells, width_max, colour=colour)
        yield from chain(table.head(), map(table.row, cells))
    for row in iterator:
        yield table.row([cell_text(value) for value in shown_values(row)])


# ------------------------------------------------------------------ parts


def shown_values(row: Row) -> list[Any]:
    """The values to show to people; for a deleted row, only the keys."""
    return [GONE if row.tombstone and value is None else value for value in row.values]


def row_json(names: Sequence[str], row: Row) -> str:
    members: dict[str, Any] = dict(zip(names, row.values, strict=True))
    if row.tombstone:
        members = {name: value for name, value in members.items() if value is not None} | {"@tombstone": True}
    return json_text(members)


def json_text(value: object) -> str:
    return orjson.dumps(value, default=_decimal).decode()


def csv_line(values: Sequence[Any]) -> str:
    """
    >>> csv_line([None, "", 'a"b', True, [1, None]])
    ',"","a""b",true,"[1,null]"'
    """
    return ",".join(map(_csv_cell, values))


def _csv_cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case "":
            return '""'
        case bool():
            return str(value).lower()
        case str():
            text = value
        case list() | dict() | tuple():
            text = json_text(value)
        case _:
            text = str(value)
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


def markdown_head(titles: Sequence[str]) -> list[str]:
    return [markdown_row(titles), "|" + " --- |" * len(titles)]


def markdown_row(values: Sequence[Any]) -> str:
    """
    >>> markdown_row(["a|b", None, "<i>"])
    '| a\\\\|b | null | &lt;i> |'
    """
    cells = (
        cell_text(value).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
        for value in values
    )
    return f"| {' | '.join(cells)} |"


def vertical_record(number: int, titles: Sequence[str], values: Sequence[Any]) -> Iterator[str]:
    """
    >>> print(*vertical_record(1, ["A", "LONG"], [1, None]), sep="\\n")
    -[ RECORD 1 ]
    A    | 1
    LONG | null
    """
    shown = [printable(title) for title in titles]
    width = max(map(text_width, shown), default=0)
    yield f"-[ RECORD {number} ]"
    for title, value in zip(shown, values, strict=True):
        yield f"{title}{' ' * (width - text_width(title))} | {cell_text(value)}"


def small_table_lines(format: str, titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """A table whose rows are all known, as csv, markdown or vertical."""
    if format == "csv":
        yield from map(csv_line, [titles, *rows])
    elif format == "markdown":
        yield from [*markdown_head(titles), *map(markdown_row, rows)]
    else:
        for number, row in enumerate(rows, 1):
            yield from vertical_record(number, titles, row)


def _decimal(value: object) -> object:
    """A number with all digits of its scale; orjson handles all other types that rows contain."""
    return orjson.Fragment(format(value, "f").encode()) if isinstance(value, decimal.Decimal) else str(value)
