"""Files in chunks of equal size, each named by its SHA-256. A file that grew shares all chunks but the last with its
earlier state, and readers of a chunk can check whether it is intact."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 8 * 1024 * 1024


def chunk_count(size: int) -> int:
    """
    >>> chunk_count(0), chunk_count(1), chunk_count(CHUNK_BYTES), chunk_count(CHUNK_BYTES + 1)
    (0, 1, 1, 2)
    """
    return -(-size // CHUNK_BYTES)


def chunk_size(size: int, number: int) -> int:
    """The size of the chunk with this number (from 0) in a file of `size` bytes.

    >>> chunk_size(CHUNK_BYTES + 1, 0) == CHUNK_BYTES, chunk_size(CHUNK_BYTES + 1, 1)
    (True, 1)
    """
    return min(CHUNK_BYTES, size - number * CHUNK_BYTES)


def read_chunk(path: Path, size: int, number: int) -> bytes:
    """Reads a chunk. In: `size`: that of the file, which may have grown since. Raises OSError; ValueError if it is
    shorter."""
    wanted = chunk_size(size, number)
    with path.open("rb") as file:
        file.seek(number * CHUNK_BYTES)
        content = file.read(wanted)
    if len(content) != wanted:
        raise ValueError(f"{path} has {len(content)} of {wanted} bytes at position {number * CHUNK_BYTES}")
    return content


def hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
