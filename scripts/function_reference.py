"""Write docs/functions.md, the reference of all functions, from their entries in `sql/functions/`.

    python scripts/function_reference.py

The examples are those that the tests run. A test keeps the page equal to what this writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream.sql.functions.aggregation.aggregates import AggregateExample, AggregateFunction
from millstream.sql.functions.catalog import FUNCTIONS, Function
from millstream.sql.types import Map, SqlType

PAGE = Path(__file__).parent.parent / "docs" / "functions.md"

_HEAD = """# Functions

`scripts/function_reference.py` generates this page from the catalog of functions; do not edit it. The shell shows the
same with `SHOW FUNCTIONS;` and `DESCRIBE FUNCTION name;`. You can write your own functions in Python:
[python-functions.md](python-functions.md).

In signatures a single letter such as `T` is any type, the same one everywhere; `T...` is any number of arguments.
Numbers are widened from INTEGER to BIGINT, DECIMAL and DOUBLE; other conversions need a `CAST`. Unless a function says
otherwise, its result is NULL if an argument is NULL or if the function fails for the row.
"""
_TITLES = {
    "MATHEMATICAL": "Numbers", "STRING": "Texts", "REGULAR EXPRESSION": "Regular expressions",
    "DATE / TIME": "Dates and times", "ARRAY": "Arrays", "MAP": "Maps", "LAMBDA": "Functions with lambdas",
    "JSON": "JSON", "XML": "XML", "BYTES": "Bytes", "NULL": "NULL", "CONDITIONAL": "NULL and conditions", "URL": "URLs",
    "OTHER": "Others", "TABLE": "Table functions", "AGGREGATE": "Aggregates",
}  # fmt: skip
_LAST = ("TABLE", "AGGREGATE")


def page() -> str:
    """The whole page."""
    sections = _sections()
    index = [f"- [{_title(name)}](#{_anchor(_title(name))}): {_links(entries)}" for name, entries in sections.items()]
    parts = [_HEAD, "\n".join(index) + "\n"]
    for name, entries in sections.items():
        parts.append(f"## {_title(name)}\n")
        parts += ["\n".join(_entry(entry)) for entry in entries]
    return "\n".join(parts)


def _sections() -> dict[str, list[Function | AggregateFunction]]:
    sections: dict[str, list[Function | AggregateFunction]] = {}
    for entry in sorted(FUNCTIONS.values(), key=lambda entry: entry.name):
        category = "AGGREGATE" if isinstance(entry, AggregateFunction) else entry.category
        sections.setdefault(category, []).append(entry)
    order = sorted(sections, key=lambda name: (name in _LAST, _LAST.index(name) if name in _LAST else 0, _title(name)))
    return {name: sections[name] for name in order}


def _title(category: str) -> str:
    return _TITLES.get(category, category.capitalize())


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _links(entries: list[Function | AggregateFunction]) -> str:
    return ", ".join(f"[{entry.name}](#{entry.name.lower()})" for entry in entries)


def _entry(entry: Function | AggregateFunction) -> Iterator[str]:
    yield f"### {entry.name}\n"
    yield "```sql"
    if isinstance(entry, AggregateFunction):
        yield from entry.signatures
    else:
        yield from (f"{entry.name}{variant.signature}" for variant in entry.variants)
    yield "```\n"
    yield entry.doc + "\n"
    if isinstance(entry, AggregateFunction):
        yield from _aggregate_notes(entry)
        return
    if entry.deprecated:
        yield f"Deprecated: use {entry.deprecated}.\n"
    for call, result in entry.examples.items():
        yield f"- `{call}` → `{result}`"
    yield ""


def _aggregate_notes(entry: AggregateFunction) -> Iterator[str]:
    if not entry.supports_undo:
        yield "For streams only: rows of a table could not be retracted.\n"
    for example in entry.examples:
        yield f"- {_example(entry, example)}"
    yield ""


def _example(entry: AggregateFunction, example: AggregateExample) -> str:
    rows = [", ".join(map(_value, row, example.types)) for row in example.rows]
    constants = "".join(f", {_value(constant)}" for constant in example.constants)
    over = "; ".join(f"({row})" if len(example.types) > 1 else row for row in rows) or "no row"
    arguments = ", ".join("xyz"[i] for i in range(len(example.types))) or "*"
    return f"`{entry.name}({arguments}{constants})` over {over} → `{_value(example.result)}`"


def _value(value: Any, type_: SqlType | None = None) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case str():
            return f"'{value}'"
        case dict():
            return "{" + ", ".join(f"{name}: {_value(item)}" for name, item in value.items()) + "}"
        case list() if isinstance(type_, Map) or (value and all(isinstance(item, tuple) for item in value)):
            return "{" + ", ".join(f"{_value(key)}: {_value(item)}" for key, item in value) + "}"
        case list() | tuple():
            return "[" + ", ".join(_value(item) for item in value) + "]"
        case bytes():
            return f"X'{value.hex()}'"
        case _:
            return str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
