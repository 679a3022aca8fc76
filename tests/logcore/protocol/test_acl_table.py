"""What ACLs say about an operation, and which of them a filter finds: every pattern, principal, host, operation and
permission, beside a model that has no index."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from drawn import drawn

from millstream.logcore.log_settings import ACLS, with_changes
from millstream.logcore.protocol.security.acl_bindings import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    binding_of,
)
from millstream.logcore.protocol.security.acl_table import AclTable, KeptAcls
from millstream.logcore.protocol.served_log import ServedLog

NAMES = ("orders", "orders-eu", "ord", "o", "*", "bills")
PATTERNS = (AclPattern.LITERAL, AclPattern.PREFIXED)
PRINCIPALS = ("User:ana", "User:ben", "User:*", "Group:ana")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")
OPERATIONS = [each for each in AclOperation if each is not AclOperation.ANY]
PERMISSIONS = (AclPermission.ALLOW, AclPermission.DENY)
IMPLIES = {
    "READ": ["DESCRIBE"], "WRITE": ["DESCRIBE"], "DELETE": ["DESCRIBE"], "ALTER": ["DESCRIBE"],
    "ALTER_CONFIGS": ["DESCRIBE_CONFIGS"],
}  # fmt: skip
"""As Kafka's documentation says."""


def applies(acl: AclBinding, user: str, host: str | None, operation: str, name: str) -> bool:
    """The model, in Kafka's words."""
    if acl.principal not in (f"User:{user}", "User:*"):
        return False
    if acl.pattern.name == "LITERAL" and acl.name not in ("*", name):
        return False
    if acl.pattern.name == "PREFIXED" and name[: len(acl.name)] != acl.name:
        return False
    if acl.permission.name == "DENY":
        return acl.operation.name in ("ALL", operation) and (host is None or acl.host in ("*", host))
    granted = [acl.operation.name, *IMPLIES.get(acl.operation.name, [])]
    return (acl.operation.name == "ALL" or operation in granted) and acl.host in ("*", host)


def expected(acls: Sequence[AclBinding], user: str, host: str | None, operation: AclOperation, name: str) -> str | None:
    said = {acl.permission.name for acl in acls if applies(acl, user, host, operation.name, name)}
    return "DENY" if "DENY" in said else "ALLOW" if said else None


def every_binding() -> Iterator[AclBinding]:
    for name, pattern, principal, host, operation, permission in itertools.product(
        NAMES, PATTERNS, PRINCIPALS, HOSTS, OPERATIONS, PERMISSIONS
    ):
        yield AclBinding(AclResource.TOPIC, name, pattern, principal, host, operation, permission)


def questions() -> list[tuple[str, str | None, AclOperation, str]]:
    operations = (AclOperation.READ, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    return list(itertools.product(("ana",), (None, "10.0.0.1", "10.0.0.9"), operations, ("orders", "orders-x")))


def test_each_acl_alone_decides_as_the_model() -> None:
    asked = questions()
    for binding in every_binding():
        table = AclTable([binding])
        for user, host, operation, name in asked:
            found = table.decide(user, host, operation, AclResource.TOPIC, name)
            assert (found.name if found else None) == expected([binding], user, host, operation, name), (binding, name)


@pytest.mark.parametrize("seed", range(drawn(60)))
def test_several_acls_decide_as_the_model(seed: int) -> None:
    chance = random.Random(seed)
    every = list(every_binding())
    chosen = [chance.choice(every) for _ in range(chance.randrange(1, 40))]
    table = AclTable(chosen)
    for user, host, operation, name in itertools.product(("ana", "ben", "eve"), (None, *HOSTS[1:]), OPERATIONS, NAMES):
        found = table.decide(user, host, operation, AclResource.TOPIC, name)
        assert (found.name if found else None) == expected(chosen, user, host, operation, name), (user, host, name)


def test_an_acl_of_another_resource_says_nothing() -> None:
    table = AclTable([_topic("*", AclOperation.ALL)])
    for resource in AclResource:
        found = table.decide("ana", "h", AclOperation.READ, resource, "orders")
        assert found is (AclPermission.ALLOW if resource is AclResource.TOPIC else None)


def _topic(name: str, operation: AclOperation, permission: AclPermission = AclPermission.ALLOW) -> AclBinding:
    return AclBinding(AclResource.TOPIC, name, AclPattern.LITERAL, "User:ana", "*", operation, permission)


# Filters


def found_by_model(asked: AclFilter, acl: AclBinding) -> bool:
    """As Kafka documents its filters."""
    pattern = asked.pattern.name
    if pattern not in ("ANY", "MATCH") and pattern != acl.pattern.name:
        return False
    if asked.name is not None:
        if pattern == "MATCH":
            literal = acl.pattern.name == "LITERAL"
            if not (acl.name in (asked.name, "*") if literal else asked.name.startswith(acl.name)):
                return False
        elif asked.name != acl.name:
            return False
    others = (
        (asked.principal, acl.principal), (asked.host, acl.host), (asked.operation.name, acl.operation.name),
        (asked.permission.name, acl.permission.name), (asked.resource.name, acl.resource.name),
    )  # fmt: skip
    return all(wanted in (None, "ANY", given) for wanted, given in others)


@pytest.mark.parametrize("pattern", AclPattern)
@pytest.mark.parametrize("name", [None, *NAMES, "orders-x"])
def test_a_filter_finds_what_the_model_finds(pattern: AclPattern, name: str | None) -> None:
    every = list(every_binding())
    rest = itertools.product(
        (None, "User:ana"), (None, "*"), (AclOperation.ANY, AclOperation.READ, AclOperation.ALL),
        (AclPermission.ANY, AclPermission.DENY), (AclResource.ANY, AclResource.TOPIC, AclResource.GROUP),
    )  # fmt: skip
    chance = random.Random(f"{pattern}{name}")
    for principal, host, operation, permission, resource in rest:
        asked = AclFilter(resource, name, pattern, principal, host, operation, permission)
        for acl in chance.sample(every, 60):
            assert asked.finds(acl) == found_by_model(asked, acl), (asked, acl)


# Kept


def test_what_is_kept_is_read_again_when_it_has_changed() -> None:
    class _Log:
        def __init__(self) -> None:
            self.known: Any = {}

        def settings(self, resource: str) -> Any:
            return self.known.get(resource, {})

    log, kept = _Log(), KeptAcls()
    assert kept.table.bindings == frozenset(), "no log is known yet"
    kept.follow(cast(ServedLog, log))
    first, second = _topic("a", AclOperation.READ), _topic("é\n\0*", AclOperation.ALL, AclPermission.DENY)
    log.known = with_changes(log.known, ACLS, {first.text(): "", second.text(): ""})
    before = kept.table
    assert before.bindings == {first, second} and binding_of(second.text()) == second
    log.known = with_changes(log.known, "group:g", {"a": "b"})
    assert kept.table is before
    log.known = with_changes(log.known, ACLS, {first.text(): None})
    assert kept.table.bindings == {second}
    log.known = with_changes(log.known, ACLS, {second.text(): None})
    assert kept.table.bindings == frozenset()
