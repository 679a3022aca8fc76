"""Converts records of a topic to logical values and back, for PRINT and the Sandbox."""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypedDict

from ...executor.columnar import ARROW, own_columns, split_columnar
from ...executor.formats import decode_logical, encode_logical
from ...executor.formats.json_text import write_json
from ...executor.formats.windows import window_end
from ...executor.formats.wire import SchemaLookup, no_schemas
from ...logcore.client import FetchedColumns, FetchedRows
from ...planner.schema import Column
from ...planner.source_info import SourceInfo
from ...planner.specs import KeyWindow
from ...sql.functions.java.calendar_days import python_values
from ...sql.windows import WINDOW_TYPES
from .guessed_formats import UNDECODABLE, guess

_HALF_A_PAIR = re.compile("[\ud800-\udfff]")


class Window(TypedDict):
    """The window of a key; `type` is TIME, or the type of the window if keys contain the window's end."""

    start: int
    end: int
    type: str


class TopicRecord(TypedDict):
    """One record; `window` is set only for windowed keys."""

    key: Any
    value: Any
    timestamp: int
    headers: list[tuple[str, bytes | None]]
    window: Window | None


def encode_part(
    source: SourceInfo | None, part: Literal["KEY", "VALUE"], value: Any, window: Window | None = None
) -> bytes | None:
    """The bytes of a key or a value. Without a source, texts become UTF-8 and all other values JSON."""
    if value is None:
        return None
    if source is None:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        return text.encode()
    spec = source.key_format if part == "KEY" else source.value_format
    data = encode_logical(spec, stored_columns(source, part), value)
    return data if data is None or window is None else data + _window_suffix(window)


def decode_run(
    run: FetchedRows | FetchedColumns,
    source: SourceInfo | None,
    schemas: SchemaLookup = no_schemas,
    *,
    unreadable_as_text: bool = False,
) -> Iterator[tuple[int, TopicRecord]]:
    """The records of a fetched run, with their offsets. Without a source, bytes are decoded as UTF-8 text.

    `schemas`: looks up the schemas whose ids are in records. `unreadable_as_text`: a key or a value that does not have
    the source's format is decoded as text, too (otherwise it is an error), and without a source its format is guessed.
    """
    if not isinstance(run, FetchedRows):
        return _decode_columns(run, source)
    # A look-up of an unknown schema asks the log for new schemas, and the bytes of a BIGINT look like a schema's id. So
    # each id is looked up once per run.
    decode = _decode_or_text if unreadable_as_text else _decode
    return _decode_rows(run, source, decode, functools.cache(schemas))


def shown(value: Any) -> str | None:
    """A key or a value of a `TopicRecord` as text: a text is unchanged, everything else becomes JSON, in which numbers
    have all their digits and BYTES are base64."""
    if value is None:
        return None
    text = value if isinstance(value, str) else write_json(value, _as_json)
    return _HALF_A_PAIR.sub(lambda half: f"\\u{ord(half.group()):04x}", text)


