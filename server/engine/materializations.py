"""The cache of pull queries: one materialization per source, kept as long as it is used."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from ...executor.answers.materialization import Materialization
from ...executor.answers.pull_limits import Deadline
from ...executor.state.databases import BROKEN
from ...logcore.client import LogClient
from ...planner.catalog import Catalog
from ...planner.source_info import SourceInfo
from ...planner.specs import SqlExpression
from .pull_lookups import Lookups
from .statement_settings import StatementSettings

_PAUSE_S = 5.0


@dataclass(slots=True)
class _Entry:
    """`users`: the number of queries that read it now. After it was dropped, the last of them closes it."""

    source: SourceInfo
    materialization: Materialization
    idle_seconds: float
    users: int = 0
    used_at: float = 0.0
    dropped: bool = False


class Materializations:
    """Any thread may use it. A materialization is dropped when its source is dropped, or when it was idle for long.

    In: `clock`: monotonic, in seconds.
    """

    def __init__(self, log: LogClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._guard = threading.Lock()
        self._by_name: dict[str, _Entry] = {}
        self.lookups = Lookups(log)
        self._closed = threading.Event()
        self._sweeper: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._by_name)

    @contextlib.contextmanager
    def using(
        self,
        source: SourceInfo,
        catalog: Catalog,
        settings: Mapping[str, str],
        timestamp: SqlExpression | None = None,
        deadline: Deadline | None = None,
        query_id: str = "",
    ) -> Generator[Materialization]:
        """The materialization, caught up with the topic. It stays open for the block, even if the source is dropped.
        Raises `PullLimitExceeded` once the deadline has passed.

        In: `catalog`, `settings`: those of the statement; `timestamp`: the source's TIMESTAMP column; `query_id`: the
        pull query.
        """
        entry = self._taken(source, catalog, settings, timestamp, query_id)
        try:
            entry.materialization.catch_up(deadline)
            yield entry.materialization
        except BROKEN:  # of DuckDB: the next query reads the topic again, into an instance that works
            with self._guard:
                if self._by_name.get(source.name) is entry:
                    self._drop(source.name)
            raise
        finally:
            with self._guard:
                entry.users -= 1
                entry.used_at = self._clock()
                self._close_unused(entry)

    def forget(self, name: str) -> None:
        """Drops the materialization of a source; the next query that needs it reads the topic again."""
        with self._guard:
            self._drop(name)

    def forget_idle(self) -> None:
        """Drops the materializations that were unused for longer than their idle time."""
        with self._guard:
            now = self._clock()
            for name, entry in list(self._by_name.items()):
                if not entry.users and now - entry.used_at >= entry.idle_seconds:
                    self._drop(name)

    def close(self) -> None:
        self._closed.set()
        with self._guard:
            for name in list(self._by_name):
                self._drop(name)

    def _taken(
        self,
        source: SourceInfo,
        catalog: Catalog,
        settings: Mapping[str, str],
        timestamp: SqlExpression | None,
        query_id: str,
    ) -> _Entry:
        topic_id = self._log.topic_id(source.topic)  # without the guard: another node may take long to answer
        with self._guard:
            self._forget_dropped(catalog)
            entry = self._by_name.get(source.name)
            if entry is not None and entry.materialization.topic_id != topic_id:
                self._drop(source.name)  # the topic was deleted, and maybe created again
                entry = None
            if entry is None:
                made = Materialization(
                    source,
                    self._log,
                    settings,
                    timestamp=timestamp,
                    query_id=query_id,
                )
                entry = self._by_name[source.name] = _Entry(
                    source, made, StatementSettings.of(settings).pull_idle_seconds
                )
                self._start_sweeper()
            entry.users += 1
            return entry

    def _forget_dropped(self, catalog: Catalog) -> None:
        """Drops the materializations of dropped sources. A recreated source is another one, even if it looks equal."""
        for name, entry in list(self._by_name.items()):
            if catalog.sources.get(name) is not entry.source:
                self._drop(name)

    def _drop(self, name: str) -> None:
        entry = self._by_name.pop(name, None)
        if entry is not None:
            entry.dropped = True
            self._close_unused(entry)

    @staticmethod
    def _close_unused(entry: _Entry) -> None:
        if entry.dropped and not entry.users:
            entry.materialization.close()

    def _start_sweeper(self) -> None:
        if self._sweeper is None:
            self._sweeper = threading.Thread(target=self._sweep, name="pull-idle", daemon=True)
            self._sweeper.start()

    def _sweep(self) -> None:
        while not self._closed.wait(_PAUSE_S):
            self.forget_idle()
            self.lookups.forget_idle()
