"""The operations that clients are told they may perform (KIP-430), for what they describe at the Kafka port."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.logcore.protocol.security.accesses import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_TOPIC,
    DELETE_GROUP,
    READ_GROUP,
    READ_TOPIC,
    Access,
)
from millstream.logcore.protocol.security.acl_bindings import AclOperation, AclResource
from millstream.logcore.protocol.wire.apis import Api

from .test_acl_rights import Say, ask, say, service
from .test_kafka_rights import ASKED, GROUP, TOPIC, Ask

__all__ = ["ask", "say", "service"]

OWN = "_millstream-command"
ALL_OF = {
    AclResource.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    AclResource.GROUP: "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    AclResource.CLUSTER: "CREATE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
}
NOT_SAID = -(2**31)


def names(bits: int) -> set[str]:
    assert bits >= 0
    return {operation.name for operation in AclOperation if bits & 1 << operation}


def on_topic(ask: Ask, user: str, topic: str = TOPIC) -> list[int]:
    """By each request that says it."""
    described = ask(user, Api.METADATA, {"topics": [{"name": topic}], "include_topic_authorized_operations": True})
    page = {"topics": [{"name": topic}], "response_partition_limit": 1, "cursor": None}
    answers: list[Any] = [described, ask(user, Api.DESCRIBE_TOPIC_PARTITIONS, page)]
    return [answer.topics[0].topic_authorized_operations for answer in answers]


def on_group(ask: Ask, user: str) -> int:
    (group,) = ask(user, Api.DESCRIBE_GROUPS, {"groups": [GROUP], "include_authorized_operations": True}).groups
    return group.authorized_operations


def on_cluster(ask: Ask, user: str) -> int:
    asked = {"include_cluster_authorized_operations": True, "endpoint_type": 1}
    return ask(user, Api.DESCRIBE_CLUSTER, asked).cluster_authorized_operations


def test_administrators_may_do_everything(ask: Ask, say: Say) -> None:
    for bits in on_topic(ask, "root"):
        assert names(bits) == set(ALL_OF[AclResource.TOPIC].split())
    assert names(on_group(ask, "root")) == set(ALL_OF[AclResource.GROUP].split())
    assert names(on_cluster(ask, "root")) == set(ALL_OF[AclResource.CLUSTER].split())


@pytest.mark.parametrize(
    ("access", "on", "expected"),
    [
        (READ_TOPIC, on_topic, "READ DESCRIBE"),
        (ALTER_TOPIC, on_topic, "ALTER DESCRIBE"),
        (READ_GROUP, on_group, "READ DESCRIBE"),
        (DELETE_GROUP, on_group, "DELETE DESCRIBE"),
        (ALTER_CLUSTER_CONFIGS, on_cluster, "ALTER_CONFIGS DESCRIBE_CONFIGS IDEMPOTENT_WRITE"),
    ],
)
def test_an_acl_is_said_with_what_it_implies(ask: Ask, say: Say, access: Access, on: Any, expected: str) -> None:
    say(access)
    found = on(ask, "nothing")
    for bits in found if isinstance(found, list) else [found]:
        assert names(bits) == set(expected.split())


@pytest.mark.parametrize(
    ("joins", "describes"),
    [
        (Api.CONSUMER_GROUP_HEARTBEAT, Api.CONSUMER_GROUP_DESCRIBE),
        (Api.SHARE_GROUP_HEARTBEAT, Api.SHARE_GROUP_DESCRIBE),
    ],
)
def test_groups_of_all_kinds_say_it(ask: Ask, say: Say, joins: Api, describes: Api) -> None:
    fields = ASKED[joins]
    ask("root", joins, fields)
    asked = {"group_ids": [fields["group_id"]], "include_authorized_operations": True}
    (group,) = ask("all", describes, asked).groups
    assert names(group.authorized_operations) == set(ALL_OF[AclResource.GROUP].split())
    (group,) = ask("all", describes, {**asked, "include_authorized_operations": False}).groups
    assert group.error_code == 0 and group.authorized_operations == NOT_SAID


def test_what_is_denied_is_not_said(ask: Ask, say: Say) -> None:
    say(READ_TOPIC, "all", allow=False)
    for bits in on_topic(ask, "all"):
        assert names(bits) == set(ALL_OF[AclResource.TOPIC].split()) - {"READ"}


def test_millstreams_own_topics_are_only_looked_at(ask: Ask, say: Say) -> None:
    for bits in on_topic(ask, "root", OWN):
        assert names(bits) == {"READ", "DESCRIBE", "DESCRIBE_CONFIGS"}


def test_who_does_not_ask_or_sees_nothing_is_told_nothing(ask: Ask, say: Say) -> None:
    assert ask("root", Api.METADATA, {"topics": [{"name": TOPIC}]}).topics[0].topic_authorized_operations == NOT_SAID
    assert ask("root", Api.DESCRIBE_GROUPS, {"groups": [GROUP]}).groups[0].authorized_operations == NOT_SAID
    assert ask("root", Api.DESCRIBE_CLUSTER, {}).cluster_authorized_operations == NOT_SAID
    assert on_topic(ask, "nothing") == [NOT_SAID, NOT_SAID]
    assert on_group(ask, "nothing") == NOT_SAID