def _as_json(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def stored_columns(source: SourceInfo, part: Literal["KEY", "VALUE"]) -> tuple[Column, ...]:
    """The columns that a format encodes, which excludes header columns."""
    if part == "KEY":
        return source.schema.key
    return tuple(column for column in source.schema.value if column.role == "VALUE")


def _decode_rows(
    run: FetchedRows, source: SourceInfo | None, decode: _DecodePart, schemas: SchemaLookup
) -> Iterator[tuple[int, TopicRecord]]:
    for row in run.table.to_pylist():
        key, window = _split_window(row["key"], source.key_window if source else None)
        yield (
            row["offset"],
            TopicRecord(
                key=decode(source, "KEY", key, schemas),
                value=decode(source, "VALUE", row["value"], schemas),
                timestamp=row["timestamp"],
                headers=[(header["key"], header["value"]) for header in row.get("headers") or []],
                window=window,
            ),
        )


_DecodePart = Callable[[SourceInfo | None, Literal["KEY", "VALUE"], bytes | None, SchemaLookup], Any]


def _decode_or_text(
    source: SourceInfo | None, part: Literal["KEY", "VALUE"], data: bytes | None, schemas: SchemaLookup
) -> Any:
    if source is None:
        return None if data is None else guess(data, schemas).value
    try:
        return _decode(source, part, data, schemas)
    except UNDECODABLE:
        return _decode(None, part, data, schemas)


def _decode(source: SourceInfo | None, part: Literal["KEY", "VALUE"], data: bytes | None, schemas: SchemaLookup) -> Any:
    if source is None:
        return None if data is None else data.decode(errors="replace")
    spec = source.key_format if part == "KEY" else source.value_format
    return decode_logical(spec, stored_columns(source, part), data, schemas)


def _decode_columns(run: FetchedColumns, source: SourceInfo | None) -> Iterator[tuple[int, TopicRecord]]:
    """The records of a columnar batch, with keys and values as objects. If no columnar source is declared any more, the
    key columns are unknown, and all columns are values."""
    if source is None or source.value_format.name != ARROW:
        yield from _decode_undeclared_columns(run)
        return
    keys, values = stored_columns(source, "KEY"), stored_columns(source, "VALUE")
    part = split_columnar(run.batch, (*keys, *values), run.timestamp_ms)
    columns = [python_values(array, maps_as_pydicts="lossy") for array in part.columns]
    offsets = run.row_offsets.tolist()
    for row, (timestamp, null) in enumerate(zip(part.timestamps.to_pylist(), part.null_rows.to_pylist(), strict=True)):
        cells = [column[row] for column in columns]
        key = {column.name: cell for column, cell in zip(keys, cells, strict=False)}
        value = {column.name: cell for column, cell in zip(values, cells[len(keys) :], strict=True)}
        window = None
        if part.window_start is not None and part.window_end is not None and source.key_window is not None:
            bounds = part.window_start[row].as_py(), part.window_end[row].as_py()
            window = _window(source.key_window, *bounds)
        yield (
            offsets[row],
            TopicRecord(
                key=next(iter(key.values())) if len(key) == 1 else key or None,
                value=None if null else value,
                timestamp=timestamp,
                headers=[],
                window=window,
            ),
        )


def _decode_undeclared_columns(run: FetchedColumns) -> Iterator[tuple[int, TopicRecord]]:
    part = split_columnar(run.batch, (), run.timestamp_ms)
    own = own_columns(run.batch)
    columns = {name: python_values(own.column(name), maps_as_pydicts="lossy") for name in own.schema.names}
    rows = [{name: cells[row] for name, cells in columns.items()} for row in range(own.num_rows)]
    for offset, row, timestamp, null in zip(
        run.row_offsets.tolist(), rows, part.timestamps.to_pylist(), part.null_rows.to_pylist(), strict=True
    ):
        value = None if null else row
        yield offset, TopicRecord(key=None, value=value, timestamp=timestamp, headers=[], window=None)


def _window_suffix(window: Window) -> bytes:
    """The last bytes of a windowed key; see `KeyWindow`."""
    start = window["start"].to_bytes(8, "big", signed=True)
    known = WINDOW_TYPES.get(window["type"].upper())
    if known is None or not known.holds_end:
        return start
    return window["end"].to_bytes(8, "big", signed=True) + start


def _split_window(key: bytes | None, kind: KeyWindow | None) -> tuple[bytes | None, Window | None]:
    if key is None or kind is None:
        return key, None
    start = int.from_bytes(key[-8:], "big", signed=True)
    if kind.holds_end:
        return key[:-16], _window(kind, start, int.from_bytes(key[-16:-8], "big", signed=True))
    return key[:-8], _window(kind, start, window_end(start, kind) or start)


def _window(kind: KeyWindow, start: int, end: int) -> Window:
    return Window(start=start, end=end, type=kind.kind if kind.holds_end else "TIME")
