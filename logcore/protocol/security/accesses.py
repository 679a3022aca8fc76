"""What requests need: an operation of Kafka's on a resource, and the rights of the configuration that include it."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from .acl_bindings import AclOperation, AclResource

Right = Literal["read", "insert", "ddl", "admin", "group", "transaction"]
"""Of the configuration. For topics: `read`, `insert`, and `ddl` (create, change, delete). `group` and `transaction`:
use a consumer group or a transactional id. `admin`: for what belongs to nobody in particular."""


class Access(NamedTuple):
    """`rights`: each of them includes it; without any, everybody has it whom no ACL denies it."""

    operation: AclOperation
    resource: AclResource
    rights: tuple[Right, ...]


READ_TOPIC: Final = Access(AclOperation.READ, AclResource.TOPIC, ("read",))
WRITE_TOPIC: Final = Access(AclOperation.WRITE, AclResource.TOPIC, ("insert",))
CREATE_TOPIC: Final = Access(AclOperation.CREATE, AclResource.TOPIC, ("ddl",))
DELETE_TOPIC: Final = Access(AclOperation.DELETE, AclResource.TOPIC, ("ddl",))
"""Also for its records."""
ALTER_TOPIC: Final = Access(AclOperation.ALTER, AclResource.TOPIC, ("ddl",))
ALTER_TOPIC_CONFIGS: Final = Access(AclOperation.ALTER_CONFIGS, AclResource.TOPIC, ("ddl",))
DESCRIBE_TOPIC: Final = Access(AclOperation.DESCRIBE, AclResource.TOPIC, ("read", "insert", "ddl"))
"""To see that it exists, but not its records."""
DESCRIBE_TOPIC_CONFIGS: Final = Access(AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, ("read", "insert", "ddl"))

READ_GROUP: Final = Access(AclOperation.READ, AclResource.GROUP, ("group",))
DELETE_GROUP: Final = Access(AclOperation.DELETE, AclResource.GROUP, ("group",))
DESCRIBE_GROUP: Final = Access(AclOperation.DESCRIBE, AclResource.GROUP, ("group",))
ALTER_GROUP_CONFIGS: Final = Access(AclOperation.ALTER_CONFIGS, AclResource.GROUP, ("group",))
DESCRIBE_GROUP_CONFIGS: Final = Access(AclOperation.DESCRIBE_CONFIGS, AclResource.GROUP, ("group",))

WRITE_TRANSACTION: Final = Access(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, ("transaction",))
DESCRIBE_TRANSACTION: Final = Access(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, ("transaction",))

CREATE_IN_CLUSTER: Final = Access(AclOperation.CREATE, AclResource.CLUSTER, ("admin",))
"""To create any topic."""
ALTER_CLUSTER: Final = Access(AclOperation.ALTER, AclResource.CLUSTER, ("admin",))
DESCRIBE_CLUSTER: Final = Access(AclOperation.DESCRIBE, AclResource.CLUSTER, ("admin",))
ALTER_CLUSTER_CONFIGS: Final = Access(AclOperation.ALTER_CONFIGS, AclResource.CLUSTER, ("admin",))
DESCRIBE_CLUSTER_CONFIGS: Final = Access(AclOperation.DESCRIBE_CONFIGS, AclResource.CLUSTER, ("admin",))
SEE_BROKER_CONFIGS: Final = Access(AclOperation.DESCRIBE_CONFIGS, AclResource.CLUSTER, ())

ON_TOPICS: Final = (
    READ_TOPIC, WRITE_TOPIC, CREATE_TOPIC, DELETE_TOPIC, ALTER_TOPIC, ALTER_TOPIC_CONFIGS, DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
)  # fmt: skip
ON_GROUPS: Final = (READ_GROUP, DELETE_GROUP, DESCRIBE_GROUP, ALTER_GROUP_CONFIGS, DESCRIBE_GROUP_CONFIGS)
ON_CLUSTER: Final = (
    CREATE_IN_CLUSTER, ALTER_CLUSTER, DESCRIBE_CLUSTER, ALTER_CLUSTER_CONFIGS, DESCRIBE_CLUSTER_CONFIGS,
)  # fmt: skip
