"""The requests of the Kafka protocol that we know, and their versions. `messages.py` and others have their contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ...capabilities import FEATURE


class Api(IntEnum):
    """The names are those of the protocol; in lower case they name the schema."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


@dataclass(frozen=True, slots=True)
class Versions:
    """`oldest` to `newest` are understood. From `flexible` on, messages have compact strings and tagged fields."""

    oldest: int
    newest: int
    flexible: int

    def __contains__(self, version: int) -> bool:
        return self.oldest <= version <= self.newest


_NEVER: Final = 1000

KNOWN: Final = {
    Api.PRODUCE: Versions(3, 13, flexible=9),  # from 13 on, topics go by id
    Api.FETCH: Versions(4, 18, flexible=12),  # from 13 on, topics go by id
    Api.LIST_OFFSETS: Versions(1, 10, flexible=6),
    Api.METADATA: Versions(0, 13, flexible=9),
    Api.OFFSET_COMMIT: Versions(2, 9, flexible=8),  # from 10 on, topics go by id
    Api.OFFSET_FETCH: Versions(1, 9, flexible=6),
    Api.FIND_COORDINATOR: Versions(0, 5, flexible=3),
    Api.JOIN_GROUP: Versions(0, 9, flexible=6),
    Api.HEARTBEAT: Versions(0, 4, flexible=4),
    Api.LEAVE_GROUP: Versions(0, 5, flexible=4),
    Api.SYNC_GROUP: Versions(0, 5, flexible=4),
    Api.DESCRIBE_GROUPS: Versions(0, 6, flexible=5),
    Api.LIST_GROUPS: Versions(0, 5, flexible=3),
    Api.SASL_HANDSHAKE: Versions(1, 1, flexible=_NEVER),  # before, what follows has no frames
    Api.API_VERSIONS: Versions(0, 3, flexible=3),
    Api.CREATE_TOPICS: Versions(2, 7, flexible=5),
    Api.DELETE_TOPICS: Versions(1, 6, flexible=4),
    Api.DELETE_RECORDS: Versions(0, 2, flexible=2),
    Api.INIT_PRODUCER_ID: Versions(0, 5, flexible=2),  # from 6 on, for commits in two phases
    Api.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4, flexible=4),
    Api.ADD_PARTITIONS_TO_TXN: Versions(0, 3, flexible=3),  # from 4 on, for brokers
    Api.ADD_OFFSETS_TO_TXN: Versions(0, 4, flexible=3),
    Api.END_TXN: Versions(0, 5, flexible=3),  # from 5 on, each transaction raises the epoch
    Api.WRITE_TXN_MARKERS: Versions(1, 2, flexible=1),
    Api.TXN_OFFSET_COMMIT: Versions(0, 5, flexible=3),
    Api.DESCRIBE_ACLS: Versions(1, 3, flexible=2),
    Api.CREATE_ACLS: Versions(1, 3, flexible=2),
    Api.DELETE_ACLS: Versions(1, 3, flexible=2),
    Api.DESCRIBE_CONFIGS: Versions(1, 4, flexible=4),
    Api.ALTER_CONFIGS: Versions(0, 2, flexible=2),
    Api.DESCRIBE_LOG_DIRS: Versions(1, 4, flexible=2),
    Api.SASL_AUTHENTICATE: Versions(0, 2, flexible=2),
    Api.CREATE_PARTITIONS: Versions(0, 3, flexible=2),
    Api.DELETE_GROUPS: Versions(0, 2, flexible=2),
    Api.ELECT_LEADERS: Versions(0, 2, flexible=2),
    Api.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1, flexible=1),
    Api.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 1, flexible=0),
    Api.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0, flexible=0),
    Api.OFFSET_DELETE: Versions(0, 0, flexible=_NEVER),
    Api.DESCRIBE_CLIENT_QUOTAS: Versions(0, 1, flexible=1),
    Api.ALTER_CLIENT_QUOTAS: Versions(0, 1, flexible=1),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: Versions(0, 0, flexible=0),
    Api.ALTER_USER_SCRAM_CREDENTIALS: Versions(0, 0, flexible=0),
    Api.DESCRIBE_QUORUM: Versions(0, 2, flexible=0),
    Api.DESCRIBE_CLUSTER: Versions(0, 1, flexible=0),
    Api.DESCRIBE_PRODUCERS: Versions(0, 0, flexible=0),
    Api.DESCRIBE_TRANSACTIONS: Versions(0, 0, flexible=0),
    Api.LIST_TRANSACTIONS: Versions(0, 2, flexible=0),
    Api.CONSUMER_GROUP_HEARTBEAT: Versions(0, 1, flexible=0),
    Api.CONSUMER_GROUP_DESCRIBE: Versions(0, 1, flexible=0),
    Api.LIST_CONFIG_RESOURCES: Versions(0, 1, flexible=0),
    Api.DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0, flexible=0),
    Api.SHARE_GROUP_HEARTBEAT: Versions(1, 1, flexible=0),  # those before were never released for good
    Api.SHARE_GROUP_DESCRIBE: Versions(1, 1, flexible=0),
    Api.SHARE_FETCH: Versions(1, 2, flexible=0),  # from 2 on, members may renew what they have
    Api.SHARE_ACKNOWLEDGE: Versions(1, 2, flexible=0),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: Versions(0, 1, flexible=0),
    Api.ALTER_SHARE_GROUP_OFFSETS: Versions(0, 0, flexible=0),
    Api.DELETE_SHARE_GROUP_OFFSETS: Versions(0, 0, flexible=0),
}

_OF_SHARE_GROUPS: Final = (
    Api.SHARE_GROUP_HEARTBEAT, Api.SHARE_GROUP_DESCRIBE, Api.SHARE_FETCH, Api.SHARE_ACKNOWLEDGE,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS, Api.ALTER_SHARE_GROUP_OFFSETS, Api.DELETE_SHARE_GROUP_OFFSETS,
)  # fmt: skip

CAME_WITH: Final[Mapping[Api, int]] = dict.fromkeys(_OF_SHARE_GROUPS, 2)
"""The version of the cluster that introduced a request (`replication/cluster_version.py`). In an older cluster, some
node could not coordinate it, so it is not offered to clients."""

ADVERTISED_FROM: Final = {Api.PRODUCE: 0}
"""librdkafka before 2.6 assumes that a broker without Produce v0 supports no compression, and sends plain batches."""

NAMING_TOPICS: Final = {Api.PRODUCE: 12, Api.FETCH: 12}
"""The newest versions that name topics by name; our own clients send these."""

FEATURES: Final = {"group.version": 1, "share.version": 1, "transaction.version": 2, FEATURE: 1}
"""Features that Kafka's clients need to know besides the versions: groups whose coordinator assigns (KIP-848), share
groups (KIP-932), and transactions that raise the epoch (KIP-890). The last one is for our own clients."""

FEATURES_CAME_WITH: Final = {"share.version": 2}
