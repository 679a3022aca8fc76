"""Refusals of machines as errors of the log."""

from __future__ import annotations

from typing import Final, TypeVar

from millstream.errors import LogError

from ..errors import InvalidReplicationFactor, InvalidSetting, NotNow, TopicExists, UnknownTopic
from ..replication.controller import controller_messages
from ..replication.controller.controller_messages import Done, Trouble
from ..replication.machine_messages import Answer
from ..replication.replica import replica_messages

_Wanted = TypeVar("_Wanted")

_ERRORS: Final[dict[Trouble, type[LogError]]] = {
    Trouble.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    Trouble.TOPIC_EXISTS: TopicExists,
    Trouble.INVALID_REPLICATION_FACTOR: InvalidReplicationFactor,
    Trouble.INVALID_CONFIG: InvalidSetting,
}


def check_done(answer: Done | controller_messages.Refused) -> Done:
    """Raises an error if the controller has refused."""
    if isinstance(answer, Done):
        return answer
    kind = _ERRORS.get(answer.trouble)
    raise kind(answer.message) if kind is not None else NotNow(answer.trouble.value, answer.message)


def given(answer: Answer, kind: type[_Wanted]) -> _Wanted:
    """The answer of a broker, which is of this kind. Raises an error if it has refused."""
    if isinstance(answer, replica_messages.Refused):
        raise refused(answer)
    assert isinstance(answer, kind), f"a {kind.__name__} is the answer, and not {answer!r}"
    return answer


def listed(answer: Answer, kind: type[_Wanted]) -> list[_Wanted]:
    """The answers of all shards of a node to `ForEveryShard`, each a tuple of this kind. Raises like `given`."""
    found: list[_Wanted] = []
    for shard in given(answer, tuple):
        for each in shard:
            assert isinstance(each, kind), f"a list of {kind.__name__} is the answer, and not {shard!r}"
            found.append(each)
    return found


def refused(answer: replica_messages.Refused) -> NotNow:
    """The refusal of a broker's replica or coordinator as an error."""
    return NotNow(answer.problem.value, answer.message)
