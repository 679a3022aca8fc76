"""Shared by the routes: the engine, the threads that call it, and the queries that have clients."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeVar
from weakref import WeakSet

from prometheus_client.registry import Collector
from starlette.types import Receive

from millstream.errors import did_you_mean

from ...executor.answers.pull_limits import PullClient, serving
from ...logcore.backup.snapshots import Snapshots
from ...logcore.cluster.operations import Operations
from ...planner.catalog import PersistentQuery
from ...sql.settings.property_table import PUSH_QUERIES
from ...sql.splitting import waits_for_others
from ..engine.engine import Engine
from ..engine.query_limits import PullGate
from ..engine.shared_feeds import SharedFeeds
from ..insight.open_pushes import OpenPush
from ..security.access import User
from ..security.rights import Rights
from .errors import (
    COMMAND_TIMEOUT,
    ENDS,
    NOT_FOUND,
    SHUTTING_DOWN,
    TOO_MANY_PUSH_QUERIES,
    TOO_MANY_REQUESTS,
    RequestRefused,
)
from .metrics import Metrics

T = TypeVar("T")

WORKERS: Final = 16
WAITING_MAX: Final = 256
CALL_THREADS: Final = "millstream-http"
PATIENT_THREADS: Final = "millstream-patient"
"""Prefixes of the threads' names."""
PATIENT: Final = 16
PATIENT_WAITING_MAX: Final = 64
PULL_QUERIES_MAX: Final = 64
INSERT_STREAMS_MAX: Final = 200
_COMMAND_POLL_S: Final = 0.02
_CALLS_END_S: Final = 1.0  # in addition to the time that the listener allows for requests
_THREAD_ENDS_S: Final = 10.0
_USER: Final = "millstream.user"  # key in the scope of a request


class Workers:
    """A bounded pool of threads for blocking calls, with a bounded queue."""

    def __init__(self, threads: int = WORKERS, waiting_max: int = WAITING_MAX, name: str = CALL_THREADS) -> None:
        """In: `waiting_max`: limit of calls that run or wait."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._waiting_max = waiting_max
        self._waiting = 0  # only changed on the event loop
        self._running: set[Future[Any]] = set()
        self._closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """Runs the call in a thread. Raises `RequestRefused` if too many calls are waiting, or if the pool closes
        before the call begins: the engine is stopping, and the client can soon ask another one, here or on another
        node."""
        if self._waiting >= self._waiting_max:
            raise RequestRefused(TOO_MANY_REQUESTS, f"more than {self._waiting_max} requests are waiting")
        self._waiting += 1
        try:
            return await self._run(call)
        finally:
            self._waiting -= 1

    async def _run(self, call: Callable[[], T]) -> T:
        inside = contextvars.copy_context()  # log lines contain the request id
        try:
            submitted = self._pool.submit(inside.run, call)
        except RuntimeError as error:
            if not self._closed:
                raise
            raise RequestRefused(SHUTTING_DOWN, ENDS) from error
        self._running.add(submitted)
        submitted.add_done_callback(self._running.discard)
        try:
            return await asyncio.wrap_future(submitted)
        except asyncio.CancelledError as error:
            asked_to = asyncio.current_task()
            if not self._closed or (asked_to is not None and asked_to.cancelling()):
                raise
            raise RequestRefused(SHUTTING_DOWN, ENDS) from error

    def close(self, within_s: float = _CALLS_END_S) -> None:
        """Waits at most `within_s` for running calls. A call that waits for an external system is abandoned."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        wait(tuple(self._running), within_s)


class StatementWorkers:
    """Runs texts of statements. Statements that wait for others (ASSERT) have separate threads, so they never block
    other texts. They wait until their client disconnects, or until `close`."""

    def __init__(self, workers: Workers) -> None:
        """In: `workers`: for all other texts; the caller closes them."""
        self._workers = workers
        self._patient = Workers(PATIENT, PATIENT_WAITING_MAX, name=PATIENT_THREADS)
        self._clients: set[PullClient] = set()
        self._closed = False

    async def run(self, text: str, call: Callable[[], T], client: PullClient) -> T:
        """Raises as `Workers.run`. Cancellation means that the client has disconnected."""
        if not waits_for_others(text):
            return await self._workers.run(call)
        self._clients.add(client)
        if self._closed:
            client.leave()
        try:
            return await self._patient.run(lambda: _serve(client, call))
        finally:
            client.leave()
            self._clients.discard(client)

    def close(self) -> None:
        self._closed = True
        for client in tuple(self._clients):
            client.leave()
        self._patient.close()


