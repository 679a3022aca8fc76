"""The same requests about ACLs, and under ACLs, to Millstream and to an Apache Kafka with its StandardAuthorizer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from running_server import service_in
from waiting import eventually

from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import open_log
from millstream.logcore.mirrors.exact_mirror import ExactMirror, ExactMirrorSettings
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.renamed_mirror import RenamedMirror, RenamedMirrorSettings
from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.security.access import ASKS
from millstream.logcore.protocol.security.accesses import (
    CREATE_IN_CLUSTER,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTION,
    Access,
)
from millstream.logcore.protocol.security.acl_bindings import CLUSTER_NAME, AclFilter, AclResource
from millstream.logcore.protocol.security.sasl import Credentials
from millstream.logcore.protocol.wire.apis import Api
from millstream.server.security.access import hash_password

from ..server.test_kafka_rights import (
    ASKED,
    ASKED_BEFORE,
    BY_WHAT_IT_NAMES,
    CHANGING_LAST,
    GROUP,
    OF_TOPIC,
    REFUSED,
    TOPIC,
)
from .conftest import GuardedKafka

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
DENY, ALLOW = 2, 3
EVERYTHING = {
    "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY, "principal_filter": None,
    "host_filter": None, "operation": ANY, "permission_type": ANY,
}  # fmt: skip
USUAL = {
    "resource_type": 2, "resource_name": "orders", "resource_pattern_type": LITERAL, "principal": "User:ana",
    "host": "*", "operation": 3, "permission_type": ALLOW,
}  # fmt: skip
WRONG: list[dict[str, Any]] = [
    {"resource_name": ""}, {"resource_type": 4}, {"resource_type": 4, "resource_name": CLUSTER_NAME, "operation": 5},
    {"resource_type": ANY}, {"resource_pattern_type": ANY}, {"resource_pattern_type": MATCH}, {"operation": ANY},
    {"permission_type": ANY}, {"principal": "ana"}, {"principal": "Group:ana"}, {"host": "10.0.0.1"},
    {"resource_name": "*"}, {"resource_name": "*", "resource_pattern_type": PREFIXED}, {"operation": 2},
    {"operation": 15},
    {"resource_type": 7, "resource_name": "User:x", "operation": 13}, {"resource_type": 6, "operation": 8},
]  # fmt: skip
"""Without numbers that nothing has: Kafka closes the connection, and we say which one it is."""
ELSEWHERE = {place: f"{WRONG[place]}: ours invalid_request, Kafka's unknown_server_error" for place in range(3, 8)}
"""Where Kafka answers otherwise, by the place in `WRONG`: to what is for filters only."""


class Side(NamedTuple):
    """A broker: as its super user, and as ana, who may do what ACLs say."""

    root: Channels
    ana: Channels

    def create(self, **asked: Any) -> str:
        answer = self.root.ask(Api.CREATE_ACLS, {"creations": [{**USUAL, **asked}]})
        return answer.results[0].error_code.name

    def delete(self, **wanted: Any) -> Any:
        (result,) = self.root.ask(Api.DELETE_ACLS, {"filters": [{**EVERYTHING, **wanted}]}).filter_results
        return result.error_code.name, sorted(
            (each.resource_type, each.resource_name, each.pattern_type, each.principal, each.host, each.operation)
            for each in result.matching_acls
        )

    def describe(self, **wanted: Any) -> Any:
        answer = self.root.ask(Api.DESCRIBE_ACLS, {**EVERYTHING, **wanted})
        found = [
            (each.resource_type, each.resource_name, each.pattern_type, acl.principal, acl.host, acl.operation,
             acl.permission_type)
            for each in answer.resources
            for acl in each.acls
        ]  # fmt: skip
        return answer.error_code.name, sorted(found)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    access = {
        "users": {
            "root": {"password": hash_password("toor"), "roles": ["admin"]},
            "ana": {"password": hash_password("sesame")},
        },
        "roles": {"admin": {"admin": True}},
    }
    with service_in(tmp_path_factory.mktemp("ours"), access=access) as service:
        address = Address("127.0.0.1", service.kafka_address.port)
        side = Side(*(Channels(address, Credentials(*who), None) for who in (("root", "toor"), ("ana", "sesame"))))
        yield side
        for each in side:
            each.close()


@pytest.fixture
def theirs(kafka: GuardedKafka) -> Iterator[Side]:
    def at(address: str, login: Credentials | None) -> Channels:
        host, _, port = address.rpartition(":")
        return Channels(Address(host, int(port)), login, None)

    side = Side(at(kafka.address, None), at(kafka.guarded_address, Credentials("ana", "sesame")))
    yield side
    for each in side:
        each.close()


def test_both_take_and_refuse_the_same(ours: Side, theirs: Side) -> None:
    both = (ours, theirs)
    for side in both:
        side.delete()
    answers = [[side.create(**wrong) for wrong in WRONG] for side in both]
    differences = {
        number: f"{wrong}: ours {mine}, Kafka's {other}"
        for number, (wrong, mine, other) in enumerate(zip(WRONG, *answers, strict=True))
        if mine != other
    }
    assert differences == ELSEWHERE
    eventually(lambda: ours.describe() == theirs.describe(), 20)


def test_filters_find_the_same(ours: Side, theirs: Side) -> None:
    names = ("orders", "ord", "o", "*", "bills")
    for side in (ours, theirs):
        side.delete()
        for name, pattern in itertools.product(names, (LITERAL, PREFIXED)):
            assert side.create(resource_name=name, resource_pattern_type=pattern) == "none"
        side.create(resource_type=3, resource_name="orders", permission_type=DENY, host="h")
    eventually(lambda: ours.describe() == theirs.describe(), 20)
    asked = [
        {"resource_name_filter": name, "pattern_type_filter": pattern, "resource_type_filter": kind}
        for name in (None, *names, "orders-eu", "")
        for pattern in (ANY, MATCH, LITERAL, PREFIXED)
        for kind in (ANY, 2)
    ]
    asked += [{"operation": 2}, {"operation": 3}, {"permission_type": DENY}, {"host_filter": "*"}]
    asked += [{"principal_filter": each} for each in ("User:ana", "User:*", "ana", "")]
    for wanted in asked:
        assert ours.describe(**wanted) == theirs.describe(**wanted), wanted
    for wanted in ({"resource_name_filter": "orders", "pattern_type_filter": MATCH}, {}):
        assert ours.delete(**wanted) == theirs.delete(**wanted), wanted


# Enforced


LEFT_OUT = {
    Api.PRODUCE: "Kafka answers no request without records",
    Api.CONSUMER_GROUP_HEARTBEAT: "ours asks to READ topics, Kafka to DESCRIBE them",
    Api.SHARE_GROUP_HEARTBEAT: "as above",
    Api.ALTER_CLIENT_QUOTAS: "a request without changes is not checked by Kafka",
    Api.WRITE_TXN_MARKERS: "Kafka answers a refusal in the partitions, of which none is left",
}
OTHERS: list[tuple[Api, dict[str, Any], tuple[Access, ...]]] = [
    (Api.FIND_COORDINATOR, BY_WHAT_IT_NAMES[1][1], (DESCRIBE_TRANSACTION,)),
    (Api.CREATE_TOPICS, ASKED[Api.CREATE_TOPICS], (CREATE_IN_CLUSTER,)),
]
FIELDS = {
    **ASKED,
    Api.SYNC_GROUP: {**ASKED[Api.SYNC_GROUP], "protocol_type": "consumer", "protocol_name": "range"},
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": []},  # Kafka refuses no request without a list: it does not answer
}
ASKED_OF_BOTH = [
    *((api, FIELDS[api], ASKS[api]) for api in CHANGING_LAST if ASKS[api] and api not in LEFT_OUT),
    *OTHERS,
]


def with_topic_id(side: Side, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: with_topic_id(side, each) for name, each in value.items()}
    if isinstance(value, list):
        return [with_topic_id(side, each) for each in value]
    if value == OF_TOPIC:
        (found,) = side.root.ask(Api.METADATA, {"topics": [{"name": TOPIC}]}).topics
        return found.topic_id
    return value


def allow(side: Side, access: Access, *, deny: bool = False) -> None:
    of_cluster = access.resource is AclResource.CLUSTER
    made = side.create(
        resource_type=access.resource,
        resource_name=CLUSTER_NAME if of_cluster else "own-",
        resource_pattern_type=LITERAL if of_cluster else PREFIXED,
        operation=access.operation,
        permission_type=DENY if deny else ALLOW,
    )
    assert made == "none"


@pytest.mark.parametrize(("api", "fields", "needs"), ASKED_OF_BOTH, ids=lambda each: getattr(each, "name", ""))
@pytest.mark.parametrize("who", ["ours", "theirs"])
def test_a_request_needs_the_same_operations(
    who: str, api: Api, fields: dict[str, Any], needs: tuple[Access, ...], request: pytest.FixtureRequest
) -> None:
    side: Side = request.getfixturevalue(who)
    side.delete()
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    side.root.ask(Api.CREATE_TOPICS, {"topics": [topic]})
    eventually(lambda: not side.root.ask(Api.METADATA, {"topics": [{"name": TOPIC}]}).topics[0].error_code, 20)
    for key in ("own-group", "own-id"):
        asked = {"key_type": int(key == "own-id"), "coordinator_keys": [key], "key": key}
        eventually(lambda asked=asked: is_ready(side.root, asked), 30)
    eventually(lambda: side.root.ask(Api.SHARE_GROUP_HEARTBEAT, ASKED[Api.SHARE_GROUP_HEARTBEAT]).error_code != 15, 30)

    def said() -> str:
        eventually(lambda: committed(side), 20)
        if api in ASKED_BEFORE:
            asker, before = ASKED_BEFORE[api]
            (side.root if asker else side.ana).ask(before, with_topic_id(side, ASKED[before]))
        return str(side.ana.ask(api, with_topic_id(side, fields)))

    for missing in needs:
        side.delete()
        for other in needs:
            if other is not missing:
                allow(side, other)
        eventually(lambda: REFUSED in said(), 20)
    side.delete()
    for access in needs:
        allow(side, access)
    for more in {Api.SHARE_GROUP_DESCRIBE: (DESCRIBE_TOPIC,), Api.CONSUMER_GROUP_DESCRIBE: (DESCRIBE_TOPIC,)}.get(
        api, ()
    ):
        allow(side, more)
    eventually(lambda: REFUSED not in said(), 20)
    if api not in (Api.DELETE_TOPICS, Api.DELETE_GROUPS, Api.DELETE_SHARE_GROUP_OFFSETS):
        for denied in needs:
            allow(side, denied, deny=True)
            eventually(lambda: REFUSED in said(), 20)
            side.delete(permission_type=DENY)
            eventually(lambda: REFUSED not in said(), 20)


def is_ready(root: Channels, asked: dict[str, Any]) -> bool:
    return "none" in str(root.ask(Api.FIND_COORDINATOR, asked))


def committed(side: Side, group: str = GROUP, topic: str = TOPIC) -> bool:
    side.root.ask(Api.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [group], "key": group})
    offsets = [{**each, "name": topic} for each in ASKED[Api.OFFSET_COMMIT]["topics"]]
    answer = side.root.ask(Api.OFFSET_COMMIT, {**ASKED[Api.OFFSET_COMMIT], "group_id": group, "topics": offsets})
    return "ErrorCode.none" in str(answer)


@pytest.mark.parametrize(
    ("operations", "denied"),
    [((3,), ()), ((4,), ()), ((2,), (3,)), ((6, 11), ()), ((7,), (8,)), ((2,), (8,)), ((5,), ())],
)
def test_both_tell_what_a_client_may_do(
    ours: Side, theirs: Side, operations: Sequence[int], denied: Sequence[int]
) -> None:
    """Of a topic and of a group."""
    for side in (ours, theirs):
        side.delete()
        side.root.ask(
            Api.CREATE_TOPICS,
            {"topics": [{"name": "told", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 20_000},
        )
        for kind, known in ((2, {3, 4, 5, 6, 7, 8, 10, 11}), (3, {3, 6, 8, 10, 11})):
            usual = {"resource_type": kind, "resource_name": "told"}
            assert {side.create(**usual, operation=each) for each in operations if each in {2, *known}} <= {"none"}
            assert {side.create(**usual, operation=each, permission_type=DENY) for each in denied} <= {"none"}

    def told(side: Side) -> Any:
        topics = {"topics": [{"name": "told"}], "include_topic_authorized_operations": True}
        (topic,) = side.ana.ask(Api.METADATA, topics).topics
        groups = {"groups": ["told"], "include_authorized_operations": True}
        (group,) = side.ana.ask(Api.DESCRIBE_GROUPS, groups).groups
        return topic.error_code, topic.topic_authorized_operations, group.error_code, group.authorized_operations

    for side in (ours, theirs):  # a group that is not there is told nothing about
        eventually(lambda side=side: committed(side, group="told", topic="told"), 30)
    eventually(lambda: told(ours) == told(theirs), 20)


# Mirrored


@pytest.mark.parametrize(("exact", "name", "operations"), [(True, "orders", (3, 4)), (False, "k.orders", (3,))])
def test_a_mirror_of_kafka_copies_the_acls_of_its_topics(
    kafka: GuardedKafka, theirs: Side, tmp_path: Path, exact: bool, name: str, operations: Sequence[int]
) -> None:
    theirs.delete()
    theirs.root.ask(
        Api.CREATE_TOPICS,
        {"topics": [{"name": "orders", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 20_000},
    )
    assert {theirs.create(operation=2), theirs.create(resource_name="bills")} == {"none"}
    assert theirs.create(resource_name="ord", resource_pattern_type=PREFIXED, permission_type=DENY, host="h") == "none"
    eventually(lambda: len(theirs.describe()[1]) == 3, 20)
    source, chosen, none = (
        KafkaProperties({"bootstrap.servers": kafka.address}),
        TopicFilter(("orders",)),
        TopicFilter(()),
    )
    with open_log(tmp_path, sync="never") as log:
        mirror = (
            ExactMirror(log, MirrorSource(source), ExactMirrorSettings("m", chosen, none, look_ms=100))
            if exact
            else RenamedMirror(
                log, MirrorSource(source), RenamedMirrorSettings("m", "k", "us", chosen, none, look_ms=100)
            )
        )
        for _ in range(2):
            mirror.look()
        mirror.close()
        copied = [
            (each.name, each.operation, each.permission, each.host) for each in log.cluster.acls.describe(AclFilter())
        ]
    expected = [(name, operation, ALLOW, "*") for operation in operations] + [(name, 3, DENY, "h")]
    assert sorted(copied) == sorted(expected)
