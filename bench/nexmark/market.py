"""An engine with Nexmark's topics in it, where queries run one at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from millstream.executor.executor import QueryStatus
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.server.external_engine import open_engine_on_brokers

from .events import STREAMS, Events
from .queries import NexmarkQuery
from .results import final_rows
from .topics import ValueFormat, declare, produce

_LOOK_S: Final = 0.02  # a look costs 0.3 ms: every 2 ms they were a tenth of the processor time that was measured


class QueryBroke(RuntimeError):
    """A query has stopped with an error."""


class Market:
    """All events are in the topics before the first query begins."""

    def __init__(self, engine: EmbeddedEngine, events: Events, format: ValueFormat) -> None:
        self.format: ValueFormat = format
        self.events = events
        self._engine = engine
        self._session = Session()
        self._declared = frozenset[str]()
        declare(engine, self._session, format, events.partitions)
        produce(engine, events, format)
        self._declared = frozenset(engine.catalog.sources)

    def start(self, query: NexmarkQuery) -> None:
        self._engine.execute(query.statements, self._session)

    def wait(self, seconds: float) -> bool:
        """Until nothing is left to read for any query; False after that time. Raises `QueryBroke`."""
        deadline = time.monotonic() + seconds
        for query_id in self._engine.catalog.queries:
            while not _is_done(self._status(query_id)):
                if time.monotonic() > deadline:
                    return False
                time.sleep(_LOOK_S)
        return True

    def share_read(self) -> float:
        """How much of their input the queries have read, from 0 to 1."""
        left = total = 0
        for query_id in self._engine.catalog.queries:
            lag = self._status(query_id).lag
            left += sum(lag.values())
            total += sum(self._engine.log.offsets(*at).last_stable_offset for at in lag)
        return 1.0 - left / total if total else 0.0

    def rows(self, query: NexmarkQuery, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        """What the query has given in the end."""
        source = self._engine.catalog.source(query.name.upper())
        while not self._is_decided(source.topic):
            time.sleep(_LOOK_S)
        return final_rows(self._engine.log, source, connection)

    def _is_decided(self, topic: str) -> bool:
        """Whether all transactions are visible: brokers acknowledge a commit before that."""
        count = self._engine.log.partition_count(topic)
        ends = [self._engine.log.offsets(topic, partition) for partition in range(count)]
        return all(end.last_stable_offset == end.log_end_offset for end in ends)

    def clear(self) -> None:
        """Ends all queries, and drops what they made, topics included."""
        for query_id in self._engine.catalog.queries:
            self._engine.execute(f"TERMINATE {query_id};", self._session)
        made = [source for source in self._engine.catalog.sources.values() if source.name not in self._declared]
        for source in reversed(made):
            self._engine.execute(f"DROP {source.kind} {source.name} DELETE TOPIC;", self._session)

    def delete_topics(self) -> None:
        """On a log that outlives the market. Nothing can be started afterwards."""
        for topic in (*STREAMS, "side_input"):
            self._engine.log.delete_topic(topic)

    def _status(self, query_id: str) -> QueryStatus:
        status = self._engine.executor.status(query_id)
        if status.state == "ERROR":
            raise QueryBroke(f"query {query_id}: {status.error}")
        return status


@contextlib.contextmanager
def market(
    folder: Path,
    events: Events,
    format: ValueFormat,
    properties: Mapping[str, str] | None = None,
    *,
    sync: bool = True,
    brokers: str | None = None,
) -> Generator[Market]:
    """In: `folder`: for the engine's log. `sync`: every append is synced, as in earnest. `brokers`: the log is theirs;
    the properties give the service id."""
    settings = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest", **(properties or {})}
    if brokers is None:
        opened = open_engine(folder, settings, sync="always" if sync else "never")
    else:
        opened = open_engine_on_brokers({"bootstrap.servers": brokers}, folder, settings)
    with opened as engine:
        yield Market(engine, events, format)


def _is_done(status: QueryStatus) -> bool:
    return bool(status.lag) and not any(status.lag.values())
