"""Directed scenarios of the quorum's files: the power goes at every operation of the disk, syncs fail."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Final

from millstream.logcore.replication.controller.metadata_image import ImageCodec, MetadataImage
from millstream.logcore.replication.controller.metadata_records import ConfigChanged
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.raft.quorum_files import QuorumDamaged, QuorumFiles
from millstream.logcore.replication.raft.quorum_frames import MAGIC, MARK, frames
from millstream.logcore.replication.raft.quorum_messages import (
    Entry,
    SaveEntries,
    SaveSnapshot,
    SaveVote,
    Snapshot,
    VotersChanged,
)

from ..disk import PowerLost, SimDisk

VOTERS: Final = (NodeId(1), NodeId(2), NodeId(3))


def a_crash_at_any_operation_keeps_what_was_safe() -> None:
    """T-L13: votes, entries, snapshots and cuts; whatever the disk has kept of what was not synced."""
    for operations in range(60):
        for random in (None, *(Random(seed) for seed in range(8))):
            disk = SimDisk()
            term, last = _until_the_power_goes(disk, operations)
            disk.crash(random)
            found = opened(disk).recovered
            assert found.term >= term, f"spoke in term {term}, came back in {found.term}"
            assert found.log_base + len(found.entries) >= last, f"lost entry {last}"
            for index, entry in enumerate(found.entries, found.log_base + 1):
                assert entry.record == _record(index)


def what_a_failed_sync_left_is_not_believed() -> None:
    """T-L9: the next process sees in the machine's memory what the disk does not have; then the power goes."""
    disk = SimDisk()
    files = opened(disk)
    files.apply(entries(1, 3, 1))
    files.sync()
    files.apply(entries(4, 3, 1))
    disk.failing_syncs = 1
    with suppress(OSError):
        files.sync()
    again = opened(disk)
    believed = len(again.recovered.entries)
    again.apply(entries(believed + 1, 1, 1))
    again.sync()
    disk.crash(None)
    assert len(opened(disk).recovered.entries) == believed + 1


def nothing_is_written_behind_what_failed() -> None:
    """R17, T-L23: the disk is full in the middle of an entry, and has room again for the next one."""
    disk = SimDisk()
    files = opened(disk)
    files.apply(entries(1, 2, 1))
    files.sync()
    disk.full = True
    with suppress(OSError):
        files.apply(entries(3, 2, 1))
    disk.full = False
    with suppress(OSError):
        files.apply(entries(5, 1, 1))
        files.sync()
    assert len(opened(disk).recovered.entries) in (2, 3)


def damage_is_noticed_or_says_nothing() -> None:
    """T-L15: a bit of what was safe changes. What is found is what was saved, or the node does not start."""
    disk = SimDisk()
    files = opened(disk)
    files.apply(SaveVote(3, NodeId(2)))
    for turn in range(3):
        files.apply(entries(1 + 2 * turn, 2, turn + 1))
        files.sync()
    saved = opened(disk).recovered
    for name in ("quorum-state", "quorum-log"):
        file = disk.get(name)
        assert file is not None
        # Behind the last frame's beginning there is only the mark that says what was safe.
        for position in range(file.size if name == "quorum-state" else file.read().rfind(MAGIC)):
            file.flip(position, position % 8)
            with suppress(QuorumDamaged):
                assert opened(_copied(disk)).recovered == saved, f"byte {position} of {name}"
            file.flip(position, position % 8)


