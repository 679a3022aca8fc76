"""The REST proxy is the same on a log in process (the other tests of this folder), on brokers of others, and in a
cluster."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from rest_proxy import ProxyClient, cluster_path, refused
from running_server import eventually, service_in
from three_servers import Servers

from millstream.server.service import Service

JSON = "application/json"
AVRO = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]})


def consumed(proxy: ProxyClient, topic: str, count: int, **settings: Any) -> list[tuple[int, int, Any]]:
    """Partitions, offsets and values that a new member of the group `readers` reads and commits."""
    body = {"format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false", **settings}
    name = proxy.post("/consumers/readers", body).json()["instance_id"]
    path, found = f"/consumers/readers/instances/{name}", list[dict[str, Any]]()
    assert proxy.post(f"{path}/subscription", {"topics": [topic]}).status_code == 204

    def read() -> bool:
        answer = proxy.get(f"{path}/records?timeout=1000")
        assert answer.status_code == 200, answer.text
        found.extend(answer.json())
        return len(found) >= count

    eventually(read)
    assert proxy.post(f"{path}/offsets").status_code == 200
    assert proxy.delete(path).status_code == 204
    return sorted((record["partition"], record["offset"], record["value"]) for record in found)


def use(proxy: ProxyClient, factor: int) -> None:
    """All that clients do, once."""
    cluster = cluster_path(proxy)
    body = {"topic_name": "orders", "partitions_count": 2, "replication_factor": factor}
    assert proxy.post(f"{cluster}/topics", body, JSON).status_code == 201
    assert proxy.get(f"{cluster}/topics/orders").json()["replication_factor"] == factor
    assert "orders" in proxy.get("/topics").json()
    partitions = proxy.get("/topics/orders/partitions").json()
    assert [len(partition["replicas"]) for partition in partitions] == [factor] * 2
    records = {"records": [{"value": number, "partition": number % 2} for number in range(4)]}
    assert [each["offset"] for each in proxy.produce("/topics/orders", records).json()["offsets"]] == [0, 0, 1, 1]
    assert consumed(proxy, "orders", 4) == [(0, 0, 0), (0, 1, 2), (1, 0, 1), (1, 1, 3)]
    more = {"partition_id": 0, "value": {"type": "AVRO", "schema": AVRO, "data": {"a": 7}}}
    assert proxy.post(f"{cluster}/topics/orders/records", more, JSON).json()["offset"] == 2
    lags = proxy.get(f"{cluster}/consumer-groups/readers/lags").json()["data"]
    assert [(lag["partition_id"], lag["current_offset"], lag["lag"]) for lag in lags] == [(0, 2, 1), (1, 2, 0)]
    groups = proxy.get(f"{cluster}/consumer-groups").json()["data"]
    assert [group["consumer_group_id"] for group in groups if group["consumer_group_id"] == "readers"] == ["readers"]
    assert consumed(proxy, "orders", 1, format="avro") == [(0, 2, {"a": 7})]
    assert proxy.http.put(f"{cluster}/topics/orders/configs/retention.ms", json={"value": "5"}).status_code == 204
    assert proxy.get(f"{cluster}/topics/orders/configs/retention.ms").json()["value"] == "5"
    assert refused(proxy.get(f"{cluster}/topics/nope")) == (404, 40403)
    assert proxy.http.delete(f"{cluster}/topics/orders").status_code == 204
    eventually(lambda: "orders" not in proxy.get("/topics").json())


def test_brokers_of_others_are_served(tmp_path: Path) -> None:
    with service_in(tmp_path / "brokers") as brokers:
        flags = {"kafka": "external", "external": {"bootstrap.servers": str(brokers.kafka_address)}}
        with service_in(tmp_path / "server", **flags) as service, ProxyClient(service) as proxy:
            use(proxy, 1)
            groups_keep_their_names(brokers, proxy)


def groups_keep_their_names(brokers: Service, proxy: ProxyClient) -> None:
    """What programs commit, other Kafka clients find under the same name; what is Millstream's own stays hidden."""
    assert "readers" in brokers.engine.log.groups.names()  # pyrefly: ignore[missing-attribute]
    proxy.ksql(
        "CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        "CREATE STREAM q AS SELECT * FROM s;"
    )
    cluster = cluster_path(proxy)
    groups = [each["consumer_group_id"] for each in proxy.get(f"{cluster}/consumer-groups").json()["data"]]
    assert groups == ["readers"]
    topics = proxy.get("/topics").json()
    assert "_millstream-command" in topics and not [name for name in topics if name.startswith("millstream-")]
    there = brokers.engine.log.topics()
    (own,) = [name for name in there if name.startswith("millstream-") and name.endswith("command")]
    for name in (own, "millstream-other_x"):
        assert proxy.post(f"/topics/{name}", {"records": [{"value": "Yg=="}]}).status_code in (403, 404)
        assert refused(proxy.http.post(f"{cluster}/topics", json={"topic_name": name})) == (403, 40301)
        assert refused(proxy.http.delete(f"{cluster}/topics/{name}")) == (403, 40301)
    assert own in brokers.engine.log.topics()


@pytest.mark.timeout(240)
def test_any_node_of_a_cluster_is_asked_and_instances_end_with_the_engine(tmp_path: Path) -> None:
    with contextlib.closing(Servers(tmp_path)) as servers:
        servers.wait_until_healthy()
        with contextlib.ExitStack() as clients:
            proxies = [clients.enter_context(ProxyClient(servers.running[number])) for number in (1, 2, 3)]
            use(proxies[0], 3)
            assert proxies[1].get("/brokers").json() == {"brokers": [1, 2, 3]}
            made = proxies[1].post("/consumers/readers", {"name": "me"}).json()
            assert made["base_uri"].startswith(servers.url(2))
            assert proxies[2].get("/consumers/readers/instances/me/subscription").json() == {"topics": []}
            away = servers.with_engine()
            assert away is not None
            servers.stop(away)
            eventually(lambda: servers.with_engine() is not None, 60)
            left = next(iter(servers.running))

            def is_gone() -> bool:
                answer = httpx.get(f"{servers.url(left)}/consumers/readers/instances/me/subscription", timeout=60)
                return answer.status_code == 404 and answer.json()["error_code"] == 40403

            eventually(is_gone, 60)
