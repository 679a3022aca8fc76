"""The directory of a node that is not running, for inspecting or repairing its files: which topics it has, and where.
The metadata are read as the node would read them, and not changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ..errors import CorruptLog, InvalidTopic, UnknownTopic
from ..replication.controller.metadata_image import ImageCodec, MetadataImage, TopicImage, fold
from ..replication.disk.disk_checkpoint import EARLIER
from ..replication.disk.disk_recovery import RESCAN
from ..replication.machine import NodeId
from ..replication.node.node_directory import NODE_FILE
from ..replication.raft.quorum_files import QuorumDamaged, QuorumFiles
from ..replication.raft.quorum_log import QuorumLog
from ..replication.raft.quorum_messages import QuorumRecovered
from ..storage.accepted_loss import give_up
from ..storage.directory_lock import locked
from ..storage.verification import FileFinding, Verified, verify_files
from .status import nodes_of

_STALE: Final = (EARLIER, RESCAN)


def is_node_folder(path: Path) -> bool:
    return (path / NODE_FILE).exists()


def topics_of_node(path: Path) -> dict[str, TopicImage]:
    """The node's topics by name. Raises `CorruptLog` if the metadata are damaged, and OSError."""
    return {topic.name: topic for topic in _image_of(path).topics.values()}


def members_of_node(path: Path, first_voters: tuple[NodeId, ...]) -> set[NodeId]:
    """All nodes of the cluster that are voters, learners, registered or added, as far as this one knows. In:
    `first_voters`: the initial ones, which are not in the metadata. Raises `CorruptLog` and OSError."""
    recovered = _recovered(path, first_voters)
    return {*QuorumLog(recovered).voters.members(), *nodes_of(_image(recovered))}


def replica_folder(path: Path, topic: TopicImage, partition: int) -> Path:
    return path / "replicas" / f"{topic.id}-{partition}"


def replica_folders(path: Path, topic: str | None = None) -> list[Path]:
    """The folders of all partitions with files, or of those of a topic. Raises `UnknownTopic` and the errors of
    `topics_of_node`."""
    if topic is None:
        return sorted({found.parent for found in (path / "replicas").glob("*-*/*.log") if found.stem.isdigit()})
    found = _topic(path, topic)
    folders = [replica_folder(path, found, partition) for partition in range(len(found.partitions))]
    return [folder for folder in folders if folder.exists()]


def verify_node(path: Path, topic: str | None = None) -> tuple[Verified, list[FileFinding]]:
    """Like `verify`, for the partitions of this node. Raises the errors of `replica_folders`."""
    try:
        topics_of_node(path)
    except CorruptLog as error:
        verified, findings = verify_files([path / NODE_FILE], replica_folders(path))
        return verified, [*findings, FileFinding(path / "quorum", error.message)]
    return verify_files([path / NODE_FILE], replica_folders(path, topic))


def accept_loss_of_node(path: Path, topic: str) -> list[str]:
    """Like `accept_loss`, for a topic of which no other node has a copy. Also raises `InvalidTopic` if one has."""
    lock = locked(path / "lock")
    try:
        found = _topic(path, topic)
        _check_is_only_copy(found)
        places = [(number, replica_folder(path, found, number)) for number in range(len(found.partitions))]
        return [
            f"partition {number}: offsets {first}..{end - 1}"
            for number, folder in places
            if folder.exists()  # else nothing was written to it
            for first, end in give_up(folder, _STALE)
        ]
    finally:
        os.close(lock)


def _topic(path: Path, name: str) -> TopicImage:
    found = topics_of_node(path).get(name)
    if found is None:
        raise UnknownTopic(f'topic "{name}" does not exist')
    return found


def _check_is_only_copy(topic: TopicImage) -> None:
    for row in topic.partitions.rows:
        if len(row.first.replicas) > 1:
            raise InvalidTopic(
                f'topic "{topic.name}" has copies on nodes {", ".join(map(str, sorted(row.first.replicas)))}',
                hint="Start this node: it takes what it has lost from the others.",
            )


def _image_of(path: Path) -> MetadataImage:
    return _image(_recovered(path, ()))


def _recovered(path: Path, first_voters: tuple[NodeId, ...]) -> QuorumRecovered:
    try:
        return QuorumFiles(_CopiedFolder(path / "quorum"), first_voters, ImageCodec()).recovered
    except QuorumDamaged as error:
        raise CorruptLog(
            f"the metadata in {path / 'quorum'} are damaged: {error}", hint="Restore the file from a backup."
        ) from error


def _image(recovered: QuorumRecovered) -> MetadataImage:
    snapshot = recovered.snapshot
    image: MetadataImage = snapshot.image or MetadataImage()
    for index, entry in enumerate(recovered.entries, recovered.log_base + 1):
        if index > snapshot.index:
            image = fold(image, index, entry.record)
    return image


class _CopiedFile:
    """A `File` in memory."""

    def __init__(self, content: bytes = b"") -> None:
        self._content = content

    @property
    def size(self) -> int:
        return len(self._content)

    def append(self, content: bytes) -> None:
        self._content += content

    def truncate(self, size: int) -> None:
        self._content = self._content[:size]

    def read(self, position: int = 0, size: int | None = None) -> bytes:
        return self._content[position : None if size is None else position + size]

    def sync(self) -> None:
        """Nothing of it is ever on a disk."""


class _CopiedFolder:
    """A `Folder` that begins with the files of one on the disk, which it does not change. State: the changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, _CopiedFile] = {}

    def get(self, name: str) -> _CopiedFile | None:
        if name not in self._files and (self._path / name).exists():
            self._files[name] = _CopiedFile((self._path / name).read_bytes())
        return self._files.get(name)

    def create(self, name: str) -> _CopiedFile:
        file = self._files[name] = _CopiedFile()
        return file

    def rename(self, name: str, new_name: str) -> None:
        self._files[new_name] = self._files.pop(name)

    def remove(self, name: str) -> None:
        self._files.pop(name, None)

    def sync_folder(self) -> None:
        """Nothing of it is ever on a disk."""
