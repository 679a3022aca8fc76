"""Which topics a query reads and writes, beyond their names: others may delete one and create it again.

The log forgets the committed offsets of a topic that is deleted, so a query that comes back would take a new topic of
the name for one that it has never read, and go on with the state of the old one. So the ids of its topics are committed
offsets too, of a group of their own. A query whose topic is gone or is another one stops, whether it runs or comes back
after a restart, and says so. RESUME goes on with the topics that there are, RESET begins anew.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...logcore.client import LogClient, TopicPartition
from ...logcore.errors import UnknownTopic
from ...planner.insight.stall import counted
from ...planner.physical import PhysicalPlan
from ...planner.steps.sink import Sink
from ..errors import PositionLost
from ..tasks import is_stateful
from .query_log import FORGOTTEN, offset_group, topics_group

_WITHOUT_ID = 0
_DIGEST_BITS = 62  # a committed offset is not negative


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """The topics of one query."""

    log: LogClient
    plan: PhysicalPlan

    def check(self) -> None:
        """Notes the topics of a query that has none noted. Raises `PositionLost` where one that was there is gone or
        is another one, `UnknownTopic` where it may be that a broker does not know yet of a topic that is new."""
        noted, found = self._noted(), self._found()
        for topic, id in found.items():
            if id is None:
                raise self._gone(topic) if noted else self._not_there(topic)
            if noted and noted.get(topic) != id:
                raise self._another(topic)
        if not noted:
            self._note(found)

    def ids(self) -> Mapping[str, int]:
        """What is noted of the topics that are there. Out: by topic, what its id comes to."""
        return {topic: id for topic, id in self._found().items() if id is not None}

    def check_sink(self, topic_id: uuid.UUID | None) -> None:
        """While the query runs. In: the id that the topic had. Raises `PositionLost`."""
        topic = self._sink
        found = self.log.topic_id(topic)
        if found == topic_id:
            return
        raise self._another(topic) if found is not None else self._gone(topic)

    @contextlib.contextmanager
    def said(self) -> Generator[None]:
        """Who finds another topic in here knows neither whether it is gone nor what the query does with it."""
        try:
            yield
        except PositionLost:
            self.check()
            raise

    def accept(self) -> None:
        """Takes the topics that there are for the query's. It reads from the first record what it has not read yet:
        all of that is later than the query. What is gone stays wanted."""
        noted, found = self._noted(), self._found()
        if not noted:
            return
        new = [topic for topic in self._sources if found[topic] not in (None, noted.get(topic))]
        positions = {
            at: self.log.offsets(*at).log_start_offset
            for topic in new
            for at in (TopicPartition(topic, partition) for partition in range(self.log.partition_count(topic)))
        }
        if positions:
            self.log.commit_offsets(offset_group(self.plan.query_id), positions)
        self._note({topic: id for topic, id in found.items() if id is not None})

    def accept_sink(self) -> None:
        """Takes the topic that it writes to for its own, whichever was."""
        noted = self._noted()
        if noted:
            self._note({**noted, self._sink: digest_of(self.log, self._sink)})

    def _noted(self) -> Mapping[str, int]:
        committed = self.log.committed_offsets(topics_group(self.plan.query_id))
        return {at.topic: offset for at, offset in committed.items() if offset != FORGOTTEN}

    def _note(self, found: Mapping[str, int | None]) -> None:
        """Only whole: a topic that is not noted is another one to the next look."""
        if all(id is not None for id in found.values()):
            ids = {TopicPartition(topic, 0): id for topic, id in found.items() if id is not None}
            self.log.commit_offsets(topics_group(self.plan.query_id), ids)

    def _found(self) -> dict[str, int | None]:
        """None of a topic that is not there."""
        return {topic: digest_of(self.log, topic) for topic in self.names}

    @property
    def names(self) -> Sequence[str]:
        """What it reads, and then what it writes."""
        return *self._sources, self._sink

    @property
    def _sources(self) -> Iterable[str]:
        return dict.fromkeys(source.topic for source in self.plan.sources())

    @property
    def _root(self) -> Sink:
        assert isinstance(self.plan.root, Sink)
        return self.plan.root

    @property
    def _sink(self) -> str:
        return self._root.topic

    # What to say

    def _gone(self, topic: str) -> PositionLost:
        return PositionLost(
            f"{self._role(topic)}, was deleted", hint=f"{self._create(topic)} again. Then {self._choice(topic)}"
        )

    def _not_there(self, topic: str) -> UnknownTopic:
        return UnknownTopic(f"{self._role(topic)}, is not there. {self._create(topic)}")

    def _create(self, topic: str) -> str:
        counts = {source.topic: source.partition_count for source in self.plan.sources()}
        return f"Create it with {counted(counts.get(topic, self._root.partition_count), 'partition')}"

    def _another(self, topic: str) -> PositionLost:
        return PositionLost(f"{self._role(topic)}, was deleted and created again", hint=self._choice(topic))

    def _role(self, topic: str) -> str:
        does = "reads" if topic in self._sources else "writes"
        return f'topic "{topic}", which query {self.plan.query_id} {does}'

    def _choice(self, topic: str) -> str:
        id = self.plan.query_id
        if topic in self._sources:
            goes_on = "it reads the new topic from its first record"
        else:
            goes_on = "the new topic has only what it writes from then on"
        state = ", and keeps its state" if is_stateful(self.plan) else ""
        return (
            f"RESUME {id}; lets the query go on: {goes_on}{state}. "
            f"RESET {id}; computes everything anew from what its sources hold."
        )


def digest_of(log: LogClient, topic: str) -> int | None:
    """What the topic's id comes to, as a number that a committed offset may be; None of a topic that is not there."""
    id = log.topic_id(topic)
    if id is None:
        return _WITHOUT_ID if topic in log.topics() else None
    return id.int % (1 << _DIGEST_BITS)