def a_shortened_log_is_noticed() -> None:
    """T-L15: the log is cut where a frame ends, the marks behind it with it. The node does not start, and whoever has
    less of it than it has confirmed is not believed."""
    for ending in (_closed, _cut_and_written_again, _behind_a_snapshot):
        disk = SimDisk()
        ending(opened(disk))
        saved = opened(disk).recovered
        file = disk.get("quorum-log")
        assert file is not None
        found = list(frames(file.read()))
        whole = max(frame.end for frame in found if frame.term != MARK)
        for end in [frame.end for frame in found if frame.end < whole]:
            damaged = _copied(disk)
            log = damaged.get("quorum-log")
            assert log is not None
            log.truncate(end)
            before = {name: _content(damaged, name) for name in damaged.names()}
            with suppress(QuorumDamaged):
                believed = opened(damaged).recovered.entries
                raise AssertionError(f"{ending.__name__}: {len(believed)} entries, not {len(saved.entries)}")
            assert {name: _content(damaged, name) for name in damaged.names()} == before, "it is left as it was"
        file.truncate(whole)
        assert opened(disk).recovered == saved, "only marks stood behind it"


def _closed(files: QuorumFiles) -> None:
    files.apply(SaveVote(1, None))
    for first in (1, 3, 5):
        files.apply(entries(first, 2, 1))
        files.sync()


def _cut_and_written_again(files: QuorumFiles) -> None:
    """By another leader, and fewer than before: what was cut off is not missed."""
    _closed(files)
    files.apply(SaveVote(2, None))
    files.apply(entries(3, 1, 2))
    files.sync()
    files.apply(entries(4, 1, 2))
    files.sync()


def _behind_a_snapshot(files: QuorumFiles) -> None:
    _closed(files)
    files.apply(SaveSnapshot(Snapshot(4, 1, VotersChanged(VOTERS), MetadataImage(index=4)), 3, 1, reset=False))
    files.sync()
    files.apply(entries(7, 2, 1))
    files.sync()


def a_log_that_a_snapshot_replaced_is_not_missed() -> None:
    """Entries of another leader went with it, and the snapshot ends before them; the power goes anywhere in between."""
    for operations in range(12):
        disk = SimDisk()
        files = opened(disk)
        _closed(files)
        disk.operations_left = operations
        with suppress(PowerLost):
            files.apply(SaveSnapshot(Snapshot(4, 2, VotersChanged(VOTERS), MetadataImage(index=4)), 4, 2, reset=True))
            files.sync()
        disk.operations_left = None
        disk.crash(Random(operations))
        assert opened(disk).recovered.log_base + len(opened(disk).recovered.entries) in (4, 6)


def _content(disk: SimDisk, name: str) -> bytes:
    file = disk.get(name)
    assert file is not None
    return file.read()


def _copied(disk: SimDisk) -> SimDisk:
    copy = SimDisk()
    for name in disk.names():
        file = disk.get(name)
        assert file is not None
        copy.create(name).append(file.read())
    return copy


def opened(disk: SimDisk) -> QuorumFiles:
    return QuorumFiles(disk, VOTERS, ImageCodec())


def entries(first: int, count: int, term: int) -> SaveEntries:
    return SaveEntries(first, tuple(Entry(term, _record(first + offset)) for offset in range(count)))


def _record(index: int) -> ConfigChanged:
    return ConfigChanged("", f"key{index}", "ü")


def _until_the_power_goes(disk: SimDisk, operations: int) -> tuple[int, int]:
    """The term and the last index that were safe by then."""
    disk.operations_left = operations
    term = last = 0
    with suppress(PowerLost):
        files = opened(disk)
        for turn in range(1, 5):
            files.apply(SaveVote(turn, NodeId(1)))
            files.apply(entries(last + 1, 3, turn))
            files.sync()
            term, last = turn, last + 3
            if turn % 2 == 0:
                snapshot = Snapshot(last, term, VotersChanged(VOTERS), MetadataImage(index=last))
                files.apply(SaveSnapshot(snapshot, last - 1, term, reset=False))
                files.sync()
    disk.operations_left = None
    return term, last


CASES: Final = [
    a_shortened_log_is_noticed,
    a_log_that_a_snapshot_replaced_is_not_missed,
    damage_is_noticed_or_says_nothing,
    nothing_is_written_behind_what_failed,
    a_crash_at_any_operation_keeps_what_was_safe,
    what_a_failed_sync_left_is_not_believed,
]
