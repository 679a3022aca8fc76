"""Identical push queries on the same topic: read, computed and encoded once for all clients.

Only stateless queries are shared, because their result for a record does not depend on earlier records. A new client
first reads alone until it reaches the feed's position, and then joins it (`Share.join`). A client that cannot keep up
leaves the feed and reads alone again from its position (`Share.alone`): a slow client delays nobody.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa
import structlog

from ...executor.answers.push_query import WAKE_UP_S, PushQuery, first_offsets
from ...executor.queries.start_offsets import StartSettings
from ...logcore.client import LogClient, TopicPartition
from ...planner.physical import PhysicalPlan
from ...planner.planning import PlannedPush
from ...sql.settings.property_table import OFFSET_RESET, START_OFFSETS
from .queries import ChangeFeed, OpenFeed

Offsets = Mapping[TopicPartition, int]

_UNDER_WAY_MAX: Final = 2  # batches that the event loop has not yet delivered
_JOIN_S: Final = 2.0
_log = structlog.get_logger("millstream.server")


class ClientSink(Protocol):
    """Receives a client's rows. `group`: all sinks of one group get the same bytes."""

    @property
    def group(self) -> object: ...

    def encode(self, rows: pa.Table) -> bytes:
        """Called in any thread."""
        ...

    def deliver(self, chunk: bytes, begin: Offsets) -> None:
        """Called on the event loop. In: `begin`: where the batch begins in the topics."""
        ...

    def finish(self, error: Exception | None) -> None:
        """Called on the event loop at the end: no more rows come."""
        ...


class Share:
    """One client's part in a feed. As a `ChangeFeed` it reads alone."""

    def __init__(self, feeds: SharedFeeds, planned: PlannedPush, settings: Mapping[str, str]) -> None:
        self._feeds = feeds
        self._planned = planned
        self._settings = settings
        self._begin: Offsets = first_offsets(
            planned.plan, feeds.log, StartSettings.of({**settings, **planned.plan.properties})
        )
        self._feed: _Feed | None = None
        self._sink: ClientSink | None = None
        self._closed = False
        self._reads_alone: PushQuery | None = None

    @property
    def key(self) -> str:
        """Equal for queries that can share a feed."""
        plan = self._planned.plan
        settings = {**self._settings, **plan.properties}
        shared = sorted(item for item in settings.items() if item[0] not in (OFFSET_RESET.name, START_OFFSETS.name))
        return repr((plan.root, self._planned.columns, shared))

    def join(self, sink: ClientSink, loop: asyncio.AbstractEventLoop) -> Iterator[pa.Table]:
        """From now on the sink gets the rows of the feed. Returns the rows before that. Blocks briefly."""
        self._sink = sink
        self._feed, ends = self._feeds.joined(self.key, self._open, self._begin, sink, loop)
        return self._rows(ends)

    def leave(self, begin: Offsets | None = None) -> None:
        """The sink gets no more rows. In: `begin`: where `alone` continues."""
        feed, self._feed = self._feed, None
        if begin is not None:
            self._begin = begin
        if feed is not None and self._sink is not None:
            feed.leave(self._sink)

    def alone(self) -> Iterator[pa.Table]:
        """All rows from where it left the feed, or from its beginning."""
        return self._rows(None)

    def __iter__(self) -> Iterator[pa.Table]:
        return self.alone()

    def close(self) -> None:
        self._closed = True
        if (alone := self._reads_alone) is not None:
            alone.close()
        self.leave()

    def _open(self, begin: Offsets, *, time_order: bool) -> PushQuery:
        return PushQuery(self._planned.plan, self._feeds.log, self._settings, begin=begin, time_order=time_order)

    def _rows(self, ends: Offsets | None) -> Iterator[pa.Table]:
        if ends is not None and all(self._begin[at] >= end for at, end in ends.items()):
            return
        with self._open(self._begin, time_order=True) as query:
            self._reads_alone = query
            while not self._closed:
                rows = query.poll(WAKE_UP_S if ends is None else 0.0, ends)
                if rows is not None and rows.num_rows:
                    yield rows
                elif rows is None and ends is not None and all(query.positions[at] >= end for at, end in ends.items()):
                    return


class _Open(Protocol):
    def __call__(self, begin: Offsets, *, time_order: bool) -> PushQuery: ...


