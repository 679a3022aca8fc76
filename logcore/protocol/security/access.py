"""Checks rights: users may do what their roles allow; what is reserved for Millstream is for its own processes only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from millstream.errors import LogError

from ...topic_rules import belongs_to_millstream
from ..wire.apis import Api
from .peer import Peer
from .users import Right

Ask = Right | Literal["seen"]

ASKS: Final[Mapping[Api, tuple[Ask, ...]]] = {
    **dict.fromkeys((Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.DESCRIBE_CLUSTER), ()),
    **dict.fromkeys((Api.DESCRIBE_ACLS, Api.CREATE_ACLS, Api.DELETE_ACLS), ()),  # there are none
    Api.PRODUCE: ("insert", "transaction"),  # the second only in a transaction
    Api.FETCH: ("read",),
    **dict.fromkeys((Api.LIST_OFFSETS, Api.OFFSET_FOR_LEADER_EPOCH, Api.METADATA), ("seen",)),
    **dict.fromkeys((Api.DESCRIBE_CONFIGS, Api.LIST_CONFIG_RESOURCES, Api.DESCRIBE_TOPIC_PARTITIONS), ("seen",)),
    **dict.fromkeys((Api.LIST_GROUPS, Api.LIST_TRANSACTIONS, Api.LIST_PARTITION_REASSIGNMENTS), ("seen",)),
    **dict.fromkeys((Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.DELETE_RECORDS, Api.CREATE_PARTITIONS), ("ddl",)),
    **dict.fromkeys((Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS), ("ddl",)),  # of groups group, of brokers admin
    Api.DESCRIBE_PRODUCERS: ("read",),
    Api.FIND_COORDINATOR: ("group",),  # or "transaction", if it looks for a transactional id
    **dict.fromkeys((Api.JOIN_GROUP, Api.HEARTBEAT, Api.LEAVE_GROUP, Api.SYNC_GROUP), ("group",)),
    **dict.fromkeys((Api.DESCRIBE_GROUPS, Api.DELETE_GROUPS, Api.CONSUMER_GROUP_DESCRIBE), ("group",)),
    **dict.fromkeys((Api.OFFSET_COMMIT, Api.OFFSET_DELETE, Api.CONSUMER_GROUP_HEARTBEAT), ("group", "read")),
    Api.OFFSET_FETCH: ("group", "seen"),
    Api.SHARE_GROUP_DESCRIBE: ("group",),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: ("group", "seen"),
    **dict.fromkeys((Api.SHARE_GROUP_HEARTBEAT, Api.SHARE_FETCH, Api.SHARE_ACKNOWLEDGE), ("group", "read")),
    **dict.fromkeys((Api.ALTER_SHARE_GROUP_OFFSETS, Api.DELETE_SHARE_GROUP_OFFSETS), ("group", "read")),
    **dict.fromkeys((Api.INIT_PRODUCER_ID, Api.END_TXN, Api.DESCRIBE_TRANSACTIONS), ("transaction",)),
    Api.ADD_PARTITIONS_TO_TXN: ("transaction", "insert"),
    Api.ADD_OFFSETS_TO_TXN: ("transaction", "group"),
    Api.TXN_OFFSET_COMMIT: ("transaction", "group", "read"),
    **dict.fromkeys((Api.DESCRIBE_LOG_DIRS, Api.ELECT_LEADERS, Api.ALTER_PARTITION_REASSIGNMENTS), ("admin",)),
    **dict.fromkeys((Api.DESCRIBE_CLIENT_QUOTAS, Api.ALTER_CLIENT_QUOTAS), ("admin",)),
    **dict.fromkeys((Api.DESCRIBE_USER_SCRAM_CREDENTIALS, Api.ALTER_USER_SCRAM_CREDENTIALS), ("admin",)),
    **dict.fromkeys((Api.DESCRIBE_QUORUM, Api.WRITE_TXN_MARKERS), ("admin",)),
}
"""The rights that each request needs on what it names. `seen`: any right; lists leave out what a client has no right
on. A request that is not here is not answered (`dispatch.py`), so a new one must declare its rights."""


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
    _check(peer, "insert", topic)


def check_readable(peer: Peer, topic: str) -> None:
    """Raises `NotAllowed`."""
    _check(peer, "read", topic)


def check_administrable(peer: Peer, topic: str) -> None:
    """Checks the right to create, change and delete the topic. Raises `NotAllowed`."""
    if belongs_to_millstream(topic) and not peer.trusted:
        raise NotAllowed(f'topic "{topic}" belongs to Millstream: other clients cannot create, change or delete it')
    _check(peer, "ddl", topic)


def check_visible(peer: Peer, topic: str) -> None:
    """Checks the right to see that a topic exists, but not its records. Raises `NotAllowed`."""
    if not may_see(peer, topic):
        raise NotAllowed(f'there is no right on topic "{topic}"')


def check_administrator(peer: Peer) -> None:
    """Raises `OnlyForAdministrators`."""
    if not peer.may("admin", "*"):
        raise OnlyForAdministrators("this is for administrators")


def may_see_all(peer: Peer, topics: Iterable[str]) -> bool:
    return all(may_see(peer, topic) for topic in topics)


def may_see(peer: Peer, topic: str) -> bool:
    return peer.may("read", topic) or peer.may("insert", topic) or peer.may("ddl", topic)


def _check(peer: Peer, verb: Right, topic: str) -> None:
    if not peer.may(verb, topic):
        raise NotAllowed(f'there is no right "{verb}" on topic "{topic}"')
