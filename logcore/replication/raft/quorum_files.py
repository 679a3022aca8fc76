"""The files of a member of the metadata quorum: its vote, its log, its snapshot. They survive a crash at any write.

    quorum-state      term, vote and name of the disk; replaced as a whole
    quorum-snapshot   the fold of the log up to an index; replaced as a whole
    quorum-log        frames: the base of the log, then entries, and marks of what is durable
    quorum-durable    up to which entry the log was durable: see `quorum_point.py`

After each sync a mark is written; the next sync makes it durable. A bad frame below a mark was durable once: that is
damage, and the node refuses to start (R17). A bad frame above all marks is a torn end, and is truncated. A log that
ends before the entry in `quorum-durable` was shortened, marks included. That is damage, too: a voter that continued
without entries that it has confirmed would confirm others in their place (I4).
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, assert_never

from crc32c import crc32c

from ..controller.metadata_codec import decode_record, encode_record
from ..machine import NodeId
from ..ports import File, Folder
from .quorum_frames import BASE, MARK, framed, frames, marks_behind
from .quorum_messages import (
    Entry,
    QuorumChange,
    QuorumRecovered,
    SaveEntries,
    SaveSnapshot,
    SaveVote,
    Snapshot,
    VotersChanged,
    nothing_recovered,
)
from .quorum_point import QuorumPoint

if TYPE_CHECKING:
    from ..controller.metadata_image import MetadataImage
    from ..machine_messages import Change

_STATE: Final = "quorum-state"
_SNAPSHOT: Final = "quorum-snapshot"
_LOG: Final = "quorum-log"


class QuorumDamaged(Exception):
    """Something that was durable is no longer readable: replace the node, or restore its files."""


class SnapshotCodec(Protocol):
    """Encodes and decodes the image of a snapshot."""

    def encode(self, image: MetadataImage) -> bytes: ...

    def decode(self, content: bytes) -> MetadataImage: ...


class _FoundLog(NamedTuple):
    """The term of the base, the entries, and the bytes of their frames (`_positions` are positions in these bytes)."""

    base_term: int
    entries: tuple[Entry, ...]
    content: bytes


class QuorumFiles:
    """Carries out the changes of a `Quorum`. `recovered` is the state that the files had at the start."""

    def __init__(
        self,
        folder: Folder,
        voters: tuple[NodeId, ...],
        images: SnapshotCodec,
        *,
        disk: str = "",
        durable: bool = True,
    ) -> None:
        """In: `voters`: the voters of a new cluster. `disk`: a random name (a UUID) for a disk that has no name yet;
        other nodes know the disk by it. `durable`: whether the folder's syncs wait for the disk. Raises OSError;
        QuorumDamaged, and then nothing was changed."""
        self._folder = folder
        self._images = images
        self._positions: list[int] = []  # the start of each entry, from entry `_base` + 1 on
        self._base = 0
        self._log_changed = False
        self._names_changed = False
        fresh = nothing_recovered(voters)
        self._disk = disk
        self._failed: OSError | None = None
        self._point = QuorumPoint(folder)
        self._durable = durable
        snapshot = self._read_snapshot() or fresh.snapshot
        found = self._found_log(snapshot)
        term, voted_for = self._read_state()
        self._log, base_term, entries = self._open_log(snapshot, found)
        if (known := entries[-1].term if entries else base_term) > term:
            term, voted_for = known, None  # the log has a later term than the state: this node has not voted in it
        self.recovered = QuorumRecovered(term, voted_for, snapshot, self._base, base_term, entries, self._disk)

    def apply(self, change: Change) -> None:
        """Raises OSError; then the process must end."""
        if not isinstance(change, QuorumChange):
            raise TypeError(f"not a change of the quorum: {change!r}")
        self._run(lambda: self._carry_out(change))

    def sync(self) -> None:
        """Raises OSError; then the process must end."""
        self._run(self._sync)

    def close(self) -> None:
        """Releases the files and refuses all further changes. Objects that refer to this one are in reference cycles,
        so Python would close the files much later."""
        self._note_failure(OSError(errno.EBADF, "the files are closed"))
        for held in ("_log", "_point"):
            self.__dict__.pop(held, None)

    def _run(self, action: Callable[[], None]) -> None:
        """Runs nothing after a failed write: the file may end with half a frame."""
        if self._failed is not None:
            raise OSError(self._failed.errno, f"an earlier change failed: {self._failed.strerror}")
        try:
            action()
        except OSError as error:
            self._note_failure(error)
            raise

    def _note_failure(self, error: OSError) -> None:
        self._failed = error

    def _carry_out(self, change: QuorumChange) -> None:
        match change:
            case SaveEntries():
                self._save_entries(change)
            case SaveVote(term, voted_for):
                self._save_state(term, voted_for)
            case SaveSnapshot():
                self._save_snapshot(change)
            case _:
                assert_never(change)

    def _sync(self) -> None:
        if self._log_changed:
            self._log.sync()
            self._log_changed = False
            self._log.append(framed(self._last_index, MARK, b""))
        if self._names_changed:
            self._folder.sync_folder()
            self._names_changed = False
        self._note_safe()

    def _note_safe(self) -> None:
        """The log and its file name are durable."""
        if self._durable:
            self._point.note(self._last_index)

    @property
    def _last_index(self) -> int:
        return self._base + len(self._positions)

    # Writing

    def _save_state(self, term: int, voted_for: NodeId | None) -> None:
        self._replace(_STATE, json.dumps([term, voted_for, self._disk]).encode())
        self._names_changed = True

    def _save_entries(self, change: SaveEntries) -> None:
        place = change.first_index - self._base - 1
        if place < len(self._positions):
            self._point.lower(change.first_index - 1)
            self._log.truncate(self._positions[place])
            del self._positions[place:]
        assert place == len(self._positions), "entries follow each other"
        end = self._log.size
        frames: list[bytes] = []
        for offset, entry in enumerate(change.entries):
            frame = framed(change.first_index + offset, entry.term, encode_record(entry.record))
            self._positions.append(end)
            end += len(frame)
            frames.append(frame)
        self._log_changed = True
        self._log.append(b"".join(frames))

    def _save_snapshot(self, change: SaveSnapshot) -> None:
        """Makes the snapshot and its file name durable before it changes the log."""
        snapshot = change.snapshot
        image = b"" if snapshot.image is None else self._images.encode(snapshot.image)
        head = [snapshot.index, snapshot.term, *snapshot.voters]
        if change.reset:
            self._point.lower(snapshot.index)
        self._replace(_SNAPSHOT, json.dumps(head).encode() + b"\n" + image)
        self._folder.sync_folder()
        positions = [] if change.reset else self._positions[change.log_base - self._base :]
        kept = self._log.read(positions[0]) if positions else b""
        self._begin_log(
            change.log_base, change.log_base_term, kept, [position - positions[0] for position in positions]
        )
        self._names_changed = True

    def _begin_log(self, base: int, base_term: int, kept: bytes, positions: list[int]) -> None:
        """Replaces the log file by a new one. In: `kept`: frames to keep; `positions`: those of the entries in them."""
        temporary = self._folder.create(_LOG + ".tmp")
        head = framed(base, BASE, str(base_term).encode())
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
            self._save_state(0, None)  # stores the disk's name before other nodes hear it
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

    def _found_log(self, snapshot: Snapshot) -> _FoundLog | None:
        """The log that continues the snapshot; None if there is no log yet, or the process ended after it replaced one
        of the two files."""
        file, state = self._folder.get(_LOG), self._read_checked(_STATE)
        if file is None:
            if self._point.index or snapshot.index or (state is not None and json.loads(state)[0]):
                raise QuorumDamaged(f"{_LOG} is missing")
            return None
        if state is None:
            raise QuorumDamaged(f"{_STATE} is missing: the node does not know any more whom it has voted for")
        found = self._read_log(file)
        fits = self._fits(snapshot, found)
        last = self._base + len(found.entries) if fits else snapshot.index
        if last < self._point.index:
            raise QuorumDamaged(f"the metadata log ends at entry {last}, and was safe up to entry {self._point.index}")
        return found if fits else None

    def _open_log(self, snapshot: Snapshot, found: _FoundLog | None) -> tuple[File, int, tuple[Entry, ...]]:
        """Opens the log; afterwards everything that was read is durable. For that the log is written again: a killed
        process may have left it unsynced, and after a failed sync the page cache shows what the disk will never have.
        """
        if not self._durable:
            self._point.forget()
        if found is not None:
            self._make_safe(found.base_term, found.content)
        else:
            self._begin_log(snapshot.index, snapshot.term, b"", [])
        self._folder.sync_folder()
        self._note_safe()
        return (self._log, found.base_term, found.entries) if found is not None else (self._log, snapshot.term, ())

    def _make_safe(self, base_term: int, content: bytes) -> None:
        self._begin_log(self._base, base_term, content, self._positions)

    def _fits(self, snapshot: Snapshot, found: _FoundLog) -> bool:
        """Whether the log continues the snapshot. If not, the process ended between the two files (see `reset`)."""
        place = snapshot.index - self._base
        if place < 0:
            raise QuorumDamaged(f"the metadata log begins behind {self._base}, the snapshot ends at {snapshot.index}")
        if place == 0:
            return found.base_term == snapshot.term
        return place <= len(found.entries) and found.entries[place - 1].term == snapshot.term

    def _read_log(self, file: File) -> _FoundLog:
        content = file.read()
        found = frames(content)
        first = next(found, None)
        if first is None or first.term != BASE:
            raise QuorumDamaged("the metadata log has no beginning")
        self._base = first.index
        self._positions = []
        entries: list[Entry] = []
        end = first.end
        marked = first.index
        for frame in found:
            if frame.term == MARK:
                marked = max(marked, frame.index)
            elif frame.index == self._base + len(entries) + 1:
                entries.append(Entry(frame.term, decode_record(frame.payload)))
                self._positions.append(frame.position - first.end)
            else:
                break
            end = frame.end
        last = self._base + len(entries)
        if end < len(content) and max(marked, marks_behind(content, end)) > last:
            raise QuorumDamaged(f"entry {last + 1} of the metadata log was safe, and is not readable")
        return _FoundLog(int(first.payload), tuple(entries), content[first.end : end] + framed(last, MARK, b""))
