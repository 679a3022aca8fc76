"""Transactions of clients at a log of one node: what `producers.py` knows, asked the way a cluster is asked, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..client import TopicPartition
from ..cores.group_messages import CheckCommit, CommitNote, GroupFault
from ..cores.transaction_records import Identity
from .producers import ClientProducer, Producers

if TYPE_CHECKING:
    from ..log import Log


class LocalTransactions:
    """`ServedTransactions`."""

    def __init__(self, log: Log) -> None:
        self.producers = Producers(log)
        self.log = log

    def new_producer_id(self) -> int:
        return self.log.new_producer_id()

    def start(self, transactional_id: str, timeout_ms: int, known: tuple[int, int] | None) -> Identity:
        if known is None:
            new = self.producers.new(transactional_id, timeout_ms).producer
        else:
            new = self.producers.after(transactional_id, timeout_ms, *known).producer
        return Identity(transactional_id, new.producer_id, new.epoch)

    def add_partitions(self, who: Identity, partitions: frozenset[TopicPartition]) -> None:
        self._producer(who).announce(set(partitions))

    def add_offsets(self, who: Identity, group: str) -> None:
        self._producer(who).announce(set())

    def commit_offsets(
        self,
        who: Identity,
        check: CheckCommit,
        offsets: Mapping[TopicPartition, int],
        notes: Mapping[TopicPartition, CommitNote],
        *,
        announces: bool,
    ) -> GroupFault:
        fault = self.log.groups.check(check)
        if fault is GroupFault.NONE:
            self._producer(who).send_offsets(check.group, offsets, notes, announces=announces)
        return fault

    def end(self, who: Identity, *, commit: bool) -> None:
        self._producer(who).end(commit=commit)

    def end_and_raise(self, who: Identity, *, commit: bool, visibly: bool = False) -> Identity:
        return Identity(who.transactional_id, *self.producers.end_and_raise(*who, commit=commit))

    def end_hanging(self, where: TopicPartition, producer_id: int, epoch: int, *, commit: bool) -> None:
        self.log.end_hanging(where, producer_id, epoch, commit=commit)

    def end_overdue(self) -> None:
        self.producers.end_overdue()

    def _producer(self, who: Identity) -> ClientProducer:
        return self.producers.find(*who)
