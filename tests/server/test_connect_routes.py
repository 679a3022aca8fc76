"""Kafka Connect's REST API, as its clients use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from connectors import read_topic
from running_server import service_in
from waiting import eventually

from millstream.logcore.clients.producer import Producer
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
            assert client.delete(f"/connectors/{quote(name, safe='')}").status_code == 204


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
    assert http.get("/connectors/gen/tasks/1/status").json() == {
        "id": 1, "state": "RUNNING", "worker_id": "millstream", "version": "1.0",
    }  # fmt: skip
    changed = http.put("/connectors/gen/config", json={**CONFIG, "tasks.max": "1"})
    assert (changed.status_code, len(changed.json()["tasks"])) == (200, 1)
    expanded = http.get("/connectors?expand=status&expand=info").json()["gen"]
    assert (expanded["status"]["type"], expanded["info"]["config"]["tasks.max"]) == ("source", "1")


def states(http: httpx.Client, name: str) -> tuple[str, list[str]]:
    status = http.get(f"/connectors/{quote(name, safe='')}/status").json()
    return status["connector"]["state"], [task["state"] for task in status["tasks"]]


def offset_of(http: httpx.Client, name: str) -> list[object]:
    return [item["offset"] for item in http.get(f"/connectors/{name}/offsets").json()["offsets"]]


def test_offsets_of_a_source_are_changed_while_it_is_stopped(http: httpx.Client, service: Service) -> None:
    config = {**CONFIG, "kafka.topic": "moved", "tasks.max": "1"}
    http.post("/connectors", json={"name": "moved", "config": config})
    eventually(lambda: offset_of(http, "moved") == [{"next": 50}])
    wanted = {"offsets": [{"partition": {"task": 0}, "offset": {"next": 20}}]}
    refused = http.patch("/connectors/moved/offsets", json=wanted)
    assert (refused.status_code, "STOPPED state before" in refused.json()["message"]) == (400, True)
    assert http.delete("/connectors/moved/offsets").status_code == 400
    assert http.put("/connectors/moved/stop").status_code == 204
    assert states(http, "moved") == ("STOPPED", [])
    (listed,) = http.post("/ksql", json={"ksql": "SHOW CONNECTORS;"}).json()
    assert listed["connectors"][0]["state"] == "STOPPED (0/0 tasks RUNNING)"
    changed = http.patch("/connectors/moved/offsets", json=wanted)
    assert changed.json() == {"message": "The offsets for this connector have been altered successfully"}
    assert offset_of(http, "moved") == [{"next": 20}]
    assert http.put("/connectors/moved/resume").status_code == 202
    eventually(lambda: len(read_topic(service.engine.log, "moved")) == 80)
    assert http.put("/connectors/moved/stop").status_code == 204
    assert http.delete("/connectors/moved/offsets").status_code == 200
    assert offset_of(http, "moved") == []
    http.put("/connectors/moved/resume")
    eventually(lambda: len(read_topic(service.engine.log, "moved")) == 130)


def test_offsets_of_a_sink_are_those_of_the_log_or_of_its_tables(
    http: httpx.Client, service: Service, tmp_path: Path
) -> None:
    log = service.engine.log
    log.create_topic("sunk", 1)
    with Producer(log) as producer:
        for n in range(5):
            producer.send("sunk", b'{"n":%d}' % n, b"1")
    sink = {"connector.class": "http", "http.api.url": "http://127.0.0.1:1", "topics": "sunk"}
    http.post("/connectors", json={"name": "sunk", "config": sink, "initial_state": "STOPPED"})
    assert states(http, "sunk") == ("STOPPED", [])
    at = {"kafka_topic": "sunk", "kafka_partition": 0}
    body = {"offsets": [{"partition": at, "offset": {"kafka_offset": 3}}]}
    assert http.patch("/connectors/sunk/offsets", json=body).status_code == 200
    assert http.get("/connectors/sunk/offsets").json() == body
    assert http.delete("/connectors/sunk/offsets").status_code == 200
    assert http.get("/connectors/sunk/offsets").json() == {"offsets": []}
    table = {"connector.class": "sql", "connection.url": f"sqlite:///{tmp_path}/x.db", "topics": "sunk"}
    http.post("/connectors", json={"name": "table", "config": table, "initial_state": "STOPPED"})
    refused = http.patch("/connectors/table/offsets", json=body)
    assert (refused.status_code, "keeps its offsets with the rows" in refused.json()["message"]) == (400, True)


def test_a_stopped_connector_stays_stopped_after_a_restart_of_the_server(tmp_path: Path) -> None:
    for expected in ("begins", "goes on"):
        with (
            service_in(tmp_path) as service,
            httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client,
        ):
            if expected == "begins":
                client.post("/connectors", json={"name": "c", "config": CONFIG, "initial_state": "STOPPED"})
                client.post("/connectors", json={"name": "p", "config": CONFIG, "initial_state": "PAUSED"})
            assert states(client, "c") == ("STOPPED", [])
            eventually(lambda client=client: states(client, "p") == ("PAUSED", ["PAUSED", "PAUSED"]))
            assert client.put("/connectors/p/stop").status_code == 204
            assert client.put("/connectors/p/pause").status_code == 202


def test_only_tasks_that_failed_are_restarted(http: httpx.Client, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("no json\n")
    config = {"connector.class": "file", "file": str(file), "topic": "rows", "format": "ndjson"}
    http.post("/connectors", json={"name": "f", "config": config})
    eventually(lambda: states(http, "f") == ("RUNNING", ["FAILED"]))
    file.write_text('{"a": 1}\n')
    assert http.post("/connectors/f/restart?onlyFailed=true").status_code == 202
    assert states(http, "f") == ("RUNNING", ["FAILED"])
    answer = http.post("/connectors/f/restart?onlyFailed=true&includeTasks=true")
    assert (answer.status_code, answer.json()["name"]) == (202, "f")
    eventually(lambda: states(http, "f") == ("RUNNING", ["RUNNING"]))
    assert http.post("/connectors/f/restart?includeTasks=true").status_code == 202


@pytest.mark.parametrize("name", ["a/b", "/", "ü ñ 中 💥", "a%2Fb", "'; DROP", 'a"b', "a?b#c", ".."])
def test_a_name_is_anything_that_can_be_written(http: httpx.Client, name: str) -> None:
    assert http.post("/connectors", json={"name": name, "config": CONFIG}).status_code == 201
    path = "/connectors/" + quote(name, safe="").replace(".", "%2E")
    if name != "..":  # which this client takes for the folder above
        assert http.get(path).json()["name"] == name
        assert http.get(f"{path}/config").json()["name"] == name
        assert http.put(f"{path}/config", json={**CONFIG, "name": name}).status_code == 200
        assert http.put(f"{path}/pause").status_code == 202
        assert http.delete(path).status_code == 204
    else:
        assert http.post("/ksql", json={"ksql": "DROP CONNECTOR `..`;"}).status_code == 200
    assert http.get("/connectors").json() == []


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
        ("POST", "/connectors", {"name": "x", "config": {**CONFIG, "name": "y"}}, 400),
        ("POST", "/connectors", {"name": "x", "config": CONFIG, "initial_state": "TIRED"}, 400),
        ("POST", "/connectors", {"name": "x", "config": CONFIG, "initial_state": []}, 400),
        ("POST", "/connectors", {"name": "a\nb", "config": CONFIG}, 400),
        ("POST", "/connectors", {"name": "\0", "config": CONFIG}, 400),
        ("POST", "/connectors", {"name": " ", "config": CONFIG}, 400),
        ("POST", "/connectors", {"name": "x" * 256, "config": CONFIG}, 400),
        ("POST", "/connectors", [], 400),
        ("PUT", "/connectors/a%0Ab/config", CONFIG, 400),
        ("PUT", "/connectors/taken/config", {**CONFIG, "name": "y"}, 400),
        ("PATCH", "/connectors/taken/config", {"name": "y"}, 400),
        ("PATCH", "/connectors/taken/config", {f"k{n}": "v" for n in range(1500)}, 400),
        ("PUT", "/connectors/nope/stop", None, 404),
        ("PUT", "/connectors/taken/topics/reset", None, 403),
        ("PATCH", "/connectors/nope/offsets", {"offsets": [{"partition": {}, "offset": None}]}, 404),
        ("DELETE", "/connectors/nope/offsets", None, 404),
        ("POST", "/connectors/nope/restart?includeTasks=true", None, 404),
        ("PUT", "/connector-plugins/file/config/validate", CONFIG, 400),
    ],
)
def test_a_refusal_has_connects_code(http: httpx.Client, method: str, path: str, body: object, status: int) -> None:
    http.post("/connectors", json={"name": "taken", "config": CONFIG})
    answer = http.request(method, path, json=body)
    assert answer.status_code == status
    assert status == 405 or answer.json()["error_code"] == status
    assert answer.json()["message"]


@pytest.mark.parametrize(
    "body",
    [
        {}, {"offsets": []}, {"offsets": {}}, {"offsets": [1]}, {"offsets": [{"partition": {"task": "0"}}]},
        {"offsets": [{"partition": {"task": True}, "offset": {}}]}, {"offsets": [{"partition": {"task": -1}}]},
        {"offsets": [{"partition": [], "offset": {}}]}, {"offsets": [{"partition": {"task": 0}, "offset": 5}]},
        {"offsets": [{"partition": {"task": 0, "more": 1}, "offset": {}}]},
    ],
)  # fmt: skip
def test_offsets_that_cannot_be_are_refused(http: httpx.Client, body: object) -> None:
    http.post("/connectors", json={"name": "s", "config": CONFIG, "initial_state": "STOPPED"})
    answer = http.patch("/connectors/s/offsets", json=body)
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        ({"kafka_topic": "nope", "kafka_partition": 0}, None), ({"kafka_topic": "t", "kafka_partition": 9}, None),
        ({"kafka_topic": "t", "kafka_partition": "x"}, None), ({"kafka_topic": 1, "kafka_partition": 0}, None),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": -1}), ({"task": 0}, None),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 2**63}),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"offset": 1}),
    ],
)  # fmt: skip
def test_offsets_of_sinks_that_cannot_be_are_refused(
    http: httpx.Client, service: Service, partition: object, offset: object
) -> None:
    if service.engine.log.topic("t") is None:
        service.engine.log.create_topic("t", 1)
    sink = {"connector.class": "http", "http.api.url": "http://127.0.0.1:1", "topics": "t"}
    http.post("/connectors", json={"name": "s", "config": sink, "initial_state": "STOPPED"})
    answer = http.patch("/connectors/s/offsets", json={"offsets": [{"partition": partition, "offset": offset}]})
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)


def test_plugins_describe_and_check_their_settings(http: httpx.Client) -> None:
    plugins = [(plugin["class"], plugin["type"]) for plugin in http.get("/connector-plugins").json()]
    assert plugins == sorted(plugins)
    assert {("datagen", "source"), ("sql", "source"), ("sql", "sink"), ("iceberg", "sink")} <= set(plugins)
    for name, _ in plugins:
        settings = http.get(f"/connector-plugins/{name}/config").json()
        assert all(item["documentation"].endswith(".") for item in settings)
    secret = "hunter2"
    given = {
        "connector.class": "postgres",
        "database.port": "many",
        "database.password": secret,
        "tasks.max": "0",
        "name": "p",
    }
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
