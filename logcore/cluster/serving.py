"""Assembles a node of a cluster for a Kafka listener and for clients in its own process."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..protocol.kafka_service import Serving
from .cluster_layout import ClusterLayout
from .cluster_log import ClusterLog
from .cluster_node import ClusterNode
from .cluster_transactions import ClusterTransactions
from .own_node import OwnNode
from .own_transactions import OwnTransactions
from .produce import ClusterProduce

_THREADS: Final = 64


class ServedNode(NamedTuple):
    """`serving`: for a `LogServer`, which may be started before the node."""

    node: ClusterNode
    log: ClusterLog
    serving: Serving
    produce: ClusterProduce
    transactions: OwnTransactions

    def at(self, advertised: tuple[str, int] | None) -> Serving:
        """For a listener of a node without a registered address for clients. They get `advertised`, or else the address
        that they have connected to."""
        layout = ClusterLayout(self.log, lambda local: advertised or local)
        return self.serving._replace(layout=layout)

    def door(self) -> OwnNode:
        """For one client in this process."""
        node, produce = self.node, self.produce
        return OwnNode(
            self.serving,
            produce.write,
            produce.write_copies,
            self.transactions,
            lambda: node.failure,
            node.logs.room.refusal,
        )


def served(node: ClusterNode) -> ServedNode:
    """Assembles the node. To be called once for each node."""
    log = ClusterLog(node)
    layout, transactions = ClusterLayout(log), ClusterTransactions(log)
    log.transactions = transactions.described
    produce = ClusterProduce(log, layout)
    serving = Serving(log, layout, transactions, produce, lambda: node.serving, _THREADS)
    return ServedNode(node, log, serving, produce, OwnTransactions(log, transactions, produce))
