"""In what pieces a script's rows are shown to the queries of a Sandbox, so that these give what live queries give.

Queries run one after the other, each until nothing is left, so what one of them writes comes after all that the script
has inserted. Where a query reads what another writes and something else of the script besides, that would tell: a table
that a query fills would be empty for the stream that it is joined with. There the script's rows go through all queries
one by one; else together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...planner.physical import PhysicalPlan
from ...planner.steps.sink import Sink
from ..errors import QueryFailed
from ..sources.journal import JournaledLog, JournalEntry

ROUNDS_MAX = 100  # of queries that feed each other


class ScriptRounds:
    """State: up to which entry of the journal the script has gone through the queries."""

    def __init__(self, log: JournaledLog) -> None:
        self._log = log
        self._done = 0

    def run(self, queries: Sequence[tuple[PhysicalPlan, Callable[[int], bool]]]) -> None:
        """Shows what is new to the queries until they come to rest.

        In: the queries in their order, each with what lets it read what is there, of the script what comes before that
        entry of the journal; it gives False where nothing was. Raises `QueryError`.
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
    """Where each piece of the script ends, as numbers of entries; at least one, which is behind all entries."""
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
    """Where rows that the script has inserted meet what comes of them, or of others."""

    def __init__(self, plans: Sequence[PhysicalPlan]) -> None:
        self._read = [list(dict.fromkeys(source.topic for source in plan.sources())) for plan in plans]
        self._feeding: dict[str, set[str]] = {}  # by sink: what is read to fill it
        for plan, topics in zip(plans, self._read, strict=True):
            if isinstance(plan.root, Sink):
                self._feeding.setdefault(plan.root.topic, set()).update(topics)

    def tell(self, topics: set[str]) -> bool:
        """Whether a query could tell how rows of these topics were inserted: it reads two topics that they get to, one
        of them through another query."""
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
