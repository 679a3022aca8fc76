"""The two kinds of log that a directory of one process may have, for tests of what both do with their files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.logcore.cluster.lone_log import LoneLog, open_lone_log
from millstream.logcore.cluster.node_folder import accept_loss_of_node, replica_folder, topics_of_node
from millstream.logcore.log import Log, open_log
from millstream.logcore.storage.accepted_loss import accept_loss

AnyLog = Log | LoneLog


@dataclass(frozen=True, slots=True)
class Kind:
    """`open`: takes the directory, and `clock` and `sync` by name. `folder_of`: of a partition. `accept_loss`: of a
    topic of a log that is not open."""

    name: str
    open: Callable[..., AnyLog]
    folder_of: Callable[[Path, str, int], Path]
    accept_loss: Callable[[Path, str], list[str]]

    def segment_files(self, path: Path, topic: str = "t", partition: int = 0) -> Sequence[Path]:
        return sorted(self.folder_of(path, topic, partition).glob("*.log"))


def _of_a_node(path: Path, topic: str, partition: int) -> Path:
    return replica_folder(path, topics_of_node(path)[topic], partition)


SINGLE = Kind("single", open_log, lambda path, topic, partition: path / f"{topic}-{partition}", accept_loss)
ALONE = Kind("alone", open_lone_log, _of_a_node, accept_loss_of_node)
KINDS = (SINGLE, ALONE)
