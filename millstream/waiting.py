"""Waits until running queries have processed all inserted records: finds their topics, their progress and their order.

It uses only DESCRIBE and SHOW QUERIES, so it works the same with an engine in this process and with a server.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from millstream.errors import QueryError
from millstream.server.client import DataClient

_OVERVIEW: Final = "DESCRIBE STREAMS EXTENDED; DESCRIBE TABLES EXTENDED; SHOW QUERIES EXTENDED;"
_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.2

Place = tuple[str, int]
"""A topic and a partition."""


class ResultsBehind(QueryError):
    """A query has not processed its input in time, or has stopped."""

    code = "RESULTS_BEHIND"


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query at one moment. `positions`: the next offset to read; `ends`: the end of its readable input. A partition
    that the query has not begun to read is in neither. `trouble`: the query's reported error, or empty."""

    id: str
    reads: frozenset[Place]
    writes: frozenset[str]
    positions: Mapping[Place, int]
    ends: Mapping[Place, int]
    stopped: bool = False
    trouble: str = ""

    @property
    def topics(self) -> frozenset[str]:
        """The topics that it reads."""
        return frozenset(topic for topic, _ in self.reads)

    def has_begun(self) -> bool:
        return self.reads <= self.positions.keys()

    def missing(self, ends: Mapping[Place, int]) -> dict[Place, int]:
        """How many records up to `ends` it has not processed, for partitions with any."""
        left = {at: end - self.positions.get(at, 0) for at, end in ends.items()}
        return {at: count for at, count in left.items() if count > 0}


def wait_for_results(client: DataClient, timeout: float) -> None:
    """Returns when each running query has processed all input that existed at the time of the call.

    It waits for queries after those that write their input, so the results of results are complete, too. Raises
    `ResultsBehind`.
    """
    deadline = time.monotonic() + timeout
    waiting = _Waiting(client, timeout, deadline)
    for group in groups_in_order(list(waiting.look().values())):
        waiting.for_group(group)


def wait_for_inserted(client: DataClient, names: Iterable[str], timeout: float) -> None:
    """Like `wait_for_results`, for the queries that read these streams and tables, directly or through others.

    In: `names` in any case; unknown names are ignored.
    """
    deadline = time.monotonic() + timeout
    overview = client.execute(_OVERVIEW)
    upper = {name.upper() for name in names}
    sources = [source for entity in overview for source in entity.get("sourceDescriptions", ())]
    topics = {str(source["topic"]) for source in sources if source["name"].upper() in upper}
    waiting = _Waiting(client, timeout, deadline)
    for group in groups_in_order(fed_by(topics, list(running_queries(overview).values()))):
        waiting.for_group(group)


def wait_for_contents(client: DataClient, names: Iterable[str], timeout: float) -> None:
    """Like `wait_for_results`, for the queries that write these streams and tables, directly or through others.

    In: `names` as the catalog has them; unknown names are ignored.
    """
    deadline = time.monotonic() + timeout
    overview = client.execute(_OVERVIEW)
    wanted = set(names)
    sources = [source for entity in overview for source in entity.get("sourceDescriptions", ())]
    topics = {str(source["topic"]) for source in sources if source["name"] in wanted}
    waiting = _Waiting(client, timeout, deadline)
    for group in groups_in_order(feeding(topics, list(running_queries(overview).values()))):
        waiting.for_group(group)


class _Waiting:
    def __init__(self, client: DataClient, timeout: float, deadline: float) -> None:
        self._client = client
        self._timeout = timeout
        self._deadline = deadline

    def look(self) -> dict[str, RunningQuery]:
        return running_queries(self._client.execute(_OVERVIEW))

    def for_group(self, ids: Sequence[str]) -> None:
        """Waits for a group. Queries that read their own output need repeated rounds until nothing is left; for others
        one round is enough."""
        ends = self._ends(ids)
        while True:
            self._reach(ends)
            if len(ids) == 1 and not self._reads_itself(ids[0]):
                return
            before, ends = ends, self._ends(ids)
            if ends == before:
                return

    def _reads_itself(self, query_id: str) -> bool:
        query = self.look().get(query_id)
        return query is not None and bool(query.topics & query.writes)

    def _ends(self, ids: Sequence[str]) -> dict[str, Mapping[Place, int]]:
        """The current ends of the queries' input. Waits until a query that was just created has begun."""
        pauses = _pauses()
        while True:
            queries = [query for query in self.look().values() if query.id in ids]
            late = next((query for query in queries if not query.has_begun()), None)
            if late is None:
                return {query.id: dict(query.ends) for query in queries}
            self._pause(pauses, late, {})

    def _reach(self, ends: Mapping[str, Mapping[Place, int]]) -> None:
        pauses = _pauses()
        while True:
            queries = [query for query in self.look().values() if query.id in ends]
            late = next((query for query in queries if query.missing(ends[query.id])), None)
            if late is None:
                return
            self._pause(pauses, late, late.missing(ends[late.id]))

    def _pause(self, pauses: Iterator[float], late: RunningQuery, missing: Mapping[Place, int]) -> None:
        """Waits briefly for a query that is behind. Raises `ResultsBehind` if it has stopped or the time is up."""
        if late.stopped:
            raise ResultsBehind(
                f"query {late.id} has stopped with {_left(missing)}: {late.trouble or 'no error is known'}",
                hint="Mend what it reports and restart the server, or TERMINATE it; it is not waited for then.",
            )
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            reason = f" ({late.trouble})" if late.trouble else ""
            raise ResultsBehind(
                f"after {self._timeout:g} seconds query {late.id} is behind, with {_left(missing)}{reason}",
                hint=f"Wait longer, with timeout=…, or see what holds it up: EXPLAIN {late.id};",
            )
        time.sleep(min(next(pauses), left_s))


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _left(missing: Mapping[Place, int]) -> str:
    """
    >>> _left({("clicks", 1): 2, ("clicks", 0): 3, ("users", 0): 1})
    '5 records of topic "clicks" and 1 of topic "users" not processed'
    >>> _left({})
    'none of its input read'
    """
    counts: dict[str, int] = {}
    for (topic, _), count in sorted(missing.items()):
        counts[topic] = counts.get(topic, 0) + count
    parts = [f'{count} of topic "{topic}"' for topic, count in counts.items()]
    if not parts:
        return "none of its input read"
    first, *rest = parts
    plural = "record" if first.startswith("1 ") else "records"
    return " and ".join([first.replace(" of", f" {plural} of", 1), *rest]) + " not processed"


