"""What ACLs allow and deny at the Kafka port: every request of the API table, with all that it needs, with each of its
needs missing, and with each of them denied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.logcore.protocol.security.access import ASKS
from millstream.logcore.protocol.security.accesses import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    CREATE_IN_CLUSTER,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTION,
    READ_GROUP,
    READ_TOPIC,
    SEE_BROKER_CONFIGS,
    WRITE_TOPIC,
    Access,
)
from millstream.logcore.protocol.security.acl_bindings import CLUSTER_NAME, AclResource
from millstream.logcore.protocol.wire.apis import Api
from millstream.server.service import Service

from .test_kafka_rights import (
    ASKED,
    ASKED_BEFORE,
    BY_WHAT_IT_NAMES,
    CHANGING_LAST,
    GROUP,
    HIDDEN,
    LISTS,
    OF_BROKERS,
    OF_GROUP,
    REFUSED,
    TOPIC,
    Ask,
    ask,
    service,
)

__all__ = ["ask", "service"]

ANY = 1
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
EVERYTHING = {
    "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY, "principal_filter": None,
    "host_filter": None, "operation": ANY, "permission_type": ANY,
}  # fmt: skip
Say = Callable[..., None]


@pytest.fixture
def say(service: Service, ask: Ask) -> Iterator[Say]:
    """Creates an ACL for an access to what is ours; all are deleted at the end. The topics are there."""
    log: Any = service.engine.log
    for topic in (TOPIC, HIDDEN):
        if topic not in log.topics():
            log.create_topic(topic, 1)
    ask("root", Api.OFFSET_COMMIT, ASKED[Api.OFFSET_COMMIT])  # the group is there, too

    def created(access: Access, user: str = "nothing", *, allow: bool = True, host: str = "*", name: str = "") -> None:
        of_cluster = access.resource is AclResource.CLUSTER
        asked = {
            "resource_type": access.resource,
            "resource_name": name or (CLUSTER_NAME if of_cluster else "own-"),
            "resource_pattern_type": LITERAL if of_cluster or name else PREFIXED,
            "principal": f"User:{user}",
            "host": host,
            "operation": access.operation,
            "permission_type": ALLOW if allow else DENY,
        }
        (result,) = ask("root", Api.CREATE_ACLS, {"creations": [asked]}).results
        assert result.error_code == 0, result

    yield created
    delete(ask)


def delete(ask: Ask, **wanted: Any) -> int:
    (result,) = ask("root", Api.DELETE_ACLS, {"filters": [{**EVERYTHING, **wanted}]}).filter_results
    assert result.error_code == 0, result
    return len(result.matching_acls)


def asked_of(ask: Ask, user: str, api: Api) -> str:
    if api in ASKED_BEFORE:
        who, before = ASKED_BEFORE[api]
        ask(who or user, before, ASKED[before])
    return str(ask(user, api, ASKED[api]))


NEEDING = [api for api in CHANGING_LAST if ASKS[api]]


@pytest.mark.parametrize("api", NEEDING, ids=lambda api: api.name)
def test_a_request_needs_an_acl_for_each_of_its_accesses(ask: Ask, say: Say, api: Api) -> None:
    needs = ASKS[api]
    for access in needs:
        for other in needs:
            if other is not access:
                say(other)
        assert REFUSED in asked_of(ask, "nothing", api), access
        delete(ask)
    for access in needs:
        say(access)
    if api in (Api.SHARE_GROUP_DESCRIBE, Api.CONSUMER_GROUP_DESCRIBE):
        say(DESCRIBE_TOPIC)  # of those that members read
    assert REFUSED not in asked_of(ask, "nothing", api)


@pytest.mark.parametrize("api", NEEDING, ids=lambda api: api.name)
def test_what_an_acl_denies_no_role_and_no_acl_gives(ask: Ask, say: Say, api: Api) -> None:
    needs = ASKS[api]
    of_cluster = any(access.rights == ("admin",) for access in needs)
    user = "nothing" if of_cluster else "all"
    for access in needs if of_cluster else ():
        say(access)
    for access in needs:
        say(access, user, allow=False)
        assert REFUSED in asked_of(ask, user, api), access
        assert delete(ask, permission_type=DENY) == 1
    assert REFUSED not in asked_of(ask, user, api)


OTHERS = [
    (Api.PRODUCE, BY_WHAT_IT_NAMES[0][1], WRITE_TOPIC),
    (Api.FIND_COORDINATOR, BY_WHAT_IT_NAMES[1][1], DESCRIBE_TRANSACTION),
    (Api.DESCRIBE_CONFIGS, BY_WHAT_IT_NAMES[2][1], DESCRIBE_GROUP_CONFIGS),
    (Api.ALTER_CONFIGS, OF_GROUP, ALTER_GROUP_CONFIGS),
    (Api.INCREMENTAL_ALTER_CONFIGS, OF_GROUP, ALTER_GROUP_CONFIGS),
    (Api.ALTER_CONFIGS, OF_BROKERS, ALTER_CLUSTER_CONFIGS),
    (Api.INCREMENTAL_ALTER_CONFIGS, OF_BROKERS, ALTER_CLUSTER_CONFIGS),
    (Api.CREATE_TOPICS, ASKED[Api.CREATE_TOPICS], CREATE_IN_CLUSTER),
]


@pytest.mark.parametrize(("api", "fields", "access"), OTHERS)
def test_some_requests_need_another_access(
    ask: Ask, say: Say, api: Api, fields: dict[str, Any], access: Access
) -> None:  # fmt: skip
    assert REFUSED in str(ask("nothing", api, fields))
    say(access)
    assert REFUSED not in str(ask("nothing", api, fields))
    say(access, allow=False)
    assert REFUSED in str(ask("nothing", api, fields))


def test_everybody_sees_the_settings_of_brokers_whom_nobody_denies_it(ask: Ask, say: Say) -> None:
    fields = {"resources": [{"resource_type": 4, "resource_name": ""}]}
    assert REFUSED not in str(ask("nothing", Api.DESCRIBE_CONFIGS, fields))
    say(SEE_BROKER_CONFIGS, allow=False)
    assert REFUSED in str(ask("nothing", Api.DESCRIBE_CONFIGS, fields))


@pytest.mark.parametrize("api", [Api.METADATA, Api.DESCRIBE_TOPIC_PARTITIONS], ids=lambda api: api.name)
def test_lists_have_what_acls_let_the_client_describe(ask: Ask, say: Say, api: Api) -> None:
    assert TOPIC not in str(ask("nothing", api, LISTS[api]))
    say(DESCRIBE_TOPIC)
    found = str(ask("nothing", api, LISTS[api]))
    assert TOPIC in found and HIDDEN not in found
    say(READ_TOPIC, name="*")
    found = str(ask("nothing", api, LISTS[api]))
    assert HIDDEN in found and "_millstream-command" not in found, "Millstream's own are no matter of ACLs"
    say(DESCRIBE_TOPIC, allow=False)
    assert f"'{TOPIC}'" not in str(ask("nothing", api, LISTS[api]))


def test_who_describes_the_cluster_lists_all_groups(ask: Ask, say: Say) -> None:
    assert GROUP not in str(ask("nothing", Api.LIST_GROUPS, {}))
    say(DESCRIBE_CLUSTER)
    assert GROUP in str(ask("nothing", Api.LIST_GROUPS, {}))


def test_the_host_is_that_of_the_connection(ask: Ask, say: Say) -> None:
    say(READ_TOPIC, host="10.1.1.1")
    assert REFUSED in asked_of(ask, "nothing", Api.FETCH)
    say(READ_TOPIC, host="127.0.0.1")
    assert REFUSED not in asked_of(ask, "nothing", Api.FETCH)
    say(READ_TOPIC, allow=False, host="10.1.1.1")
    assert REFUSED not in asked_of(ask, "nothing", Api.FETCH)


def test_nothing_is_denied_to_administrators(ask: Ask, say: Say) -> None:
    for user in ("root", "*"):
        say(READ_TOPIC, user, allow=False)
        say(ALTER_CLUSTER, user, allow=False)
    assert REFUSED not in asked_of(ask, "root", Api.FETCH)
    assert REFUSED in asked_of(ask, "all", Api.FETCH)


def test_an_open_connection_keeps_to_acls_at_once(ask: Ask, say: Say) -> None:
    for _ in range(3):
        say(READ_TOPIC)
        assert REFUSED not in asked_of(ask, "nothing", Api.FETCH)
        delete(ask)
        assert REFUSED in asked_of(ask, "nothing", Api.FETCH)


def test_who_alters_the_cluster_by_an_acl_does_not_become_an_administrator(ask: Ask, say: Say) -> None:
    say(ALTER_CLUSTER)

    def password_of(name: str) -> str:
        put = {"name": name, "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
        asked = {"deletions": [], "upsertions": [put]}
        (result,) = ask("nothing", Api.ALTER_USER_SCRAM_CREDENTIALS, asked).results
        return result.error_code.name

    assert password_of("none") == "none"
    assert password_of("root") == "cluster_authorization_failed"


def test_millstreams_own_groups_and_topics_stay_its_own(ask: Ask, say: Say) -> None:
    for access in (READ_TOPIC, WRITE_TOPIC, READ_GROUP):
        say(access, name="*")
    own = {"topics": [{"name": "_millstream-command"}]}
    assert REFUSED in str(ask("nothing", Api.METADATA, own))
    group = {**ASKED[Api.JOIN_GROUP], "group_id": "_millstream-x"}
    assert REFUSED in str(ask("nothing", Api.JOIN_GROUP, group))
