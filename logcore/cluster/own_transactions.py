"""Transactions of a client in the process of their coordinator, which keeps the offsets until it commits them.

Over the network a transaction says what belongs to it before it is decided: it opens, names its group, and sends the
offsets, each written down by itself. A client that lives and dies with its coordinator says all of that when it
commits, in the record that decides: four changes less to make durable, of eight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kio.schema.errors import ErrorCode

from millstream.errors import LogError

from ..client import TopicPartition
from ..cores.group_messages import CheckCommit
from ..cores.transaction_records import Identity
from ..failpoints import fp
from ..protocol.own import EndedHere
from ..protocol.requests.group_requests import code_of_fault
from ..protocol.wire.faults import coordinator_code_of
from .cluster_log import ClusterLog
from .cluster_transactions import ClusterTransactions


class OwnTransactions:
    """`TransactionsHere`. Any thread may call any method."""

    def __init__(self, log: ClusterLog, transactions: ClusterTransactions) -> None:
        self._log = log
        self._transactions = transactions

    def forget(self, who: Identity) -> None:
        """As `ClusterTransactions.forget`."""
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

    def commit(self, who: Identity, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> EndedHere:
        fp("txn.before_prepare")
        try:
            raised = self._transactions.commit_at_once(who, offsets)
        except LogError as error:
            return EndedHere(coordinator_code_of(error), -1, -1)
        fp("txn.committed")
        return EndedHere(0, raised.producer_id, raised.epoch)


def _code(act: Callable[[], None]) -> int:
    try:
        act()
    except LogError as error:
        return coordinator_code_of(error)
    return 0
