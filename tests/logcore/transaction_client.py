"""A transactional client as a node sees it that is asked by hand: it may say what it should not, and outlives the
node."""

from __future__ import annotations

from pathlib import Path

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.group_messages import CheckCommit, GroupFault
from millstream.logcore.cores.transaction_records import Identity
from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol.served_log import ServedTransactions
from millstream.logcore.protocol.wire.faults import error_of
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.records.codec import encode

from .log_records import crashed_copy, rows

ID = "x"
_TIMEOUT_S = 10.0


class TransactionClient:
    """State: who it believes to be, and how many records it has sent to each partition of topic "t"."""

    def __init__(self, log: Log) -> None:
        self.connect(log)
        self.who = self.transactions.start(ID, 60_000, None)
        self._sent: dict[int, int] = {}

    def connect(self, log: Log) -> None:
        log.transactional_producer("somebody else")  # the coordinator is there then
        self.log = log

    @property
    def transactions(self) -> ServedTransactions:
        return self.log.serving().transactions

    def write(self, value: bytes, partition: int = 0, *, by: Identity | None = None) -> None:
        where, who = TopicPartition("t", partition), by or self.who
        sequence = self._sent.get(partition, 0)
        (batch,) = encode(rows(value), BatchProducer(who.producer_id, who.epoch, sequence, transactional=True))
        result = self.log.parts.produce.write(where, batch, ID, _TIMEOUT_S)
        if result.error_code:
            raise error_of(result.error_code, result.error_message, "write")
        self._sent[partition] = sequence + 1

    def announce(self, *partitions: int) -> None:
        self.transactions.add_partitions(self.who, frozenset(TopicPartition("t", number) for number in partitions))

    def send_offsets(self, group: str, offset: int) -> None:
        offsets = {TopicPartition("t", 1): offset}
        fault = self.transactions.commit_offsets(self.who, CheckCommit(group), offsets, {}, announces=True)
        assert fault is GroupFault.NONE

    def end(self, *, commit: bool) -> None:
        """As older clients do, which keep their epoch."""
        self.transactions.end(self.who, commit=commit)

    def end_and_raise(self, *, commit: bool) -> Identity:
        """Returns who has ended it, to ask again."""
        before = self.who
        self.who = self.transactions.end_and_raise(before, commit=commit, visibly=True)
        self._sent = {}
        return before

    def crash(self, folder: Path) -> Path:
        """The node: what it has written is there, as after kill -9. Returns where."""
        crashed = crashed_copy(self.log, folder, folder.with_name(folder.name + "-crashed"))
        self.log.close()
        self.connect(open_log(crashed))
        return crashed
