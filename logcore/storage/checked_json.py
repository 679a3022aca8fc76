"""Small JSON files with a checksum, which detects a torn file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import structlog
from crc32c import crc32c

from .disk import replace_file, sync_folder, write_aside

_log = structlog.get_logger("millstream.logcore")


def checked_json(content: Any) -> bytes:
    """The content of a file. Its first line is the CRC32C of the rest, in hexadecimal."""
    body = json.dumps(content, separators=(",", ":"), sort_keys=True).encode() + b"\n"
    return b"%08x\n" % crc32c(body) + body


def write_checked_json(path: Path, content: Any, *, durable: bool) -> None:
    replace_file(path, checked_json(content), durable=durable)


def write_with_copy(path: Path, content: Any, *, durable: bool) -> None:
    """Like `write_checked_json`, but also writes a copy beside the file, so that damage to one of the two is harmless.

    Both names become durable together: after a crash each file has the old content or the new one. The caller
    announces the new content only after this returns.
    """
    written = checked_json(content)
    both = (path, _copy_of(path))
    aside = [write_aside(each, written, durable=durable) for each in both]
    for new, each in zip(aside, both, strict=True):
        new.replace(each)
    if durable:
        sync_folder(path.parent)


def read_with_copy(path: Path, *, durable: bool) -> Any:
    """The content, or None if both files are missing. A missing, damaged or older file is rewritten from the other.

    Raises ValueError if both are damaged.
    """
    found: list[Any] = []
    for each in (path, _copy_of(path)):
        try:
            found.append(read_checked_json(each))
        except ValueError:
            found.append(None)
    content, copy = found
    if content is None and copy is None:
        return read_checked_json(path)
    if content is None or (copy is None and _copy_of(path).exists()) or serial_of(copy) > serial_of(content):
        _log.warning("a damaged file was written anew from its copy", path=str(path))
    if content != copy:  # a crash may have happened between the two renames
        if content is None or (copy is not None and serial_of(copy) > serial_of(content)):
            content = copy
        write_with_copy(path, content, durable=durable)
    return content


def serial_of(content: Any) -> int:
    """The version number of this content, for files that number their versions from 1; 0 for others."""
    serial = content.get("serial", 0) if isinstance(content, dict) else 0
    return serial if isinstance(serial, int) else 0


def _copy_of(path: Path) -> Path:
    return path.with_name(path.name + ".copy")


def read_checked_json(path: Path | str) -> Any:
    """The content, or None if there is no file. Raises ValueError if it is damaged."""
    try:
        with open(path, "rb", buffering=0) as file:
            content = file.read()
    except FileNotFoundError:
        return None
    checksum, _, body = content.partition(b"\n")
    if checksum != b"%08x" % crc32c(body):
        raise ValueError("the checksum does not fit")
    return json.loads(body)
