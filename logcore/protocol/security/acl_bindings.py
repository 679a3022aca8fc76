"""Kafka's ACLs: bindings and filters for them. `acl_table.py` decides with them.

The numbers are those of the protocol.
"""

from __future__ import annotations

import json
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

EVERY: Final = "*"
"""As the name of a literal pattern: every name. As a host: every host."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of the type CLUSTER."""
USER_PREFIX: Final = "User:"
"""What the principals of users begin with."""
EVERYBODY: Final = f"{USER_PREFIX}{EVERY}"


class AclResource(IntEnum):
    """The types of resources. ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    """How a name is meant. ANY and MATCH are for filters only: MATCH finds every pattern that fits a name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What may be done, or not. ANY is for filters only."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


class AclBinding(NamedTuple):
    """One ACL.

    >>> binding = AclBinding(AclResource.TOPIC, "t", AclPattern.LITERAL, "User:ana", "*", AclOperation.READ,
    ...     AclPermission.ALLOW)
    >>> binding.covers(AclOperation.DESCRIBE), binding.covers(AclOperation.WRITE)
    (True, False)
    """

    resource: AclResource
    name: str
    pattern: AclPattern
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    def covers(self, operation: AclOperation) -> bool:
        """Whether it allows or denies this operation. To allow one allows what it implies, to deny one does not."""
        if self.operation in (operation, AclOperation.ALL):
            return True
        return self.permission is AclPermission.ALLOW and self.operation in _IMPLIED_BY.get(operation, ())

    def fits(self, name: str) -> bool:
        """Whether the pattern contains this name."""
        if self.pattern is AclPattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, EVERY)

    def text(self) -> str:
        """For the metadata; `binding_of` reads it."""
        return json.dumps(self, separators=(",", ":"))

    def __str__(self) -> str:
        what = f"{self.resource.name} {self.name} ({self.pattern.name})"
        return f"{self.permission.name} {self.principal} from {self.host}: {self.operation.name} on {what}"


@lru_cache(20_000)
def binding_of(text: str) -> AclBinding:
    """
    >>> binding = AclBinding(AclResource.GROUP, "g", AclPattern.PREFIXED, "User:ana", "*", AclOperation.ALL,
    ...     AclPermission.DENY)
    >>> binding_of(binding.text()) == binding
    True
    """
    fields: list[Any] = json.loads(text)
    resource, name, pattern, principal, host, operation, permission = fields
    return AclBinding(
        AclResource(resource),
        name,
        AclPattern(pattern),
        principal,
        host,
        AclOperation(operation),
        AclPermission(permission),
    )


class AclFilter(NamedTuple):
    """Finds bindings. None: any name, principal or host."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    pattern: AclPattern = AclPattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def finds(self, binding: AclBinding) -> bool:
        return (
            self.resource in (AclResource.ANY, binding.resource)
            and self._finds_name(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission in (AclPermission.ANY, binding.permission)
        )

    def _finds_name(self, binding: AclBinding) -> bool:
        if self.pattern not in (AclPattern.ANY, AclPattern.MATCH, binding.pattern):
            return False
        if self.name is None:
            return True
        return binding.fits(self.name) if self.pattern is AclPattern.MATCH else self.name == binding.name


def principal_of(user: str) -> str:
    """
    >>> principal_of("ana")
    'User:ana'
    """
    return f"{USER_PREFIX}{user}"
