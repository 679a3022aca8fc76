"""Requests that reach no connector: unknown ones, unknown paths, methods, content types; and slashes at the end."""

from __future__ import annotations

import pytest

from .connect_server import ConnectServer, refused

OFFSETS = {"offsets": [{"partition": {"a": 1}, "offset": None}]}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None), ("DELETE", "", None), ("GET", "/config", None), ("PATCH", "/config", {"topic": "t"}),
        ("GET", "/status", None), ("GET", "/tasks", None), ("GET", "/tasks/0/status", None),
        ("POST", "/tasks/0/restart", None), ("POST", "/restart", None), ("POST", "/restart?includeTasks=true", None),
        ("PUT", "/pause", None), ("PUT", "/resume", None), ("PUT", "/stop", None), ("GET", "/offsets", None),
        ("PATCH", "/offsets", OFFSETS), ("DELETE", "/offsets", None),
    ],
)  # fmt: skip
def test_an_unknown_connector_is_not_found(server: ConnectServer, method: str, path: str, body: object) -> None:
    refused(server.http.request(method, f"/connectors/nope{path}", json=body), 404, "nope")


def test_topics_of_an_unknown_connector(server: ConnectServer) -> None:
    assert server.http.get("/connectors/nope/topics").status_code == server.gives("topics of an unknown connector")
    answer = server.http.put("/connectors/nope/topics/reset")
    refused(answer, server.gives("reset of an unknown connector's topics"))


@pytest.mark.parametrize("path", [
    "/connectors/c/nope", "/connectors/c/tasks/0", "/connectors/c/tasks/0/nope", "/connectors/c/tasks-config",
    "/connector-plugins/nope", "/connector-plugins/nope/config/nope", "/admin/loggers/millstream/nope",
])  # fmt: skip
def test_an_unknown_path_is_not_found(server: ConnectServer, path: str) -> None:
    refused(server.http.get(path), 404)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/connectors"), ("PATCH", "/connectors"), ("DELETE", "/connectors"), ("POST", "/connectors/c"),
        ("PUT", "/connectors/c"), ("PATCH", "/connectors/c"), ("DELETE", "/connectors/c/config"),
        ("POST", "/connectors/c/config"), ("GET", "/connectors/c/pause"), ("POST", "/connectors/c/pause"),
        ("POST", "/connectors/c/stop"), ("GET", "/connectors/c/restart"), ("PUT", "/connectors/c/restart"),
        ("PUT", "/connectors/c/offsets"), ("GET", "/connectors/c/topics/reset"), ("POST", "/connectors/c/status"),
        ("GET", "/connectors/c/tasks/0/restart"), ("DELETE", "/connector-plugins"), ("POST", "/admin/loggers"),
        ("DELETE", "/admin/loggers/root"), ("GET", "/connector-plugins/FileStreamSource/config/validate"),
    ],
)  # fmt: skip
def test_a_method_that_a_path_has_not(server: ConnectServer, method: str, path: str) -> None:
    refused(server.http.request(method, path), 405)


def test_head_is_get_without_a_body(server: ConnectServer) -> None:
    path = server.create("c")
    for each, status in (("/connectors", 200), (path, 200), ("/connectors/nope", 404)):
        answer = server.http.head(each)
        assert (answer.status_code, answer.content) == (status, b"")


@pytest.mark.parametrize("path", [
    "/connectors", "/connectors/c", "/connectors/c/config", "/connectors/c/status", "/connectors/c/tasks",
    "/connectors/c/tasks/0/status", "/connectors/c/topics", "/connectors/c/offsets", "/connector-plugins",
    "/connector-plugins/FileStreamSource/config", "/admin/loggers/root",
])  # fmt: skip
def test_a_slash_at_the_end_means_nothing(server: ConnectServer, path: str) -> None:
    server.create("c")
    answer = server.http.get(f"{path}/")
    assert answer.status_code == 200
    assert answer.json() == server.http.get(path).json() or path.endswith("offsets")


def test_a_slash_at_the_end_of_a_change_means_nothing(server: ConnectServer) -> None:
    assert server.http.post("/connectors/", json={"name": "c", "config": server.source}).status_code == 201
    assert server.http.put("/connectors/c/config/", json=server.source).status_code == 200
    assert server.http.put("/connectors/c/pause/").status_code == 202
    assert server.http.delete("/connectors/c/").status_code == 204


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "text/html"])
def test_a_body_of_another_type_is_not_read(server: ConnectServer, content_type: str) -> None:
    path = server.create("c", state="STOPPED")
    headers = {"content-type": content_type}
    for method, place in (
        ("POST", "/connectors"), ("PUT", f"{path}/config"), ("PATCH", f"{path}/config"), ("PATCH", f"{path}/offsets"),
        ("PUT", "/connector-plugins/FileStreamSource/config/validate"), ("PUT", "/admin/loggers/root"),
    ):  # fmt: skip
        refused(server.http.request(method, place, content="{}", headers=headers), 415)


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "application/vnd.kafka.v2+json", None])
def test_json_under_another_name(server: ConnectServer, content_type: str | None) -> None:
    body = {"name": "c", "config": server.source}
    request = server.http.build_request("POST", "/connectors", json=body)
    del request.headers["content-type"]
    if content_type is not None:
        request.headers["content-type"] = content_type
    assert server.http.send(request).status_code == server.gives("a type that is not JSON's name")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "APPLICATION/JSON"])
def test_json_is_read_whatever_its_parameters(server: ConnectServer, content_type: str) -> None:
    request = server.http.build_request("POST", "/connectors", json={"name": "c", "config": server.source})
    request.headers["content-type"] = content_type
    assert server.http.send(request).status_code == 201


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "text/plain, image/*"])
def test_who_accepts_no_json_gets_none(server: ConnectServer, accept: str) -> None:
    headers = {"accept": accept}
    for method, path in (("GET", "/connectors"), ("GET", "/connectors/nope"), ("PUT", "/connectors/nope/pause"),
                         ("GET", "/connector-plugins"), ("GET", "/admin/loggers")):  # fmt: skip
        refused(server.http.request(method, path, headers=headers), 406)
    answer = server.http.post("/connectors", json={"name": "c", "config": server.source}, headers=headers)
    refused(answer, 406)
    assert server.names() == []


@pytest.mark.parametrize("accept", ["*/*", "application/*", "text/html, */*;q=0.1", "text/html,application/json;q=0.5"])
def test_who_accepts_json_among_others_gets_it(server: ConnectServer, accept: str) -> None:
    answer = server.http.get("/connectors", headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
