"""Checks that a topic is still the one whose positions are known. Others may delete it and create it again.

The log forgets the positions of a deleted topic, but a reader has some in memory. In a new topic of the same name it
would skip records. Ids are never reused. So if a check finds the expected id, all records that were fetched before the
check come from the topic with that id.
"""

from __future__ import annotations

import uuid

from ...logcore.client import LogClient
from ..errors import PositionLost


class SameTopic:
    """In: `short`: the positions are new, and the reader only reads up to the next ones. Then the id is not checked in
    a log that is not shared with other applications: from another process, a check costs as much as a small fetch.

    State: the id that the topic had when this was made; None if it has no id or is not checked."""

    def __init__(self, log: LogClient, topic: str, *, short: bool = False) -> None:
        self._log, self._topic = log, topic
        self._id = None if short and not log.capabilities.shared else log.topic_id(topic)

    def check(self) -> None:
        """Call it after a fetch and before using the fetched records. Raises `PositionLost`."""
        if self._id is not None:
            check_same(self._log, self._topic, self._id)


def check_same(log: LogClient, topic: str, topic_id: uuid.UUID | None) -> None:
    """Raises `PositionLost` if the topic of this name has another id."""
    if log.topic_id(topic) != topic_id:
        raise another_topic(topic)


def another_topic(topic: str) -> PositionLost:
    return PositionLost(
        f'topic "{topic}" was deleted, or deleted and created again, while it was read',
        hint="Create it again if it is gone; RESET the query to read the new topic from its first record.",
    )
