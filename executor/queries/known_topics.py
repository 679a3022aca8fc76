"""Identifies the topics that a query reads and writes by id, since a topic can be deleted and created again.

The log deletes the committed offsets of a deleted topic. A restarted query would therefore take a new topic of the same
name for one that it has never read, and continue with the state of the old one. To prevent this, the ids of the query's
topics are also stored as committed offsets, in a separate group. If a topic was deleted or replaced, the query stops
with an error, while it runs or after a restart. RESUME continues with the existing topics; RESET starts from scratch.
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
        """Stores the topic ids if the query has none stored. Raises `PositionLost` if a stored topic was deleted or
        replaced, and `UnknownTopic` if a topic is missing that may be so new that a broker does not know it yet."""
        noted, found = self._noted(), self._found()
        for topic, id in found.items():
            if id is None:
                raise self._gone(topic) if noted else self._not_there(topic)
            if noted and noted.get(topic) != id:
                raise self._another(topic)
        if not noted:
            self._note(found)

    def ids(self) -> Mapping[str, int]:
        """The digest of the id of each existing topic, by topic (see `digest_of`)."""
        return {topic: id for topic, id in self._found().items() if id is not None}

    def check_sink(self, topic_id: uuid.UUID | None) -> None:
        """Checks the sink's topic while the query runs. In: the id that the topic had. Raises `PositionLost`."""
        topic = self._sink
        found = self.log.topic_id(topic)
        if found == topic_id:
            return
        raise self._another(topic) if found is not None else self._gone(topic)

    @contextlib.contextmanager
    def said(self) -> Generator[None]:
        """Replaces a `PositionLost` raised inside by one that says whether the topic was deleted or replaced, and
        whether the query reads or writes it: the code inside does not know that."""
        try:
            yield
        except PositionLost:
            self.check()
            raise

    def accept(self) -> None:
        """Accepts the existing topics as the query's. Replaced topics are read from their first record: all of their
        records are newer than the query. Missing topics are still required."""
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
        """Accepts the current sink topic as the query's, whichever topic was stored."""
        noted = self._noted()
        if noted:
            self._note({**noted, self._sink: digest_of(self.log, self._sink)})

    def _noted(self) -> Mapping[str, int]:
        committed = self.log.committed_offsets(topics_group(self.plan.query_id))
        return {at.topic: offset for at, offset in committed.items() if offset != FORGOTTEN}

    def _note(self, found: Mapping[str, int | None]) -> None:
        """Stores all ids or none: the next check would take a topic without a stored id for a replaced one."""
        if all(id is not None for id in found.values()):
            ids = {TopicPartition(topic, 0): id for topic, id in found.items() if id is not None}
            self.log.commit_offsets(topics_group(self.plan.query_id), ids)

    def _found(self) -> dict[str, int | None]:
        """The digests of all topics; None for a topic that does not exist."""
        return {topic: digest_of(self.log, topic) for topic in self.names}

    @property
    def names(self) -> Sequence[str]:
        """The source topics, then the sink topic."""
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

    # Error messages

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
    """The topic's id, reduced to a number that is valid as a committed offset; None if the topic does not exist."""
    id = log.topic_id(topic)
    if id is None:
        return _WITHOUT_ID if topic in log.topics() else None
    return id.int % (1 << _DIGEST_BITS)
