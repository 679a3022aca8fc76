"""The operations that a client may perform on a resource, for clients that ask (KIP-430): one bit for each.

They are what requests check (`accesses.py`), so an answer says what a request would find.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...topic_rules import belongs_to_millstream
from .accesses import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CREATE_IN_CLUSTER,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    Access,
)
from .acl_bindings import AclOperation, AclResource
from .peer import Peer

NOT_ASKED: Final = -(2**31)
_LOOKING: Final = (READ_TOPIC, DESCRIBE_TOPIC, DESCRIBE_TOPIC_CONFIGS)
_OF: Final[Mapping[AclResource, tuple[Access, ...]]] = {
    AclResource.TOPIC: (*_LOOKING, WRITE_TOPIC, CREATE_TOPIC, DELETE_TOPIC, ALTER_TOPIC, ALTER_TOPIC_CONFIGS),
    AclResource.GROUP: (READ_GROUP, DELETE_GROUP, DESCRIBE_GROUP, ALTER_GROUP_CONFIGS, DESCRIBE_GROUP_CONFIGS),
    AclResource.CLUSTER: (
        CREATE_IN_CLUSTER, ALTER_CLUSTER, DESCRIBE_CLUSTER, ALTER_CLUSTER_CONFIGS, DESCRIBE_CLUSTER_CONFIGS,
    ),
}  # fmt: skip


def authorized_operations(peer: Peer, resource: AclResource, name: str, *, asked: bool) -> int:
    """In: `asked`: whether the request wants them."""
    if not asked:
        return NOT_ASKED
    accesses = _OF[resource]
    if resource is AclResource.TOPIC and belongs_to_millstream(name) and not peer.trusted:
        accesses = _LOOKING
    allowed = {access.operation for access in accesses if peer.may(access, name)}
    if resource is AclResource.CLUSTER:
        allowed.add(AclOperation.IDEMPOTENT_WRITE)  # no request needs a right for it
    return sum(1 << operation for operation in allowed)
