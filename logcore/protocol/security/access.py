"""Checks rights: users may do what their roles allow; what is reserved for Millstream is for its own processes only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from millstream.errors import LogError

from ...topic_rules import belongs_to_millstream
from ..wire.apis import Api
from .accesses import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CREATE_IN_CLUSTER,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_TRANSACTION,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTION,
    Access,
)
from .acl_bindings import CLUSTER_NAME
from .peer import Peer

ASKS: Final[Mapping[Api, tuple[Access, ...]]] = {
    **dict.fromkeys((Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.DESCRIBE_CLUSTER), ()),
    Api.DESCRIBE_ACLS: (DESCRIBE_CLUSTER,),
    **dict.fromkeys((Api.CREATE_ACLS, Api.DELETE_ACLS), (ALTER_CLUSTER,)),
    Api.PRODUCE: (WRITE_TOPIC, WRITE_TRANSACTION),  # the second only in a transaction
    Api.FETCH: (READ_TOPIC,),
    **dict.fromkeys((Api.LIST_OFFSETS, Api.OFFSET_FOR_LEADER_EPOCH, Api.METADATA), (DESCRIBE_TOPIC,)),
    **dict.fromkeys((Api.DESCRIBE_TOPIC_PARTITIONS, Api.LIST_PARTITION_REASSIGNMENTS), (DESCRIBE_TOPIC,)),
    **dict.fromkeys((Api.DESCRIBE_CONFIGS, Api.LIST_CONFIG_RESOURCES), (DESCRIBE_TOPIC_CONFIGS,)),  # or of groups
    Api.LIST_GROUPS: (DESCRIBE_GROUP,),
    Api.LIST_TRANSACTIONS: (DESCRIBE_TRANSACTION,),
    Api.CREATE_TOPICS: (CREATE_TOPIC,),
    Api.CREATE_PARTITIONS: (ALTER_TOPIC,),
    **dict.fromkeys((Api.DELETE_TOPICS, Api.DELETE_RECORDS), (DELETE_TOPIC,)),
    **dict.fromkeys((Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS), (ALTER_TOPIC_CONFIGS,)),  # or of groups, …
    Api.DESCRIBE_PRODUCERS: (READ_TOPIC,),
    Api.FIND_COORDINATOR: (DESCRIBE_GROUP,),  # or `DESCRIBE_TRANSACTION`, if it looks for a transactional id
    **dict.fromkeys((Api.JOIN_GROUP, Api.HEARTBEAT, Api.LEAVE_GROUP, Api.SYNC_GROUP), (READ_GROUP,)),
    **dict.fromkeys((Api.DESCRIBE_GROUPS, Api.CONSUMER_GROUP_DESCRIBE, Api.SHARE_GROUP_DESCRIBE), (DESCRIBE_GROUP,)),
    Api.DELETE_GROUPS: (DELETE_GROUP,),
    **dict.fromkeys((Api.OFFSET_COMMIT, Api.CONSUMER_GROUP_HEARTBEAT), (READ_GROUP, READ_TOPIC)),
    **dict.fromkeys((Api.OFFSET_DELETE, Api.DELETE_SHARE_GROUP_OFFSETS), (DELETE_GROUP, READ_TOPIC)),
    **dict.fromkeys((Api.OFFSET_FETCH, Api.DESCRIBE_SHARE_GROUP_OFFSETS), (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
    **dict.fromkeys((Api.SHARE_GROUP_HEARTBEAT, Api.SHARE_FETCH, Api.SHARE_ACKNOWLEDGE), (READ_GROUP, READ_TOPIC)),
    Api.ALTER_SHARE_GROUP_OFFSETS: (READ_GROUP, READ_TOPIC),
    **dict.fromkeys((Api.INIT_PRODUCER_ID, Api.END_TXN), (WRITE_TRANSACTION,)),
    Api.DESCRIBE_TRANSACTIONS: (DESCRIBE_TRANSACTION,),
    Api.ADD_PARTITIONS_TO_TXN: (WRITE_TRANSACTION, WRITE_TOPIC),
    Api.ADD_OFFSETS_TO_TXN: (WRITE_TRANSACTION, READ_GROUP),
    Api.TXN_OFFSET_COMMIT: (WRITE_TRANSACTION, READ_GROUP, READ_TOPIC),
    **dict.fromkeys((Api.DESCRIBE_LOG_DIRS, Api.DESCRIBE_QUORUM), (DESCRIBE_CLUSTER,)),
    **dict.fromkeys((Api.ELECT_LEADERS, Api.ALTER_PARTITION_REASSIGNMENTS), (ALTER_CLUSTER,)),
    Api.DESCRIBE_CLIENT_QUOTAS: (DESCRIBE_CLUSTER_CONFIGS,),
    Api.ALTER_CLIENT_QUOTAS: (ALTER_CLUSTER_CONFIGS,),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: (DESCRIBE_CLUSTER,),
    Api.ALTER_USER_SCRAM_CREDENTIALS: (ALTER_CLUSTER,),
    Api.WRITE_TXN_MARKERS: (ALTER_CLUSTER,),
}
"""What each request needs on what it names. Lists leave out what a client may not describe. A request that is not here
is not answered (`dispatch.py`), so a new one must declare its needs."""


class NotAllowed(LogError):
    """A client has no right to what it requests."""

    code = "NOT_ALLOWED"


class OnlyForAdministrators(NotAllowed):
    """The same, for something that does not belong to a single topic."""

    code = "ONLY_FOR_ADMINISTRATORS"


def check_writable(peer: Peer, topic: str) -> None:
    """Raises `NotAllowed`."""
    if belongs_to_millstream(topic) and not peer.trusted:
        raise NotAllowed(f'topic "{topic}" belongs to Millstream: other clients can read it, but not write to it')
    _check(peer, WRITE_TOPIC, topic)


def check_readable(peer: Peer, topic: str) -> None:
    """Raises `NotAllowed`."""
    _check(peer, READ_TOPIC, topic)


def check_creatable(peer: Peer, topic: str) -> None:
    """Raises `NotAllowed`."""
    _check_not_ours(peer, topic)
    if not peer.may(CREATE_IN_CLUSTER, CLUSTER_NAME):
        _check(peer, CREATE_TOPIC, topic)


def check_changeable(peer: Peer, topic: str, access: Access) -> None:
    """Checks an access that changes or deletes the topic. Raises `NotAllowed`."""
    _check_not_ours(peer, topic)
    _check(peer, access, topic)


def _check_not_ours(peer: Peer, topic: str) -> None:
    if belongs_to_millstream(topic) and not peer.trusted:
        raise NotAllowed(f'topic "{topic}" belongs to Millstream: other clients cannot create, change or delete it')


def check_visible(peer: Peer, topic: str) -> None:
    """Checks the right to see that a topic exists, but not its records. Raises `NotAllowed`."""
    if not may_see(peer, topic):
        raise NotAllowed(f'there is no right on topic "{topic}"')


def check_cluster(peer: Peer, access: Access) -> None:
    """Checks an access to the cluster. Raises `OnlyForAdministrators`."""
    if not peer.may(access, CLUSTER_NAME):
        raise OnlyForAdministrators("this is for administrators")


def may_see_all(peer: Peer, topics: Iterable[str]) -> bool:
    return all(may_see(peer, topic) for topic in topics)


def may_see(peer: Peer, topic: str) -> bool:
    return peer.may(DESCRIBE_TOPIC, topic)


def _check(peer: Peer, access: Access, topic: str) -> None:
    if not peer.may(access, topic):
        raise NotAllowed(f'there is no right "{access.rights[0]}" on topic "{topic}"')
