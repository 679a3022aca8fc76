"""A connector from POST to DELETE: its description, its states, its tasks, its offsets."""

from __future__ import annotations

from typing import Any

import pytest
from waiting import eventually

from .connect_server import ConnectServer, path_of, refused, shape


def test_the_root_tells_the_version(server: ConnectServer) -> None:
    answer = server.http.get("/")
    assert answer.status_code == server.gives("the root")
    assert answer.status_code == 308 or answer.json().keys() == {"version", "commit", "kafka_cluster_id"}


def test_it_is_healthy(server: ConnectServer) -> None:
    answer = server.http.get("/health")
    assert (answer.status_code, shape(answer.json())) == (200, {"status": "str", "message": "str"})
    assert answer.json()["status"] == "healthy"


def test_a_created_connector_has_a_place_and_is_described(server: ConnectServer) -> None:
    answer = server.http.post("/connectors", json={"name": "c", "config": server.source})
    assert answer.status_code == 201
    assert answer.headers["location"] == str(server.http.base_url.join("/connectors/c"))
    assert answer.headers["content-type"] == "application/json"
    info = {"name": "c", "config": {**server.source, "name": "c"}, "type": "source"}
    assert {name: value for name, value in answer.json().items() if name != "tasks"} == info
    server.wait_for("/connectors/c", "RUNNING")
    assert server.names() == ["c"]
    whole = {**info, "tasks": [{"connector": "c", "task": 0}]}
    assert server.http.get("/connectors/c").json() == whole
    assert server.http.get("/connectors/c/config").json() == info["config"]
    refused(server.http.post("/connectors", json={"name": "c", "config": server.source}), 409, "c already exists")
    removed = server.http.delete("/connectors/c")
    assert (removed.status_code, removed.content) == (204, b"")
    eventually(lambda: server.names() == [])
    refused(server.http.delete("/connectors/c"), 404, "Connector c")


def test_the_list_is_expanded(server: ConnectServer) -> None:
    path = server.create("c")
    info, status = server.http.get(path).json(), server.http.get(f"{path}/status").json()
    get = server.http.get
    assert get("/connectors?expand=info").json()["c"] == {"info": info}
    assert get("/connectors?expand=status").json()["c"] == {"status": status}
    assert get("/connectors?expand=status&expand=info").json()["c"] == {"status": status, "info": info}
    assert get("/connectors?expand=nothing").json()["c"] == {}


def test_status_and_tasks(server: ConnectServer) -> None:
    path = server.create("c")
    state = {"state": "str", "worker_id": "str", "version": "str"}
    status = server.http.get(f"{path}/status").json()
    assert shape(status) == {"name": "str", "connector": state, "tasks": [{"id": "int", **state}], "type": "str"}
    assert (status["name"], status["type"]) == ("c", "source")
    assert server.http.get(f"{path}/tasks/0/status").json() == status["tasks"][0]
    (task,) = server.http.get(f"{path}/tasks").json()
    assert task["id"] == {"connector": "c", "task": 0}
    assert {**server.source, "name": "c"}.items() <= task["config"].items()
    for call in (server.http.get(f"{path}/tasks/7/status"), server.http.post(f"{path}/tasks/7/restart")):
        refused(call, 404, "7")
    refused(server.http.get(f"{path}/tasks/x/status"), 404)
    refused(server.http.post(f"{path}/tasks/x/restart"), 404)


def test_states_are_changed(server: ConnectServer) -> None:
    path = server.create("c")
    for what, status, state in (
        ("pause", 202, "PAUSED"), ("pause", 202, "PAUSED"), ("resume", 202, "RUNNING"), ("stop", 204, "STOPPED"),
        ("stop", 204, "STOPPED"), ("resume", 202, "RUNNING"),
    ):  # fmt: skip
        answer = server.http.put(f"{path}/{what}")
        assert (what, answer.status_code, answer.content) == (what, status, b"")
        server.wait_for(path, state)


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED", "stopped", "RUNNING"])
def test_a_connector_begins_in_the_state_that_is_asked_for(server: ConnectServer, state: str) -> None:
    body = {"name": "c", "config": server.source, "initial_state": state}
    assert server.http.post("/connectors", json=body).status_code == 201
    server.wait_for("/connectors/c", state.upper())


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 204), ("?includeTasks=false", 204), ("?onlyFailed=false&includeTasks=false", 204),
        ("?onlyFailed=maybe", 204), ("?includeTasks=true", 202), ("?onlyFailed=true", 202),
        ("?onlyFailed=true&includeTasks=true", 202),
        ("?onlyFailed=false&includeTasks=true", 202),
    ],
)  # fmt: skip
def test_a_restart_answers_with_the_status_where_it_is_asked_about_tasks(
    server: ConnectServer, query: str, status: int
) -> None:
    path = server.create("c")
    answer = server.http.post(f"{path}/restart{query}")
    assert answer.status_code == status, answer.text
    if status == 202:
        body = answer.json()
        assert body.keys() == {"name", "connector", "tasks", "type"}
        assert all({"state", "worker_id", "version"} <= each.keys() for each in (body["connector"], *body["tasks"]))
        assert {body["connector"]["state"], *(task["state"] for task in body["tasks"])} <= {"RUNNING", "RESTARTING"}
    else:
        assert answer.content == b""
    server.wait_for(path, "RUNNING")


