"""The limits of one pull query: time, memory, and the rows and bytes of its answer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import duckdb
import pyarrow as pa

from millstream.errors import QueryError

from ...sql.functions.bounds import BoundExceeded, CallBounds, CallTooLarge
from ...sql.functions.udf import failures_of
from ...sql.settings.property_table import PULL_BYTES, PULL_MEMORY, PULL_ROWS, PULL_SECONDS
from ..value_sizes import check_sizes

_FETCHED_ROWS = 10_000
_LOCK_S = 0.1


class PullLimitExceeded(QueryError):
    """A pull query that exceeds one of its limits."""

    code = "PULL_LIMIT"


@dataclass(frozen=True, slots=True)
class PullLimits:
    """`memory`: in DuckDB's notation; empty means DuckDB's own limit. DuckDB spills to disk where it can. `bytes`: the
    size of the answer. `functions`: the limits of each function's cost for one row."""

    seconds: float = PULL_SECONDS.usual
    rows: int = PULL_ROWS.usual
    memory: str = PULL_MEMORY.usual
    bytes: int = PULL_BYTES.usual
    functions: CallBounds = field(default_factory=CallBounds)

    @staticmethod
    def of(properties: Mapping[str, str]) -> PullLimits:
        """Raises `InvalidProperty`."""
        return PullLimits(
            PULL_SECONDS.of(properties),
            PULL_ROWS.of(properties),
            PULL_MEMORY.of(properties),
            PULL_BYTES.of(properties),
            CallBounds.of(properties),
        )

    def begin(self) -> Deadline:
        """The deadline of a query that begins now, for the current context's client."""
        return Deadline(time.monotonic() + self.seconds, self, _client.get())

    @contextlib.contextmanager
    def watch(self, connection: duckdb.DuckDBPyConnection, deadline: Deadline | None = None) -> Generator[Deadline]:
        """Interrupts the connection when the time is over or the client has left; this also ends functions in Python.
        Raises `PullLimitExceeded`, also if there is not enough memory or a value would be too large; `QueryError` if a
        result cannot be computed."""
        deadline = deadline or self.begin()
        failures = failures_of(connection)
        failures.forget()
        failures.bounds = replace(self.functions, ends_at=deadline.at)
        try:
            with _WATCHDOG.watching(connection, deadline):
                yield deadline
            failures.check()
        except BoundExceeded as error:
            if isinstance(error, CallTooLarge):
                raise _out_of_memory() from error
            raise _exceeded(error) from error
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            deadline.check()
            raise _out_of_memory() from error
        except duckdb.DataError as error:  # a value of the rows does not fit, such as a sum of DECIMALs
            deadline.check()
            raise QueryError(f"Exception caught in process: {str(error).splitlines()[0]}") from error
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError):  # each may report an interrupt
            deadline.check()
            raise
        finally:
            failures.bounds.ends_at = None
        deadline.check()
        if failures.exceeded is not None:
            raise _exceeded(failures.exceeded)

    def fetch(self, connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
        """The rows of a SELECT. Raises `PullLimitExceeded` if there are too many, or they are too large."""
        batches: list[pa.RecordBatch] = []
        count = size = 0
        with connection.sql(sql).to_arrow_reader(_FETCHED_ROWS) as reader:  # an open reader blocks the connection
            for batch in reader:
                check_sizes(batch, self.functions)
                batches.append(batch)
                count += batch.num_rows
                size += batch.nbytes
                if count > self.rows:
                    raise PullLimitExceeded(
                        f"the answer has more than {self.rows} rows", hint=f"Use WHERE or LIMIT, or raise {PULL_ROWS}."
                    )
                if size > self.bytes:
                    raise PullLimitExceeded(
                        f"the answer has more than {self.bytes:,} bytes",
                        hint=f"Use WHERE or LIMIT, select fewer columns, or raise {PULL_BYTES}.",
                    )
            return pa.Table.from_batches(batches, reader.schema)


def _out_of_memory() -> PullLimitExceeded:
    return PullLimitExceeded(
        "the pull query needs more memory than it may take", hint=f"Narrow it with WHERE, or raise {PULL_MEMORY}."
    )


def _exceeded(error: BoundExceeded) -> PullLimitExceeded:
    return PullLimitExceeded(error.message, hint=f"Raise {error.setting}, or leave such rows out with WHERE.")


class PullClient:
    """The client that waits for an answer. Any thread may call `leave`."""

    def __init__(self) -> None:
        self.is_gone = False

    def leave(self) -> None:
        self.is_gone = True


_client: ContextVar[PullClient | None] = ContextVar("client", default=None)


def client_is_gone() -> bool:
    """Whether the client of this context has left."""
    client = _client.get()
    return client is not None and client.is_gone


@contextlib.contextmanager
def serving(client: PullClient) -> Generator[None]:
    """Pull queries and assertions that begin in this context during the block end when the client leaves."""
    token = _client.set(client)
    try:
        yield
    finally:
        _client.reset(token)


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a query has to be done, on the monotonic clock; immediately if its client has left."""

    at: float
    limits: PullLimits
    client: PullClient | None = None

    @property
    def left_s(self) -> float:
        """The seconds that are left, at least 0."""
        return 0.0 if self._is_abandoned else max(0.0, self.at - time.monotonic())

    def check(self) -> None:
        """Raises `PullLimitExceeded` if the deadline has passed."""
        if self._is_abandoned:
            raise PullLimitExceeded("the client has gone away, so the pull query was ended")
        if self.left_s == 0:
            raise PullLimitExceeded(
                f"the pull query took longer than {self.limits.seconds:g} seconds",
                hint=f"Narrow it with WHERE, make a table of it with CREATE TABLE AS SELECT, or raise {PULL_SECONDS}.",
            )

    @contextlib.contextmanager
    def holding(self, lock: threading.Lock) -> Generator[None]:
        """Holds the lock for the block. Raises `PullLimitExceeded` if other threads hold it until the deadline."""
        while not lock.acquire(timeout=min(self.left_s, _LOCK_S)):
            self.check()
        try:
            yield
        finally:
            lock.release()

    @property
    def _is_abandoned(self) -> bool:
        return self.client is not None and self.client.is_gone


class _Watchdog:
    """One thread for all queries, which interrupts connections whose time is over. There is no thread per query,
    because starting one takes longer than a lookup of a key. The thread ends after a while with nothing to watch."""

    _PAUSE_S = 0.1
    _IDLE_ROUNDS = 100

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._watched: dict[object, tuple[duckdb.DuckDBPyConnection, Deadline]] = {}
        self._running = False

    @contextlib.contextmanager
    def watching(self, connection: duckdb.DuckDBPyConnection, deadline: Deadline) -> Generator[None]:
        """Watches the connection during the block; after it the connection is not interrupted any more."""
        entry = object()
        with self._guard:
            self._watched[entry] = connection, deadline
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="pull-watchdog", daemon=True).start()
        try:
            yield
        finally:
            with self._guard:
                del self._watched[entry]

    def _run(self) -> None:
        idle = 0
        while True:
            time.sleep(self._PAUSE_S)
            with self._guard:
                self._interrupt_late()
                idle = 0 if self._watched else idle + 1
                if idle > self._IDLE_ROUNDS:
                    self._running = False
                    return

    def _interrupt_late(self) -> None:
        for connection, deadline in self._watched.values():
            if deadline.left_s == 0:
                failures_of(connection).bounds.ends_at = deadline.at - deadline.limits.seconds  # the past
                connection.interrupt()


_WATCHDOG = _Watchdog()
