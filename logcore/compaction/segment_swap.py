"""Putting a cleaned segment in the place of those that it was made from: all of them or none, whatever happens.

The cleaned segment is written to a file beside the log and made durable. Then `swap.json` says what replaces what: from
there on the swap is finished, at once or when the partition is opened next; but not with a cleaned segment that was
damaged meanwhile, as long as those that it was made from are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from ..failpoints import fp
from ..storage.checked_json import read_checked_json, write_checked_json
from ..storage.disk import LogFile, sync_folder
from ..storage.partition_state import scan
from ..storage.segment import file_name

SWAP: Final = "swap.json"
_CLEANED: Final = ".cleaned"
_log = structlog.get_logger("millstream.logcore")


def cleaned_path(folder: Path, base_offset: int) -> Path:
    """Where the segment that begins at this offset is written before it counts."""
    return folder / (file_name(base_offset) + _CLEANED)


def swap(folder: Path, replaced: Sequence[int], *, durable: bool) -> None:
    """Puts the cleaned file of the first base offset in the place of all these segments.

    Raises OSError; then the swap may have happened or not, and `finish_swap` decides it.
    """
    fp("clean.before_swap")
    size = cleaned_path(folder, replaced[0]).stat().st_size
    write_checked_json(folder / SWAP, {"replaced": list(replaced), "size": size}, durable=durable)
    fp("clean.swapping")
    _carry_out(folder, replaced, durable=durable)


def finish_swap(folder: Path, names: Sequence[str], *, durable: bool) -> bool:
    """Carries out a swap that is decided, and removes what is left of one that is not. True where there was one.

    In: `names`: of the files in the folder. Raises OSError.
    """
    if SWAP not in names and not any(name.endswith(_CLEANED) for name in names):
        return False
    replaced = _decided(folder)
    if replaced is not None:
        _carry_out(folder, replaced, durable=durable)
    for path in folder.glob(f"*{_CLEANED}"):
        path.unlink()
    return True


def _decided(folder: Path) -> list[int] | None:
    path = folder / SWAP
    try:
        content: Any = read_checked_json(path)
    except ValueError:  # damaged: written whole or not at all, it was right once
        path.unlink()
        return None
    if content is None:
        return None
    replaced = content["replaced"]
    cleaned = cleaned_path(folder, replaced[0])
    if cleaned.exists() and not _is_whole(cleaned, replaced[0], content.get("size")):
        _log.error("a cleaned segment is damaged and dropped", path=str(cleaned))
        path.unlink()
        return None
    return replaced


def _is_whole(cleaned: Path, offset: int, size: int | None) -> bool:
    """In: `offset`: where it begins; `size`: what it had, where that is known."""
    file, position = LogFile(cleaned), 0
    end = file.size()
    for found in scan(file, 0, end):
        if found.header.base_offset != offset:
            return False
        offset, position = found.header.last_offset + 1, found.position + found.header.size
    return position == end and size in (None, end)


def _carry_out(folder: Path, replaced: Sequence[int], *, durable: bool) -> None:
    """Any part of it may have been done before. Older records go first: what deletes them stays until they are gone."""
    cleaned = cleaned_path(folder, replaced[0])
    for base_offset in replaced:
        (folder / file_name(base_offset)).with_suffix(".index").unlink(missing_ok=True)
    if cleaned.exists():
        cleaned.replace(folder / file_name(replaced[0]))
    fp("clean.replaced")
    for base_offset in replaced[1:]:
        (folder / file_name(base_offset)).unlink(missing_ok=True)
        fp("clean.removed")
    if durable:
        sync_folder(folder)
    (folder / SWAP).unlink()
    fp("clean.swapped")
