"""Kafka Connect's REST API, as its clients use it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from running_server import service_in
from waiting import eventually

from millstream.server.service import Service

CONFIG = {
    "connector.class": "datagen", "quickstart": "orders", "kafka.topic": "orders", "max.interval": "0",
    "iterations": "50", "tasks.max": 2, "key.converter": "org.apache.kafka.connect.converters.IntegerConverter",
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60, verify=False) as client:
        yield client
        for name in client.get("/connectors").json():
            assert client.delete(f"/connectors/{name}").status_code == 204


def test_a_connector_lives_from_post_to_delete(http: httpx.Client, service: Service) -> None:
    created = http.post("/connectors", json={"name": "gen-1", "config": CONFIG})
    assert created.status_code == 201
    info = created.json()
    assert (info["name"], info["type"]) == ("gen-1", "source")
    assert info["tasks"] == [{"connector": "gen-1", "task": 0}, {"connector": "gen-1", "task": 1}]
    assert info["config"] == {**CONFIG, "tasks.max": "2", "name": "gen-1"}
    assert http.get("/connectors").json() == ["gen-1"]
    assert http.get("/connectors/gen-1").json() == info
    assert http.get("/connectors/gen-1/config").json() == info["config"]
    assert [task["id"]["task"] for task in http.get("/connectors/gen-1/tasks").json()] == [0, 1]
    offsets = [{"partition": {"task": task}, "offset": {"next": 50}} for task in (0, 1)]
    eventually(lambda: http.get("/connectors/gen-1/offsets").json() == {"offsets": offsets})
    assert http.get("/connectors/gen-1/topics").json() == {"gen-1": {"topics": ["orders"]}}
    metrics = http.get("/metrics").text
    assert 'millstream_connector_records_total{connector="gen-1",task="1"} 50.0' in metrics
    assert 'millstream_connector_task_state{connector="gen-1",state="RUNNING",task="0"} 1.0' in metrics
    (listed,) = http.post("/ksql", json={"ksql": "SHOW CONNECTORS;"}).json()
    assert listed["connectors"][0]["name"] == "gen-1"


def test_states_are_changed_and_seen(http: httpx.Client) -> None:
    assert http.put("/connectors/gen/config", json=CONFIG).status_code == 201

    def states() -> tuple[str, set[str]]:
        status = http.get("/connectors/gen/status").json()
        return status["connector"]["state"], {task["state"] for task in status["tasks"]}

    assert http.put("/connectors/gen/pause").status_code == 202
    eventually(lambda: states() == ("PAUSED", {"PAUSED"}))
    assert http.put("/connectors/gen/resume").status_code == 202
    eventually(lambda: states() == ("RUNNING", {"RUNNING"}))
    assert http.post("/connectors/gen/restart").status_code == 204
    assert http.post("/connectors/gen/tasks/1/restart").status_code == 204
    assert http.get("/connectors/gen/tasks/1/status").json() == {"id": 1, "state": "RUNNING", "worker_id": "millstream"}
    changed = http.put("/connectors/gen/config", json={**CONFIG, "tasks.max": "1"})
    assert (changed.status_code, len(changed.json()["tasks"])) == (200, 1)
    expanded = http.get("/connectors?expand=status&expand=info").json()["gen"]
    assert (expanded["status"]["type"], expanded["info"]["config"]["tasks.max"]) == ("source", "1")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/connectors/nope", None, 404),
        ("GET", "/connectors/nope/status", None, 404),
        ("PUT", "/connectors/nope/pause", None, 404),
        ("DELETE", "/connectors/nope", None, 404),
        ("GET", "/connector-plugins/nope/config", None, 404),
        ("POST", "/connectors", {"name": "taken", "config": CONFIG}, 409),
        ("POST", "/connectors", {"config": CONFIG}, 400),
        ("POST", "/connectors", {"name": "x", "config": {"connector.class": "nope"}}, 400),
        ("POST", "/connectors", {"name": "x", "config": {**CONFIG, "quickstart": "nope"}}, 400),
        ("POST", "/connectors", {"name": "x", "config": {"connector.class": ["datagen"]}}, 400),
        ("GET", "/connectors/taken/tasks/7/status", None, 404),
        ("POST", "/connectors/taken/tasks/7/restart", None, 404),
        ("POST", "/connectors/taken/tasks/x/restart", None, 404),
        ("PATCH", "/connectors", None, 405),
    ],
)
def test_a_refusal_has_connects_code(http: httpx.Client, method: str, path: str, body: object, status: int) -> None:
    http.post("/connectors", json={"name": "taken", "config": CONFIG})
    answer = http.request(method, path, json=body)
    assert answer.status_code == status
    assert status == 405 or answer.json()["error_code"] == status
    assert answer.json()["message"]


def test_plugins_describe_and_check_their_settings(http: httpx.Client) -> None:
    plugins = [(plugin["class"], plugin["type"]) for plugin in http.get("/connector-plugins").json()]
    assert plugins == sorted(plugins)
    assert {("datagen", "source"), ("sql", "source"), ("sql", "sink"), ("iceberg", "sink")} <= set(plugins)
    for name, _ in plugins:
        settings = http.get(f"/connector-plugins/{name}/config").json()
        assert all(item["documentation"].endswith(".") for item in settings)
    secret = "hunter2"
    given = {"connector.class": "postgres", "database.port": "many", "database.password": secret, "tasks.max": "0"}
    answer = http.put("/connector-plugins/PostgresConnector/config/validate", json=given)
    assert secret not in answer.text
    checked = answer.json()
    errors = {item["value"]["name"]: item["value"]["errors"] for item in checked["configs"] if item["value"]["errors"]}
    assert errors.keys() == {
        "database.port",
        "database.hostname",
        "database.user",
        "database.dbname",
        "topic.prefix",
        "tasks.max",
    }
    assert checked["error_count"] == len(errors)
    assert errors["database.port"] == ['database.port is "many", which is no INT']
