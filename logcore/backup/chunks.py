"""Files in pieces of equal size, each named by its SHA-256: a file that grew shares all but its last piece with what it
was before, and whoever reads a piece knows whether it is whole."""

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
    """Of the chunk with this number, from 0, in a file of `size` bytes.

    >>> chunk_size(CHUNK_BYTES + 1, 0) == CHUNK_BYTES, chunk_size(CHUNK_BYTES + 1, 1)
    (True, 1)
    """
    return min(CHUNK_BYTES, size - number * CHUNK_BYTES)


def read_chunk(path: Path, size: int, number: int) -> bytes:
    """In: `size` of the file, which may be longer by now. Raises OSError; ValueError where it is shorter."""
    wanted = chunk_size(size, number)
    with path.open("rb") as file:
        file.seek(number * CHUNK_BYTES)
        content = file.read(wanted)
    if len(content) != wanted:
        raise ValueError(f"{path} has {len(content)} of {wanted} bytes at position {number * CHUNK_BYTES}")
    return content


def hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
