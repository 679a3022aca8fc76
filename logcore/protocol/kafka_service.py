"""What the handlers of requests share: the log, threads for whatever may wait for a disk, and news of the log."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeVar

from ..client import TopicPartition
from ..topic_rules import belongs_to_millstream
from .connection import Answer, HangUp, KafkaRequest
from .fetch_sessions import SLOTS, FetchSessions
from .layout import LogLayout
from .row_view import RowView, Transcoder, row_view
from .security.client_quotas import ANONYMOUS, FETCHED, PRODUCED, ClientQuotas
from .security.peer import Peer
from .security.quotas import UNLIMITED, Meter, Quotas
from .security.users import Users
from .served_log import ServedLog, ServedTransactions
from .share_sessions import ShareSessions
from .wire.frames import CLIENT_ID

_LOGINS_MAX: Final = 2  # at the same time: checking a password is work
_READY_S: Final = 10.0
_LOOK_S: Final = 0.02

_Result = TypeVar("_Result")

IDLE_MS: Final = 600_000
"""As Kafka's connections.max.idle.ms."""


@dataclass(frozen=True, slots=True)
class KafkaServiceSettings:
    """`is_reserved`: groups and transactional ids that only trusted clients may use. `fetch_sessions`: at most so many.
    `users`: who may log in, and then everybody has to; None: nobody has to. `creates_topics`: a topic that a client
    asks for is made where there is none, as Kafka does it. `knows_names`: whether it is known yet what `is_reserved`.
    `idle_ms`: a connection on which nothing happens for so long is closed, as by Kafka.
    """

    transcoder: Callable[[], Transcoder | None] = lambda: None
    quotas: Quotas = UNLIMITED
    is_reserved: Callable[[str], bool] = lambda name: False
    fetch_sessions: int = SLOTS
    users: Users | None = None
    creates_topics: bool = False
    knows_names: Callable[[], bool] = lambda: True
    idle_ms: int = IDLE_MS


class Serving(NamedTuple):
    """What is served: this node's part of a cluster's log (`logcore/cluster/`).
    `produce` answers a Produce request, given the `KafkaService` and the request. `is_ready`: whether it knows what it
    serves; until it does for the first time, nothing is answered that depends on it. `threads`: for handlers, most of
    which wait: for a sync, for a transaction's turn, for another node."""

    log: ServedLog
    layout: LogLayout
    transactions: ServedTransactions
    produce: Callable[[Any, KafkaRequest], Awaitable[Answer]]
    is_ready: Callable[[], bool] = lambda: True
    threads: int = 16


class Desk(ABC):
    """What the handlers of requests share, whether these come over a connection or from a client of this process."""

    def __init__(self, serving: Serving, settings: KafkaServiceSettings) -> None:
        self.log = serving.log
        self.layout = serving.layout
        self.transactions = serving.transactions
        self.settings = settings
        self.salt_secret = os.urandom(32)
        """For the salts of users that there are not."""

    def refuses(self, peer: Peer, name: str, right: Literal["group", "transaction"] = "group") -> bool:
        """Whether the client may not use this group or transactional id, or it is Millstream's own."""
        return not peer.trusted and (self.settings.is_reserved(name) or not peer.may(right, name))

    def row_view(self, peer: Peer, topic: str) -> RowView | None:
        """How this client sees the topic's columnar batches; None where it gets them as they are."""
        if peer.client_id == CLIENT_ID or belongs_to_millstream(topic):
            return None
        return row_view(self.log.topic(topic), self.settings.transcoder())

    @abstractmethod
    async def blocking(self, work: Callable[[], _Result]) -> _Result:
        """Runs what may wait for locks and disks where nobody else has to wait for it."""


