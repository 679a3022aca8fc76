"""Live queries that are read in the background."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from millstream.errors import QueryError
from millstream.notebook.feed import Feed, Status, stop_all
from millstream.server.client_tables import ResultTables

SCHEMA = pa.schema([("N", pa.int64())])


class Source:
    """Tables that somebody else may end."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self.closed = threading.Event()
        self.tables = ResultTables("PUSH", "q", SCHEMA, ("BIGINT",), self._until_closed(tables), self.closed.set)

    def _until_closed(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            if self.closed.is_set():
                return
            yield table


def rows(count: int) -> Iterator[pa.Table]:
    return (pa.table({"N": [n]}) for n in range(count))


def open_ended(first: Iterator[pa.Table], closed: Callable[[], threading.Event]) -> Iterator[pa.Table]:
    yield from first
    closed().wait(60)


def endless(count: int) -> Source:
    """As a push query: after its first rows it waits."""
    source: Source = Source(iter(()))
    source.tables = ResultTables(
        "PUSH", "q", SCHEMA, ("BIGINT",), open_ended(rows(count), lambda: source.closed), source.closed.set
    )
    return source


class Reader:
    """What a feed took and told."""

    def __init__(self, tables: ResultTables) -> None:
        self.taken: list[int] = []
        self.told: list[tuple[Status, int]] = []
        self.feed = Feed(tables, lambda table: self.taken.extend(table["N"].to_pylist()), self._hear)
        self.feed.start()

    def _hear(self, status: Status) -> int:
        self.told.append((status, len(self.taken)))
        return 0


def test_every_row_is_taken_and_the_last_news_tell_of_all() -> None:
    reader = Reader(Source(rows(1000)).tables)
    reader.feed.join(60)
    assert reader.taken == list(range(1000))
    assert reader.told[-1] == (Status("ended", "", 1000, 0.0), 1000)


def test_news_are_fewer_than_the_tables_they_tell_of() -> None:
    reader = Reader(Source(rows(1000)).tables)
    reader.feed.join(60)
    assert len(reader.told) < 100  # ten a second


def test_news_tell_of_what_was_taken_before_them() -> None:
    reader = Reader(Source(rows(200)).tables)
    reader.feed.join(60)
    assert all(status.received == taken for status, taken in reader.told)


def test_stop_ends_the_query_and_keeps_what_came() -> None:
    source = endless(3)
    reader = Reader(source.tables)
    assert reader.feed.wait(lambda status: status.received == 3, 30)
    assert reader.feed.status.state == "running"
    reader.feed.stop()
    reader.feed.join(60)
    assert source.closed.is_set()
    assert (reader.feed.status.state, reader.taken) == ("stopped", [0, 1, 2])
    reader.feed.stop("again")
    assert reader.feed.status.message == ""


def test_an_error_is_told_with_its_hint() -> None:
    def broken() -> Iterator[pa.Table]:
        yield from rows(1)
        raise QueryError("the disk is full", hint="Make room.")

    reader = Reader(Source(broken()).tables)
    reader.feed.join(60)
    assert reader.told[-1][0] == Status("failed", "the disk is full Make room.", 1)


def test_an_error_nobody_thought_of_is_told_too() -> None:
    reader = Reader(Source(1 // n for n in itertools.count()).tables)
    reader.feed.join(60)
    assert reader.feed.status.message.startswith("ZeroDivisionError")


def test_a_query_that_is_over_ends_waiting() -> None:
    reader = Reader(Source(rows(2)).tables)
    assert reader.feed.wait(lambda status: status.received == 5, 30)
    assert reader.feed.status.received == 2


def test_the_end_of_the_process_ends_every_query() -> None:
    readers = [Reader(endless(1).tables) for _ in range(3)]
    stop_all()
    assert {reader.feed.status.state for reader in readers} == {"stopped"}
    for reader in readers:
        reader.feed.join(60)
