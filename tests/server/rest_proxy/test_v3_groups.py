"""Consumer groups of the REST proxy's v3: members, what they read, and how far they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from rest_proxy import ProxyClient, cluster_path, refused
from running_server import eventually, service_in

from millstream.logcore.client import TopicPartition
from millstream.server.security.access import hash_token
from millstream.server.service import Service


@pytest.fixture
def group(service: Service, proxy: ProxyClient, topic: str) -> Iterator[str]:
    """The path of a group with one member, which has read and committed two of three records of partition 0."""
    made = f"/consumers/{topic}/instances/me"
    settings = {"name": "me", "format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
    proxy.post(f"/consumers/{topic}", settings)
    proxy.post(f"{made}/subscription", {"topics": [topic]})
    eventually(lambda: proxy.get(f"{made}/records?timeout=50") and len(assigned(proxy, made)) == 2)
    proxy.produce(f"/topics/{topic}/partitions/0", {"records": [{"value": 1}, {"value": 2}, {"value": 3}]})
    second = {"topic": topic, "partition": 0, "offset": 1}
    assert proxy.post(f"{made}/offsets", {"offsets": [second]}).status_code == 200
    yield f"{cluster_path(proxy)}/consumer-groups/{topic}"
    proxy.delete(made)


def assigned(proxy: ProxyClient, path: str) -> list[Any]:
    return proxy.get(f"{path}/assignments").json()["partitions"]


def shown(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    return response.json()


def test_a_group_and_its_member_are_described(proxy: ProxyClient, group: str, topic: str) -> None:
    found = shown(proxy.get(group))
    assert (found["kind"], found["consumer_group_id"], found["state"]) == ("KafkaConsumerGroup", topic, "STABLE")
    assert (found["type"], found["is_simple"], found["partition_assignor"]) == ("CLASSIC", False, "cooperative-sticky")
    assert found["coordinator"]["related"].endswith("/brokers/1")
    assert found in shown(proxy.get(group.rpartition("/")[0]))["data"]
    (member,) = shown(proxy.get(f"{group}/consumers"))["data"]
    path = f"{group}/consumers/{member['consumer_id']}"
    assert shown(proxy.get(path)) == member
    assignments = shown(proxy.get(f"{path}/assignments"))["data"]
    assert [(each["topic_name"], each["partition_id"]) for each in assignments] == [(topic, 0), (topic, 1)]
    one = shown(proxy.get(f"{path}/assignments/{topic}/partitions/1"))
    assert one == assignments[1]
    assert shown(proxy.http.get(one["partition"]["related"]))["partition_id"] == 1


def test_lag_is_what_is_left_behind_the_committed_offset(
    service: Service, proxy: ProxyClient, group: str, topic: str
) -> None:
    (member,) = shown(proxy.get(f"{group}/consumers"))["data"]
    (lag,) = shown(proxy.get(f"{group}/lags"))["data"]
    assert {name: lag[name] for name in ("topic_name", "partition_id", "current_offset", "log_end_offset", "lag")} == {
        "topic_name": topic, "partition_id": 0, "current_offset": 2, "log_end_offset": 3, "lag": 1,
    }  # fmt: skip
    assert lag["consumer_id"] == member["consumer_id"]
    assert shown(proxy.get(f"{group}/lags/{topic}/partitions/0")) == lag
    summary = shown(proxy.get(f"{group}/lag-summary"))
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_topic_name"]) == (1, 1, topic)
    assert summary["max_lag_consumer_id"] == member["consumer_id"]
    assert shown(proxy.http.get(summary["max_lag_consumer"]["related"])) == member


def test_a_group_without_members_has_lag_of_nobody(service: Service, proxy: ProxyClient, topic: str) -> None:
    service.engine.log.commit_offsets("silent", {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0})
    proxy.produce(f"/topics/{topic}/partitions/1", {"records": [{"value": 1}, {"value": 2}]})
    path = f"{cluster_path(proxy)}/consumer-groups/silent"
    assert (shown(proxy.get(path))["state"], shown(proxy.get(path))["is_simple"]) == ("EMPTY", True)
    lags = shown(proxy.get(f"{path}/lags"))["data"]
    assert [(lag["lag"], lag["consumer_id"], lag["client_id"]) for lag in lags] == [(0, "", ""), (2, "", "")]
    summary = shown(proxy.get(f"{path}/lag-summary"))
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_partition_id"]) == (2, 2, 1)
    assert shown(proxy.get(f"{path}/consumers"))["data"] == []


@pytest.mark.parametrize(
    "path",
    [
        "nope", "nope/consumers", "nope/lags", "nope/lag-summary", "TOPIC/consumers/nope",
        "TOPIC/consumers/nope/assignments", "TOPIC/lags/TOPIC/partitions/1", "TOPIC/lags/TOPIC/partitions/x",
        "TOPIC/lags/nope/partitions/0",
    ],
)  # fmt: skip
def test_what_there_is_not_is_not_found(proxy: ProxyClient, group: str, topic: str, path: str) -> None:
    asked = f"{group.rpartition('/')[0]}/{path.replace('TOPIC', topic)}"
    assert refused(proxy.get(asked)) == (404, 404)


def test_rights_are_those_of_the_kafka_port(tmp_path_factory: pytest.TempPathFactory) -> None:
    roles = {"both": {"group": ["own*"], "read": ["own*"]}, "none": {"read": ["own*"]}, "blind": {"group": ["own*"]}}
    users = {name: {"tokens": [hash_token(name)], "roles": [name]} for name in roles}
    with service_in(tmp_path_factory.mktemp("access"), access={"users": users, "roles": roles}) as service:
        log = service.engine.log
        for name in ("own", "other"):
            log.create_topic(name, 1)
        for name in ("own", "other"):
            log.commit_offsets(name, {TopicPartition("own", 0): 0, TopicPartition("other", 0): 0})
        for user, groups, topics in (("both", ["own"], ["own"]), ("none", [], None), ("blind", ["own"], [])):
            with ProxyClient(service, user) as client:
                path = f"{cluster_path(client)}/consumer-groups"
                assert [each["consumer_group_id"] for each in client.get(path).json()["data"]] == groups
                for part in ("", "/consumers", "/lags", "/lag-summary"):
                    assert refused(client.get(f"{path}/other{part}")) == (403, 40301)
                lags = client.get(f"{path}/own/lags")
                if topics is None:
                    assert refused(lags) == (403, 40301)
                else:
                    assert [each["topic_name"] for each in lags.json()["data"]] == topics
                assert client.get(f"{path}/own/lags/other/partitions/0").status_code == 403