def running_queries(overview: Sequence[Mapping[str, Any]]) -> dict[str, RunningQuery]:
    """The queries by id, from the answers to `_OVERVIEW`. Paused queries are left out, because their results do not
    change."""
    sources = [source for entity in overview for source in entity.get("sourceDescriptions", ())]
    described = [query for entity in overview for query in entity.get("queryDescriptions", ())]
    reads: dict[str, set[Place]] = {}
    writes: dict[str, set[str]] = {}
    positions: dict[str, dict[Place, int]] = {}
    ends: dict[str, dict[Place, int]] = {}
    for source in sources:
        topic: str = source["topic"]
        for query in source["readQueries"]:
            reads.setdefault(query["id"], set()).update((topic, number) for number in range(source["partitions"]))
        for query in source["writeQueries"]:
            writes.setdefault(query["id"], set()).add(topic)
        for line in source["queryOffsetSummaries"]:
            if line["position"] is not None and line["lag"] is not None:
                at = (line["topic"], line["partition"])
                positions.setdefault(line["queryId"], {})[at] = line["position"]
                ends.setdefault(line["queryId"], {})[at] = line["position"] + line["lag"]
    return {
        query["id"]: RunningQuery(
            query["id"],
            frozenset(reads.get(query["id"], ())),
            frozenset(writes.get(query["id"], ())),
            positions.get(query["id"], {}),
            ends.get(query["id"], {}),
            stopped=_stopped(query),
            trouble=" ".join(query["queryErrors"]),
        )
        for query in described
        if query["state"] != "PAUSED"
    }


def _stopped(query: Mapping[str, Any]) -> bool:
    """Whether a query has stopped. A query whose records all fail is in ERROR, too, but continues."""
    metrics = query["metrics"]
    return query["state"] == "ERROR" and not 0 < metrics["rows_in"] == metrics["rows_failed"]


def fed_by(topics: Iterable[str], queries: Sequence[RunningQuery]) -> list[RunningQuery]:
    """The queries that read one of the topics, or the output of another such query.

    >>> def query(id, reads, writes):
    ...     return RunningQuery(id, frozenset({(reads, 0)}), frozenset({writes}), {}, {})
    >>> [each.id for each in fed_by(["s"], [query("B", "t", "u"), query("A", "s", "t"), query("C", "x", "y")])]
    ['B', 'A']
    """
    reached, found = set(topics), set[str]()
    while more := [each for each in queries if each.id not in found and each.topics & reached]:
        found.update(each.id for each in more)
        reached.update(topic for each in more for topic in each.writes)
    return [each for each in queries if each.id in found]


def feeding(topics: Iterable[str], queries: Sequence[RunningQuery]) -> list[RunningQuery]:
    """The queries that write one of the topics, or the input of another such query.

    >>> def query(id, reads, writes):
    ...     return RunningQuery(id, frozenset({(reads, 0)}), frozenset({writes}), {}, {})
    >>> [each.id for each in feeding(["u"], [query("A", "s", "t"), query("B", "t", "u"), query("C", "t", "v")])]
    ['A', 'B']
    """
    reached, found = set(topics), set[str]()
    while more := [each for each in queries if each.id not in found and each.writes & reached]:
        found.update(each.id for each in more)
        reached.update(topic for each in more for topic in each.topics)
    return [each for each in queries if each.id in found]


def groups_in_order(queries: Sequence[RunningQuery]) -> list[list[str]]:
    """The ids, each after those of the queries that write its input; queries that read each other are in one group.

    >>> def query(id, reads, writes):
    ...     return RunningQuery(id, frozenset({(reads, 0)}), frozenset({writes}), {}, {})
    >>> groups_in_order([query("B", "t", "u"), query("A", "s", "t")])
    [['A'], ['B']]
    >>> groups_in_order([query("A", "t", "u"), query("B", "u", "t")])
    [['A', 'B']]
    """
    before = {each.id: {other.id for other in queries if other.writes & each.topics} for each in queries}
    all_before = {each: _reachable(each, before) for each in before}
    groups: list[list[str]] = []
    placed: set[str] = set()
    # A query with fewer predecessors comes first; in a cycle, all have the same ones.
    for each in sorted(before, key=lambda each: len(all_before[each] | {each})):
        if each not in placed:
            circle = sorted({each, *(other for other in all_before[each] if each in all_before[other])})
            groups.append(circle)
            placed.update(circle)
    return groups


def _reachable(start: str, before: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    open_ = list(before[start])
    while open_:
        each = open_.pop()
        if each not in found:
            found.add(each)
            open_ += before[each]
    return found
