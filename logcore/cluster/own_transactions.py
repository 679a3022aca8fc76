"""Transactions of a client in the process of their coordinator, which keeps the offsets until it commits them.

Over the network a transaction registers everything before it is decided: it opens, names its group, and sends the
offsets, each with its own record. A client in the same process as its coordinator sends all of this with its commit, in
the record of the decision. Until then the coordinator only remembers in memory which partitions it has written to. So a
commit makes two changes durable, one after the other: the written records, and the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from millstream.errors import LogError

from ..client import TopicPartition
from ..cores.group_messages import CheckCommit
from ..cores.transaction_records import Identity
from ..error_codes import ErrorCode
from ..errors import NotNow
from ..failpoints import fp
from ..protocol.own import EndedHere
from ..protocol.requests.group_requests import code_of_fault
from ..protocol.wire.faults import coordinator_code_of
from ..protocol.wire.produce_messages import ProduceResult
from ..records.batch import EncodedBatch
from ..replication.node.node_runtime import NoAnswer, NodeStopped
from ..replication.replica.replica_messages import Problem, Refused
from .cluster_log import ClusterLog
from .cluster_transactions import ClusterTransactions
from .produce import ClusterProduce
from .refusals import refused

_WRITE_S: Final = 30.0


class OwnTransactions:
    """`TransactionsHere`. Any thread may call any method."""

    def __init__(self, log: ClusterLog, transactions: ClusterTransactions, produce: ClusterProduce) -> None:
        self._log = log
        self._transactions = transactions
        self._produce = produce

    def forget(self, who: Identity) -> None:
        """See `ClusterTransactions.forget`."""
        self._transactions.forget(who)

    def is_fenced(self, who: Identity) -> int:
        return _code(lambda: self._transactions.check_current(who))

    def why_not(self, who: Identity, group: str, places: Iterable[TopicPartition]) -> int:
        for where in places:
            topic = self._log.topic(where.topic)
            if topic is None or not 0 <= where.partition < topic.partition_count:
                return ErrorCode.unknown_topic_or_partition
        fault = self._log.groups.check(CheckCommit(group, transactional=True))
        return code_of_fault(fault) or self.is_fenced(who)

    def write(self, who: Identity, where: TopicPartition, batch: EncodedBatch) -> ProduceResult:
        return self._produce.write(where, batch, who.transactional_id, _WRITE_S, here=True)

    def flush(self, written: Iterable[TopicPartition]) -> int:
        return _code(lambda: self._make_durable(written))

    def commit(
        self,
        who: Identity,
        written: Iterable[TopicPartition],
        offsets: Mapping[str, Mapping[TopicPartition, int]],
    ) -> EndedHere:
        try:
            self._make_durable(written)
            fp("txn.before_prepare")
            raised = self._transactions.commit_at_once(who, offsets)
        except LogError as error:
            return EndedHere(coordinator_code_of(error), -1, -1)
        fp("txn.committed")
        return EndedHere(0, raised.producer_id, raised.epoch)

    def _make_durable(self, written: Iterable[TopicPartition]) -> None:
        """Syncs all partitions together, so that they share a round of syncs. Deleted topics are skipped."""
        ids = [id for where in written if (id := self._log.node.partition_id(*where)) is not None]
        if not ids:
            return
        try:
            answers = self._log.node.commit(ids)
        except NodeStopped as error:
            raise NotNow(ErrorCode.coordinator_not_available, "this node has ended") from error
        except NoAnswer as error:
            raise NotNow(ErrorCode.coordinator_not_available, "a partition's log is not durable yet") from error
        for answer in answers:
            if isinstance(answer, Refused) and answer.problem is not Problem.UNKNOWN_PARTITION:
                raise refused(answer)


def _code(act: Callable[[], None]) -> int:
    try:
        act()
    except LogError as error:
        return coordinator_code_of(error)
    return 0