class SharedFeeds:
    """The running feeds, each in its own thread as long as a client uses it. Any thread may use it."""

    def __init__(self, log: LogClient, otherwise: OpenFeed) -> None:
        self.log = log
        self._otherwise = otherwise
        self._guard = threading.Lock()
        self._running: dict[str, _Feed] = {}
        self._threads: set[threading.Thread] = set()

    def __len__(self) -> int:
        return len(self._running)

    def open(self, planned: PlannedPush, settings: Mapping[str, str]) -> ChangeFeed:
        """An `OpenFeed`: returns a `Share` if the query can be shared."""
        if planned.limit is None and is_stateless(planned.plan):
            return Share(self, planned, settings)
        return self._otherwise(planned, settings)

    def joined(
        self, key: str, open: _Open, begin: Offsets, sink: ClientSink, loop: asyncio.AbstractEventLoop
    ) -> tuple[_Feed, Offsets]:
        """The feed, and the offsets from which the sink gets rows: not before `begin`."""
        while True:
            with self._guard:
                feed = self._running.get(key)
                if feed is None:
                    feed = self._running[key] = _Feed(open(begin, time_order=False), loop)
                    place = feed.join(sink, begin)  # before it computes anything, so that this client can leave
                    assert place is not None, "a feed that has not begun takes its first client"
                    thread = threading.Thread(target=self._run, args=(key, feed), name="millstream-feed", daemon=True)
                    self._threads = {each for each in self._threads if each.is_alive()} | {thread}
                    thread.start()
                    return feed, place
            place = feed.join(sink, begin)
            if place is not None:
                return feed, place
            with self._guard:
                if self._running.get(key) is feed:
                    del self._running[key]

    def join(self, timeout_s: float) -> None:
        """Waits until the threads of unused feeds have ended."""
        with self._guard:
            threads = list(self._threads)
        for thread in threads:
            thread.join(timeout_s)

    def _run(self, key: str, feed: _Feed) -> None:
        try:
            feed.run()
        finally:
            with self._guard:
                if self._running.get(key) is feed:
                    del self._running[key]


class _Feed:
    """Reads batches and delivers them to its sinks. Invariant: a sink in `_sinks` gets each batch that begins at or
    after the offsets at which it joined."""

    def __init__(self, query: PushQuery, loop: asyncio.AbstractEventLoop) -> None:
        self._query = query
        self._loop = loop
        self._guard = threading.Condition()
        self._sinks: dict[ClientSink, None] = {}
        self._over = False
        self._joined_once = False
        self._under_way = threading.Semaphore(_UNDER_WAY_MAX)
        self._computing_guard = threading.Lock()
        self._computing = False

    def join(self, sink: ClientSink, begin: Offsets) -> Offsets | None:
        """The offsets from which the sink gets rows. None if the feed has ended, takes long for one batch, or is so far
        behind that it would deliver rows from before `begin`."""
        if not self._guard.acquire(timeout=_JOIN_S):
            return None
        try:
            if not self._guard.wait_for(lambda: self._over or self._is_at(begin), _JOIN_S) or self._over:
                return None
            self._sinks[sink] = None
            self._joined_once = True
            return dict(self._query.positions)
        finally:
            self._guard.release()

    def leave(self, sink: ClientSink) -> None:
        with self._computing_guard:
            # A batch is computed under `_guard`, so no other client can join meanwhile and need it.
            if self._computing and set(self._sinks) <= {sink}:
                self._query.close()
        with self._guard:
            self._sinks.pop(sink, None)

    def run(self) -> None:
        failure: Exception | None = None
        try:
            with self._query:
                while self._step():
                    pass
        except Exception as error:
            failure = error
        with self._guard:
            self._over = True
            sinks, self._sinks = list(self._sinks), {}
            self._guard.notify_all()
        self._soon(lambda: [sink.finish(failure) for sink in sinks])

    def _step(self) -> bool:
        """Reads one batch. False if the feed has no clients left."""
        self._query.await_records(WAKE_UP_S)
        with self._guard:
            if not self._sinks and self._joined_once:
                self._over = True
                return False
            begin = dict(self._query.positions)
            rows = self._poll()
            self._over = self._query.finished
            sinks = list(self._sinks)
            self._guard.notify_all()
            if self._over:
                return False
        if rows is not None and rows.num_rows:
            self._hand_out(rows, begin, sinks)
        return True

    def _poll(self) -> pa.Table | None:
        with self._computing_guard:
            self._computing = True
        try:
            return self._query.poll()
        finally:
            with self._computing_guard:
                self._computing = False

    def _hand_out(self, rows: pa.Table, begin: Offsets, sinks: Sequence[ClientSink]) -> None:
        groups: dict[object, list[ClientSink]] = {}
        for sink in sinks:
            groups.setdefault(sink.group, []).append(sink)
        parts = [(members[0].encode(rows), members) for members in groups.values()]
        self._under_way.acquire()

        def hand_out() -> None:
            try:
                for chunk, members in parts:
                    for sink in members:
                        if sink in self._sinks:
                            sink.deliver(chunk, begin)
            finally:
                self._under_way.release()

        self._soon(hand_out)

    def _soon(self, call: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed, so there are no clients
            self._over = True
            self._sinks = {}

    def _is_at(self, begin: Offsets) -> bool:
        return all(self._query.positions[at] >= offset for at, offset in begin.items())


def is_stateless(plan: PhysicalPlan) -> bool:
    """Whether the query's result for a record depends only on that record."""
    return len(plan.sources()) == 1 and all(step.stateless and not step.rekeys for step in plan.steps())
