"""Divides a script's rows into pieces for the queries of a Sandbox, so that they give the results of live queries.

The queries run one after another, each until it has read everything, so the output of a query comes after all rows that
the script has inserted. This affects the result when a query reads both another query's output and other rows of the
script: in a join of a stream with a table that a query fills, the table would be empty. In this case the script's rows
go through all queries one by one; otherwise together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...planner.physical import PhysicalPlan
from ...planner.steps.sink import Sink
from ..errors import QueryFailed
from ..sources.journal import JournaledLog, JournalEntry

ROUNDS_MAX = 100  # of queries that feed each other


class ScriptRounds:
    """State: the journal entry up to which the queries have processed the script."""

    def __init__(self, log: JournaledLog) -> None:
        self._log = log
        self._done = 0

    def run(self, queries: Sequence[tuple[PhysicalPlan, Callable[[int], bool]]]) -> None:
        """Runs the queries on the new entries until they have nothing more to read.

        In: the queries in their order, each with a function that lets it read what is available. The function takes a
        number of a journal entry: the query sees only the script's entries before it. It returns False if there was
        nothing to read. Raises `QueryError`.
        """
        with self._log.queries_run():
            for end in rounds(self._log.entries, self._done, [plan for plan, _ in queries]):
                self._until_rest([run for _, run in queries], end)
                self._done = end

    def _until_rest(self, runs: Sequence[Callable[[int], bool]], end: int) -> None:
        for _ in range(ROUNDS_MAX):
            if not any([run(end) for run in runs]):  # noqa: C419 - each of them runs
                return
        raise QueryFailed(f"the queries still feed each other after {ROUNDS_MAX} rounds")


def rounds(entries: Sequence[JournalEntry], begin: int, plans: Sequence[PhysicalPlan]) -> Iterator[int]:
    """The end of each piece of the script, as an entry number (exclusive). The last one is the number of entries."""
    meetings = _Meetings(plans)
    end = len(entries)
    topics: set[str] = set()
    for number in range(begin, end):
        entry = entries[number]
        if entry.by_query or not entry.count:
            continue
        if topics and meetings.tell(topics | {entry.at.topic}):
            yield number
            topics = set()
        topics.add(entry.at.topic)
    yield end


class _Meetings:
    """Finds the queries in which rows inserted by the script meet the output of other queries."""

    def __init__(self, plans: Sequence[PhysicalPlan]) -> None:
        self._read = [list(dict.fromkeys(source.topic for source in plan.sources())) for plan in plans]
        self._feeding: dict[str, set[str]] = {}  # by sink: what is read to fill it
        for plan, topics in zip(plans, self._read, strict=True):
            if isinstance(plan.root, Sink):
                self._feeding.setdefault(plan.root.topic, set()).update(topics)

    def tell(self, topics: set[str]) -> bool:
        """Whether the order in which rows of these topics were inserted affects a query: the query reads two topics
        that the rows reach, one of them through another query."""
        for read in self._read:
            reached = [topic for topic in read if self._origins(topic) & topics]
            if len(reached) > 1 and any(topic in self._feeding for topic in reached):
                return True
        return False

    def _origins(self, topic: str) -> set[str]:
        found: set[str] = set()
        waiting = [topic]
        while waiting:
            at = waiting.pop()
            if at not in found:
                found.add(at)
                waiting += self._feeding.get(at, ())
        return found
