"""The DuckDB executor: persistent queries in this process, on one pool of threads."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...logcore.client import LogClient
from ...logcore.errors import UnknownTopic
from ...planner.catalog import PersistentQuery
from ...sql.compiling.later import LaterModule
from ..errors import UnknownQuery
from ..executor import QueryStatus
from ..figures import QueryFigures
from ..sources.shared_reading import SharedReading
from ..state.databases import SharedDatabases
from ..work_pool import work_pool
from .known_topics import KnownTopics
from .query import QueryRuntime
from .query_log import changelog_topic, forget_query, safe_name, settle_start
from .query_worker import QueryWorker
from .recovery_watch import RecoveryWatch
from .turns import Turns

# A server without queries does not need this module.
if TYPE_CHECKING:
    from ..spark import alignment
else:
    alignment = LaterModule("millstream.executor.spark.alignment")


class DuckDBExecutor:
    """Implements `Executor`. State files live under `data_directory`, one folder per query.

    In: `data_directory`: None keeps all state in memory; it is rebuilt from the changelog at the next start.
    """

    def __init__(
        self, client: LogClient, data_directory: Path | None, properties: Mapping[str, str] | None = None
    ) -> None:
        self._client = client
        self._data_directory = data_directory
        self._properties = dict(properties or {})
        self._workers: dict[str, QueryWorker] = {}
        self._turns = Turns(client, work_pool())
        self._databases = SharedDatabases(data_directory)
        self._reading = SharedReading(client)
        self._guard = threading.Lock()

    def start(self, query: PersistentQuery) -> None:
        with self._guard:
            if query.id in self._workers:
                return
            settle_start(self._client, query.plan, self._properties)
            topics = KnownTopics(self._client, query.plan)
            worker = QueryWorker(
                query.id, partial(self._open, query), self._turns, paused=query.paused, before_retry=topics.accept
            )
            self._workers[query.id] = worker
        worker.start()

    def stop(self, query_id: str) -> None:
        with self._guard:
            worker = self._workers.pop(query_id, None)
        if worker is not None:
            worker.stop()

    def pause(self, query_id: str) -> None:
        self._worker(query_id).pause()

    def resume(self, query_id: str) -> None:
        self._worker(query_id).resume()

    def drop(self, query_id: str) -> None:
        self.stop(query_id)
        directory = self._directory(query_id)
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        alignment.remove_run_topics(self._client, query_id)
        with contextlib.suppress(UnknownTopic):
            self._client.delete_topic(changelog_topic(query_id))
        forget_query(self._client, query_id)

    def status(self, query_id: str) -> QueryStatus:
        return self._worker(query_id).status()

    def figures(self, query_id: str) -> QueryFigures | None:
        return self._worker(query_id).figures()

    def close(self) -> None:
        with self._guard:
            workers, self._workers = list(self._workers.values()), {}
        for worker in workers:  # they stop in parallel, so this takes only as long as the slowest one
            worker.ask_to_stop()
        for worker in workers:
            worker.stop()
        self._turns.close()

    def _open(self, query: PersistentQuery, watch: RecoveryWatch) -> QueryRuntime:
        plan, client = query.plan, self._client
        take_over = partial(alignment.take_from_spark, plan, client, self._properties)
        return QueryRuntime(
            plan,
            client,
            self._directory(query.id),
            self._properties,
            take_over=take_over,
            open_database=self._databases.open,
            shared=self._reading,
            watch=watch,
        )

    def _directory(self, query_id: str) -> Path | None:
        return None if self._data_directory is None else self._data_directory / safe_name(query_id)

    def _worker(self, query_id: str) -> QueryWorker:
        with self._guard:
            worker = self._workers.get(query_id)
        if worker is None:
            raise UnknownQuery(f"query {query_id} does not run here", hint="SHOW QUERIES lists the queries.")
        return worker
