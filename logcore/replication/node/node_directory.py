"""The data directory of a node: its cluster and node number, the disk's name, and how often the node was started.

node.json   cluster, node, the disk's name, the count of starts, whether the node is and began alone (and a copy)
lock        held while a process has the directory open
replicas/   the logs of partitions: `disk_logs.py`
quorum/     the metadata: `quorum_files.py`
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...errors import CorruptLog, UnsupportedDataDirectory, unusable_directory
from ...storage.checked_json import read_with_copy, write_with_copy
from ...storage.directory_lock import locked
from ...storage.disk import make_folder

NODE_FILE: Final = "node.json"
ALONE: Final = "alone"
BEGAN_ALONE: Final = "began_alone"  # then it was the first voter; metadata records name only later ones
_SINGLE_NODE_FILES: Final = ("meta.json", "topics.json")  # of version 0.1
_FORMAT: Final = 1
_OTHER_HINT: Final = "Start it with the node and the cluster that the directory belongs to, or with another directory."


def node_meta(node: int, cluster: str, disk: str, *, alone: bool, began_alone: bool = True) -> dict[str, Any]:
    """The first content of `node.json`."""
    meta = {"format": _FORMAT, "node": node, "cluster": cluster, "disk": disk}
    return {**meta, ALONE: alone, BEGAN_ALONE: began_alone}


def began_alone(meta: Mapping[str, Any]) -> bool:
    """Whether there was no other node at the first start. Older directories do not contain this; then it is whether the
    node was alone at its last start."""
    return bool(meta.get(BEGAN_ALONE, meta.get(ALONE, False)))


class NodeDirectory:
    """State: the lock, held until `close`.

    `disk`: a random name, given when the directory was created, so a replaced disk has another one. `incarnation`: how
    often the node was started, including this start; it is durable before it is used (R8).
    """

    def __init__(
        self, path: Path, node: int, cluster: str, *, alone: bool = False, others: bool = False, durable: bool = True
    ) -> None:
        """Creates the directory if it is missing. In: `alone`: no other node could ever reach this one; `others`: the
        cluster has other nodes.

        Raises `LogLocked`; `UnsupportedDataDirectory` if it belongs to another node; `CorruptLog` if `node.json` is
        damaged or missing; `LogFull`, `UnusableDataDirectory`.
        """
        self.path = path
        self._alone, self._others = alone, others
        self._durable = durable
        try:
            make_folder(path, durable=durable)
            self._check_not_of_a_single_node()
            self._lock = locked(path / "lock")
        except OSError as error:
            raise unusable_directory(error, path) from error
        try:
            self.disk, self.incarnation = self._begin(node, cluster)
        except OSError as error:
            self.close()
            raise unusable_directory(error, path) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Releases the lock, so that another process can use the directory."""
        os.close(self._lock)

    def _begin(self, node: int, cluster: str) -> tuple[str, int]:
        meta = self._read() or node_meta(
            node, cluster, uuid.uuid4().hex, alone=self._alone, began_alone=not self._others
        )
        self._check(meta, node, cluster)
        starts = 1 + int(meta.get("starts", 0))
        written = {**meta, ALONE: self._alone, BEGAN_ALONE: began_alone(meta), "starts": starts}
        write_with_copy(self.path / NODE_FILE, written, durable=self._durable)
        return str(meta["disk"]), starts

    def _read(self) -> Any:
        path = self.path / NODE_FILE
        hint = "Restore it from a backup, or remove the node from the cluster and add it anew with an empty directory."
        try:
            meta = read_with_copy(path, durable=self._durable)
        except ValueError as error:
            raise CorruptLog(f"{path} is damaged at position 0: {error}", hint=hint) from error
        if meta is None and any((self.path / name).exists() for name in ("replicas", "quorum")):
            raise CorruptLog(f"{path} is missing, though there are files of a node beside it", hint=hint)
        return meta

    def _check(self, meta: Any, node: int, cluster: str) -> None:
        if meta["format"] != _FORMAT:
            raise UnsupportedDataDirectory(
                f"the data directory {self.path} has format {meta['format']}, and this version reads {_FORMAT}",
                hint="Open it with the version of Millstream that wrote it.",
            )
        was_alone = bool(meta.get(ALONE, False))
        if self._alone and not was_alone:
            raise UnsupportedDataDirectory(
                f"the data directory {self.path} belongs to a node of a cluster, and cannot be opened as a log of its"
                " own",
                hint="Start it with --node and --cluster, as before. It can be started alone when it is node 1 and all"
                " others are removed (millstream cluster remove-node).",
            )
        if was_alone and self._others:
            raise UnsupportedDataDirectory(
                f"the data directory {self.path} is that of a server on its own, and other nodes know nothing of it",
                hint="Start it as a cluster of which it is the only node, and add the others with `millstream cluster"
                " add-node`; or give the node a directory of its own: then the cluster begins empty.",
            )
        if (meta["cluster"], meta["node"]) != (cluster, node):
            raise UnsupportedDataDirectory(
                f'the data directory {self.path} belongs to node {meta["node"]} of cluster "{meta["cluster"]}",'
                f' not to node {node} of cluster "{cluster}"',
                hint=_OTHER_HINT,
            )

    def _check_not_of_a_single_node(self) -> None:
        if any((self.path / name).exists() for name in _SINGLE_NODE_FILES):
            raise UnsupportedDataDirectory(
                f"the data directory {self.path} holds a log of version 0.1, which only a server on its own upgrades",
                hint="Start it once without --node, and add nodes afterwards (millstream cluster add-node).",
            )
