"""ACLs by requests: what is created, described and deleted; what is refused, and how; and that they stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.requests import acl_requests
from millstream.logcore.protocol.security.sasl import USER, Credentials
from millstream.logcore.protocol.security.users import NoUsers
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.server import LogServer

ANY = 1
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, WRITE = 2, 3, 4
DENY, ALLOW = 2, 3
EVERYTHING = {
    "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY, "principal_filter": None,
    "host_filter": None, "operation": ANY, "permission_type": ANY,
}  # fmt: skip


class Acls:
    """Asks as one of Millstream's own processes, which may do everything."""

    def __init__(self, log: Log) -> None:
        self._server = LogServer(log, port=0, users=NoUsers())
        self._server.start()
        login = Credentials(USER, log.served.secret)
        self.channels = Channels(Address("127.0.0.1", self._server.port), login, None)

    def create(self, *asked: dict[str, Any]) -> list[str]:
        return [each.error_code.name for each in self.channels.ask(Api.CREATE_ACLS, {"creations": asked}).results]

    def describe(self, **wanted: Any) -> list[tuple[Any, ...]]:
        answer = self.channels.ask(Api.DESCRIBE_ACLS, {**EVERYTHING, **wanted})
        assert answer.error_code == 0, answer
        return [
            (each.resource_type, each.resource_name, each.pattern_type, acl.principal, acl.host, acl.operation,
             acl.permission_type)
            for each in answer.resources
            for acl in each.acls
        ]  # fmt: skip

    def delete(self, *filters: dict[str, Any]) -> list[list[str]]:
        answer = self.channels.ask(Api.DELETE_ACLS, {"filters": [{**EVERYTHING, **each} for each in filters]})
        return [
            [each.error_code.name] if each.error_code else [acl.resource_name for acl in each.matching_acls]
            for each in answer.filter_results
        ]

    def close(self) -> None:
        self.channels.close()
        self._server.stop()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        yield opened


@pytest.fixture
def acls(log: Log) -> Iterator[Acls]:
    opened = Acls(log)
    yield opened
    opened.close()


def creation(name: str = "orders", **other: Any) -> dict[str, Any]:
    usual = {
        "resource_type": TOPIC, "resource_name": name, "resource_pattern_type": LITERAL, "principal": "User:ana",
        "host": "*", "operation": READ, "permission_type": ALLOW,
    }  # fmt: skip
    return {**usual, **other}


def test_what_is_created_is_described_and_deleted(acls: Acls) -> None:
    some = [creation(), creation(permission_type=DENY), creation("o", resource_pattern_type=PREFIXED, operation=ALL)]
    assert acls.create(*some, some[0]) == ["none"] * 4, "one that is there already is created, too"
    orders = (TOPIC, "orders", LITERAL, "User:ana", "*", READ)
    of_prefix = (TOPIC, "o", PREFIXED, "User:ana", "*", ALL, ALLOW)
    assert acls.describe() == [of_prefix, (*orders, DENY), (*orders, ALLOW)]
    assert acls.describe(resource_name_filter="orders", pattern_type_filter=MATCH) == acls.describe()
    assert acls.describe(resource_name_filter="orders", pattern_type_filter=LITERAL, permission_type=DENY) == [
        (*orders, DENY)
    ]
    assert acls.describe(principal_filter="User:ben") == []
    found = acls.delete({"permission_type": DENY}, {"resource_name_filter": "orders"}, {"host_filter": "h"})
    assert found == [["orders"], ["orders", "orders"], []]
    assert acls.describe() == [of_prefix]


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 0}, {"resource_type": ANY}, {"resource_type": 99}, {"resource_type": -1},
        {"resource_pattern_type": 0}, {"resource_pattern_type": ANY}, {"resource_pattern_type": MATCH},
        {"resource_pattern_type": 7}, {"operation": 0}, {"operation": ANY}, {"operation": 16}, {"operation": -128},
        {"permission_type": 0}, {"permission_type": ANY}, {"permission_type": 4}, {"resource_name": ""},
        {"resource_type": CLUSTER}, {"principal": "ana"}, {"principal": ""}, {"principal": "User:"},
        {"principal": ":ana"}, {"resource_name": "é" * 128}, {"host": "h" * 256}, {"principal": "User:" + "x" * 251},
    ],
    ids=str,
)  # fmt: skip
def test_each_creation_is_refused_for_itself(acls: Acls, wrong: dict[str, Any]) -> None:
    assert acls.create(creation("before"), creation(**wrong), creation("after")) == ["none", "invalid_request", "none"]
    assert [found[1] for found in acls.describe()] == ["after", "before"]


