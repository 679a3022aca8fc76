"""The files of a member of the metadata quorum: its vote, its log, its snapshot. They survive a crash at any write.

    quorum-state      term and vote; replaced as a whole
    quorum-snapshot   the fold of the log up to an index; replaced as a whole
    quorum-log        frames: where the log begins, then entries, and marks of what is safe

After each sync a mark is written, and synced with what comes next. A frame that is bad below a mark was safe once: that
is damage, and the node refuses to start (R17). A bad frame above all marks is a torn end, and is cut off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from crc32c import crc32c

from ..controller.metadata_codec import decode_record, encode_record
from ..machine import NodeId
from ..ports import File, Folder
from .quorum_messages import (
    Entry,
    QuorumRecovered,
    SaveEntries,
    SaveSnapshot,
    SaveVote,
    Snapshot,
    VotersChanged,
    nothing_recovered,
)

_STATE: Final = "quorum-state"
_SNAPSHOT: Final = "quorum-snapshot"
_LOG: Final = "quorum-log"
MAGIC: Final = b"\xa7Qf1"
_FRAME: Final = Struct(">4sIIQI")  # magic, length of the payload, CRC32C of what follows it, index, term
_CHECKED_FROM: Final = 12  # index, term and payload are under the checksum
_MARK: Final = 0xFFFF_FFFF  # in place of the term: all up to this index is safe
_BASE: Final = 0xFFFF_FFFE  # the first frame: the log begins behind this index; the payload is its term


class QuorumDamaged(Exception):
    """Something that was safe is not readable any more: the node must be replaced, or get its files back."""


class SnapshotCodec(Protocol):
    """How the image of a snapshot becomes bytes."""

    def encode(self, image: Any) -> bytes: ...

    def decode(self, content: bytes) -> Any: ...


class _Frame(NamedTuple):
    position: int
    end: int
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    term: int
    payload: bytes


class QuorumFiles:
    """Carries out the changes of a `Quorum`, and gives what was there: `recovered`."""

    def __init__(self, folder: Folder, voters: tuple[NodeId, ...], images: SnapshotCodec, *, disk: str = "") -> None:
        """`voters`: of a cluster that begins. `disk`: names a disk that has no name yet, by chance (a UUID): all others
        know it by that. Raises OSError, QuorumDamaged."""
        self._folder = folder
        self._images = images
        self._positions: list[int] = []  # where each entry begins, from `_base` + 1 on
        self._base = 0
        self._log_changed = False
        self._names_changed = False
        fresh = nothing_recovered(voters)
        self._disk = disk
        self._failed: OSError | None = None
        term, voted_for = self._read_state()
        snapshot = self._read_snapshot() or fresh.snapshot
        self._log, base_term, entries = self._open_log(snapshot)
        self.recovered = QuorumRecovered(term, voted_for, snapshot, self._base, base_term, entries, self._disk)

    def apply(self, change: Any) -> None:
        """Raises OSError; then the process must end."""
        self._run(self._carry_out, change)

    def sync(self) -> None:
        """Raises OSError; then the process must end."""
        self._run(self._sync)

    def _run(self, action: Callable[..., None], *arguments: Any) -> None:
        """Nothing is written behind what could not be written: there may be half a frame."""
        if self._failed is not None:
            raise OSError(self._failed.errno, f"an earlier change failed: {self._failed.strerror}")
        try:
            action(*arguments)
        except OSError as error:
            self._note_failure(error)
            raise

    def _note_failure(self, error: OSError) -> None:
        self._failed = error

    def _carry_out(self, change: Any) -> None:
        if isinstance(change, SaveEntries):
            self._save_entries(change)
        elif isinstance(change, SaveVote):
            self._save_state(change.term, change.voted_for)
        elif isinstance(change, SaveSnapshot):
            self._save_snapshot(change)
        else:
            raise TypeError(f"not a change of the quorum: {change!r}")

    def _sync(self) -> None:
        if self._log_changed:
            self._log.sync()
            self._log_changed = False
            self._log.append(_framed(self._base + len(self._positions), _MARK, b""))
        if self._names_changed:
            self._folder.sync_folder()
            self._names_changed = False

    # Writing

    def _save_state(self, term: int, voted_for: NodeId | None) -> None:
        self._replace(_STATE, json.dumps([term, voted_for, self._disk]).encode())
        self._names_changed = True

    def _save_entries(self, change: SaveEntries) -> None:
        place = change.first_index - self._base - 1
        if place < len(self._positions):
            self._log.truncate(self._positions[place])
            del self._positions[place:]
        assert place == len(self._positions), "entries follow each other"
        end = self._log.size
        frames: list[bytes] = []
        for offset, entry in enumerate(change.entries):
            frame = _framed(change.first_index + offset, entry.term, encode_record(entry.record))
            self._positions.append(end)
            end += len(frame)
            frames.append(frame)
        self._log_changed = True
        self._log.append(b"".join(frames))

    def _save_snapshot(self, change: SaveSnapshot) -> None:
        """The snapshot is safe under its name before the log changes."""
        snapshot = change.snapshot
        image = b"" if snapshot.image is None else self._images.encode(snapshot.image)
        head = [snapshot.index, snapshot.term, *snapshot.voters]
        self._replace(_SNAPSHOT, json.dumps(head).encode() + b"\n" + image)
        self._folder.sync_folder()
        positions = [] if change.reset else self._positions[change.log_base - self._base :]
        kept = self._log.read(positions[0]) if positions else b""
        self._begin_log(
            change.log_base, change.log_base_term, kept, [position - positions[0] for position in positions]
        )
        self._names_changed = True

    def _begin_log(self, base: int, base_term: int, kept: bytes, positions: list[int]) -> None:
        """A new log file takes the place of the old one, with the frames kept, and the entries' positions in them."""
        temporary = self._folder.create(_LOG + ".tmp")
        head = _framed(base, _BASE, str(base_term).encode())
        temporary.append(head + kept)
        temporary.sync()
        self._folder.rename(_LOG + ".tmp", _LOG)
        self._log = temporary
        self._base = base
        self._positions = [position + len(head) for position in positions]

    def _replace(self, name: str, content: bytes) -> None:
        temporary = self._folder.create(name + ".tmp")
        temporary.append(b"%08x\n" % crc32c(content) + content)
        temporary.sync()
        self._folder.rename(name + ".tmp", name)

    # Reading

    def _read_state(self) -> tuple[int, NodeId | None]:
        content = self._read_checked(_STATE)
        if content is None:
            self._save_state(0, None)  # with the disk's name, before anybody hears it
            self._folder.sync_folder()
            return 0, None
        term, voted_for, self._disk = json.loads(content)
        return term, voted_for

    def _read_snapshot(self) -> Snapshot | None:
        content = self._read_checked(_SNAPSHOT)
        if content is None:
            return None
        head, _, image = content.partition(b"\n")
        index, term, *voters = json.loads(head)
        decoded = self._images.decode(image) if image else None
        return Snapshot(index, term, VotersChanged(*map(tuple, voters)), decoded)

    def _read_checked(self, name: str) -> bytes | None:
        file = self._folder.get(name)
        if file is None:
            return None
        checksum, _, content = file.read().partition(b"\n")
        if checksum != b"%08x" % crc32c(content):
            raise QuorumDamaged(f"the checksum of {name} does not fit")
        return content

    def _open_log(self, snapshot: Snapshot) -> tuple[File, int, tuple[Entry, ...]]:
        """What was read is safe afterwards. It is written anew for that: a process that was killed may have left it
        unsynced, and after a sync that failed the memory of the machine shows what the disk will never have."""
        found = self._folder.get(_LOG)
        if found is not None:
            base_term, entries, content = self._read_log(found)
            if self._fits(snapshot, base_term, entries):
                self._make_safe(base_term, content)
                self._folder.sync_folder()
                return self._log, base_term, entries
        self._begin_log(snapshot.index, snapshot.term, b"", [])
        self._folder.sync_folder()
        return self._log, snapshot.term, ()

    def _make_safe(self, base_term: int, content: bytes) -> None:
        self._begin_log(self._base, base_term, content, self._positions)

    def _fits(self, snapshot: Snapshot, base_term: int, entries: tuple[Entry, ...]) -> bool:
        """Whether the log goes on from the snapshot. If not, the process ended between the two files (see `reset`)."""
        place = snapshot.index - self._base
        if place < 0:
            raise QuorumDamaged(f"the metadata log begins behind {self._base}, the snapshot ends at {snapshot.index}")
        if place == 0:
            return base_term == snapshot.term
        return place <= len(entries) and entries[place - 1].term == snapshot.term

    def _read_log(self, file: File) -> tuple[int, tuple[Entry, ...], bytes]:
        """The term of the base, the entries, and their frames (`_positions` within these)."""
        content = file.read()
        frames = _frames(content)
        first = next(frames, None)
        if first is None or first.term != _BASE:
            raise QuorumDamaged("the metadata log has no beginning")
        self._base = first.index
        self._positions = []
        entries: list[Entry] = []
        end = first.end
        marked = first.index
        for frame in frames:
            if frame.term == _MARK:
                marked = max(marked, frame.index)
            elif frame.index == self._base + len(entries) + 1:
                entries.append(Entry(frame.term, decode_record(frame.payload)))
                self._positions.append(frame.position - first.end)
            else:
                break
            end = frame.end
        last = self._base + len(entries)
        if end < len(content) and max(marked, _marks_behind(content, end)) > last:
            raise QuorumDamaged(f"entry {last + 1} of the metadata log was safe, and is not readable")
        return int(first.payload), tuple(entries), content[first.end : end] + _framed(last, _MARK, b"")


