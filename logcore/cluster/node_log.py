"""The log of a cluster for a client in the process of one of its nodes: `NodeLog`, a `LogClient`."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from ..client import TopicPartition
from ..clients.routed_log import RoutedLog
from ..cores.transaction_records import Identity
from ..protocol.routing import CoordinatorKey, Router
from ..protocol.security.sasl import secret_credentials
from ..storage.housekeeping import Kept
from .serving import ServedNode

_PATIENCE_S: Final = 30.0


class NodeLog(RoutedLog):
    """What this node leads or coordinates is asked of it in process, everything else of the other nodes, over the
    network. Errors, retries and fail-overs are those of `RemoteLog`; it is trusted as whoever shows the log's secret.
    """

    def __init__(
        self,
        served: ServedNode,
        *,
        bootstrap: str = "",
        patience_s: float = _PATIENCE_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """In: `bootstrap`: empty where no other process finds the cluster. `tls`: how other nodes are asked."""
        self._served = served
        login = secret_credentials(served.serving.log.secret)
        alone = served.node.settings.alone
        self._own = served.door()
        super().__init__(Router((), login, tls, patience_s, own=self._own, alone=alone), bootstrap)

    def listen(self, listener: Callable[[TopicPartition], None]) -> Callable[[], None]:
        """Calls `listener`, on any thread and with locks held, with each partition whose replica here has more to read.

        Returns what ends it.
        """
        return self._served.serving.log.listen(listener)

    def forget_producer(self, transactional_id: str) -> None:
        """Leaves nothing of the id, where a client over the network only fences its producer. Raises `NotNow` where
        somebody else has taken the id meanwhile."""
        producer = self.transactional_producer(transactional_id)  # ends what is open
        self._served.transactions.forget(Identity(transactional_id, producer.producer_id, producer.epoch))
        self._router.forget(CoordinatorKey("transaction", transactional_id))

    def keep_house(self) -> Kept:
        """Does at once what otherwise happens in the background, to the replicas of this node: retention, compaction,
        forgetting old producers."""
        return self._served.node.logs.keep_house()

    def problems(self) -> list[str]:
        """What is wrong in this node's data directory, as far as it is known: damage, and housekeeping that failed."""
        return self._served.node.logs.problems()
