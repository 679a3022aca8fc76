"""The source `file`: reads lines of text, NDJSON or CSV. It follows files that grow, are rotated or truncated.

For each file, a position contains its inode, the offset up to which it was read, its size, and a checksum of its
beginning. So a renamed file (`app.log` → `app.log.1`) is read to its end, a new file that got an old inode is read from
its start, and a file that is deleted before its end was read is reported.
"""

from __future__ import annotations

import glob
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import structlog

from ..connector import Chunk, ConnectRecord, Position, RefusedRecord, SourceConnector, TaskInfo
from ..connector_errors import ConnectorFailed, SystemUnavailable
from ..connector_settings import setting
from .line_formats import LINE_FORMATS, LineFormat, checked_delimiter

_READ_BYTES: Final = 1024 * 1024
_BEGINNING_BYTES: Final = 256
_LOOK_S: Final = 0.1
_HINT: Final = "Mend the file."
_log = structlog.get_logger("millstream.connect")


@dataclass(frozen=True)
class FileSettings:
    file: str = setting("File that is read, or a pattern such as /var/log/app/*.log.")
    topic: str = setting("Topic that is written.")
    format: str = setting("What a line is.", default="text", choices=LINE_FORMATS)
    key_field: str | None = setting("Field of NDJSON or CSV that becomes the key.", default=None)
    csv_delimiter: str = setting("One character between the columns of CSV.", default=",")
    follow: bool = setting("Wait for what is appended; else a last line needs no line break.", default=True)
    max_line_bytes: int = setting("A longer line stops the task.", default=8 * 1024 * 1024)

    def __post_init__(self) -> None:
        checked_delimiter(self.csv_delimiter)
        if not Path(self.file).is_absolute():
            raise ValueError(f'file is "{self.file}", but must be an absolute path')


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a file was read. `beginning`: checksum of its first bytes, at most `offset` and at most 256; `size`: the
    size of the file when it was read."""

    path: str
    offset: int = 0
    beginning: int = 0
    size: int = 0

    @staticmethod
    def of(member: Mapping[str, Any]) -> _Place:
        """Positions of earlier versions have no size."""
        return _Place(member["path"], member["offset"], member["beginning"], member.get("size", 0))

    def as_json(self) -> dict[str, Any]:
        return {"path": self.path, "offset": self.offset, "beginning": self.beginning, "size": self.size}


class FileSource(SourceConnector):
    """Lines of files. State: the files of the last look, and how far each was read."""

    settings = FileSettings

    def __init__(self, settings: FileSettings, task: TaskInfo) -> None:
        self._clock = task.clock
        self._settings = settings
        self._format = LineFormat(settings.format, settings.csv_delimiter)
        self._seen: dict[str, _Place] | None = None

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        deadline = self._clock.monotonic() + timeout_s
        while True:
            found = self._read_any(position)
            left_s = deadline - self._clock.monotonic()
            if found is not None or left_s <= 0:
                return found
            self._clock.sleep(min(_LOOK_S, left_s))

    def _read_any(self, position: Position | None) -> Chunk | None:
        """The next chunk, from the first file that has something to read: renamed files first, then files by name."""
        known = {} if position is None else {inode: _Place.of(item) for inode, item in position["files"].items()}
        named = sorted(glob.glob(self._settings.file))
        present = dict(_files(named, known))
        seen = self._seen = dict(known) if self._seen is None else self._seen
        for inode in [inode for inode in seen if inode not in present]:
            _log_deleted(seen.pop(inode))
        for inode, path in present.items():
            try:
                place = self._checked(known.get(inode, _Place(path)), path)
                lines, header, after = self._lines(path, place, whole=not self._settings.follow or path not in named)
            except FileNotFoundError:
                continue  # the next look will not find it
            seen[inode] = after
            if after.offset == place.offset:
                continue
            kept = {other: place for other, place in known.items() if other in present}
            records, refused = self._records(path, lines, header)
            files = {other: item.as_json() for other, item in {**kept, inode: after}.items()}
            return Chunk(records, {"files": files}, refused=refused)
        return None

    def _checked(self, place: _Place, path: str) -> _Place:
        """The place; or the start of the file, if it is another file with an old inode or was truncated."""
        if place.offset == 0:
            return _Place(path)
        with _opened(path) as file:
            beginning = file.read(min(place.offset, _BEGINNING_BYTES))
            size = os.fstat(file.fileno()).st_size
        if size < place.offset or zlib.crc32(beginning) != place.beginning:
            _log.warning("file was replaced or truncated, it is read from its start", path=path)
            return _Place(path)
        return replace(place, path=path)

    def _lines(self, path: str, place: _Place, *, whole: bool) -> tuple[list[tuple[int, bytes]], Sequence[str], _Place]:
        """Complete lines after the place, with their offsets; and the columns of CSV. In: `whole`: whether nothing more
        will be appended."""
        with _opened(path) as file:
            beginning = file.read(_BEGINNING_BYTES)
            file.seek(place.offset)
            data = file.read(_READ_BYTES)
            while b"\n" not in data and len(data) <= self._settings.max_line_bytes:
                more = file.read(_READ_BYTES)
                if not more:
                    break
                data += more
            size = os.fstat(file.fileno()).st_size
            at_end = file.tell() >= size
            file.seek(0)
            first = file.readline(self._settings.max_line_bytes) if self._format.name == "csv" else b""
        end = len(data) if whole and at_end else self._format.end(data)
        if end == 0 and len(data) > self._settings.max_line_bytes:
            raise ConnectorFailed(
                f"the line at offset {place.offset} of {path} is longer than {self._settings.max_line_bytes} bytes",
                hint="ALTER CONNECTOR … WITH ('max.line.bytes'='…') allows longer lines.",
            )
        offset = place.offset + end
        lines = list(self._format.split(data[:end], place.offset))
        header = self._format.header(first, path, self._settings.key_field, _HINT) if first and lines else ()
        return lines, header, _Place(path, offset, zlib.crc32(beginning[: min(offset, _BEGINNING_BYTES)]), size)

    # What a line is

    def _records(
        self, path: str, lines: Sequence[tuple[int, bytes]], header: Sequence[str]
    ) -> tuple[list[ConnectRecord], list[RefusedRecord]]:
        records: list[ConnectRecord] = []
        refused: list[RefusedRecord] = []
        topic, field = self._settings.topic, self._settings.key_field
        for offset, line in lines:
            if self._format.name == "csv" and offset == 0:
                continue  # the header
            try:
                value = self._format.value(line, header)
            except ValueError as error:
                reason = f"the line at offset {offset} of {path} is no {self._format.name}: {error}"
                refused.append(RefusedRecord(topic, line, reason, _HINT))
                continue
            key = value.get(field) if field is not None and isinstance(value, dict) else None
            records.append(ConnectRecord(topic, key, value))
        return records, refused


def _files(paths: Sequence[str], known: Mapping[str, _Place]) -> Iterator[tuple[str, str]]:
    """Inodes and paths: first files that were begun and then renamed, then those that the setting names (`paths`)."""
    named: dict[str, str] = {}
    for path in paths:
        if os.path.isfile(path):
            named.setdefault(_inode(path), path)
    for inode, place in known.items():
        if inode not in named:
            moved = next((path for path in _beside(place.path) if _inode(path) == inode), None)
            if moved is not None:
                yield inode, moved
    yield from named.items()


def _inode(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def _beside(path: str) -> Iterator[str]:
    """The files in the same folder."""
    try:
        with os.scandir(os.path.dirname(path)) as entries:
            yield from (entry.path for entry in entries if entry.is_file())
    except OSError:
        return


def _log_deleted(place: _Place) -> None:
    if place.size > place.offset:
        _log.warning("a file was deleted before its end was read", path=place.path, read=place.offset, size=place.size)


def _opened(path: str) -> Any:
    """Opens the file. Raises FileNotFoundError if it does not exist, and `SystemUnavailable` if it cannot be read
    now."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SystemUnavailable(f"{path} cannot be read: {error.strerror}") from None
