"""Replaces segments by the cleaned segment that was made from them: all of them or none, even after a crash.

The cleaned segment is written to a file beside the log and made durable. Then `swap.json` records which segments it
replaces. From then on the swap is completed, at once or when the partition is next opened. An exception is a cleaned
segment that was damaged meanwhile: it is not used while its source segments still exist.
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
    """The file that a cleaned segment with this base offset is written to before the swap."""
    return folder / (file_name(base_offset) + _CLEANED)


def swap(folder: Path, replaced: Sequence[int], *, durable: bool) -> None:
    """Replaces all these segments by the cleaned file of the first base offset.

    Raises OSError; then the swap may have happened or not, and `finish_swap` completes or cancels it.
    """
    fp("clean.before_swap")
    size = cleaned_path(folder, replaced[0]).stat().st_size
    write_checked_json(folder / SWAP, {"replaced": list(replaced), "size": size}, durable=durable)
    fp("clean.swapping")
    _carry_out(folder, replaced, durable=durable)


def finish_swap(folder: Path, names: Sequence[str], *, durable: bool) -> bool:
    """Completes a swap that was decided, and removes the files of one that was not. True if there was one.

    In: `names`: those of the files in the folder. Raises OSError.
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
    except ValueError:  # damaged later, since it is written as a whole or not at all
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
    """Whether the cleaned file is intact. In: `offset`: where it begins; `size`: its size when written, if known."""
    file, position = LogFile(cleaned), 0
    end = file.size()
    for found in scan(file, 0, end):
        if found.header.base_offset != offset:
            return False
        offset, position = found.header.last_offset + 1, found.position + found.header.size
    return position == end and size in (None, end)


def _carry_out(folder: Path, replaced: Sequence[int], *, durable: bool) -> None:
    """Parts of it may already be done. Older records are removed first, so that tombstones outlive what they delete."""
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
