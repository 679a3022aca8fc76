"""Kafka's rules for the names and settings of topics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from .client import Topic
from .errors import InvalidPartitionCount, InvalidTopic
from .topic_settings import check_config, settings_of

GROUPS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
COORDINATORS: Final = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC})
"""The log's own topics, which clients are told are internal. Topics of queries are not marked internal, because
kafka-python does not read internal topics."""
NOTES: Final = "_millstream-notes-"
"""Prefix of groups that hold notes instead of offsets. Listings of groups and lag skip these groups."""
_KEPT: Final = COORDINATORS | {"_schemas"}
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_NAME_LENGTH_MAX: Final = 249
_PARTITION_COUNT_MAX: Final = 10_000
_MILLSTREAM: Final = "_millstream"


def check_topic(name: str, partition_count: int, config: Mapping[str, str]) -> Topic:
    """Raises `InvalidTopic`."""
    _check_name(name)
    if not 1 <= partition_count <= _PARTITION_COUNT_MAX:
        raise InvalidPartitionCount(
            f'topic "{name}" cannot have {partition_count} partitions',
            hint=f"A topic has between 1 and {_PARTITION_COUNT_MAX} partitions.",
        )
    check_config(name, config)
    return Topic(name, partition_count, dict(config))


def belongs_to_millstream(name: str) -> bool:
    """True for topics that only Millstream itself may write to: records of other clients would break queries."""
    return name.startswith(_MILLSTREAM)


def is_reserved(name: str, reserved: Sequence[str]) -> bool:
    """True for topics that statements and connectors may only read. In: `reserved`: how such names begin, as the log
    says."""
    return name in _KEPT or name.startswith(tuple(reserved))


def check_not_reserved(name: str, reserved: Sequence[str]) -> None:
    """Before a topic is created, written or deleted for a statement. In: as in `is_reserved`. Raises `InvalidTopic`."""
    if is_reserved(name, reserved):
        raise InvalidTopic(
            f'topic "{name}" is reserved: statements neither create, write nor delete it',
            hint="Name another topic with KAFKA_TOPIC.",
        )


def _check_name(name: str) -> None:
    hint = "A topic's name has letters, digits, '.', '_' and '-' only, and at most 249 of them."
    if not name:
        raise InvalidTopic("a topic needs a name", hint=hint)
    if len(name) > _NAME_LENGTH_MAX:
        raise InvalidTopic(f"a topic's name has at most 249 characters, not {len(name)}", hint=hint)
    if name in (".", "..") or not _NAME.fullmatch(name):
        raise InvalidTopic(f'topic name "{name}" is not allowed', hint=hint)


def segment_bytes(topic: Topic) -> int:
    """The size at which a partition begins a new segment."""
    return settings_of(topic.config).segment_bytes