def _serve(client: PullClient, call: Callable[[], T]) -> T:
    with serving(client):
        return call()


@contextlib.asynccontextmanager
async def leaving(tell: Callable[[], None], goodbye: Callable[[], Awaitable[object]]) -> AsyncGenerator[None]:
    """Calls `tell` when the client disconnects. In: `goodbye`: waits until it has."""

    async def watch() -> None:
        await goodbye()
        tell()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


async def disconnected(receive: Receive) -> None:
    """Returns when the client disconnects. In: the request was read to its end."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Slots:
    """A context manager for at most `most` users at a time. Only for the event loop."""

    def __init__(self, most: int, what: str) -> None:
        self.taken = 0
        self._most = most
        self._what = what

    def __enter__(self) -> None:
        if self.taken >= self._most:
            raise RequestRefused(TOO_MANY_REQUESTS, f"{self._most} {self._what} are already open")
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        self.taken -= 1


class OpenRows(Protocol):
    """Rows being sent to a client; `RowStream` implements it. Any thread may call it."""

    @property
    def runs(self) -> bool: ...

    def close(self) -> None: ...

    def join(self, timeout_s: float) -> None: ...


@dataclass(slots=True)
class _Open:
    """`push`: how statements show it; None if they do not. `ended`: its client still has to be told."""

    kind: Literal["PUSH", "PULL"]
    stream: OpenRows
    owner: str | None
    push: OpenPush | None
    ended: bool = False


class OpenQueries:
    """The queries that are sending rows to clients. Any thread may call any method."""

    def __init__(self, push_queries_max: int) -> None:
        self._most = {"PUSH": push_queries_max, "PULL": PULL_QUERIES_MAX}
        self._guard = threading.Lock()
        self._open: dict[str, _Open] = {}
        self._ending: WeakSet[OpenRows] = WeakSet()  # queries without clients; a thread keeps its stream alive
        self._closed = False

    def add(
        self,
        query_id: str,
        kind: Literal["PUSH", "PULL"],
        stream: OpenRows,
        owner: str | None = None,
        push: OpenPush | None = None,
    ) -> None:
        """In: `owner`: the user's name, if there are users. `push`: of a push query. Raises `RequestRefused` if too
        many queries of the kind are open."""
        with self._guard:
            if self._closed:
                raise RequestRefused(SHUTTING_DOWN, "the server is shutting down")
            if sum(1 for each in self._open.values() if each.kind == kind) >= self._most[kind]:
                raise self._too_many(kind)
            self._open[query_id] = _Open(kind, stream, owner, push)

    def remove(self, query_id: str) -> None:
        with self._guard:
            found = self._open.pop(query_id, None)
            if found is not None:
                self._ending.add(found.stream)

    def close_one(self, query_id: str, rights: Rights) -> bool:
        """False if no such query is open, or if another user owns it."""
        with self._guard:
            found = self._open.get(query_id)
        if found is None or not rights.is_own(found.owner):
            return False
        found.ended = True
        found.stream.close()
        return True

    def pushes(self, rights: Rights) -> list[OpenPush]:
        """Those that the user may end, and that nobody has ended."""
        with self._guard:
            found = [each for each in self._open.values() if not each.ended]
        return [each.push for each in found if each.push is not None and rights.is_own(each.owner)]

    def close(self) -> None:
        """Ends all queries and refuses new ones."""
        with self._guard:
            self._closed = True
            streams = [each.stream for each in self._open.values()]
        for stream in streams:
            stream.close()

    def join(self) -> None:
        """Waits until the threads of all closed queries have ended."""
        with self._guard:
            streams = [*self._ending, *(each.stream for each in self._open.values())]
        for stream in streams:
            stream.join(_THREAD_ENDS_S)

    def __len__(self) -> int:
        return len(self._open)

    def count(self, kind: Literal["PUSH", "PULL"]) -> int:
        with self._guard:
            return sum(1 for each in self._open.values() if each.kind == kind)

    def _too_many(self, kind: Literal["PUSH", "PULL"]) -> RequestRefused:
        if kind == "PULL":
            return RequestRefused(TOO_MANY_REQUESTS, f"{PULL_QUERIES_MAX} pull queries are sending rows already")
        return RequestRefused(
            TOO_MANY_PUSH_QUERIES,
            f"the server runs {self._most[kind]} push queries already, and no more are allowed",
            hint=f"End one (SHOW QUERIES, TERMINATE), or raise {PUSH_QUERIES} in the server's configuration.",
        )


class HttpContext:
    """One per HTTP server. `cluster_id`: the id of the served log. `cluster`: None if the log has a single node.
    `snapshots`: of the log, None if another route handles them. `kafka`: the log's address for clients, in the form
    that `RemoteLog` accepts; None if they reach it at external brokers."""

    def __init__(
        self,
        engine: Engine,
        cluster_id: str,
        body_bytes_max: int,
        log_metrics: Collector | None = None,
        cluster: Operations | None = None,
        snapshots: Snapshots | None = None,
        kafka: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.engine = engine
        self.kafka = kafka
        self.cluster = cluster
        self.snapshots = snapshots
        self.cluster_id = cluster_id
        self.body_bytes_max = body_bytes_max
        self.workers = Workers()
        self.statements = StatementWorkers(self.workers)
        self.settings = engine.settings
        self.open_queries = OpenQueries(self.settings.push_queries_max)
        engine.open_pushes = self.open_queries
        self.insert_streams = Slots(INSERT_STREAMS_MAX, "streams of inserts")
        self.metrics = Metrics(engine, self.open_queries.count, lambda: self.insert_streams.taken, log_metrics)
        self.pulls = PullGate(self.settings.pull_gate)
        self.shared_feeds = SharedFeeds(engine.log, engine.open_feed)
        self.closing: list[Callable[[], None]] = []
        """Functions that end what routes have opened, before the log closes, and waits on the log."""
        self.ready = False  # set when the server is ready, unset before it stops

    async def await_command(self, number: int) -> None:
        """Returns when the catalog has applied the command, so that a client sees a change that it made elsewhere.
        Raises `RequestRefused`."""
        if number < 0:
            return
        deadline = asyncio.get_running_loop().time() + self.settings.command_timeout_ms / 1000
        while self.engine.command_number < number:
            if asyncio.get_running_loop().time() > deadline:
                message = "Timed out while waiting for a previous command to execute"
                raise RequestRefused(COMMAND_TIMEOUT, f"{message}. command sequence number: {number}")
            await asyncio.sleep(_COMMAND_POLL_S)

    def close(self) -> None:
        """Ends the queries of clients, then waits for running calls."""
        self.open_queries.close()
        for end in self.closing:
            end()
        self.statements.close()
        self.workers.close()
        # If Python exits while a thread is inside DuckDB, the process is aborted.
        self.open_queries.join()
        self.shared_feeds.join(_THREAD_ENDS_S)


def rights_of(scope: MutableMapping[str, Any]) -> Rights:
    """The rights of the user who sent the request."""
    return Rights(scope.get(_USER))


def visible_query(engine: Engine, rights: Rights, query_id: str) -> PersistentQuery:
    """The query of this id, in any case. Not for the event loop, because it searches the catalog. Raises
    `RequestRefused` (404), with the same message for a query that is hidden from the user and for one that does not
    exist."""
    catalog = rights.visible(engine.catalog)
    found = catalog.find_query(query_id)
    if found is None:
        hint = did_you_mean(query_id, catalog.queries)
        raise RequestRefused(NOT_FOUND, f"there is no query {query_id}", hint=hint)
    return found


def set_user(scope: MutableMapping[str, Any], user: User) -> None:
    scope[_USER] = user