def _framed(index: int, term: int, payload: bytes) -> bytes:
    checked = _FRAME.pack(MAGIC, 0, 0, index, term)[_CHECKED_FROM:] + payload
    return _FRAME.pack(MAGIC, len(payload), crc32c(checked), index, term) + payload


def _frame_at(content: bytes, position: int) -> _Frame | None:
    if len(content) - position < _FRAME.size:
        return None
    magic, length, checksum, index, term = _FRAME.unpack_from(content, position)
    end = position + _FRAME.size + length
    if magic != MAGIC or end > len(content) or crc32c(content[position + _CHECKED_FROM : end]) != checksum:
        return None
    return _Frame(position, end, index, term, content[position + _FRAME.size : end])


def _frames(content: bytes) -> Iterator[_Frame]:
    """As far as they follow each other and are whole."""
    position = 0
    while (frame := _frame_at(content, position)) is not None:
        yield frame
        position = frame.end


def _marks_behind(content: bytes, position: int) -> int:
    """The highest mark anywhere behind a bad frame; 0 for none."""
    highest = 0
    while (position := content.find(MAGIC, position)) >= 0:
        frame = _frame_at(content, position)
        if frame is not None and frame.term == _MARK:
            highest = max(highest, frame.index)
        position += 1
    return highest