def test_a_task_is_restarted(server: ConnectServer) -> None:
    path = server.create("c")
    answer = server.http.post(f"{path}/tasks/0/restart")
    assert (answer.status_code, answer.content) == (204, b"")
    server.wait_for(path, "RUNNING")


def test_topics_are_those_of_its_records(server: ConnectServer) -> None:
    path = server.create("c")
    eventually(lambda: server.http.get(f"{path}/topics").json() == {"c": {"topics": ["lines"]}})
    refused(server.http.put(f"{path}/topics/reset"), 403, "Topic tracking reset is disabled.")
    stopped = server.create("s", sink=True, state="STOPPED")
    topics = server.gives("topics of a sink that never ran")
    assert server.http.get(f"{stopped}/topics").json() == {"s": {"topics": topics}}


def test_offsets_of_a_source_are_changed_while_it_is_stopped(server: ConnectServer) -> None:
    path = server.create("c")

    def offsets() -> list[Any]:
        return server.http.get(f"{path}/offsets").json()["offsets"]

    (first,) = eventually(offsets, otherwise="no offset is committed")
    assert shape({part: first[part] for part in ("partition", "offset")}).keys() == first.keys()
    assert isinstance(first["partition"], dict) and isinstance(first["offset"], dict)
    for call in (
        server.http.patch(f"{path}/offsets", json={"offsets": [first]}),
        server.http.delete(f"{path}/offsets"),
    ):
        refused(call, 400, "Connectors must be in the STOPPED state before their offsets can be modified.")
    server.http.put(f"{path}/stop")
    server.wait_for(path, "STOPPED")
    altered = {"message": "The offsets for this connector have been altered successfully"}
    reset = {"message": "The offsets for this connector have been reset successfully"}

    def changed(offset: object) -> Any:
        answer = server.http.patch(f"{path}/offsets", json={"offsets": [{**first, "offset": offset}]})
        assert answer.status_code == 200, answer.text
        return answer.json()

    last = offsets()
    assert changed(None) == altered
    assert offsets() == []
    assert changed(first["offset"]) == altered
    assert offsets() == [first] and last == [first]
    for _ in range(2):
        answer = server.http.delete(f"{path}/offsets")
        assert (answer.status_code, answer.json()) == (200, reset)
        assert offsets() == []


def test_an_offset_of_a_source_has_the_members_that_the_source_wrote(server: ConnectServer) -> None:
    path = server.create("c")
    (first,) = eventually(lambda: server.http.get(f"{path}/offsets").json()["offsets"])
    server.http.put(f"{path}/stop")
    server.wait_for(path, "STOPPED")
    (now,) = server.http.get(f"{path}/offsets").json()["offsets"]
    name, value = next(iter(now["offset"].items()))
    for wrong in ({}, {"other": value}, {name: None}, {name: str(value)}):
        answer = server.http.patch(f"{path}/offsets", json={"offsets": [{**first, "offset": wrong}]})
        refused(answer, server.gives("an offset that its source cannot read"), name)
    more = {**now["offset"], "more": 1}
    assert server.http.patch(f"{path}/offsets", json={"offsets": [{**first, "offset": more}]}).status_code == 200


