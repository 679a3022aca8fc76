"""Which requests of the Kafka protocol we know, and in which versions. What is in them: `messages.py` and others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Api(IntEnum):
    """Names are the protocol's; in lower case they name the schema."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32


@dataclass(frozen=True, slots=True)
class Versions:
    """`oldest` to `newest` are understood. From `flexible` on, messages have compact strings and tagged fields."""

    oldest: int
    newest: int
    flexible: int

    def __contains__(self, version: int) -> bool:
        return self.oldest <= version <= self.newest


KNOWN: Final = {
    Api.PRODUCE: Versions(3, 11, flexible=9),
    Api.FETCH: Versions(4, 12, flexible=12),  # from 13 on, topics go by id
    Api.LIST_OFFSETS: Versions(1, 7, flexible=6),
    # Version 9 is left out: librdkafka writes its list of topics in the older form there, so that what follows looks
    # like a tagged field, which other parsers skip and kio refuses. From 10 on, topics have ids.
    Api.METADATA: Versions(0, 8, flexible=9),
    Api.OFFSET_COMMIT: Versions(2, 8, flexible=8),
    Api.OFFSET_FETCH: Versions(1, 7, flexible=6),  # from 8 on, several groups
    Api.FIND_COORDINATOR: Versions(0, 4, flexible=3),
    Api.API_VERSIONS: Versions(0, 3, flexible=3),
    Api.CREATE_TOPICS: Versions(2, 6, flexible=5),  # from 7 on, topics have ids
    Api.DELETE_TOPICS: Versions(1, 5, flexible=4),  # from 6 on, topics go by id
    Api.INIT_PRODUCER_ID: Versions(0, 4, flexible=2),
    Api.ADD_PARTITIONS_TO_TXN: Versions(0, 3, flexible=3),  # from 4 on, for brokers
    Api.ADD_OFFSETS_TO_TXN: Versions(0, 3, flexible=3),
    Api.END_TXN: Versions(0, 3, flexible=3),  # from 5 on, each transaction raises the epoch
    Api.TXN_OFFSET_COMMIT: Versions(0, 3, flexible=3),
    Api.DESCRIBE_CONFIGS: Versions(1, 4, flexible=4),
}

ADVERTISED_FROM: Final = {Api.PRODUCE: 0}
"""librdkafka before 2.6 takes a broker without Produce v0 for one that cannot compress, and sends batches plain."""
