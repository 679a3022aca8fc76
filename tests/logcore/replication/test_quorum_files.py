"""The files of the metadata quorum: whatever byte is lost or damaged, what comes back is right, or nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.logcore.replication.controller.metadata_image import ImageCodec, MetadataImage, fold
from millstream.logcore.replication.controller.metadata_records import BrokerRegistered, ConfigChanged, TopicCreated
from millstream.logcore.replication.disk.disk_folder import DiskFolder
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.ports import Folder
from millstream.logcore.replication.raft.quorum_files import QuorumDamaged, QuorumFiles
from millstream.logcore.replication.raft.quorum_messages import (
    QuorumRecovered,
    SaveSnapshot,
    SaveVote,
    Snapshot,
    VotersChanged,
)
from tests.simulation.directed.files_cases import VOTERS, entries, opened
from tests.simulation.disk import SimDisk

FILES = ("quorum-log", "quorum-state", "quorum-snapshot")


def an_image(index: int) -> MetadataImage:
    image = fold(MetadataImage(), 1, BrokerRegistered(NodeId(1), 4, True, (("kafka", "host:9093"),), None))
    return fold(image, index, TopicCreated("id", "orders"))


def a_life() -> tuple[SimDisk, QuorumRecovered]:
    """A disk with a vote, a snapshot and some entries, all of it safe, and what a start finds there."""
    disk = SimDisk()
    return disk, lived_in(disk)


def lived_in(folder: Folder) -> QuorumRecovered:
    files = QuorumFiles(folder, VOTERS, ImageCodec(), disk="a name")
    files.apply(SaveVote(3, NodeId(2)))
    files.apply(entries(1, 5, 1))
    files.sync()
    files.apply(SaveSnapshot(Snapshot(4, 1, VotersChanged(VOTERS), an_image(4)), 2, 1, reset=False))
    files.apply(entries(6, 2, 2))
    files.apply(entries(7, 3, 3))
    files.sync()
    return QuorumFiles(folder, VOTERS, ImageCodec(), disk="another name").recovered


@pytest.mark.parametrize("kind", ["simulated", "real"])
def test_what_was_saved_is_found(kind: str, tmp_path: Path) -> None:
    found = lived_in(SimDisk() if kind == "simulated" else DiskFolder(tmp_path / "quorum"))
    assert found.disk == "a name"
    assert (found.term, found.voted_for) == (3, 2)
    assert found.snapshot == Snapshot(4, 1, VotersChanged(VOTERS), an_image(4))
    assert (found.log_base, found.log_base_term) == (2, 1)
    assert [entry.term for entry in found.entries] == [1, 1, 1, 2, 3, 3, 3]
    assert found.entries[-1].record == ConfigChanged("", "key9", "ü")


def test_a_new_node_finds_nothing() -> None:
    found = opened(SimDisk()).recovered
    assert (found.term, found.voted_for, found.entries) == (0, None, ())
    assert found.snapshot == Snapshot(0, 0, VotersChanged(VOTERS), None)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_byte_is_noticed_or_says_nothing(name: str) -> None:
    """Every bit of every file: never anything else than what was saved, never less of it."""
    disk, saved = a_life()
    file = disk.get(name)
    assert file is not None
    size = file.size if name != "quorum-log" else file.read().rfind(b"\xa7Qf1")  # behind it is the last mark only
    noticed = 0
    for position in range(size):
        for bit in range(8):
            damaged = _copied(disk)
            flipped = damaged.get(name)
            assert flipped is not None
            flipped.flip(position, bit)
            try:
                assert opened(damaged).recovered == saved, (position, bit)
            except QuorumDamaged:
                noticed += 1
    assert noticed >= size * 8 * 0.9


def test_a_torn_end_is_cut_off_and_what_was_safe_stays() -> None:
    disk, saved = a_life()
    file = disk.get("quorum-log")
    assert file is not None
    files = opened(disk)
    safe = disk.get("quorum-log")
    assert safe is not None
    size = safe.size
    files.apply(entries(10, 4, 4))
    whole = safe.read()
    for end in range(size, len(whole)):
        torn = _copied(disk)
        log = torn.get("quorum-log")
        assert log is not None
        log.truncate(end)
        found = opened(torn).recovered.entries
        assert found[: len(saved.entries)] == saved.entries
        assert len(found) < len(saved.entries) + 4


def _copied(disk: SimDisk) -> SimDisk:
    copy = SimDisk()
    for name in disk.names():
        file = disk.get(name)
        assert file is not None
        copied = copy.create(name)
        copied.append(file.read())
        copied.sync()
    copy.sync_folder()
    return copy
