"""The catalog on every node of a cluster, also on nodes without the engine: every node has to transcode columnar topics
for third-party Kafka clients, and to keep them from using the names of queries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from millstream.errors import LogError

from ...logcore.client import TopicPartition
from ...logcore.cluster.cluster_node import ClusterNode
from ...logcore.cluster.node_log import NodeLog
from ...planner.catalog import Catalog
from ..catalog.command_codec import UnreadableCommand
from ..catalog.command_topic import COMMAND_TOPIC, read_commands
from ..catalog.commands import apply_command
from ..foreign_rows import is_own_name

_FOLLOWED_S: Final = 5.0
_LOOK_S: Final = 0.2
_AGAIN_S: Final = 5.0  # after an unexpected failure
_WAIT_S: Final = 1.0
_PLACE: Final = TopicPartition(COMMAND_TOPIC, 0)

_log = structlog.get_logger("millstream.server")


class FollowedCatalog:
    """State: the catalog after the commands that were read, and a thread that reads more. Call `start`, then `stop`.

    In: `open_log`: opens the cluster's log. It is called when the command topic exists; the log is closed here.
    """

    def __init__(self, node: ClusterNode, open_log: Callable[[], NodeLog]) -> None:
        self._node = node
        self._open_log = open_log
        self._catalog = Catalog()
        self._position = 0
        self._read_once = threading.Event()
        self._stopping = threading.Event()
        self._log: NodeLog | None = None
        self._thread = threading.Thread(target=self._run, name="millstream-catalog", daemon=True)

    @property
    def catalog(self) -> Catalog:
        """The catalog. If commands exist and have not been read yet, it waits at most `_FOLLOWED_S`."""
        if COMMAND_TOPIC in self._node.image.topic_ids:
            self._read_once.wait(_FOLLOWED_S)
        return self._catalog

    def is_known(self) -> bool:
        """Whether all commands that existed at the start were read."""
        return self._read_once.is_set() or COMMAND_TOPIC not in self._node.image.topic_ids

    def is_own_name(self, name: str) -> bool:
        """Whether a group or transactional id belongs to Millstream. Does not wait: until the catalog is known, all
        names do."""
        return not self.is_known() or is_own_name(self._catalog, name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if (log := self._log) is not None:
            log.close()  # it may be waiting for a cluster that no longer exists
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._node.serving and COMMAND_TOPIC in self._node.image.topic_ids:
                try:
                    self._follow()
                except LogError as error:
                    _log.debug("the catalog is not followed now", error=error.message)
                except UnreadableCommand as error:
                    _log.warning("a newer version wrote a command: the catalog stays as it was", error=error.message)
                    self._read_once.set()  # no further command will be read
                    return
                except Exception:  # any error: without this thread the catalog would never change again
                    _log.exception("the catalog is not followed now")
                    self._stopping.wait(_AGAIN_S)
            self._stopping.wait(_LOOK_S)

    def _follow(self) -> None:
        with self._open_log() as self._log:
            log = self._log
            while not self._stopping.is_set():
                begin = self._position
                commands, next_offset = read_commands(log, begin)
                for offset, command in commands:
                    self._catalog = apply_command(self._catalog, command)
                    self._position = offset + 1
                self._position = max(self._position, next_offset)
                if next_offset <= begin:
                    self._read_once.set()
                    log.wait({_PLACE: begin}, _WAIT_S)
