"""HTML for relations and answers in notebooks. It also works if scripts and style sheets are removed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.errors import MillstreamError
from millstream.repl.text.entity_text import entity_lines, type_text

from .cells import html_cell, is_number

if TYPE_CHECKING:
    from ..connection import Answer

_TABLE: Final = '<table style="border-collapse:collapse;font-size:13px;margin:4px 0">'
_CELL: Final = "padding:3px 12px;border:0;border-bottom:1px solid rgba(128,128,128,.25)"
_PRE: Final = '<pre style="margin:4px 0;overflow:auto">'
_SOFT: Final = "opacity:.65"
_ROLES: Final = {"KEY": "key", "HEADER": "header"}
_LINES_MAX: Final = 200
_LONG: Final = ("queryString", "statement", "description")
_SINKS: Final = ("sinks", "sinkKafkaTopics")


def rows_html(rows: pa.Table, types: Sequence[str], rows_max: int) -> str:
    """The first rows with names and types, and whether there are more."""
    shown = rows.slice(0, rows_max)
    body = list(zip(*(column.to_pylist() for column in shown.columns), strict=True))
    more = f"the first {rows_max} rows" if rows.num_rows > rows_max else _counted(shown.num_rows, "row")
    return _table(rows.column_names, types, body) + _note(more)


def live_html(sql: str) -> str:
    """A query without an end: its text, and how to watch it."""
    return f"{_PRE}{escape(sql)}</pre>" + _note(
        "a live query: <code>.live_table()</code> and <code>.live_chart()</code> show it, iterating gives its rows"
    )


def error_html(error: MillstreamError) -> str:
    """
    >>> error_html(MillstreamError("no"))
    '<pre style="color:#d6453d">error: no</pre>'
    """
    return f'<pre style="color:#d6453d">{escape(error.render())}</pre>'


def answer_bundle(answer: Answer) -> dict[str, str]:
    """Text, HTML, and the picture if the answer contains one."""
    bundle = {"text/plain": repr(answer), "text/html": "".join(map(_entity_html, answer.entities))}
    if picture := next(filter(None, map(_picture, answer.entities)), None):
        bundle["image/svg+xml"] = picture
        bundle.pop("text/html")
    return bundle


def _entity_html(entity: dict[str, Any]) -> str:
    warnings = (_note(f"warning: {escape(str(warning['message']))}") for warning in entity.get("warnings", ()))
    return _answer_html(entity) + "".join(warnings)


def _answer_html(entity: dict[str, Any]) -> str:
    if entity.get("@type") == "warning_entity":
        return _note(escape(entity["message"]))
    if "commandStatus" in entity:
        return _note(f"✓ {escape(entity['commandStatus']['message'])}")
    if "sourceDescription" in entity:
        return _source_html(entity["sourceDescription"])
    if "queryDescription" in entity:
        return _query_html(entity["queryDescription"])
    lists = [v for v in entity.values() if isinstance(v, list) and v and all(isinstance(line, dict) for line in v)]
    if len(lists) == 1 and entity.get("@type") != "describe_function":
        return _list_html(lists[0])
    return f"{_PRE}{escape(chr(10).join(entity_lines(entity, None)[:_LINES_MAX]))}</pre>"


def _list_html(lines: list[dict[str, Any]]) -> str:
    told = (name for name, value in lines[0].items() if not isinstance(value, dict) and name not in _SINKS)
    names = sorted(told, key=lambda name: name in _LONG)  # long values come last
    body = [tuple(_fact(line.get(name)) for name in names) for line in lines]
    return _table(names, [""] * len(names), body)


def _source_html(source: dict[str, Any]) -> str:
    """DESCRIBE."""
    window = f", {source['windowType'].lower()} windows" if source.get("windowType") else ""
    heading = f"<b>{escape(source['name'])}</b> <span style='{_SOFT}'>{source['type'].lower()}{window}</span>"
    fields = [
        (field["name"], type_text(field["schema"]), _ROLES.get(field.get("type") or "", ""))
        for field in source["fields"]
    ]
    facts = {
        "topic": f"{source['topic']} ({_counted(source['partitions'], 'partition')})",
        "formats": f"key {source['keyFormat']}, value {source['valueFormat']}",
        "written by": ", ".join(query["id"] for query in source["writeQueries"]),
        "read by": ", ".join(query["id"] for query in source["readQueries"]),
    }
    told = " · ".join(f"{name}: {escape(fact)}" for name, fact in facts.items() if fact)
    return f"<div>{heading}</div>" + _table(("Field", "Type", ""), ("", "", ""), fields) + _note(told)


def _query_html(query: dict[str, Any]) -> str:
    """EXPLAIN."""
    name = query["id"] or "plan"
    state = f" <span style='{_SOFT}'>{escape(str(query['state']).lower())}</span>" if query.get("state") else ""
    return (
        f"<div><b>{escape(name)}</b>{state}</div><pre>{escape(query['statementText'])}</pre>"
        f"{_PRE}{escape(query['executionPlan'])}</pre>"
    )


def _picture(entity: dict[str, Any]) -> str | None:
    """The SVG among an answer's texts."""
    texts = (value for value in entity.values() if isinstance(value, str))
    return next((text for text in texts if text.lstrip().startswith("<svg")), None)


def _table(names: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    numbers = [is_number(type_) for type_ in types]
    heads = "".join(
        f'<th style="text-align:{_side(number)};vertical-align:bottom;{_CELL}">{escape(name)}'
        + (f'<div style="font-weight:400;font-size:11px;{_SOFT}">{escape(type_)}</div></th>' if type_ else "</th>")
        for name, type_, number in zip(names, types, numbers, strict=True)
    )
    lines = (
        "".join(
            f'<td style="text-align:{_side(number)};{_CELL}">{html_cell(value)}</td>'
            for value, number in zip(row, numbers, strict=True)
        )
        for row in rows
    )
    return (
        f"{_TABLE}<thead><tr>{heads}</tr></thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
    )


def _side(number: bool) -> str:
    return "right" if number else "left"


def _fact(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _note(html: str) -> str:
    return f'<div style="font-size:12px;{_SOFT}">{html}</div>'


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
