"""Watches the cluster's metadata: it calls listeners, counts events, and logs those that operators should know about.

It is a machine of the node like the others, but it decides nothing and sends no messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from ..replication.controller.metadata_image import MetadataImage, fold, folded
from ..replication.controller.metadata_records import BrokerFenced, PartitionState, Together
from ..replication.machine import Committed, Effect, Input, NodeId, Tick
from ..replication.machine_messages import Change
from ..replication.raft.quorum_messages import LogRecord
from ..replication.replica.replica_messages import PartitionId

_log: Final = structlog.get_logger("millstream.cluster")

_SILENT_MS: Final = 10_000
"""So long no controller answers until the node counts as cut off: elections are shorter."""

Listener = Callable[[MetadataImage, MetadataImage], None]


@dataclass(slots=True)
class Noticed:
    """Counts since the start of this process. They include elections that this node won, and ISR changes of partitions
    that it leads, so that in the sum over all nodes each counts once. Every node counts all fenced brokers."""

    elections: int = 0
    unclean_elections: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    brokers_fenced: int = 0


class _Waits:
    """Logs that the cluster does not take this node after its start, and that it does at last."""

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._is_told = self._is_over = False

    def notice(self, lives: bool, now_ms: int) -> None:
        if self._is_over:
            return
        if self._since_ms is None:
            self._since_ms = now_ms
        if lives:
            self._is_over = True
            if self._is_told:
                _log.info("the cluster has taken this node")
        elif not self._is_told and now_ms - self._since_ms > _SILENT_MS:
            self._is_told = True
            _log.warning(
                "no cluster has taken this node since its start: a majority of the voters has to be up and to reach it,"
                " at these addresses and with the same cluster_name and secret; a node that is new, or was removed, has"
                " to be added first (`millstream cluster add-node`); a process on a copy of the folder of a node that"
                " runs is not taken"
            )


class MetadataWatch:
    """`image`: all metadata that this node knows to be committed. Any thread may read it, since an image never changes.
    `cut_off`: whether no controller has answered this node for ten seconds; the image may be out of date.

    In: `lives`: whether this node's registration is committed and known to it. Earlier records are from before this
    start, and are neither counted nor logged. `heard`: until when the last answer of a
    controller holds, on the clock of `Tick`; None if there is no other node, 0 before the first answer.
    """

    def __init__(self, node: NodeId, lives: Callable[[], bool], heard: Callable[[], int | None]) -> None:
        self.image = MetadataImage()
        self.noticed = Noticed()
        self._node = node
        self._lives = lives
        self._heard = heard
        self.cut_off = False
        self._waits = _Waits()
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """The listener is called on the node's thread, with the images before and after. An exception ends the node."""
        self._listeners.append(listener)

    def step(self, given: Input) -> list[Effect]:
        if isinstance(given, Committed):
            self._learn(given)
        elif isinstance(given, Tick):
            self._waits.notice(self._lives(), given.now_ms)
            self._notice_silence(given.now_ms)
        return []

    def apply(self, change: Change) -> None:
        """Does nothing, since nothing is stored: see `Storage`."""

    def sync(self) -> None:
        """See `apply`."""

    def _learn(self, committed: Committed) -> None:
        before = image = self.image
        lives = self._lives()
        if lives:
            if committed.image is not None:
                image = committed.image
            for index, record in enumerate(committed.records, committed.first_index):
                for part in record.records if isinstance(record, Together) else (record,):
                    self._notice(image, part)
                if record is not committed.records[-1]:
                    image = fold(image, index, record)
        self.image = image = committed.folded or folded(before, committed)
        for listener in self._listeners:
            listener(before, image)

    def _notice_silence(self, now_ms: int) -> None:
        heard_ms = self._heard() if self._lives() else None
        if not heard_ms:
            return
        cut_off = now_ms - heard_ms > (0 if self.cut_off else _SILENT_MS)
        if cut_off == self.cut_off:
            return
        self.cut_off = cut_off
        if cut_off:
            _log.warning(
                "no controller answers this node: it decides nothing and serves no reads until a majority of the voters"
                " is up and reaches it; look at the other nodes and at the network between them"
            )
        else:
            _log.info("a controller answers this node again")

    def _notice(self, image: MetadataImage, record: LogRecord) -> None:
        """In: `image`: the one before the record."""
        if isinstance(record, PartitionState):
            self._notice_partition(image, record)
        elif isinstance(record, BrokerFenced) and image.is_live(record.broker):
            self.noticed.brokers_fenced += 1
            _log.warning("a node of the cluster was fenced: it is down, cut off or leaving", node=record.broker)

    def _notice_partition(self, image: MetadataImage, after: PartitionState) -> None:
        before = image.partition(PartitionId(after.topic_id, after.partition))
        if before is None:
            return
        elected = after.leader is not None and after.leader_epoch != before.leader_epoch
        if elected and after.leader == self._node:
            self.noticed.elections += 1
            self.noticed.unclean_elections += after.unclean
        if elected and after.unclean:
            _log.error(
                "an unclean election: acknowledged records of this partition may be lost",
                topic=image.topics[after.topic_id].name,
                partition=after.partition,
                leader=after.leader,
                was_in_sync=list(before.isr),
                was_eligible=list(before.elr),
            )
        if after.leader == self._node:
            self.noticed.isr_shrinks += bool(set(before.isr) - set(after.isr))
            self.noticed.isr_expands += bool(set(after.isr) - set(before.isr))
