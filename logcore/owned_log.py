"""A log whose directory this process has open, as its owner sees it: `OwnedLog`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from .client import LogClient
from .protocol.kafka_service import Serving
from .protocol.served_log import ServedLog
from .storage.housekeeping import Kept


class OwnedLog(LogClient):
    """A `LogClient`, and what only the process can ask that has the log open. `close` lets another one have it."""

    @property
    @abstractmethod
    def served(self) -> ServedLog:
        """The log as handlers of Kafka's requests see it."""

    @abstractmethod
    def serving(self, advertised: tuple[str, int] | None = None) -> Serving:
        """For a `LogServer`. In: `advertised`: where clients are to come again; None: where they found us."""

    @abstractmethod
    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener`, on any thread and with locks held, whenever a partition advanced. Returns what ends it."""

    @abstractmethod
    def keep_house(self) -> Kept:
        """Does at once what otherwise happens in the background: retention, compaction, forgetting old producers."""

    @abstractmethod
    def problems(self) -> list[str]:
        """What is wrong in the data directory, as far as it is known: damage, and housekeeping that failed."""

    @abstractmethod
    def expire_offsets_of(self, expires: Callable[[str], bool]) -> None:
        """Offsets of groups for which `expires` is true are forgotten when their time has come; until somebody says so,
        those of none are. It is called on any thread."""
