"""The operations that somebody may perform on a resource, for clients that ask (KIP-430).

They are what requests check (`accesses.py`), so an answer says what a request would find.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...topic_rules import belongs_to_millstream
from .accesses import DESCRIBE_TOPIC, DESCRIBE_TOPIC_CONFIGS, ON_CLUSTER, ON_GROUPS, ON_TOPICS, READ_TOPIC, Access
from .acl_bindings import CLUSTER_NAME, AclOperation
from .peer import Peer

NOT_ASKED: Final = -(2**31)
_TO_LOOK: Final = (READ_TOPIC, DESCRIBE_TOPIC, DESCRIBE_TOPIC_CONFIGS)

May = Callable[[Access, str], bool]
"""Whether somebody may do this with the resource of this name."""


def on_topic(may: May, topic: str) -> set[AclOperation]:
    """Millstream's own topics can only be looked at."""
    return _allowed(may, _TO_LOOK if belongs_to_millstream(topic) else ON_TOPICS, topic)


def on_group(may: May, group: str) -> set[AclOperation]:
    return _allowed(may, ON_GROUPS, group)


def on_cluster(may: May) -> set[AclOperation]:
    """Everybody may write idempotently: no request needs a right for it."""
    return _allowed(may, ON_CLUSTER, CLUSTER_NAME) | {AclOperation.IDEMPOTENT_WRITE}


def topic_bits(peer: Peer, topic: str, *, asked: bool) -> int:
    """For an answer of Kafka's protocol: a bit for each operation. In: `asked`: whether the request wants them."""
    return _bits(on_topic(peer.may, topic)) if asked else NOT_ASKED


def group_bits(peer: Peer, group: str, *, asked: bool) -> int:
    return _bits(on_group(peer.may, group)) if asked else NOT_ASKED


def cluster_bits(peer: Peer, *, asked: bool) -> int:
    return _bits(on_cluster(peer.may)) if asked else NOT_ASKED


def _allowed(may: May, accesses: tuple[Access, ...], name: str) -> set[AclOperation]:
    return {access.operation for access in accesses if may(access, name)}


def _bits(operations: set[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)
