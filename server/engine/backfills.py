"""Backfills, `WITH (BACKFILL='spark')`: queries that read their history on Spark, up to a mark.

No command ends a backfill. A query stores its mark: where its sources ended when it was created. While its committed
offsets are before the mark, it runs on Spark; after that, it runs where it would run without a backfill. Mark and
offsets are in the log, so every start of the query, also after a crash, makes the same decision. A RESET deletes the
offsets, and so begins the backfill again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from millstream.errors import LogError

from ...executor.queries.query_log import FORGOTTEN, offset_group
from ...executor.queries.store_filling import StoreFilling
from ...logcore.client import LogClient, TopicPartition
from ...planner.catalog import PersistentQuery
from ...planner.physical import PhysicalPlan

log = structlog.get_logger("millstream.server")

LOOK_S: Final = 0.5


def mark_of(client: LogClient, plan: PhysicalPlan) -> dict[str, tuple[int, ...]]:
    """Where the topics that the plan reads end now, by partition. Raises `LogError`."""
    return {
        topic: tuple(
            client.offsets(topic, partition).last_stable_offset for partition in range(client.partition_count(topic))
        )
        for topic in dict.fromkeys(source.topic for source in plan.sources())
    }


def records_left(client: LogClient, query: PersistentQuery) -> int:
    """How many records the query has to read before its mark, counted as offsets; 0 without a backfill. Records that no
    longer exist do not count: retention removed them, the topic was deleted, or it was recreated and is shorter or has
    fewer partitions. Raises `LogError`."""
    if query.backfill is None:
        return 0
    topics, committed = client.topics(), client.committed_offsets(offset_group(query.id))
    left = 0
    for topic, ends in query.backfill.items():
        for partition, end in enumerate(ends[: topics[topic].partition_count] if topic in topics else ()):
            bounds, at = client.offsets(topic, partition), TopicPartition(topic, partition)
            begin = max(bounds.log_start_offset, committed.get(at, FORGOTTEN))
            left += max(0, min(end, bounds.last_stable_offset) - begin)
    return left


class Backfills:
    """The queries that run on another executor for a while: on Spark up to their mark, or on DuckDB until they have
    filled new stores (`store_filling.py`); and a thread that checks them while there are any.

    In: `is_done`: called with a query that need not run there any longer, repeatedly, until `take_out` removes it.
    """

    def __init__(self, client: LogClient, is_done: Callable[[PersistentQuery], None]) -> None:
        self._client = client
        self._is_done = is_done
        self._queries: dict[str, PersistentQuery] = {}  # by id
        self._filling: set[str] = set()  # the ids of those that fill stores
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __contains__(self, query_id: str) -> bool:
        return query_id in self._queries

    def add(self, query: PersistentQuery, *, fills: bool) -> None:
        """In: `fills`: it fills stores; otherwise it reads up to its mark."""
        with self._guard:
            self._queries[query.id] = query
            (self._filling.add if fills else self._filling.discard)(query.id)
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._look, name="backfills", daemon=True)
                self._thread.start()

    def take_out(self, query_id: str) -> None:
        with self._guard:
            self._queries.pop(query_id, None)

    def left(self, query_id: str) -> int | None:
        """See `records_left`; None for an unknown query, or if the log does not answer."""
        query = self._queries.get(query_id)
        if query is not None and query.backfill is not None:
            with contextlib.suppress(LogError):
                return records_left(self._client, query)
        return None

    def close(self) -> None:
        """Returns once the thread has ended: after this it moves no query."""
        self._closing.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _look(self) -> None:
        while not self._closing.wait(LOOK_S):
            with self._guard:
                queries: Mapping[str, PersistentQuery] = dict(self._queries)
                if not queries:
                    self._thread = None
                    return
            for query in queries.values():
                try:
                    if self._is_over(query):
                        self._is_done(query)
                except Exception as error:  # the log may be unreachable: the next check tries again
                    log.warning("no look at a backfill", query_id=query.id, error=str(error))

    def _is_over(self, query: PersistentQuery) -> bool:
        if query.id in self._filling:
            return StoreFilling.of(self._client, query.plan) is None
        return records_left(self._client, query) == 0
