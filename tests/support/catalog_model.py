"""What a server's streams, tables, queries and topics hold after each statement, as plain Python says.

Records are processed at once here, so a model is the server once its queries have read everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Record = tuple[int, tuple[int, ...] | None]
"""Key and value columns; None deletes the row of a table."""


@dataclass(slots=True)
class Topic:
    """`first` is where readers begin: RESET empties a sink."""

    name: str
    partitions: int
    is_table: bool
    records: list[Record] = field(default_factory=list[Record])
    first: int = 0

    def rows(self) -> Counter[tuple[int, ...]]:
        visible = self.records[self.first :]
        if not self.is_table:
            return Counter((key, *value) for key, value in visible if value is not None)
        last = dict(visible)
        return Counter((key, *value) for key, value in last.items() if value is not None)


@dataclass(slots=True)
class Source:
    name: str
    topic: Topic
    is_table: bool
    columns: tuple[str, ...] = ("V",)
    made: bool = False  # by CREATE … AS, whether or not its query still runs
    added: int = 0  # columns that ALTER has added

    @property
    def kind(self) -> str:
        return "TABLE" if self.is_table else "STREAM"


Process = Callable[[Record, dict[int, tuple[int, ...]]], Iterator[Record]]
"""What a record becomes, with the query's state."""


@dataclass(slots=True)
class Query:
    """`made`: the source that CREATE … AS made together with it; None is INSERT INTO. `shape` is its text without what
    REPLACE changes."""

    reads: Source
    writes: Source
    made: bool
    shape: str
    process: Process
    id: str = ""
    paused: bool = False
    position: int = 0
    state: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])


class CatalogModel:
    """Sources by name, topics by name, and queries."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}
        self.topics: dict[str, Topic] = {}
        self.queries: list[Query] = []

    def readers(self, source: Source) -> list[Query]:
        return [query for query in self.queries if query.reads is source]

    def writers(self, source: Source) -> list[Query]:
        return [query for query in self.queries if query.writes is source]

    def sharing(self, topic: Topic) -> list[Source]:
        return [source for source in self.sources.values() if source.topic is topic]

    def droppable(self, source: Source) -> bool:
        """The query that CREATE … AS made ends with what it writes; any other one keeps it."""
        return not self.readers(source) and all(query.made for query in self.writers(source))

    def downstream(self, source: Source) -> list[Source]:
        """What is computed from it, directly or not; itself first."""
        found = [source]
        for each in found:
            found.extend(query.writes for query in self.readers(each) if query.writes not in found)
        return found

    def create(self, source: Source) -> None:
        self.sources[source.name] = source
        self.topics[source.topic.name] = source.topic

    def drop(self, source: Source, *, with_topic: bool) -> None:
        del self.sources[source.name]
        self.queries = [query for query in self.queries if query.writes is not source]
        if with_topic:
            del self.topics[source.topic.name]

    def start(self, query: Query) -> None:
        query.position = query.reads.topic.first
        self.queries.append(query)
        self.run()

    def append(self, topic: Topic, record: Record) -> None:
        topic.records.append(record)
        self.run()

    def reset(self, query: Query) -> None:
        query.state.clear()
        query.position = query.reads.topic.first
        topic = query.writes.topic
        if self.writers(query.writes) == [query]:
            topic.first = len(topic.records)
        self.run()

    def run(self) -> None:
        """All queries read what they have not read yet."""
        progressed = True
        while progressed:
            progressed = sum(self._advance(query) for query in self.queries if not query.paused) > 0

    def _advance(self, query: Query) -> bool:
        records = query.reads.topic.records[query.position :]
        query.position += len(records)
        for record in records:
            query.writes.topic.records.extend(query.process(record, query.state))
        return bool(records)


def plus(amount: int) -> Process:
    """SELECT k, v + amount."""

    def process(record: Record, _: dict[int, tuple[int, ...]]) -> Iterator[Record]:
        key, value = record
        yield key, None if value is None else (value[0] + amount,)

    return process


def odd(amount: int) -> Process:
    """SELECT k, v + amount … WHERE v % 2 = 1, of a stream."""

    def process(record: Record, _: dict[int, tuple[int, ...]]) -> Iterator[Record]:
        key, value = record
        if value is not None and value[0] % 2:
            yield key, (value[0] + amount,)

    return process


def moved(amount: int) -> Process:
    """SELECT v AS k, k + amount AS v … PARTITION BY v, of a stream."""

    def process(record: Record, _: dict[int, tuple[int, ...]]) -> Iterator[Record]:
        key, value = record
        if value is not None:
            yield value[0], (key + amount,)

    return process


def sum_plus(amount: int) -> Process:
    """SELECT k, s + amount AS v, of a table that `counted` makes."""

    def process(record: Record, _: dict[int, tuple[int, ...]]) -> Iterator[Record]:
        key, value = record
        yield key, None if value is None else (value[1] + amount,)

    return process


def counted(record: Record, state: dict[int, tuple[int, ...]]) -> Iterator[Record]:
    """SELECT k, COUNT(*), SUM(v) … GROUP BY k, of a stream."""
    key, value = record
    if value is not None:
        rows, total = state.get(key, (0, 0))
        state[key] = (rows + 1, total + value[0])
        yield key, state[key]