def test_what_kafka_takes_is_taken(acls: Acls) -> None:
    cluster = creation("kafka-cluster", resource_type=CLUSTER, operation=5)
    others = [
        creation("x", resource_type=6, operation=8),
        creation("User:eve", resource_type=7, operation=13),
        creation("g*", principal="Group:staff"),
        creation("*", resource_pattern_type=PREFIXED, host="10.0.0.1", operation=15),
        creation("é" * 127, resource_type=TRANSACTIONAL_ID),
    ]
    assert acls.create(cluster, *others) == ["none"] * 6
    assert len(acls.describe()) == 6


@pytest.mark.parametrize(
    "wrong",
    [{"resource_type_filter": 0}, {"pattern_type_filter": 9}, {"operation": 0}, {"permission_type": 0}],
    ids=str,
)
def test_a_filter_that_says_nothing_is_refused(acls: Acls, wrong: dict[str, Any]) -> None:
    acls.create(creation())
    answer = acls.channels.ask(Api.DESCRIBE_ACLS, {**EVERYTHING, **wrong})
    assert answer.error_code.name == "invalid_request" and not answer.resources
    assert acls.delete(wrong, {"resource_name_filter": "orders"}) == [["invalid_request"], ["orders"]]


def test_there_are_so_many_and_no_more(acls: Acls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_requests, "ACLS_MAX", 4)
    monkeypatch.setattr(acl_requests, "_TOGETHER", 2)
    names = [f"t{number}" for number in range(6)]
    assert acls.create(*map(creation, names)) == ["none"] * 4 + ["policy_violation"] * 2
    assert acls.create(creation("t0"), creation("t9")) == ["none", "policy_violation"]
    assert acls.delete({}) == [names[:4]]
    assert acls.create(creation("t9")) == ["none"]


def test_thousands_are_created_and_deleted_by_one_request(acls: Acls) -> None:
    assert set(acls.create(*(creation(f"t{number}") for number in range(3000)))) == {"none"}
    assert len(acls.describe()) == 3000
    assert len(acls.delete({})[0]) == 3000
    assert acls.describe() == []


def test_they_are_there_after_a_restart(tmp_path: Path) -> None:
    for names in (["a"], ["a", "b"], ["a", "b", "c"]):
        with open_log(tmp_path / "log") as log:
            acls = Acls(log)
            assert acls.create(creation(names[-1])) == ["none"]
            assert [found[1] for found in acls.describe()] == names
            acls.close()


def test_without_users_there_are_none(log: Log) -> None:
    with LogServer(log, port=0) as server:
        channels = Channels(Address("127.0.0.1", server.port))
        (made,) = channels.ask(Api.CREATE_ACLS, {"creations": [creation()]}).results
        assert made.error_code.name == "security_disabled" and "[access]" in made.error_message
        assert channels.ask(Api.DESCRIBE_ACLS, EVERYTHING).error_code.name == "security_disabled"
        (gone,) = channels.ask(Api.DELETE_ACLS, {"filters": [EVERYTHING]}).filter_results
        assert gone.error_code.name == "security_disabled"
        channels.close()


def test_they_begin_once_each_node_keeps_to_them(acls: Acls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_requests, "ACLS_CAME_WITH", 99)
    answer = acls.channels.ask(Api.CREATE_ACLS, {"creations": [creation()]}).results[0]
    assert answer.error_code.name == "security_disabled" and "millstream cluster upgrade" in answer.error_message
    monkeypatch.undo()
    assert acls.describe() == []
