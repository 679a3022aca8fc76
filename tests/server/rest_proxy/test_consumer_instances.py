"""When consumer instances end, by a clock that the tests move; and how much room unread responses take."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from running_server import eventually

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.group_messages import GroupState
from millstream.logcore.log import Log, open_log
from millstream.server.http.errors import RequestRefused
from millstream.server.rest_proxy import bounded_body
from millstream.server.rest_proxy.bounded_body import BoundedBody, Room
from millstream.server.rest_proxy.consumer_instances import ConsumerInstances, InstanceSettings
from millstream.server.rest_proxy.proxy_errors import ProxyRefusal
from millstream.server.rest_proxy.proxy_settings import RestProxySettings
from millstream.server.security.access import RoleSettings, User
from millstream.server.security.rights import EVERYTHING, Rights


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        opened.create_topic("t", 1)
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def instances(log: Log, clock: Clock) -> Iterator[ConsumerInstances]:
    made = ConsumerInstances(log, RestProxySettings(consumers_max=3, consumer_timeout_s=300), clock)
    yield made
    made.close()


SETTINGS = InstanceSettings(reset="earliest")


def test_an_instance_expires_when_nobody_has_asked_it_for_the_time(instances: ConsumerInstances, clock: Clock) -> None:
    instances.create("g", "a", EVERYTHING, SETTINGS)
    clock.now += 299.9
    assert (instances.expire(), len(instances)) == (0, 1)
    clock.now += 0.1
    assert (instances.expire(), len(instances)) == (1, 0)
    with pytest.raises(ProxyRefusal, match="not found"):
        instances.find("g", "a", EVERYTHING)


def test_a_request_puts_the_end_off(instances: ConsumerInstances, clock: Clock) -> None:
    instances.create("g", "a", EVERYTHING, SETTINGS)
    clock.now += 200
    assert instances.find("g", "a", EVERYTHING).name == "a"
    clock.now += 299
    assert instances.expire() == 0
    clock.now += 1
    with pytest.raises(ProxyRefusal, match="not found"):
        instances.find("g", "a", EVERYTHING)


def test_an_instance_in_use_does_not_expire_and_lives_on_from_the_end_of_the_use(
    instances: ConsumerInstances, clock: Clock
) -> None:
    made = instances.create("g", "a", EVERYTHING, SETTINGS)
    with made.used(clock):
        clock.now += 1000
        assert instances.expire() == 0
    clock.now += 299
    assert instances.expire() == 0
    clock.now += 1
    assert instances.expire() == 1


def test_an_expired_instance_has_left_its_group_and_its_room_is_free(
    log: Log, instances: ConsumerInstances, clock: Clock
) -> None:
    made = [instances.create("g", name, EVERYTHING, SETTINGS) for name in "abc"]
    with made[0].used(clock):
        made[0].subscribe(("t",))
        eventually(lambda: made[0].consumer.poll(0.05) == [] and made[0].consumer.assignment)
    assert log.groups.describe("g").state is GroupState.STABLE
    with pytest.raises(RequestRefused, match="3 consumer instances exist"):
        instances.create("g", "d", EVERYTHING, SETTINGS)
    clock.now += 300
    assert instances.create("g", "a", EVERYTHING, SETTINGS).name == "a"
    assert len(instances) == 1
    assert log.groups.describe("g").state is GroupState.EMPTY


def test_an_instance_that_is_deleted_in_use_is_closed_when_it_is_given_back(
    log: Log, instances: ConsumerInstances, clock: Clock
) -> None:
    made = instances.create("g", "a", EVERYTHING, SETTINGS)
    with made.used(clock):
        made.subscribe(("t",))
        eventually(lambda: made.consumer.poll(0.05) == [] and made.consumer.assignment)
        instances.delete("g", "a", EVERYTHING)
        assert made.ending.is_set()
        assert log.groups.describe("g").state is GroupState.STABLE
    assert log.groups.describe("g").state is GroupState.EMPTY
    with pytest.raises(ProxyRefusal, match="not found"), made.used(clock):
        pass


def test_two_uses_at_once_are_refused(instances: ConsumerInstances, clock: Clock) -> None:
    made = instances.create("g", "a", EVERYTHING, SETTINGS)
    with made.used(clock):
        with pytest.raises(ProxyRefusal, match="another request") as refusal, made.used(clock):
            pass
        assert refusal.value.number == 40903
    with made.used(clock):
        pass


def test_an_instance_is_its_users(instances: ConsumerInstances) -> None:
    ana, bob = (Rights(User(name, (RoleSettings(),))) for name in ("ana", "bob"))
    root = Rights(User("root", (RoleSettings(admin=True),)))
    instances.create("g", "a", ana, SETTINGS)
    with pytest.raises(ProxyRefusal, match="not found"):
        instances.find("g", "a", bob)
    assert instances.find("g", "a", ana) is instances.find("g", "a", root)


def test_nothing_begins_after_the_end_and_everything_is_left(log: Log, instances: ConsumerInstances) -> None:
    made = instances.create("g", "a", EVERYTHING, SETTINGS)
    made.assign([TopicPartition("t", 0)])
    instances.close()
    instances.close()
    with pytest.raises(RequestRefused):
        instances.create("g", "b", EVERYTHING, SETTINGS)
    assert not [thread for thread in threading.enumerate() if thread.name == "millstream-rest-expiry"]


# ------------------------------------------------------------------ responses


async def nothing() -> MutableMapping[str, Any]:
    raise AssertionError("nothing more is received")


def test_a_body_is_sent_in_slices_and_gives_its_room_back() -> None:
    room, sent = Room(100_000), list[MutableMapping[str, Any]]()

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)
        assert room.taken == 100_000

    body = BoundedBody(b"x" * 100_000, "a/b", room)
    asyncio.run(body({}, nothing, send))
    assert dict(sent[0]["headers"]) == {b"content-type": b"a/b", b"content-length": b"100000"}
    assert [(len(part["body"]), part["more_body"]) for part in sent[1:]] == [(65536, True), (34464, False)]
    assert room.taken == 0


def test_an_empty_body_ends() -> None:
    sent = list[MutableMapping[str, Any]]()

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(BoundedBody(b"", "a/b", Room(1))({}, nothing, send))
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_unread_responses_have_a_limit_but_one_always_fits() -> None:
    room = Room(10)
    BoundedBody(b"x" * 11, "a/b", room)
    with pytest.raises(RequestRefused, match="have not read"):
        BoundedBody(b"x", "a/b", room)
    room.taken = 5
    BoundedBody(b"x" * 5, "a/b", room)
    with pytest.raises(RequestRefused):
        BoundedBody(b"x", "a/b", room)


def test_a_client_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_body, "STALL_SECONDS_MAX", 0.01)
    room = Room(10)

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    asyncio.run(BoundedBody(b"x", "a/b", room)({}, nothing, send))
    assert room.taken == 0
