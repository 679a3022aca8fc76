"""Whether a topic is still the one whose positions are known: others may delete it and create it again.

The log forgets the positions of a topic that is deleted, but who reads it has some in memory, and in the new topic of
the name it would pass over records. Ids never come back: records that were fetched before a look at the id are of the
topic that had it all the time.
"""

from __future__ import annotations

from ...logcore.client import LogClient
from ..errors import PositionLost


class SameTopic:
    """State: the id of the topic when this was made; None where there is no id."""

    def __init__(self, log: LogClient, topic: str) -> None:
        self._log, self._topic = log, topic
        self._id = log.topic_id(topic)

    def check(self) -> None:
        """After a fetch, and before what it brought is used. Raises `PositionLost`."""
        if self._id is not None and self._log.topic_id(self._topic) != self._id:
            raise PositionLost(
                f'topic "{self._topic}" was deleted, or deleted and created again, while it was read',
                hint="Create it again if it is gone; RESET the query to read the new topic from its first record.",
            )
