"""The source `s3`: reads rows of objects of an S3-compatible store, or of files in a folder that appear complete.

It finds new objects by listing. A position names the objects that were read, each with its time, size and version
(entity tag), and the next row of the current object. So each row of a version is in the topic exactly once. An object
that was written again has another version, and is read again from its first row.
"""

from __future__ import annotations

import fnmatch
import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from ..connector import Chunk, ConnectRecord, Position, RefusedRecord, SourceConnector, TaskInfo
from ..connector_errors import ConnectorFailed, one_line
from ..connector_settings import setting
from ..stores.file_store import StoredFile, StoreSettings, checked_location, is_of_the_store
from ..stores.s3_objects import opened_store
from .line_formats import LINE_FORMATS, LineFormat, checked_delimiter
from .sql_values import json_row

_PIECE_BYTES: Final = 1024 * 1024
_HINT: Final = "Mend the object, or leave it out with name.pattern."
_log = structlog.get_logger("millstream.connect")


@dataclass(frozen=True, kw_only=True)
class ObjectSourceSettings(StoreSettings):
    location: str = setting("s3://bucket/prefix, or a folder, of the objects.")
    topic: str = setting("Topic that is written.")
    name_pattern: str = setting("Objects that are read, by their path in the location; * is any text.", default="*")
    format: str = setting("What the objects are; lines may be compressed (.gz).", choices=(*LINE_FORMATS, "parquet"))
    key_field: str | None = setting("Field of the rows that becomes the key.", default=None)
    csv_delimiter: str = setting("One character between the columns of CSV.", default=",")
    max_line_bytes: int = setting("A longer line stops the task.", default=8 * 1024 * 1024)
    batch_max_rows: int = setting("Rows of one transaction.", default=5000)
    poll_interval_ms: int = setting("Pause between two looks for new objects.", default=10_000)
    remember_ms: int = setting(
        "An object that is so much older than the newest one is forgotten, and never read; 0 forgets none.", default=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_location(self.location, "location")
        checked_delimiter(self.csv_delimiter)
        for name in ("max_line_bytes", "batch_max_rows", "poll_interval_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name.replace('_', '.')} must be 1 or more")


class _Row(NamedTuple):
    """`wrong`: why the line is not a row; then there is no value."""

    value: Any
    line: bytes = b""
    wrong: str | None = None


@dataclass(slots=True)
class _Reader:
    """The object that is being read. `row`: the number of the next row."""

    file: StoredFile
    version: str
    rows: Iterator[_Row]
    row: int


class ObjectSource(SourceConnector):
    """Rows of objects. State: the object that is being read, and the objects that the last look found."""

    settings = ObjectSourceSettings

    def __init__(self, settings: ObjectSourceSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._clock = task.clock
        self._store = opened_store(settings.location, settings)
        self._format = LineFormat(settings.format, settings.csv_delimiter)
        self._reader: _Reader | None = None
        self._found: dict[str, StoredFile] | None = None
        self._next_look = task.clock.monotonic()
        self._waiting: list[StoredFile] = []

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        deadline = self._clock.monotonic() + timeout_s
        while True:
            chunk = self._read_on(position or {"objects": {}})
            now = self._clock.monotonic()
            if chunk is not None or now >= deadline:
                return chunk
            self._clock.sleep(max(0.001, min(deadline, self._next_look) - now))

    def lag(self) -> int | None:
        """The number of objects that are not read completely."""
        return len(self._waiting) + (self._reader is not None)

    def _read_on(self, position: Position) -> Chunk | None:
        if self._reader is None:
            under_way = position.get("current")
            if under_way is not None:
                return self._reopened(position, under_way)
            return self._begun(position)
        reader, most = self._reader, self._settings.batch_max_rows
        rows = self._next_rows(reader, most)
        if rows is None:
            self._reader, self._next_look = None, self._clock.monotonic()
            return Chunk([], {**position, "current": None})
        reader.row += len(rows)
        if len(rows) == most:
            current = {"path": reader.file.path, "version": reader.version, "row": reader.row}
            return self._chunk(reader, rows, {**position, "current": current})
        self._reader = None
        return self._chunk(reader, rows, self._with(position, reader.file, reader.version))

    def _next_rows(self, reader: _Reader, most: int) -> list[_Row] | None:
        """The next rows. None if the object was deleted or replaced meanwhile: then the rows may come from both
        versions, and a mixture is not a valid Parquet file."""
        try:
            rows = list(islice(reader.rows, most))
        except (ConnectorFailed, OSError):
            if self._is_lost(reader):
                return None
            raise
        return None if self._is_lost(reader) else rows

    def _is_lost(self, reader: _Reader) -> bool:
        opened = self._store.opened(reader.file.path)
        if opened is not None and self._store.version(opened) == reader.version:
            return False
        _log_lost(reader.file.path, reader.row, gone=opened is None)
        return True

    # Which object is next

    def _reopened(self, position: Position, under_way: Mapping[str, Any]) -> Chunk | None:
        path = under_way["path"]
        file = next((file for file in self._store.files() if file.path == path), None)
        if file is None or not self._opens(file, under_way["row"], under_way["version"]):
            _log_lost(path, under_way["row"], gone=file is None)
            return Chunk([], {**position, "current": None})
        return self._read_on(position)

    def _begun(self, position: Position) -> Chunk | None:
        if self._clock.monotonic() >= self._next_look:
            self._look(position)
        while self._waiting:
            file = self._waiting.pop(0)
            known = position["objects"].get(file.path)
            if not self._opens(file, 0):
                _log_lost(file.path, 0, gone=True)
                continue
            assert self._reader is not None
            if known is not None and known[1:] == [file.size, self._reader.version]:
                reader, self._reader = self._reader, None  # written again with the same content
                return Chunk([], self._with(position, file, reader.version))
            return self._read_on(position)
        return None

    def _look(self, position: Position) -> None:
        self._next_look = self._clock.monotonic() + self._settings.poll_interval_ms / 1000
        known, floor = position["objects"], position.get("floor", 0)
        named = [file for file in self._store.files() if self._is_named(file.path)]
        self._found = {file.path: file for file in named}
        for file in self._waiting:
            if file.path not in self._found:
                _log_lost(file.path, 0, gone=True)
        new = [f for f in named if f.changed_ms >= floor and known.get(f.path, [])[:2] != [f.changed_ms, f.size]]
        self._waiting = sorted(new, key=lambda file: (file.changed_ms, file.path))

    def _is_named(self, path: str) -> bool:
        """Whether the settings select the object. Names that begin with an underscore or a dot are skipped, because
        other systems use them for files that contain no rows."""
        hidden = any(part.startswith(("_", ".")) for part in path.split("/"))
        return not hidden and fnmatch.fnmatchcase(path, self._settings.name_pattern)

    def _opens(self, file: StoredFile, row: int, version: str | None = None) -> bool:
        """Opens the object. False if it was deleted or has another version."""
        opened = self._store.opened(file.path)
        if opened is None:
            return False
        found = self._store.version(opened)
        if version not in (None, found):
            return False
        rows = (
            self._parquet(file, opened, row) if self._settings.format == "parquet" else self._lines(file, opened, row)
        )
        self._reader = _Reader(file, found, rows, row)
        return True

    def _with(self, position: Position, file: StoredFile, version: str) -> Position:
        """The position after this object was read, without deleted objects."""
        objects: dict[str, list[Any]] = {**position["objects"], file.path: [file.changed_ms, file.size, version]}
        if self._found is not None:
            objects = {path: known for path, known in objects.items() if path in self._found}
        forgets = self._settings.remember_ms
        floor = max(position.get("floor", 0), file.changed_ms - forgets if forgets else 0)
        return {"objects": {path: known for path, known in objects.items() if known[0] >= floor}, "floor": floor}

    # What is in an object

    def _chunk(self, reader: _Reader, rows: list[_Row], position: Position) -> Chunk:
        topic, field = self._settings.topic, self._settings.key_field
        records = [
            ConnectRecord(topic, row.value.get(field) if field and isinstance(row.value, dict) else None, row.value)
            for row in rows
            if row.wrong is None
        ]
        refused = [RefusedRecord(topic, row.line, row.wrong, _HINT) for row in rows if row.wrong is not None]
        return Chunk(records, position, refused=refused)

    def _lines(self, file: StoredFile, opened: Any, first: int) -> Iterator[_Row]:
        header: list[str] = []
        number = 0
        for offset, line in self._raw_lines(file, opened):
            if self._format.name == "csv" and not header:
                header = self._format.header(line, file.path, self._settings.key_field, _HINT)
                continue
            number += 1
            try:
                if number > first:
                    yield _Row(self._format.value(line, header))
            except ValueError as error:
                yield _Row(None, line, f"the line at offset {offset} of {file.path} is no {self._format.name}: {error}")

    def _raw_lines(self, file: StoredFile, opened: Any) -> Iterator[tuple[int, bytes]]:
        stream = gzip.GzipFile(fileobj=opened) if file.path.endswith(".gz") else opened
        data, offset, most = b"", 0, self._settings.max_line_bytes
        while True:
            try:
                piece = stream.read(_PIECE_BYTES)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise ConnectorFailed(f"{file.path} is no whole gzip file: {error}", hint=_HINT) from None
            data += piece
            end = self._format.end(data) if piece else len(data)
            if end == 0 and len(data) > most:
                raise ConnectorFailed(
                    f"the line at offset {offset} of {file.path} is longer than {most} bytes",
                    hint="ALTER CONNECTOR … WITH ('max.line.bytes'='…') allows longer lines.",
                )
            yield from self._format.split(data[:end], offset)
            data, offset = data[end:], offset + end
            if not piece:
                return

    def _parquet(self, file: StoredFile, opened: Any, first: int) -> Iterator[_Row]:
        try:
            parquet = pq.ParquetFile(opened)
            number = 0
            for group in range(parquet.num_row_groups):
                count = parquet.metadata.row_group(group).num_rows
                if number + count > first:
                    for batch in parquet.iter_batches(self._settings.batch_max_rows, row_groups=[group]):
                        left_out = max(0, min(first - number, batch.num_rows))
                        number += batch.num_rows
                        for row in batch.slice(left_out).to_pylist(maps_as_pydicts="strict"):
                            yield _Row(json_row(row, "connect_logical"))
                else:
                    number += count
        except (pa.ArrowException, ValueError, OSError) as error:
            if isinstance(error, OSError) and is_of_the_store(error):
                raise
            raise ConnectorFailed(
                f"{file.path} is no Parquet file that can be read: {one_line(error)}", hint=_HINT
            ) from None


def _log_lost(path: str, row: int, *, gone: bool) -> None:
    """Logs that an object was replaced or deleted. In: `row`: how many of its rows are in the topic."""
    if not gone:
        _log.warning("an object was replaced while it was read: it is read from its first row", path=path, row=row)
    elif row:
        _log.warning("an object was deleted while it was read: its other rows are in no topic", path=path, row=row)
    else:
        _log.warning("an object was deleted before it was read", path=path)
