"""Damage to a file of a data directory, chosen by chance: what trials of directories do before they open them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

_SECTOR: Final = 512
_PAGE: Final = 4096
_SHORT: Final = 100


def damage_file(path: Path, older: Path, chance: random.Random) -> str:
    """Harms the file; says how. In: `older`: the same file as it was earlier, which may be missing."""
    kind = chance.choice(sorted(_KINDS))
    _KINDS[kind](path, older, chance)
    return kind


def _flip(path: Path, older: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[_place(data, chance)] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def _truncate(path: Path, older: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: _place(data, chance)])


def _zero(path: Path, older: Path, chance: random.Random) -> None:
    """A few bytes."""
    data = path.read_bytes()
    _zero_from(path, data, _place(data, chance), _SHORT)


def _zero_page(path: Path, older: Path, chance: random.Random) -> None:
    """As a disk does that never got a page."""
    data = path.read_bytes()
    _zero_from(path, data, _place(data, chance) // _SECTOR * _SECTOR, _PAGE)


def _zero_from(path: Path, data: bytes, start: int, size: int) -> None:
    path.write_bytes(data[:start] + bytes(len(data[start : start + size])) + data[start + size :])


def _swap(path: Path, older: Path, chance: random.Random) -> None:
    if older.is_file():
        path.write_bytes(older.read_bytes())


def _append(path: Path, older: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes() + chance.randbytes(chance.choice([1, 100, 5000])))


def _place(data: bytes | bytearray, chance: random.Random) -> int:
    """Mostly where something was written: files of a log have room ahead."""
    written = len(bytes(data).rstrip(b"\0")) or len(data)
    return chance.randrange(max(1, written if chance.random() < 0.9 else len(data)))


_KINDS: Final[Mapping[str, Callable[[Path, Path, random.Random], object]]] = {
    "flipped": _flip,
    "truncated": _truncate,
    "zeroed": _zero,
    "zeroed by the page": _zero_page,
    "deleted": lambda path, older, chance: path.unlink(),
    "emptied": lambda path, older, chance: path.write_bytes(b""),
    "replaced by an older copy": _swap,
    "grown": _append,
}
