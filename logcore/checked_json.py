"""Small files of JSON behind a checksum: a torn one is known as such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crc32c import crc32c

from .disk import replace_file


def write_checked_json(path: Path, content: Any, *, durable: bool) -> None:
    """First line: CRC32C of the rest, in hexadecimal."""
    body = json.dumps(content, separators=(",", ":"), sort_keys=True).encode() + b"\n"
    replace_file(path, b"%08x\n" % crc32c(body) + body, durable=durable)


def read_checked_json(path: Path) -> Any:
    """None where there is no file. Raises ValueError where it is damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    checksum, _, body = content.partition(b"\n")
    if checksum != b"%08x" % crc32c(body):
        raise ValueError("the checksum does not fit")
    return json.loads(body)
