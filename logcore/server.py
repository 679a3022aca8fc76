"""Serves the log to other processes: a TCP listener that speaks the Kafka protocol. `protocol/` answers requests."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from millstream.errors import LogError

from .accepting import AT_A_TIME, let_wait
from .log import Log
from .protocol.admission import ConnectionLimits, HeldConnections
from .protocol.connection import KafkaConnection
from .protocol.dispatch import answer, ended
from .protocol.fetch_sessions import SLOTS
from .protocol.kafka_service import IDLE_MS, KafkaService, KafkaServiceSettings, Serving
from .protocol.row_view import Transcoder
from .protocol.security.quotas import UNLIMITED, Quotas
from .protocol.security.users import Users
from .protocol.served_log import ServedLog

DEFAULT_PORT: Final = 9092
_LIMITS: Final = ConnectionLimits(total=2000, per_address=1000)
_LOGIN_S: Final = 30.0
_OVERDUE_EVERY_S: Final = 5.0

_logger = structlog.get_logger("millstream.logcore")


class ListenFailed(LogError):
    """The server cannot listen at the address."""

    code = "LISTEN_FAILED"


class LogServer:
    """Serves `log`, or one node of a cluster, at `host:port`. It runs an event loop in its own thread. Port 0 takes a
    free port.

    `transcoder`: turns columnar batches into rows, for clients that do not know columnar batches; it may be set later.
    Without it these clients get the batches as they are stored. `advertised`: the address that clients are told;
    None: the one they used. `creates_topics`: a topic that a client names is created if it does not exist. `users`: if
    given, every client must log in as one of them. The log stays open after `stop`: its opener closes it.
    """

    def __init__(
        self,
        log: Log | Serving,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        *,
        advertised: tuple[str, int] | None = None,
        transcoder: Transcoder | None = None,
        quotas: Quotas = UNLIMITED,
        fetch_sessions: int = SLOTS,
        idle_ms: int = IDLE_MS,
        limits: ConnectionLimits = _LIMITS,
        creates_topics: bool = False,
        users: Users | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.serving = log if isinstance(log, Serving) else log.serving(advertised)
        self._host = host
        self._port = port
        self.transcoder = transcoder
        self.is_reserved: Callable[[str], bool] = lambda name: False
        """True for the groups and transactional ids that only trusted clients may use."""
        self.knows_names: Callable[[], bool] = lambda: True
        """Whether `is_reserved` can answer yet. Until it can, requests of other clients that name one wait."""
        self._quotas = quotas
        self._fetch_sessions = fetch_sessions
        self._idle_ms = idle_ms
        self._limits = limits
        self._creates_topics = creates_topics
        self._users, self._tls = users, tls
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._stop: asyncio.Event | None = None

    @property
    def log(self) -> ServedLog:
        return self.serving.log

    @property
    def port(self) -> int:
        """The port of the listener, once it has started."""
        return self._port

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    def start(self) -> None:
        """Returns once clients can connect. Raises `ListenFailed`."""
        self._thread = threading.Thread(target=self._run, name="millstream-kafka-loop", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise ListenFailed(
                f"cannot listen at {self.address}: {self._failure}",
                hint="Another server may use the port: choose another one, or stop that server.",
            ) from self._failure

    def stop(self) -> None:
        """Closes all connections and waits for requests in progress. It may be called twice."""
        if self._thread is None or self._loop is None or self._stop is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def __enter__(self) -> LogServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # also ValueError: a host's name may be impossible
            if self._started.is_set():
                raise
            self._failure = error
        finally:
            self._started.set()

    def _settings(self) -> KafkaServiceSettings:
        """Attributes that may be set later are passed as functions, which read them at each use."""
        return KafkaServiceSettings(
            lambda: self.transcoder,
            self._quotas,
            lambda name: self.is_reserved(name),
            self._fetch_sessions,
            self._users,
            self._creates_topics,
            lambda: self.knows_names(),
            self._idle_ms,
        )

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        connections = HeldConnections[KafkaConnection](self._limits)
        broker = KafkaService(self.serving, self._loop, self._settings())
        try:
            server = await self._loop.create_server(
                lambda: KafkaConnection(partial(answer, broker), connections, partial(ended, broker)),
                self._host,
                self._port,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else _LOGIN_S,
                backlog=AT_A_TIME,
            )
            let_wait(server, "kafka")
            self._port = server.sockets[0].getsockname()[1]
            self._started.set()
            _logger.info("kafka listener started", address=self.address)
            every_s = min(_OVERDUE_EVERY_S, self._idle_ms / 1000 / 4)
            overdue = asyncio.create_task(_end_overdue(broker, connections, every_s))
            await self._stop.wait()
            overdue.cancel()
            broker.ends = True
            server.close()
            connections.close()
            await server.wait_closed()
        finally:
            await broker.close()


async def _end_overdue(broker: KafkaService, connections: HeldConnections[KafkaConnection], every_s: float) -> None:
    """Ends what is overdue, every `every_s`. It aborts transactions whose producers are gone, because they block
    readers. It closes connections that did not log in in time, and idle ones: a client whose network failed never
    closes its connection."""
    while True:
        await asyncio.sleep(every_s)
        now_s = time.monotonic()
        for connection in list(connections):
            late = connection.peer.since_s < now_s - _LOGIN_S and not broker.lets_in(connection.peer)
            if late or connection.is_idle_since(now_s - broker.settings.idle_ms / 1000):
                connection.give_up()
        try:
            await broker.blocking(broker.transactions.end_overdue)
        except LogError as error:
            _logger.warning("overdue transactions not ended", error=error.message)