def test_offsets_of_a_sink_are_changed_while_it_is_stopped(server: ConnectServer) -> None:
    path = server.create("s", sink=True, state="STOPPED")
    at = {"kafka_topic": "rows", "kafka_partition": 0}

    def changed(partition: object, offset: object) -> int:
        body = {"offsets": [{"partition": partition, "offset": offset}]}
        answer = server.http.patch(f"{path}/offsets", json=body)
        if answer.status_code != 200:
            refused(answer, answer.status_code)
        return answer.status_code

    def offsets() -> list[Any]:
        return server.http.get(f"{path}/offsets").json()["offsets"]

    assert offsets() == []
    assert changed(at, {"kafka_offset": 0}) == 200
    assert offsets() == [{"partition": at, "offset": {"kafka_offset": 0}}]
    assert changed({"kafka_topic": "rows", "kafka_partition": "0"}, {"kafka_offset": "3"}) == 200
    assert offsets() == [{"partition": at, "offset": {"kafka_offset": 3}}]
    for partition, offset in (
        (at, {"offset": 1}), ({"kafka_topic": "rows"}, {"kafka_offset": 1}), ({"kafka_partition": 0}, None),
        ({"kafka_topic": "rows", "kafka_partition": "zero"}, {"kafka_offset": 1}), (at, {"kafka_offset": "one"}),
    ):  # fmt: skip
        assert changed(partition, offset) == 400
    impossible = server.gives("an offset or a topic that cannot be")
    assert changed(at, {"kafka_offset": -1}) == impossible
    assert changed({"kafka_topic": "rows", "kafka_partition": 99}, {"kafka_offset": 1}) == impossible
    assert changed({"kafka_topic": "no-such", "kafka_partition": 0}, {"kafka_offset": 1}) == impossible
    assert offsets() == [{"partition": at, "offset": {"kafka_offset": 3}}]
    assert server.http.delete(f"{path}/offsets").status_code == 200
    assert offsets() == []


def test_offsets_of_a_removed_source(server: ConnectServer) -> None:
    path = server.create("removed")
    eventually(lambda: server.http.get(f"{path}/offsets").json()["offsets"])
    server.remove_all()
    server.create("removed", state="STOPPED")
    offsets = server.http.get(f"{path}/offsets").json()["offsets"]
    assert bool(offsets) is server.gives("offsets of a removed source")


@pytest.mark.parametrize("body", [{}, {"offsets": []}, {"offsets": None}])
def test_a_change_of_no_offset_is_refused(server: ConnectServer, body: object) -> None:
    path = server.create("c", state="STOPPED")
    refused(server.http.patch(f"{path}/offsets", json=body), 400, "Partitions / offsets need to be provided")


@pytest.mark.parametrize("body", ["", "{", "[]", '{"offsets": 5}', '{"offsets": [5]}', '{"offsets": [{"offset": {}}]}',
                                  '{"offsets": [{"partition": 5}]}', '{"offset": []}'])  # fmt: skip
def test_offsets_that_are_none_are_refused(server: ConnectServer, body: str) -> None:
    path = server.create("c", state="STOPPED")
    answer = server.http.patch(f"{path}/offsets", content=body, headers={"content-type": "application/json"})
    refused(answer, server.gives("a body that is no such request"))


@pytest.mark.parametrize("name", ["a b", "ü 中 💥", 'a"b', "a?b#c", "'--", "a.b", "a+b&c=d"])
def test_a_name_is_anything(server: ConnectServer, name: str) -> None:
    answer = server.http.post("/connectors", json={"name": name, "config": server.source})
    assert answer.status_code == 201
    path = path_of(name)
    server.wait_for(path, "RUNNING")
    assert server.http.get(answer.headers["location"]).json()["name"] == name
    assert server.http.get(f"{path}/config").json()["name"] == name
    assert server.http.put(f"{path}/config", json={**server.source, "name": name}).status_code == 200
    assert server.http.put(f"{path}/pause").status_code == 202
    assert server.names() == [name]
    assert server.http.delete(path).status_code == 204


@pytest.mark.parametrize("name", ["a/b", "a%2Fb"])
def test_a_name_may_have_a_slash(server: ConnectServer, name: str) -> None:
    body = {"name": name, "config": server.source, "initial_state": "STOPPED"}
    assert server.http.post("/connectors", json=body).status_code in (201, 409)  # nobody can remove Kafka's
    assert server.http.get(path_of(name)).status_code == server.gives("a name with a slash")


def test_a_name_has_no_spaces_around_it_and_may_be_a_number(server: ConnectServer) -> None:
    for given, name in ((" x ", "x"), (5, "5")):
        answer = server.http.post("/connectors", json={"name": given, "config": server.source})
        assert (answer.status_code, answer.json()["name"]) == (201, name)


def test_a_name_of_256_characters(server: ConnectServer) -> None:
    answer = server.http.post("/connectors", json={"name": "x" * 256, "config": server.source})
    assert answer.status_code == server.gives("a name of 256 characters")
