"""What one pull query may take: time, memory, and rows of its answer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from millstream.errors import QueryError

MAX_SECONDS = "millstream.query.pull.max.seconds"
MAX_ROWS = "millstream.query.pull.max.rows"
MAX_MEMORY = "millstream.query.pull.max.memory"

_FETCHED_ROWS = 100_000


class PullLimitExceeded(QueryError):
    """A pull query that would take more than it may."""

    code = "PULL_LIMIT"


@dataclass(frozen=True, slots=True)
class PullLimits:
    """`memory`: in DuckDB's notation, empty is DuckDB's own limit; what does not fit goes to disk where it can."""

    seconds: float = 60.0
    rows: int = 10_000_000
    memory: str = ""

    @staticmethod
    def of(properties: Mapping[str, str]) -> PullLimits:
        usual = PullLimits()
        return PullLimits(
            float(properties.get(MAX_SECONDS, usual.seconds)),
            int(properties.get(MAX_ROWS, usual.rows)),
            properties.get(MAX_MEMORY, usual.memory),
        )

    @contextlib.contextmanager
    def watch(self, connection: duckdb.DuckDBPyConnection) -> Generator[Deadline]:
        """Interrupts what runs on the connection when the time is over. Raises `PullLimitExceeded` then, and where the
        memory does not suffice."""
        deadline = Deadline(time.monotonic() + self.seconds)
        try:
            with _WATCHDOG.watching(connection, deadline):
                yield deadline
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            raise PullLimitExceeded(
                "the pull query needs more memory than it may take",
                hint=f"Narrow it with WHERE, or raise {MAX_MEMORY}.",
            ) from error
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError):  # an interrupt, as who read the rows says it
            deadline.check(self)
            raise

    def fetch(self, connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
        """The rows of a SELECT. Raises `PullLimitExceeded` where there are too many."""
        batches: list[pa.RecordBatch] = []
        count = 0
        with connection.sql(sql).to_arrow_reader(_FETCHED_ROWS) as reader:  # closed, or nothing else runs there
            for batch in reader:
                batches.append(batch)
                count += batch.num_rows
                if count > self.rows:
                    raise PullLimitExceeded(
                        f"the answer has more than {self.rows} rows", hint=f"Use WHERE or LIMIT, or raise {MAX_ROWS}."
                    )
            return pa.Table.from_batches(batches, reader.schema)


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a query has to be done, on the monotonic clock."""

    at: float

    def check(self, limits: PullLimits) -> None:
        """Raises `PullLimitExceeded` once it has passed."""
        if time.monotonic() >= self.at:
            raise PullLimitExceeded(
                f"the pull query took longer than {limits.seconds:g} seconds",
                hint=f"Narrow it with WHERE, make a table of it with CREATE TABLE AS SELECT, or raise {MAX_SECONDS}.",
            )


class _Watchdog:
    """One thread that interrupts connections whose time is over, for all queries: a look at one key of a table takes
    less time than a thread of its own would. It ends when there was nothing to watch for a while."""

    _PAUSE_S = 0.1
    _IDLE_ROUNDS = 100

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._watched: dict[object, tuple[duckdb.DuckDBPyConnection, Deadline]] = {}
        self._running = False

    @contextlib.contextmanager
    def watching(self, connection: duckdb.DuckDBPyConnection, deadline: Deadline) -> Generator[None]:
        """After the block the connection is not interrupted any more."""
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
        now = time.monotonic()
        for connection, deadline in self._watched.values():
            if now >= deadline.at:
                connection.interrupt()


_WATCHDOG = _Watchdog()
