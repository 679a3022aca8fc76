"""Which of Kafka's error codes mean that a request is right, and should be sent again later, or to another node."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from ..error_codes import ErrorCode

_MOVED: Final = (
    ErrorCode.leader_not_available,
    ErrorCode.not_leader_or_follower,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.not_controller,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.broker_not_available,
    ErrorCode.replica_not_available,
)
_IN_DOUBT: Final = (
    ErrorCode.request_timed_out,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.network_exception,
)
_LATER: Final = (
    ErrorCode.not_enough_replicas,
    ErrorCode.concurrent_transactions,
    ErrorCode.offset_not_available,
)

RETRIABLE: Final = frozenset(map(int, (*_MOVED, *_IN_DOUBT, *_LATER)))
"""The server did nothing, or a request with a producer identity can be repeated without harm."""

IN_DOUBT: Final = frozenset(map(int, _IN_DOUBT))
"""The request may have been carried out, or may still be."""

MOVED: Final = frozenset(map(int, _MOVED))
"""Another node should be asked."""

_CODES: Final = ("error_code", "partition_error_code")


def codes_of(answer: Any) -> Iterator[int]:
    """All error codes in a message: its own, and those of its topics, partitions and groups."""
    if not dataclasses.is_dataclass(answer):
        return
    for field in dataclasses.fields(answer):
        value = getattr(answer, field.name)
        if field.name in _CODES:
            yield int(value)
        elif isinstance(value, tuple):
            for entry in value:
                yield from codes_of(entry)
