"""The last node of a cluster that has shrunk becomes a server on its own again, with all that it has.

Its files are those of a node that is alone already: one voter, replicas of one. Only `node.json` says that others know
of it. That may be taken back once nobody else is left: neither a voter, nor a learner, nor a node that is registered or
may join. The metadata say so for certain, also those that are not committed: the only voter commits whatever it has.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import structlog

from ..errors import write_error
from ..replication.machine import NodeId
from ..replication.node.node_directory import ALONE, NODE_FILE, began_alone
from ..storage.checked_json import read_with_copy, write_with_copy
from ..storage.directory_lock import locked
from .node_folder import members_of_node

_log = structlog.get_logger("millstream.logcore")


def become_alone(path: Path, node: NodeId, cluster: str) -> None:
    """Does nothing where the directory is not that of this node, or the node has others: opening it refuses that.

    Raises `LogLocked`; `CorruptLog` where the metadata are damaged; `LogFull`, `LogWriteFailed`.
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
        raise write_error(error, f"to the data directory {path}") from error
    finally:
        os.close(lock)


def _is_of_a_cluster(meta: Any, node: NodeId, cluster: str) -> bool:
    return meta is not None and not meta.get(ALONE, False) and (meta["cluster"], meta["node"]) == (cluster, node)


def _is_the_only_one(path: Path, meta: Any, node: NodeId) -> bool:
    return members_of_node(path, (node,) if began_alone(meta) else ()) == {node}


def _meta(path: Path) -> Any:
    """None where there is none, or none that can be read: opening the directory says why."""
    try:
        return read_with_copy(path / NODE_FILE, durable=True)
    except ValueError:
        return None
