"""ACLs over the REST proxy: as at the Kafka port, in the words of Confluent's v3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from rest_proxy import ProxyClient, cluster_path, refused
from running_server import service_in

from millstream.server.security.access import hash_token
from millstream.server.service import Service

JSON = "application/json"
ORDERS = {
    "resource_type": "TOPIC", "resource_name": "orders", "pattern_type": "LITERAL", "principal": "User:ana",
    "host": "*", "operation": "READ", "permission": "ALLOW",
}  # fmt: skip
EVERYTHING = "resource_type=ANY&pattern_type=ANY&operation=ANY&permission=ANY"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    roles = {"root": {"admin": True}, "ana": {"read": ["nothing"]}}
    users = {name: {"tokens": [hash_token(name)], "roles": [name]} for name in roles}
    with service_in(tmp_path_factory.mktemp("data"), access={"users": users, "roles": roles}) as started:
        started.engine.log.create_topic("orders", 1)
        yield started


@pytest.fixture
def root(guarded: Service) -> Iterator[ProxyClient]:
    with ProxyClient(guarded, "root") as client:
        yield client
        client.http.delete(f"{path_of(client)}?{EVERYTHING}")


@pytest.fixture
def ana(guarded: Service) -> Iterator[ProxyClient]:
    with ProxyClient(guarded, "ana") as client:
        yield client


def path_of(client: ProxyClient) -> str:
    return f"{cluster_path(client)}/acls"


def create(client: ProxyClient, **other: Any) -> httpx.Response:
    return client.post(path_of(client), {**ORDERS, **other}, JSON)


def listed(client: ProxyClient, query: str = "") -> list[dict[str, Any]]:
    answer = client.get(f"{path_of(client)}?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["kind"] == "KafkaAclList"
    return answer.json()["data"]


def test_an_acl_is_created_found_and_deleted(root: ProxyClient, ana: ProxyClient) -> None:
    topic = f"{cluster_path(ana)}/topics/orders"
    assert ana.get(topic).status_code == 403
    made = create(root)
    assert (made.status_code, made.content) == (201, b"")
    assert ana.get(topic).status_code == 200, "it counts at once, and here"
    (found,) = listed(root)
    assert {name: found[name] for name in ORDERS} == ORDERS and found["kind"] == "KafkaAcl"
    assert found["metadata"]["self"] == made.headers["location"]
    assert root.http.get(found["metadata"]["self"]).json()["data"] == [found]
    gone = root.http.delete(found["metadata"]["self"])
    assert (gone.status_code, gone.json()["data"]) == (200, [found])
    assert listed(root) == [] and ana.get(topic).status_code == 403


def test_a_batch_is_created_and_searched(root: ProxyClient) -> None:
    names = ("orders", "ord", "bills")
    data = [{**ORDERS, "resource_name": name, "pattern_type": "prefixed"} for name in names]
    assert root.post(f"{path_of(root)}:batch", {"data": data}, JSON).status_code == 201
    found = listed(root, "resource_type=topic&resource_name=orders-eu&pattern_type=MATCH")
    assert [each["resource_name"] for each in found] == ["ord", "orders"]
    assert [each["resource_name"] for each in listed(root, "resource_name=bills")] == ["bills"]
    assert len(listed(root)) == 3 and listed(root, "principal=User:ben") == []


@pytest.mark.parametrize(
    ("other", "number"),
    [
        ({"operation": None}, 422), ({"host": None}, 422), ({"operation": "EAT"}, 400), ({"operation": 3}, 400),
        ({"operation": "ANY"}, 40002), ({"pattern_type": "MATCH"}, 40002), ({"principal": "ana"}, 40002),
        ({"resource_name": ""}, 40002), ({"resource_type": "CLUSTER"}, 40002),
    ],
)  # fmt: skip
def test_what_is_no_acl_is_refused(root: ProxyClient, other: dict[str, Any], number: int) -> None:
    assert refused(create(root, **other))[1] == number
    assert listed(root) == []


@pytest.mark.parametrize("query", ["", "resource_type=TOPIC&pattern_type=ANY&operation=ANY", f"{EVERYTHING}X"])
def test_deleting_says_what_is_meant(root: ProxyClient, query: str) -> None:
    create(root)
    assert refused(root.http.delete(f"{path_of(root)}?{query}")) == (400, 400)
    assert len(listed(root)) == 1


def test_who_may_not_alter_the_cluster_is_refused(root: ProxyClient, ana: ProxyClient) -> None:
    cluster = {"resource_type": "CLUSTER", "resource_name": "kafka-cluster"}
    assert refused(ana.get(path_of(ana))) == (403, 40301)
    create(root, **cluster, operation="DESCRIBE")
    assert len(listed(ana)) == 1
    assert refused(create(ana)) == (403, 40301)
    assert refused(ana.http.delete(f"{path_of(ana)}?{EVERYTHING}")) == (403, 40301)
    create(root, **cluster, operation="ALTER")
    assert create(ana).status_code == 201
