"""A node of a cluster, put together for a Kafka listener and for clients in its own process."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..protocol.broker import Serving
from .layout import ClusterLayout
from .log import ClusterLog
from .node import ClusterNode
from .own_node import OwnNode
from .produce import ClusterProduce
from .transactions import ClusterTransactions

_THREADS: Final = 64


class ServedNode(NamedTuple):
    """`serving`: for a `LogServer`, which may be started before the node is."""

    node: ClusterNode
    serving: Serving
    produce: ClusterProduce

    def door(self) -> OwnNode:
        """For one client in this process."""
        return OwnNode(self.serving, self.produce.write, lambda: self.node.failure)


def served(node: ClusterNode) -> ServedNode:
    """Once for each node."""
    log = ClusterLog(node)
    layout, transactions = ClusterLayout(log), ClusterTransactions(log)
    log.transactions = transactions.described
    produce = ClusterProduce(log, layout)
    serving = Serving(log, layout, transactions, produce, lambda: node.serving, _THREADS)
    return ServedNode(node, serving, produce)


def serving_of(node: ClusterNode) -> Serving:
    """Where nobody in this process is a client."""
    return served(node).serving
