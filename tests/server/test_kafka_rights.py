"""What each request of the Kafka protocol needs: every request of the API table is asked with all of its rights, and
with each of them missing, on a topic, a group and a transactional id of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.security.access import ASKS
from millstream.logcore.protocol.security.sasl import Credentials
from millstream.logcore.protocol.wire.apis import KNOWN, Api
from millstream.server.config.configuration import load_configuration
from millstream.server.security.access import hash_token
from millstream.server.service import Service

TOPIC, HIDDEN, GROUP, ID = "own-topic", "hidden-topic", "own-group", "own-id"
S = timedelta(seconds=1)
PART = {"partition_index": 0}
TOPICS = [{"name": TOPIC, "partition_indexes": [0]}]
WHO = {"transactional_id": ID, "producer_id": 1, "producer_epoch": 0}
OLD_WHO = {f"v3_and_below_{name}": value for name, value in WHO.items()}
OFFSETS = [{"name": TOPIC, "partitions": [{**PART, "committed_offset": 0, "committed_metadata": None}]}]
RESOURCE = {"resource_type": 2, "resource_name": TOPIC}

OF_GROUP = {"resources": [{"resource_type": 32, "resource_name": GROUP, "configs": []}], "validate_only": True}
OF_BROKERS = {"resources": [{"resource_type": 4, "resource_name": "", "configs": []}], "validate_only": True}
NO_RECORDS = [{"name": TOPIC, "partition_data": [{"index": 0, "records": None}]}]
SHARE_GROUP = "own-shares"
SHARING = {"group_id": SHARE_GROUP, "member_id": "x"}
OF_TOPIC = uuid.UUID(int=1)  # in its place stands the id that the topic has
ACCEPTED = {"first_offset": 0, "last_offset": 0, "acknowledge_types": (1,)}
ACL = {
    "resource_type": 2, "resource_name": TOPIC, "resource_pattern_type": 3, "principal": "User:nobody", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
NO_ACL = {
    "resource_type_filter": 2, "resource_name_filter": "nothing", "pattern_type_filter": 3, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
HANGING = {"producer_id": 1, "producer_epoch": 0, "transaction_result": False, "topics": TOPICS, "coordinator_epoch": 0}

ASKED: dict[Api, dict[str, Any]] = {
    Api.PRODUCE: {
        "transactional_id": ID, "acks": -1, "timeout": S,
        "topic_data": NO_RECORDS,
    },
    Api.FETCH: {
        "replica_id": -1, "max_wait": timedelta(0), "max_bytes": 1000, "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}],
    },
    Api.LIST_OFFSETS: {"topics": [{"name": TOPIC, "partitions": [{**PART, "timestamp": -1}]}]},
    Api.METADATA: {"topics": [{"name": TOPIC}]},
    Api.OFFSET_COMMIT: {"group_id": GROUP, "member_id": "", "topics": OFFSETS},
    Api.OFFSET_FETCH: {"groups": [{"group_id": GROUP, "topics": TOPICS}], "group_id": GROUP},
    Api.FIND_COORDINATOR: {"key_type": 0, "coordinator_keys": [GROUP], "key": GROUP},
    Api.JOIN_GROUP: {
        "group_id": GROUP, "session_timeout": 10 * S, "rebalance_timeout": S, "member_id": "x",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    },
    Api.HEARTBEAT: {"group_id": GROUP, "generation_id": 1, "member_id": "x"},
    Api.LEAVE_GROUP: {"group_id": GROUP, "members": [{"member_id": "x"}]},
    Api.SYNC_GROUP: {"group_id": GROUP, "generation_id": 1, "member_id": "x", "assignments": []},
    Api.DESCRIBE_GROUPS: {"groups": [GROUP]},
    Api.LIST_GROUPS: {},
    Api.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
    Api.SASL_AUTHENTICATE: {"auth_bytes": b"\0ana\0ana"},
    Api.API_VERSIONS: {"client_software_name": "x", "client_software_version": "1"},
    Api.CREATE_TOPICS: {
        "topics": [{"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}],
        "validate_only": True,
    },
    Api.DELETE_TOPICS: {"topics": [{"name": TOPIC}], "timeout": S},
    Api.DELETE_RECORDS: {"topics": [{"name": TOPIC, "partitions": [{**PART, "offset": 0}]}], "timeout": S},
    Api.INIT_PRODUCER_ID: {"transactional_id": ID, "transaction_timeout": 10 * S},
    Api.OFFSET_FOR_LEADER_EPOCH: {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
    Api.ADD_PARTITIONS_TO_TXN: {**OLD_WHO, "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}]},
    Api.ADD_OFFSETS_TO_TXN: {**WHO, "group_id": GROUP},
    Api.END_TXN: {**WHO, "committed": False},
    Api.TXN_OFFSET_COMMIT: {**WHO, "group_id": GROUP, "topics": OFFSETS},
    Api.DESCRIBE_ACLS: NO_ACL,
    Api.CREATE_ACLS: {"creations": [ACL]},
    Api.DELETE_ACLS: {"filters": [NO_ACL]},
    Api.DESCRIBE_CONFIGS: {"resources": [RESOURCE]},
    Api.ALTER_CONFIGS: {"resources": [{**RESOURCE, "configs": []}], "validate_only": True},
    Api.DESCRIBE_LOG_DIRS: {"topics": None},
    Api.CREATE_PARTITIONS: {"topics": [{"name": TOPIC, "count": 2}], "timeout": S, "validate_only": True},
    Api.DELETE_GROUPS: {"groups_names": [GROUP]},
    Api.ELECT_LEADERS: {"election_type": 0, "topic_partitions": [{"topic": TOPIC, "partitions": [0]}], "timeout": S},
    Api.INCREMENTAL_ALTER_CONFIGS: {"resources": [{**RESOURCE, "configs": []}], "validate_only": True},
    Api.ALTER_PARTITION_REASSIGNMENTS: {"timeout": S, "topics": []},
    Api.LIST_PARTITION_REASSIGNMENTS: {"timeout": S, "topics": None},
    Api.OFFSET_DELETE: {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [PART]}]},
    Api.DESCRIBE_CLIENT_QUOTAS: {"components": [], "strict": False},
    Api.ALTER_CLIENT_QUOTAS: {"entries": [{"entity": [{"entity_type": "user", "entity_name": "x"}], "ops": []}]},
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
    Api.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [{"name": "x", "mechanism": 1}], "upsertions": []},
    Api.DESCRIBE_QUORUM: {"topics": []},
    Api.WRITE_TXN_MARKERS: {"markers": [HANGING]},
    Api.DESCRIBE_CLUSTER: {},
    Api.DESCRIBE_PRODUCERS: {"topics": TOPICS},
    Api.DESCRIBE_TRANSACTIONS: {"transactional_ids": [ID]},
    Api.LIST_TRANSACTIONS: {},
    Api.CONSUMER_GROUP_HEARTBEAT: {
        "group_id": "own-group-2", "member_id": "x", "member_epoch": 0, "rebalance_timeout": S,
        "subscribed_topic_names": [TOPIC], "topic_partitions": [],
    },
    Api.CONSUMER_GROUP_DESCRIBE: {"group_ids": [GROUP]},
    Api.LIST_CONFIG_RESOURCES: {"resource_types": [2]},
    Api.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": TOPIC}]},
    Api.SHARE_GROUP_HEARTBEAT: {**SHARING, "member_epoch": 0, "subscribed_topic_names": [TOPIC]},
    Api.SHARE_GROUP_DESCRIBE: {"group_ids": [SHARE_GROUP]},
    Api.SHARE_FETCH: {
        **SHARING, "share_session_epoch": 0, "max_wait": timedelta(0), "min_bytes": 1, "max_bytes": 1000,
        "max_records": 1, "topics": [{"topic_id": OF_TOPIC, "partitions": [{**PART, "acknowledgement_batches": []}]}],
    },
    Api.SHARE_ACKNOWLEDGE: {**SHARING, "share_session_epoch": 1, "topics": [
        {"topic_id": OF_TOPIC, "partitions": [{**PART, "acknowledgement_batches": [ACCEPTED]}]}
    ]},
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: {
        "groups": [{"group_id": SHARE_GROUP, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]
    },
    Api.ALTER_SHARE_GROUP_OFFSETS: {
        "group_id": "own-idle", "topics": [{"topic_name": TOPIC, "partitions": [{**PART, "start_offset": 0}]}]
    },
    Api.DELETE_SHARE_GROUP_OFFSETS: {"group_id": "own-idle", "topics": [{"topic_name": TOPIC}]},
}  # fmt: skip
ASKED_BEFORE = {
    Api.OFFSET_DELETE: ("all", Api.OFFSET_COMMIT),
    Api.SHARE_ACKNOWLEDGE: (None, Api.SHARE_FETCH),
    Api.DELETE_SHARE_GROUP_OFFSETS: ("all", Api.ALTER_SHARE_GROUP_OFFSETS),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: ("all", Api.SHARE_GROUP_HEARTBEAT),
}
"""What begins the session, or makes the group, that a request belongs to; None: of the same user."""
BY_WHAT_IT_NAMES: list[tuple[Api, dict[str, Any], str]] = [
    (Api.PRODUCE, {"acks": -1, "timeout": S, "topic_data": NO_RECORDS}, "insert"),
    (Api.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": [ID], "key": ID}, "transaction"),
    (Api.DESCRIBE_CONFIGS, {"resources": [{"resource_type": 32, "resource_name": GROUP}]}, "group"),
    (Api.ALTER_CONFIGS, OF_GROUP, "group"),
    (Api.INCREMENTAL_ALTER_CONFIGS, OF_GROUP, "group"),
    (Api.ALTER_CONFIGS, OF_BROKERS, "admin"),
    (Api.INCREMENTAL_ALTER_CONFIGS, OF_BROKERS, "admin"),
]
LISTS: dict[Api, dict[str, Any]] = {
    Api.METADATA: {"topics": None},
    Api.LIST_GROUPS: {},
    Api.LIST_TRANSACTIONS: {},
    Api.LIST_CONFIG_RESOURCES: {"resource_types": [2]},
    Api.DESCRIBE_TOPIC_PARTITIONS: {"topics": []},
    Api.LIST_PARTITION_REASSIGNMENTS: {"timeout": S, "topics": None},
    Api.OFFSET_FETCH: {"groups": [{"group_id": GROUP, "topics": None}]},
    Api.DESCRIBE_TRANSACTIONS: {"transactional_ids": [ID]},
    Api.DESCRIBE_GROUPS: {"groups": [GROUP]},
}
NAMES = {"read": "own-*", "insert": "own-*", "ddl": "own-*", "group": "own-*", "transaction": "own-*"}
VERBS = tuple(NAMES)
REFUSED = "authorization_failed"
ADMIN = ("admin",)


def roles() -> dict[str, Any]:
    """`all`: every right on what is ours; `no-read` and so on: all but that one; `only-read`: that one alone;
    `nothing`: what ACLs allow."""
    lacking = {f"no-{verb}": {other: ["own-*"] for other in VERBS if other != verb} for verb in VERBS}
    alone = {f"only-{verb}": {verb: ["own-*"]} for verb in VERBS}
    every = {
        "all": {verb: ["own-*"] for verb in VERBS},
        "unseen": {verb: ["own-*"] for verb in ("group", "transaction")},
    }
    return {**lacking, **alone, **every, "none": {"read": ["else"]}, "nothing": {}, "root": {"admin": True}}


Ask = Callable[[str, Api, dict[str, Any]], Any]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    users = {role: {"tokens": [hash_token(role)], "roles": [role]} for role in roles()}
    given = {
        "data": tmp_path_factory.mktemp("kafka"), "http": "127.0.0.1:0", "kafka": "127.0.0.1:0",
        "executor": "duckdb", "log_level": "error", "access": {"users": users, "roles": roles()},
    }  # fmt: skip
    with Service(load_configuration(None, given)) as running:
        running.engine.log.create_topic(TOPIC, 1)
        running.engine.log.create_topic(HIDDEN, 1)
        yield running


@pytest.fixture(scope="module")
def ask(service: Service) -> Iterator[Ask]:
    opened: dict[str, Channels] = {}
    address = Address("127.0.0.1", service.kafka_address.port)

    def asked(user: str, api: Api, fields: dict[str, Any]) -> Any:
        if user not in opened:
            opened[user] = Channels(address, Credentials(user, user), None)
        return opened[user].ask(api, with_id(fields))

    def with_id(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: with_id(each) for name, each in value.items()}
        if isinstance(value, list):
            return [with_id(each) for each in value]
        return service.engine.log.topic_id(TOPIC) if value == OF_TOPIC else value

    yield asked
    for each in opened.values():
        each.close()


def test_every_request_says_what_it_needs_and_has_a_row_here() -> None:
    assert ASKS.keys() == KNOWN.keys() == ASKED.keys()


def lacking(api: Api) -> list[str]:
    """The roles that lack what the request needs."""
    needs = [access.rights for access in ASKS[api]]
    if ADMIN in needs:
        return ["all", "none"]
    found = [f"no-{verb}" for verb in VERBS if (verb,) in needs]
    seen = any(len(rights) > 1 for rights in needs)
    return [*found, "unseen", "none"] if seen else [*found, "none"] if needs else []


# Those that only list are in the next test; these are about the login itself.
LOGIN = {Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.API_VERSIONS}
NAMED = sorted(ASKED.keys() - LOGIN - {Api.LIST_GROUPS, Api.LIST_TRANSACTIONS, Api.LIST_CONFIG_RESOURCES,
                                      Api.LIST_PARTITION_REASSIGNMENTS})  # fmt: skip
CHANGING_LAST = sorted(NAMED, key=lambda api: (api in (Api.DELETE_TOPICS, Api.DELETE_GROUPS), api))


@pytest.mark.parametrize("api", CHANGING_LAST, ids=lambda api: api.name)
def test_a_request_needs_each_of_its_rights(ask: Ask, api: Api) -> None:
    for role in lacking(api):
        if api in ASKED_BEFORE:
            who, before = ASKED_BEFORE[api]
            ask(who or role, before, ASKED[before])
        assert REFUSED in str(ask(role, api, ASKED[api])), role
    allowed = "root" if ADMIN in [access.rights for access in ASKS[api]] else "all"
    assert REFUSED not in str(ask(allowed, api, ASKED[api]))


@pytest.mark.parametrize(("api", "fields", "right"), BY_WHAT_IT_NAMES)
def test_some_requests_need_another_right_of_other_things(
    ask: Ask, api: Api, fields: dict[str, Any], right: str
) -> None:
    for role in ["all", "none"] if right == "admin" else [f"no-{right}", "none"]:
        assert REFUSED in str(ask(role, api, fields)), role
    assert REFUSED not in str(ask("root" if right == "admin" else f"only-{right}", api, fields))


@pytest.mark.parametrize("api", LISTS, ids=lambda api: api.name)
def test_what_a_client_has_no_right_on_is_in_no_list(service: Service, ask: Ask, api: Api) -> None:
    log: Any = service.engine.log
    for topic in (TOPIC, HIDDEN):
        if topic not in log.topics():
            log.create_topic(topic, 1)
    assert HIDDEN not in str(ask("all", api, LISTS[api]))
    if "topic" in api.name.lower() or api in (Api.METADATA, Api.LIST_CONFIG_RESOURCES):
        assert HIDDEN in str(ask("root", api, LISTS[api]))
        assert TOPIC in str(ask("all", api, LISTS[api]))


def test_offsets_of_a_group_name_no_topic_that_is_hidden(service: Service, ask: Ask) -> None:
    log: Any = service.engine.log
    if HIDDEN not in log.topics():
        log.create_topic(HIDDEN, 1)
    offsets = [{"name": HIDDEN, "partitions": OFFSETS[0]["partitions"]}]
    ask("root", Api.OFFSET_COMMIT, {"group_id": GROUP, "member_id": "", "topics": offsets})
    listed = {"groups": [{"group_id": GROUP, "topics": None}]}
    assert HIDDEN in str(ask("root", Api.OFFSET_FETCH, listed))
    assert HIDDEN not in str(ask("all", Api.OFFSET_FETCH, listed))
    named = {"groups": [{"group_id": GROUP, "topics": [{"name": HIDDEN, "partition_indexes": [0]}]}]}
    assert "topic_authorization_failed" in str(ask("all", Api.OFFSET_FETCH, named))
    deleted = {"group_id": GROUP, "topics": [{"name": HIDDEN, "partitions": [PART]}]}
    assert "topic_authorization_failed" in str(ask("all", Api.OFFSET_DELETE, deleted))
    assert HIDDEN in str(ask("root", Api.OFFSET_FETCH, listed))


def test_a_pattern_assigns_what_its_member_may_read(service: Service, ask: Ask) -> None:
    """Also of topics that come later, and of those that others of the group read."""
    log: Any = service.engine.log
    log.create_topic("own-first", 1)
    join = {"member_epoch": 0, "rebalance_timeout": 10 * S, "topic_partitions": []}

    def names(assigned: Any) -> set[str]:
        return {log.served.topic_name(part.topic_id.bytes) for part in assigned.topic_partitions}

    def beats(user: str, member: str, pattern: str) -> set[str]:
        fields = {"group_id": "own-patterns", "member_id": member}
        first = ask(user, Api.CONSUMER_GROUP_HEARTBEAT, {**fields, **join, "subscribed_topic_regex": pattern})
        assert first.error_code.name == "none", first
        return names(first.assignment)

    assert beats("root", "r", ".*-.*") >= {HIDDEN, "own-first"}
    assert HIDDEN not in beats("all", "a", ".*-.*")
    log.create_topic("hidden-later", 1)
    log.create_topic("own-later", 3)
    seen: set[str] = set()
    epochs = {"r": 0, "a": 0}
    for _ in range(6):
        for user, member in (("root", "r"), ("all", "a")):
            fields = {"group_id": "own-patterns", "member_id": member, "member_epoch": epochs[member]}
            if epochs[member] == 0:
                fields |= {**join, "subscribed_topic_regex": ".*-.*"}
            answer = ask(
                user, Api.CONSUMER_GROUP_HEARTBEAT, {**fields, "topic_partitions": None if epochs[member] else []}
            )
            epochs[member] = answer.member_epoch
            if answer.assignment is not None and member == "a":
                seen |= names(answer.assignment)
    assert not {name for name in seen if not name.startswith("own-")}
    assert "topic_authorization_failed" in str(ask("all", Api.CONSUMER_GROUP_DESCRIBE, {"group_ids": ["own-patterns"]}))
    assert HIDDEN in str(ask("root", Api.CONSUMER_GROUP_DESCRIBE, {"group_ids": ["own-patterns"]}))
