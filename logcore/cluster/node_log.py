"""`NodeLog`: a `LogClient` for the log of a cluster, in the process of one of its nodes."""

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
    """Requests for partitions and groups of this node stay in the process; all others go over the network to the other
    nodes. Errors, retries and fail-overs are those of `RemoteLog`. It is trusted like clients with the log's secret.
    """

    def __init__(
        self,
        served: ServedNode,
        *,
        bootstrap: str = "",
        patience_s: float = _PATIENCE_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """In: `bootstrap`: empty if no other process can find the cluster. `tls`: for connections to other nodes."""
        self._served = served
        login = secret_credentials(served.serving.log.secret)
        alone = served.node.settings.alone
        self._own = served.door()
        super().__init__(Router((), login, tls, patience_s, own=self._own, alone=alone), bootstrap)

    def listen(self, listener: Callable[[TopicPartition], None]) -> Callable[[], None]:
        """Calls `listener`, on any thread and with locks held, with each partition whose replica here has more to read.

        Returns a function that ends this.
        """
        return self._served.serving.log.listen(listener)

    def forget_producer(self, transactional_id: str) -> None:
        """Removes everything about the id; a client over the network can only fence its producer. Raises `NotNow` if
        another producer has taken the id meanwhile."""
        producer = self.transactional_producer(transactional_id)  # ends what is open
        self._served.transactions.forget(Identity(transactional_id, producer.producer_id, producer.epoch))
        self._router.forget(CoordinatorKey("transaction", transactional_id))

    def keep_house(self) -> Kept:
        """Does the housekeeping of this node's replicas now instead of in the background: retention, compaction, and
        forgetting old producers."""
        return self._served.node.logs.keep_house()

    def problems(self) -> list[str]:
        """The known problems of this node's data directory: damage, and failed housekeeping."""
        return self._served.node.logs.problems()
