"""What the handlers of requests share: the log, threads for work that may wait for a disk, and news of the log."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from ..client import TopicPartition
from ..topic_rules import belongs_to_millstream
from .connection import Answer, HangUp, KafkaRequest
from .fetch_sessions import SLOTS, FetchSessions
from .layout import LogLayout
from .row_view import RowView, Transcoder, row_view
from .security.accesses import READ_GROUP, Access
from .security.client_quotas import ANONYMOUS, FETCHED, PRODUCED, ClientQuotas
from .security.peer import Peer
from .security.quotas import UNLIMITED, Meter, Quotas
from .security.users import Users
from .served_log import ServedLog, ServedTransactions
from .share_sessions import ShareSessions
from .wire.frames import CLIENT_ID

_LOGINS_MAX: Final = 2  # at the same time, because checking a password is expensive
_NAMES_UNKNOWN: Final = "it is not known yet which groups and transactional ids are Millstream's own"
_READY_S: Final = 10.0
_LOOK_S: Final = 0.02

_Result = TypeVar("_Result")

IDLE_MS: Final = 600_000
"""Kafka's default for connections.max.idle.ms."""


@dataclass(frozen=True, slots=True)
class KafkaServiceSettings:
    """`is_reserved`: groups and transactional ids that only trusted clients may use. `fetch_sessions`: the maximum.
    `users`: the users; then every client must log in. None: nobody has to. `creates_topics`: whether a missing topic
    is created when a client asks for it, as in Kafka. `knows_names`: whether `is_reserved` already knows all names.
    `idle_ms`: a connection without traffic is closed after this time, as in Kafka.
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
    `produce` answers a Produce request, given the `KafkaService` and the request. `is_ready`: whether the node knows
    what it serves; requests that depend on it wait until it does for the first time. `threads`: for handlers, most of
    which wait: for a sync, for a transaction's turn, for another node."""

    log: ServedLog
    layout: LogLayout
    transactions: ServedTransactions
    produce: Callable[[Any, KafkaRequest], Awaitable[Answer]]
    is_ready: Callable[[], bool] = lambda: True
    threads: int = 16


class Desk(ABC):
    """What the handlers of requests share, for requests over a connection and from clients in this process."""

    def __init__(self, serving: Serving, settings: KafkaServiceSettings) -> None:
        self.log = serving.log
        self.layout = serving.layout
        self.transactions = serving.transactions
        self.settings = settings
        self.salt_secret = os.urandom(32)
        """For the salts of users that do not exist."""

    def refuses(self, peer: Peer, name: str, access: Access = READ_GROUP) -> bool:
        """Whether the client may not use this group or transactional id: it has no right, or the name is reserved.
        Raises `HangUp` if that is not known any more: queries' names may have to be read since `wait_for_names`,
        because the topic with the first of them was just created."""
        if peer.trusted:
            return False
        if self.settings.is_reserved(name):
            if not self.settings.knows_names():
                raise HangUp(_NAMES_UNKNOWN)
            return True
        return not peer.may(access, name)

    def row_view(self, peer: Peer, topic: str) -> RowView | None:
        """How to show this client the topic's columnar batches; None: as they are stored."""
        if peer.client_id == CLIENT_ID or belongs_to_millstream(topic):
            return None
        return row_view(self.log.topic(topic), self.settings.transcoder())

    @abstractmethod
    async def blocking(self, work: Callable[[], _Result]) -> _Result:
        """Runs work that may wait for locks and disks where it delays no other request."""


class KafkaService(Desk):
    """The desk behind a listener. State: requests that wait for the log to grow, what connections share, and whether it
    is closed. It belongs to one event loop."""

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
        """The server is about to close all connections; clients will come again."""
        self._loop = loop
        self._pool = ThreadPoolExecutor(serving.threads, thread_name_prefix="millstream-kafka")
        self._advance = asyncio.Event()
        self._waking = self._awaited = self._closed = False
        self._tasks: set[asyncio.Future[Any]] = set()  # the loop itself keeps no reference
        self._stop_listening = self.log.listen(self._advanced)

    async def ready(self) -> None:
        """Returns when the node can serve, or after a while, so that a client can try other nodes."""
        deadline_s = self._loop.time() + _READY_S
        while not self._ready:
            self._ready = self._is_ready()
            if not self._ready:
                if self._loop.time() >= deadline_s:
                    return
                await asyncio.sleep(_LOOK_S)

    async def wait_for_names(self, peer: Peer) -> None:
        """Returns when it is known which groups and transactional ids are reserved: a refusal by mistake would end a
        client for good. Raises `HangUp` after a while; then the client asks again."""
        deadline_s = self._loop.time() + _READY_S
        while not peer.trusted and not self.settings.knows_names():
            if self._loop.time() >= deadline_s:
                raise HangUp(_NAMES_UNKNOWN)
            await asyncio.sleep(_LOOK_S)

    def lets_in(self, peer: Peer) -> bool:
        """Whether the client is authenticated, if there are users. A client certificate is enough."""
        users = self.settings.users
        if users is None or peer.is_known:
            return True
        if peer.certified:
            peer.user, peer.certified = users.of_certificate(peer.certified), ()
        return peer.user is not None

    def throttle(self, peer: Peer, *, produced: int = 0, fetched: int = 0) -> int:
        """Notes bytes that the client has sent or fetched. Returns for how many milliseconds the server reads nothing
        from it. Call it on the loop."""
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
        """Runs work that may wait for locks and disks on a thread of the pool. Once the service has closed, it cancels
        the caller: a handler that news of the log woke may get here before its connection is closed."""
        if self._closed:
            raise asyncio.CancelledError
        return await self._loop.run_in_executor(self._pool, work)

    def keep(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """Runs it to its end, even if nothing waits for it any more."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def keep_answer(self, answer: asyncio.Future[_Result]) -> asyncio.Future[_Result]:
        """The same for a future that is already under way."""
        self._tasks.add(answer)
        answer.add_done_callback(self._tasks.discard)
        return answer

    def next_advance(self) -> asyncio.Event:
        """An event that is set when a partition grows after this call."""
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
        """Waits for work that is under way, and closes the service."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._stop_listening()
        self._closed = True
        self._pool.shutdown()
