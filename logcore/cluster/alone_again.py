"""The last node of a cluster that has shrunk becomes a single server again, with all its data.

Its files are already those of a single node: one voter, and one replica per partition. Only `node.json` says that it
belongs to a cluster. This may be changed once no other node is left: no voter, no learner, and no node that is
registered or may join. The metadata are certain about that, even if not committed: the only voter commits all of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import structlog

from ..errors import unusable_directory
from ..replication.machine import NodeId
from ..replication.node.node_directory import ALONE, NODE_FILE, began_alone
from ..storage.checked_json import read_with_copy, write_with_copy
from ..storage.directory_lock import locked
from .node_folder import members_of_node

_log = structlog.get_logger("millstream.logcore")


def become_alone(path: Path, node: NodeId, cluster: str) -> None:
    """Does nothing if the directory is not that of this node, or if there are other nodes; opening it then fails.

    Raises `LogLocked`; `CorruptLog` if the metadata are damaged; `LogFull` and `UnusableDataDirectory`.
    """
    if not (path / "lock").exists():
        return
    lock = locked(path / "lock")
    try:
        meta = _meta(path)
        if _is_of_a_cluster(meta, node, cluster) and _is_the_only_one(path, meta, node):
            _log.info("the only node of a cluster is started alone", path=str(path))
            write_with_copy(path / NODE_FILE, {**meta, ALONE: True}, durable=True)
    except OSError as error:
        raise unusable_directory(error, path) from error
    finally:
        os.close(lock)


def _is_of_a_cluster(meta: Any, node: NodeId, cluster: str) -> bool:
    return meta is not None and not meta.get(ALONE, False) and (meta["cluster"], meta["node"]) == (cluster, node)


def _is_the_only_one(path: Path, meta: Any, node: NodeId) -> bool:
    return members_of_node(path, (node,) if began_alone(meta) else ()) == {node}


def _meta(path: Path) -> Any:
    """The content of `node.json`; None if it is missing or cannot be read. Opening the directory then reports why."""
    try:
        return read_with_copy(path / NODE_FILE, durable=True)
    except ValueError:
        return None
