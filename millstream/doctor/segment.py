"""The check of `millstream doctor` on a segment: distinguishes a torn write after a crash from damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from millstream.logcore.storage.damage import next_batch
from millstream.logcore.storage.disk import LogFile
from millstream.logcore.storage.recovery import read_checkpoint
from millstream.logcore.storage.verification import dump

from .line import CheckResult

_HINT: Final = "`millstream log verify` says more; what can be read is served."
_CHUNK_BYTES: Final = 1 << 20


def segment(path: Path, size: int, *, in_use: bool) -> Iterator[CheckResult]:
    """No lines if the newest segment of a partition is intact. In: `in_use`: a server is writing to it. Raises
    OSError."""
    end, next_offset = 0, int(path.stem)
    for batch in dump(path):
        if not batch.whole:
            yield CheckResult("log", "fail", f"{path}, position {batch.position}: the checksum is wrong", _HINT)
        end, next_offset = batch.position + batch.header.size, batch.header.last_offset + 1
    file = LogFile(path, writable=False)
    if next_batch(file, end + 1, size, next_offset) is not None:
        message = f"{path}, position {end}: no record batch begins here, and behind it there are more"
        yield CheckResult("log", "fail", message, _HINT)
    elif in_use:
        return
    elif (stored := _stored(path.parent)) > next_offset:
        yield CheckResult(
            "log", "fail", f"{path} ends at offset {next_offset}, but records up to {stored} were stored", _HINT
        )
    elif not _only_zeros(file, end, size):
        hint = "After a crash this is normal: the next start cuts them off and keeps them beside the file."
        yield CheckResult("log", "warn", f"{path}: the last {size - end} bytes are no record batch", hint)


def _stored(folder: Path) -> int:
    """The offset after the last record that was certainly on the disk."""
    checkpoint = read_checkpoint(folder)
    return 0 if checkpoint is None else checkpoint.state.end_offset


def _only_zeros(file: LogFile, position: int, end: int) -> bool:
    """True for the space that an open log allocates after its last batch."""
    while position < end:
        chunk = memoryview(bytearray(min(_CHUNK_BYTES, end - position)))
        file.read_into(chunk, position)
        if any(chunk):
            return False
        position += len(chunk)
    return True