class KafkaService(Desk):
    """The desk behind a listener. State: who waits for the log to grow, what connections share, and whether it has
    closed. Lives on one event loop."""

    def __init__(
        self,
        serving: Serving,
        loop: asyncio.AbstractEventLoop,
        settings: KafkaServiceSettings,
    ) -> None:
        super().__init__(serving, settings)
        self.produce = serving.produce
        self._is_ready = serving.is_ready
        self._ready = False
        self._quotas = ClientQuotas(serving.log, settings.quotas)
        self._meters = {PRODUCED: Meter(), FETCHED: Meter()}
        self.logins = asyncio.Semaphore(_LOGINS_MAX)
        self.sessions = FetchSessions(settings.fetch_sessions)
        self.share_sessions = ShareSessions()
        self.ends = False
        """Connections are about to be closed by us: clients will come again."""
        self._loop = loop
        self._pool = ThreadPoolExecutor(serving.threads, thread_name_prefix="millstream-kafka")
        self._advance = asyncio.Event()
        self._waking = self._awaited = self._closed = False
        self._tasks: set[asyncio.Future[Any]] = set()  # the loop itself keeps no reference
        self._stop_listening = self.log.listen(self._advanced)

    async def ready(self) -> None:
        """Returns when there is something to serve, or after a while: a client that has other nodes to ask goes on."""
        deadline_s = self._loop.time() + _READY_S
        while not self._ready:
            self._ready = self._is_ready()
            if not self._ready:
                if self._loop.time() >= deadline_s:
                    return
                await asyncio.sleep(_LOOK_S)

    async def wait_for_names(self, peer: Peer) -> None:
        """Returns when it is known which groups and transactional ids are Millstream's own: to refuse one before that
        would end clients for good. Raises `HangUp` after a while; they ask again."""
        deadline_s = self._loop.time() + _READY_S
        while not peer.trusted and not self.settings.knows_names():
            if self._loop.time() >= deadline_s:
                raise HangUp("it is not known yet which groups and transactional ids are Millstream's own")
            await asyncio.sleep(_LOOK_S)

    def lets_in(self, peer: Peer) -> bool:
        """Whether it has shown who it is, where there are users; a certificate says that without being asked."""
        users = self.settings.users
        if users is None or peer.is_known:
            return True
        if peer.certified:
            peer.user, peer.certified = users.of_certificate(peer.certified), ()
        return peer.user is not None

    def throttle(self, peer: Peer, *, produced: int = 0, fetched: int = 0) -> int:
        """The client has moved so many bytes; for how many milliseconds nothing more is read from it. On the loop."""
        if peer.trusted:
            return 0
        now_s = self._loop.time()
        kind, size = (PRODUCED, produced) if produced else (FETCHED, fetched)
        user = ANONYMOUS if peer.user is None else peer.user.name
        rate = self._quotas.rate(kind, user, peer.client_id, now_s)
        if rate is None:
            return 0
        wait_s = self._meters[kind].note(rate.shared_by, size, rate.bytes_per_s, now_s)
        if wait_s:
            peer.muted_until_s = max(peer.muted_until_s, now_s + wait_s)
        return round(wait_s * 1000)

    async def blocking(self, work: Callable[[], _Result]) -> _Result:
        """Runs what may wait for locks and disks on a thread of its own. Once the service has closed, cancels its
        caller: a handler that news of the log woke may get here before its connection is told to end."""
        if self._closed:
            raise asyncio.CancelledError
        return await self._loop.run_in_executor(self._pool, work)

    def keep(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """Runs it to its end, whether or not somebody still waits for it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def keep_answer(self, answer: asyncio.Future[_Result]) -> asyncio.Future[_Result]:
        """The same of what is under way already."""
        self._tasks.add(answer)
        answer.add_done_callback(self._tasks.discard)
        return answer

    def next_advance(self) -> asyncio.Event:
        """Is set when a partition grows after this call."""
        self._awaited = True
        return self._advance

    def _advanced(self, _: TopicPartition) -> None:
        if self._awaited and not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._waking = self._awaited = False
        event, self._advance = self._advance, asyncio.Event()
        event.set()

    async def close(self) -> None:
        """Waits for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._stop_listening()
        self._closed = True
        self._pool.shutdown()
