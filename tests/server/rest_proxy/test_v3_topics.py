"""Cluster, brokers, topics, settings and partitions of the REST proxy's v3."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from rest_proxy import V2, ProxyClient, cluster_path, refused
from running_server import service_in

from millstream.server.security.access import hash_token

JSON = "application/json"


@pytest.fixture
def cluster(proxy: ProxyClient) -> str:
    return cluster_path(proxy)


@pytest.fixture
def made(cluster: str, topic: str) -> str:
    """The path of a topic of two partitions."""
    return f"{cluster}/topics/{topic}"


def shown(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == JSON
    return response.json()


def test_every_link_of_a_resource_to_itself_leads_to_it(proxy: ProxyClient, cluster: str, made: str) -> None:
    for path in (
        cluster, f"{cluster}/brokers/1", f"{cluster}/brokers/1/configs/log.retention.ms", made,
        f"{made}/configs/retention.ms", f"{made}/partitions/1", f"{made}/partitions/1/offset",
        f"{made}/partitions/1/replicas/1", "/v3/clusters", f"{cluster}/brokers", f"{cluster}/brokers/1/configs",
        f"{cluster}/brokers/1/partition-replicas", f"{cluster}/topics", f"{made}/configs", f"{made}/partitions",
        f"{made}/partitions/1/replicas", f"{cluster}/consumer-groups", f"{cluster}/topics/-/configs",
    ):  # fmt: skip
        answer = proxy.get(path)
        assert answer.status_code in (200, 404), path
        if answer.status_code == 200:
            found = answer.json()
            assert found["metadata"]["self"] == f"{str(proxy.http.base_url).rstrip('/')}{path}"
            assert found["kind"].endswith("List") is ("data" in found)


def test_the_cluster_and_its_broker_are_described(proxy: ProxyClient, cluster: str) -> None:
    found = shown(proxy.get(cluster))
    base = f"{str(proxy.http.base_url).rstrip('/')}{cluster}"
    assert (found["kind"], found["cluster_id"]) == ("KafkaCluster", cluster.rpartition("/")[2])
    assert found["controller"] == {"related": f"{base}/brokers/1"}
    (broker,) = shown(proxy.get(f"{cluster}/brokers"))["data"]
    assert (broker["kind"], broker["broker_id"]) == ("KafkaBroker", 1)
    assert shown(proxy.get(f"{cluster}/brokers/1")) == broker
    configs = shown(proxy.get(f"{cluster}/brokers/1/configs"))["data"]
    first = configs[0]
    assert (first["kind"], first["broker_id"]) == ("KafkaBrokerConfig", 1)
    assert shown(proxy.get(f"{cluster}/brokers/1/configs/{first['name']}")) == first


def test_a_topic_lives_from_post_to_delete(proxy: ProxyClient, cluster: str) -> None:
    body = {
        "topic_name": "lives", "partitions_count": 3, "replication_factor": 1,
        "configs": [{"name": "cleanup.policy", "value": "compact"}, {"name": "retention.ms", "value": None}],
    }  # fmt: skip
    created = proxy.post(f"{cluster}/topics", body, JSON)
    assert created.status_code == 201
    path = f"{cluster}/topics/lives"
    topic = shown(proxy.get(path))
    assert topic == created.json()
    assert (topic["partitions_count"], topic["replication_factor"], topic["is_internal"]) == (3, 1, False)
    assert topic in shown(proxy.get(f"{cluster}/topics"))["data"]
    assert shown(proxy.get(f"{path}/configs/cleanup.policy"))["value"] == "compact"
    assert refused(proxy.post(f"{cluster}/topics", body, JSON)) == (400, 40002)
    more = proxy.http.patch(path, json={"partitions_count": 4})
    assert shown(more)["partitions_count"] == 4
    assert [each["partition_id"] for each in shown(proxy.get(f"{path}/partitions"))["data"]] == [0, 1, 2, 3]
    assert refused(proxy.http.patch(path, json={"partitions_count": 4})) == (400, 40002)
    assert proxy.http.delete(path).status_code == 204
    assert refused(proxy.get(path)) == refused(proxy.http.delete(path)) == (404, 40403)


def test_a_topic_can_be_checked_without_making_it_and_placed_by_hand(proxy: ProxyClient, cluster: str) -> None:
    only = {"topic_name": "only", "partitions_count": 2, "validate_only": True}
    checked = proxy.post(f"{cluster}/topics", only, JSON)
    assert (checked.status_code, checked.json()["partitions_count"]) == (200, 2)
    assert proxy.get(f"{cluster}/topics/only").status_code == 404
    placed = {"topic_name": "placed", "replicas_assignments": {"0": [1], "1": [1]}}
    assert proxy.post(f"{cluster}/topics", placed, JSON).json()["partitions_count"] == 2
    assert proxy.http.delete(f"{cluster}/topics/placed").status_code == 204


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({}, (422, 422)),
        ({"topic_name": ""}, (422, 422)),
        ({"topic_name": 5}, (400, 400)),
        ({"topic_name": "a b"}, (400, 40002)),
        ({"topic_name": "x" * 250}, (400, 40002)),
        ({"topic_name": "x", "partitions_count": 0}, (422, 422)),
        ({"topic_name": "x", "partitions_count": 10_001}, (422, 422)),
        ({"topic_name": "x", "replication_factor": 2}, (400, 40002)),
        ({"topic_name": "x", "configs": [{"name": "nope", "value": "1"}]}, (400, 40002)),
        ({"topic_name": "x", "configs": [{"value": "1"}]}, (422, 422)),
        ({"topic_name": "x", "configs": {}}, (400, 400)),
        ({"topic_name": "x", "replicas_assignments": {"0": [9]}}, (400, 40002)),
        ({"topic_name": "x", "replicas_assignments": {"0": 1}}, (400, 400)),
        ({"topic_name": "x", "replicas_assignments": {"0": [1]}, "partitions_count": 1}, (400, 400)),
        ({"topic_name": "x", "validate_only": "perhaps"}, (400, 400)),
        ({"topic_name": "_millstream-x"}, (403, 40301)),
        ({"topic_name": "x", "configs": [{"name": "millstream.mirror", "value": "m"}]}, (403, 40301)),
        ("", (422, 42206)),
        ("[", (400, 400)),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    proxy: ProxyClient, cluster: str, body: Any, answer: tuple[int, int]
) -> None:
    assert refused(proxy.post(f"{cluster}/topics", body, JSON)) == answer
    assert proxy.get(f"{cluster}/topics/x").status_code == 404


def test_settings_are_changed_one_by_one_together_and_back(proxy: ProxyClient, made: str) -> None:
    def value(name: str) -> tuple[str, bool, str]:
        found = shown(proxy.get(f"{made}/configs/{name}"))
        return found["value"], found["is_default"], found["source"]

    usual = value("retention.ms")
    assert usual == ("604800000", True, "DEFAULT_CONFIG")
    assert proxy.http.put(f"{made}/configs/retention.ms", json={"value": "1000"}).status_code == 204
    assert value("retention.ms") == ("1000", False, "DYNAMIC_TOPIC_CONFIG")
    changes = [{"name": "retention.ms", "operation": "DELETE"}, {"name": "cleanup.policy", "value": "compact"}]
    only = {"data": changes, "validate_only": True}
    assert proxy.post(f"{made}/configs:alter", only, JSON).status_code == 204
    assert value("retention.ms")[0] == "1000"
    assert proxy.post(f"{made}/configs:alter", {"data": changes}, JSON).status_code == 204
    assert (value("retention.ms"), value("cleanup.policy")[0]) == (usual, "compact")
    assert proxy.http.delete(f"{made}/configs/cleanup.policy").status_code == 204
    assert value("cleanup.policy") == ("delete", True, "DEFAULT_CONFIG")
    every = {each["name"]: each for each in shown(proxy.get(f"{made}/configs"))["data"]}
    assert every["retention.ms"] == shown(proxy.get(f"{made}/configs/retention.ms"))
    all_topics = shown(proxy.get(f"{made.rpartition('/')[0]}/-/configs"))["data"]
    assert every["retention.ms"] in all_topics


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"),
    [
        ("GET", "configs/nope", None, (404, 404)),
        ("PUT", "configs/nope", {"value": "1"}, (404, 404)),
        ("DELETE", "configs/nope", None, (404, 404)),
        ("DELETE", "configs/millstream.mirror", None, (403, 40301)),
        ("PUT", "configs/millstream.mirror", {"value": "m"}, (403, 40301)),
        ("PUT", "configs/retention.ms", {"value": "soon"}, (400, 40002)),
        ("PUT", "configs/retention.ms", {"value": 5}, (400, 400)),
        ("PUT", "configs/retention.ms", "", (422, 42206)),
        ("POST", "configs:alter", {}, (422, 422)),
        ("POST", "configs:alter", {"data": [{"value": "1"}]}, (400, 400)),
        ("POST", "configs:alter", {"data": [{"name": "nope", "value": "1"}]}, (404, 404)),
        ("POST", "configs:alter", {"data": [{"name": "retention.ms", "operation": "ADD"}]}, (400, 400)),
        ("POST", "configs:alter", {"data": [{"name": "retention.ms", "value": "soon"}]}, (400, 40002)),
        ("PATCH", "", {}, (422, 422)),
        ("PATCH", "", {"partitions_count": 1}, (400, 40002)),
        ("PATCH", "", {"partitions_count": "many"}, (400, 400)),
        ("GET", "partitions/2", None, (404, 40402)),
        ("GET", "partitions/x", None, (404, 40402)),
        ("GET", "partitions/2/replicas", None, (404, 40402)),
        ("GET", "partitions/2/offset", None, (404, 40402)),
        ("GET", "partitions/0/offset?offset_type=middle", None, (400, 400)),
        ("GET", "partitions/0/replicas/7", None, (404, 404)),
    ],
)
def test_what_cannot_be_done_with_a_topic_is_refused(
    proxy: ProxyClient, made: str, method: str, path: str, body: Any, answer: tuple[int, int]
) -> None:
    content = "" if body in ("", None) else json.dumps(body)
    sent = proxy.http.request(method, f"{made}/{path}".rstrip("/"), headers={"content-type": JSON}, content=content)
    assert refused(sent) == answer


def test_partitions_replicas_and_offsets_are_shown(proxy: ProxyClient, topic: str, made: str) -> None:
    proxy.produce(f"/topics/{topic}/partitions/1", {"records": [{"value": 1}]})
    partition = shown(proxy.get(f"{made}/partitions/1"))
    assert partition["leader"]["related"].endswith(f"{made}/partitions/1/replicas/1")
    (replica,) = shown(proxy.get(f"{made}/partitions/1/replicas"))["data"]
    assert (replica["broker_id"], replica["is_leader"], replica["is_in_sync"]) == (1, True, True)
    assert shown(proxy.get(f"{made}/partitions/1/replicas/1")) == replica
    of_broker = shown(proxy.get(f"{made.partition('/topics/')[0]}/brokers/1/partition-replicas"))["data"]
    assert replica in of_broker
    offset = shown(proxy.get(f"{made}/partitions/1/offset"))
    assert (offset["earliest_offset"], offset["latest_offset"]) == (0, 1)


@pytest.mark.parametrize(
    "path",
    [
        "", "/brokers", "/brokers/1", "/brokers/1/configs", "/topics", "/topics/t", "/topics/t/configs",
        "/topics/t/partitions/0", "/consumer-groups", "/consumer-groups/g", "/consumer-groups/g/lags",
    ],
)  # fmt: skip
def test_another_cluster_is_not_found(proxy: ProxyClient, path: str) -> None:
    assert refused(proxy.get(f"/v3/clusters/nope{path}")) == (404, 404)


@pytest.mark.parametrize("path", ["brokers/2", "brokers/x", "brokers/2/configs", "brokers/1/configs/nope"])
def test_what_a_broker_has_not_is_not_found(proxy: ProxyClient, cluster: str, path: str) -> None:
    assert refused(proxy.get(f"{cluster}/{path}")) == (404, 404)


def test_rights_are_those_of_the_kafka_port(tmp_path_factory: pytest.TempPathFactory) -> None:
    roles = {verb: {verb: ["own*"]} for verb in ("read", "insert", "ddl")}
    users = {name: {"tokens": [hash_token(name)], "roles": [name]} for name in roles}
    with service_in(tmp_path_factory.mktemp("access"), access={"users": users, "roles": roles}) as service:
        service.engine.log.create_topic("own", 1)
        service.engine.log.create_topic("other", 1)
        for user, may_change in (("read", False), ("insert", False), ("ddl", True)):
            with ProxyClient(service, user) as client:
                cluster = cluster_path(client)
                assert [each["topic_name"] for each in client.get(f"{cluster}/topics").json()["data"]] == ["own"]
                configs = client.get(f"{cluster}/topics/-/configs").json()["data"]
                assert {each["topic_name"] for each in configs} == {"own"}
                replicas = client.get(f"{cluster}/brokers/1/partition-replicas").json()["data"]
                assert {each["topic_name"] for each in replicas} == {"own"}
                for path in ("", "/configs", "/configs/retention.ms", "/partitions", "/partitions/0",
                             "/partitions/0/offset", "/partitions/0/replicas"):  # fmt: skip
                    assert client.get(f"{cluster}/topics/own{path}").status_code == 200
                    for hidden in ("other", "none"):
                        assert refused(client.get(f"{cluster}/topics/{hidden}{path}")) == (403, 40301)
                operations = client.get(f"{cluster}/topics/own?include_authorized_operations=true").json()
                expected = {"read": "READ", "insert": "WRITE", "ddl": "CREATE DELETE ALTER ALTER_CONFIGS"}
                every = {*expected[user].split(), "DESCRIBE", "DESCRIBE_CONFIGS"}
                assert operations["authorized_operations"] == sorted(every)
                for name in ("own", "other"):
                    allowed = may_change and name == "own"
                    topic = f"{cluster}/topics/{name}"
                    answers = [
                        client.http.put(f"{topic}/configs/retention.ms", json={"value": "1000"}),
                        client.http.delete(f"{topic}/configs/retention.ms"),
                        client.post(f"{topic}/configs:alter", {"data": []}, JSON),
                        client.post(f"{cluster}/topics", {"topic_name": f"{name}-{user}"}, JSON),
                        client.http.patch(topic, json={"partitions_count": 2}),
                    ]
                    assert [answer.status_code != 403 for answer in answers] == [allowed] * 5, (user, name)
                assert client.http.delete(f"{cluster}/topics/own").status_code == (204 if may_change else 403)


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("GET", "acls", "Security features are disabled"),
        ("POST", "acls", "Security features are disabled"),
        ("DELETE", "acls?resource_type=TOPIC", "Security features are disabled"),
        ("POST", "acls:batch", "Security features are disabled"),
        ("PUT", "brokers/1/configs/log.retention.ms", "configuration file"),
        ("DELETE", "brokers/1/configs/log.retention.ms", "configuration file"),
        ("POST", "brokers/1/configs:alter", "configuration file"),
        ("PUT", "broker-configs/log.retention.ms", "configuration file"),
        ("DELETE", "broker-configs/log.retention.ms", "configuration file"),
        ("POST", "broker-configs:alter", "configuration file"),
    ],
)
def test_what_only_the_configuration_can_change_is_refused_and_says_so(
    proxy: ProxyClient, cluster: str, method: str, path: str, says: str
) -> None:
    body = {"value": "1"} if method in ("PUT", "POST") else None
    answer = proxy.http.request(method, f"{cluster}/{path}", json=body)
    assert refused(answer) == (400, 40002)
    assert says in answer.json()["message"]
    elsewhere = proxy.http.request(method, f"/v3/clusters/other/{path}", json=body)
    assert refused(elsewhere) == (404, 404)


def test_the_settings_of_all_brokers_and_those_that_are_set_for_all(proxy: ProxyClient, cluster: str) -> None:
    every = shown(proxy.get(f"{cluster}/brokers/-/configs"))
    assert every["data"] == shown(proxy.get(f"{cluster}/brokers/1/configs"))["data"]
    defaults = shown(proxy.get(f"{cluster}/broker-configs"))
    assert (defaults["kind"], defaults["data"]) == ("KafkaClusterConfigList", [])
    assert refused(proxy.get(f"{cluster}/broker-configs/log.retention.ms")) == (404, 404)


@pytest.mark.parametrize(
    ("method", "path", "status", "media_type"),
    [
        ("GET", "/v3/clusters/none/topics/-/partitions/-/reassignment", 404, "application/json"),
        ("PUT", "/v3/clusters", 405, "application/json"),
        ("GET", "/topics/t/nothing", 404, V2),
        ("DELETE", "/brokers", 405, V2),
    ],
)
def test_what_there_is_not_is_refused_in_the_form_of_the_rest_proxy(
    proxy: ProxyClient, method: str, path: str, status: int, media_type: str
) -> None:
    answer = proxy.http.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, media_type)
    assert answer.json().keys() == {"error_code", "message"} and answer.json()["error_code"] == status
