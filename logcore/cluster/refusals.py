"""What machines refuse, as errors of the log."""

from __future__ import annotations

from typing import Final

from millstream.errors import LogError

from ..errors import InvalidReplicationFactor, InvalidSetting, NotNow, TopicExists, UnknownTopic
from ..replication.controller import controller_messages
from ..replication.controller.controller_messages import Done, Trouble
from ..replication.replica import replica_messages

_ERRORS: Final[dict[Trouble, type[LogError]]] = {
    Trouble.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    Trouble.TOPIC_EXISTS: TopicExists,
    Trouble.INVALID_REPLICATION_FACTOR: InvalidReplicationFactor,
    Trouble.INVALID_CONFIG: InvalidSetting,
}


def check_done(answer: Done | controller_messages.Refused) -> Done:
    """Raises what the controller has refused."""
    if isinstance(answer, Done):
        return answer
    kind = _ERRORS.get(answer.trouble)
    raise kind(answer.message) if kind is not None else NotNow(answer.trouble.value, answer.message)


def refused(answer: replica_messages.Refused) -> NotNow:
    """What a broker has refused: of a replica, or of a coordinator."""
    return NotNow(answer.problem.value, answer.message)
