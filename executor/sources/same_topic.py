"""Whether a topic is still the one whose positions are known: others may delete it and create it again.

The log forgets the positions of a topic that is deleted, but who reads it has some in memory, and in the new topic of
the name it would pass over records. Ids never come back: records that were fetched before a look at the id are of the
topic that had it all the time.
"""

from __future__ import annotations

import uuid

from ...logcore.client import LogClient
from ..errors import PositionLost


class SameTopic:
    """In: `short`: the positions were named a moment ago, and are read to the next one only. Then a log that nobody
    else shares is not asked: to ask it from another process costs as much as a small fetch.

    State: the id of the topic when this was made; None where there is no id, or nobody asks for it."""

    def __init__(self, log: LogClient, topic: str, *, short: bool = False) -> None:
        self._log, self._topic = log, topic
        self._id = None if short and not log.capabilities.shared else log.topic_id(topic)

    def check(self) -> None:
        """After a fetch, and before what it brought is used. Raises `PositionLost`."""
        if self._id is not None:
            check_same(self._log, self._topic, self._id)


def check_same(log: LogClient, topic: str, topic_id: uuid.UUID | None) -> None:
    """Raises `PositionLost` where the topic of this name has another id."""
    if log.topic_id(topic) != topic_id:
        raise another_topic(topic)


def another_topic(topic: str) -> PositionLost:
    return PositionLost(
        f'topic "{topic}" was deleted, or deleted and created again, while it was read',
        hint="Create it again if it is gone; RESET the query to read the new topic from its first record.",
    )
