"""A node of a cluster, put together for a Kafka listener."""

from __future__ import annotations

from typing import Final

from ..protocol.broker import Serving
from .layout import ClusterLayout
from .log import ClusterLog
from .node import ClusterNode
from .produce import ClusterProduce
from .transactions import ClusterTransactions

_THREADS: Final = 64


def serving_of(node: ClusterNode) -> Serving:
    """What a `LogServer` serves. It may be started before the node is."""
    log = ClusterLog(node)
    layout, transactions = ClusterLayout(log), ClusterTransactions(log)
    log.transactions = transactions.described
    return Serving(log, layout, transactions, ClusterProduce(log, layout), lambda: node.serving, _THREADS)
