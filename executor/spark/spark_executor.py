"""The Spark executor: persistent queries as Spark jobs, one for each batch."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from ...logcore.client import LogClient
from ...logcore.errors import UnknownTopic
from ...logcore.log import Log
from ...logcore.remote import RemoteLog, trusted_address
from ...logcore.server import LogServer
from ...planner.catalog import PersistentQuery
from ...sql.settings.property_table import SPARK_BOOTSTRAP
from ..errors import SparkUnavailable, UnknownQuery
from ..executor import QueryStatus
from ..figures import QueryFigures
from ..queries.query_log import changelog_topic, forget_query, safe_name, settle_start
from ..state.temporary_folders import TemporaryFolder
from .alignment import remove_run_topics
from .spark_jobs import MakeJobs, SparkJobs
from .spark_query import SparkQuery
from .spark_session import end_session, require_spark, spark_session
from .spark_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger("millstream.queries")

OpenSession = Callable[[SparkSettings], "SparkSession"]
EndSession = Callable[[], None]

LOOK_S = 5.0  # how often to check whether jobs wait for executors
REGISTER_S = 60.0  # after this time without executors, the application registers again; doubles until a batch is done
REGISTER_MAX_S = 1_800.0
CLOSE_S = 3.5  # total time for the queries and then Spark to end when the executor closes, whatever they do
END_S = 0.5  # minimum time to wait for Spark, even if the queries have used up `CLOSE_S`


class SparkExecutor:
    """Implements `Executor`. Spark starts with the first query.

    In: `data_directory`: for caches of state, one folder per query; None uses a temporary folder. `properties`: names
    that begin with `spark.` configure Spark (`spark.master`: `local[*,4]`); `millstream.spark.bootstrap.servers` is the
    address where Spark's tasks reach the log, if the log is not in this process. `session` opens Spark, `end` ends it,
    and `jobs` runs the batches of a query in it.

    On a cluster, Spark ends when the executor closes. Otherwise the application of a server that no longer runs queries
    would hold cores that the server that took over the queries needs.
    """

    def __init__(
        self,
        client: LogClient,
        data_directory: Path | None,
        properties: Mapping[str, str] | None = None,
        *,
        session: OpenSession = spark_session,
        end: EndSession = end_session,
        jobs: MakeJobs = SparkJobs,
    ) -> None:
        self._open_session = session
        self._end_session = end
        self._jobs = jobs
        self._client = client
        self._temporary = TemporaryFolder("spark") if data_directory is None else None
        self._directory = self._temporary.path if self._temporary is not None else Path(data_directory or "")
        self._properties = dict(properties or {})
        self._settings = SparkSettings.of(self._properties)
        self._queries: dict[str, SparkQuery] = {}
        self._server: LogServer | None = None
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None
        self._register_after_s = REGISTER_S
        self._registered_at = time.monotonic()

    def start(self, query: PersistentQuery) -> None:
        """Raises `SparkUnavailable`."""
        require_spark()
        with self._guard:
            if query.id in self._queries:
                return
            settle_start(self._client, query.plan, self._properties)
            found = self._queries[query.id] = self.query(query)
            self._watch()
        found.start()

    def query(self, query: PersistentQuery) -> SparkQuery:
        """Creates the query without starting it."""
        return SparkQuery(
            query.plan,
            self._client,
            self._session,
            self.bootstrap,
            self._directory / safe_name(query.id),
            self._properties,
            paused=query.paused,
            jobs=self._jobs,
        )

    def stop(self, query_id: str) -> None:
        with self._guard:
            query = self._queries.pop(query_id, None)
        if query is not None:
            query.stop()

    def pause(self, query_id: str) -> None:
        self._query(query_id).pause()

    def resume(self, query_id: str) -> None:
        self._query(query_id).resume()

    def drop(self, query_id: str) -> None:
        self.stop(query_id)
        shutil.rmtree(self._directory / safe_name(query_id), ignore_errors=True)
        remove_run_topics(self._client, query_id)
        with contextlib.suppress(UnknownTopic):
            self._client.delete_topic(changelog_topic(query_id))
        forget_query(self._client, query_id)

    def status(self, query_id: str) -> QueryStatus:
        return self._query(query_id).status()

    def figures(self, query_id: str) -> QueryFigures | None:
        return self._query(query_id).figures()

    def close(self) -> None:
        with self._guard:
            queries, self._queries = list(self._queries.values()), {}
        self._closing.set()
        since = time.monotonic()
        for query in queries:  # they end in parallel, so closing takes as long as the slowest one
            query.ask_to_stop()
        for query in queries:
            query.stop()
        if not self._settings.is_local:
            ending = threading.Thread(target=self._end, name="spark-end", daemon=True)
            ending.start()
            # A driver that hangs never answers, so the wait has a limit.
            ending.join(left_to_end_s(time.monotonic() - since))
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._temporary is not None:
            self._temporary.remove()

    def _watch(self) -> None:
        """Starts the one thread that asks Spark for all queries whether they have executors. Spark may answer slowly,
        so no other thread asks."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._look, name="spark-watch", daemon=True)
            self._watcher.start()

    def _look(self) -> None:
        done = 0
        while not self._closing.wait(LOOK_S):
            waited_s: list[float] = []
            queries = list(self._queries.values())
            for query in queries:
                with contextlib.suppress(Exception):  # the driver has ended; the query notices that itself
                    found = query.look()
                    waited_s += [] if found is None else [found]
            before, done = done, sum(query.metrics.batches for query in queries)
            if done > before:
                self._register_after_s = REGISTER_S
            self._register_anew(min(waited_s, default=0.0))

    def _register_anew(self, waited_s: float) -> None:
        """Registers the application again if it has had no executors for long. A standalone master that restarted
        without its recovery state does not know the application, and the application never asks the master, so Spark
        would wait for executors forever. In: `waited_s`: for how long no query has had an executor."""
        since_s = time.monotonic() - self._registered_at
        if self._settings.is_standalone and min(waited_s, since_s) >= self._register_after_s:
            log.warning("Spark has no executors for us: the application registers anew", seconds=int(waited_s))
            self._register_after_s = min(2 * self._register_after_s, REGISTER_MAX_S)
            self._registered_at = time.monotonic()
            self._end()

    def _end(self) -> None:
        with contextlib.suppress(Exception):  # Spark has already ended
            self._end_session()

    def _session(self) -> SparkSession:
        return self._open_session(self._settings)

    def bootstrap(self) -> str:
        """The address where tasks reach the log. For a log in this process, this starts a listener on the loopback
        interface."""
        named = self._settings.bootstrap
        if named is not None:
            return trusted_address(self._client.served, named) if isinstance(self._client, Log) else named
        if isinstance(self._client, RemoteLog):
            return self._client.bootstrap
        if not self._settings.is_local:
            raise SparkUnavailable(
                "tasks of a Spark cluster cannot reach the log in this process",
                hint=f"Set {SPARK_BOOTSTRAP} to HOST:PORT of the log's Kafka listener.",
            )
        with self._guard:
            if self._server is None:
                assert isinstance(self._client, Log)
                self._server = LogServer(self._client, port=0)
                self._server.start()
            return trusted_address(self._server.log, self._server.address)

    def _query(self, query_id: str) -> SparkQuery:
        with self._guard:
            query = self._queries.get(query_id)
        if query is None:
            raise UnknownQuery(f"query {query_id} does not run here", hint="SHOW QUERIES lists the queries.")
        return query


def left_to_end_s(taken_s: float) -> float:
    """How long Spark may take to end, if the queries took `taken_s` to end.

    >>> left_to_end_s(0.5), left_to_end_s(4.25), left_to_end_s(9.0)
    (3.0, 0.5, 0.5)
    """
    return max(END_S, CLOSE_S - taken_s)
