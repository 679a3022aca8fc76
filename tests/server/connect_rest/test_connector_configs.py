"""The settings of connectors: POST, PUT and PATCH, and what is refused."""

from __future__ import annotations

import pytest

from .connect_server import ConnectServer, refused

JSON = {"content-type": "application/json"}
NO_REQUESTS = ["", "{", "null", "5"]
"""Bodies for which nothing is asked."""


def test_put_creates_and_replaces(server: ConnectServer) -> None:
    created = server.http.put("/connectors/c/config", json=server.source)
    assert created.status_code == 201
    assert created.headers["location"] == str(server.http.base_url.join("/connectors/c"))
    assert created.json()["config"] == {**server.source, "name": "c"}
    server.wait_for("/connectors/c", "RUNNING")
    config = {**server.source, "tasks.max": 3, "errors.log.enable": True, "name": "c"}
    replaced = server.http.put("/connectors/c/config", json=config)
    assert replaced.status_code == 200 and "location" not in replaced.headers
    info = replaced.json()
    assert info.keys() == {"name", "config", "tasks", "type"}
    assert info["config"] == {**server.source, "tasks.max": "3", "errors.log.enable": "true", "name": "c"}
    assert server.http.get("/connectors/c/config").json() == info["config"]
    assert server.http.put("/connectors/c/config", json=server.source).json()["config"] == created.json()["config"]


def test_patch_changes_some_settings_and_null_takes_one_away(server: ConnectServer) -> None:
    path = server.create("c")
    whole = {**server.source, "name": "c"}
    patched = server.http.patch(f"{path}/config", json={"tasks.max": "2", "errors.log.enable": False})
    assert (patched.status_code, patched.json()["config"]) == (
        200, {**whole, "tasks.max": "2", "errors.log.enable": "false"},
    )  # fmt: skip
    patched = server.http.patch(f"{path}/config", json={"errors.log.enable": None, "tasks.max": None})
    assert patched.status_code == 200
    assert server.http.get(f"{path}/config").json() == {n: v for n, v in whole.items() if n != "tasks.max"}
    assert server.http.patch(f"{path}/config", json={"nothing": None}).status_code == 200
    assert server.http.patch(f"{path}/config", json={}).status_code == 200
    for change in ({"topic": None}, {"tasks.max": "many"}, {"tasks.max": "0"}):
        refused(server.http.patch(f"{path}/config", json=change), 400, next(iter(change)))
    assert server.http.get(f"{path}/config").json() == {n: v for n, v in whole.items() if n != "tasks.max"}


def test_patch_keeps_the_name(server: ConnectServer) -> None:
    path = server.create("c", state="STOPPED")
    assert server.http.patch(f"{path}/config", json={"name": "c"}).status_code == 200
    answer = server.http.patch(f"{path}/config", json={"name": "d"})
    assert answer.status_code == server.gives("another name by PATCH")


def test_settings_that_nobody_declares(server: ConnectServer) -> None:
    answer = server.http.put("/connectors/c/config", json={**server.source, "unheard": 7})
    assert (answer.status_code, answer.json()["config"]["unheard"]) == (201, server.gives("an unknown setting"))
    answer = server.http.put("/connectors/c/config", json={**server.source, "unheard": None})
    assert answer.status_code == server.gives("a null that nobody declares")


WRONG = "Connector configuration is invalid and contains the following"


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"topic": ...}, "topic"), ({"tasks.max": "0"}, "tasks.max"), ({"tasks.max": "many"}, "tasks.max"),
        ({"errors.tolerance": "some"}, "errors.tolerance"), ({"topic": ..., "tasks.max": "-1"}, "topic"),
        ({"topic": ..., "tasks.max": "-1"}, "tasks.max"),
    ],
)  # fmt: skip
def test_wrong_settings_are_all_told(server: ConnectServer, change: dict[str, object], names: str) -> None:
    config = {name: value for name, value in {**server.source, **change}.items() if value is not ...}
    answers = (
        server.http.post("/connectors", json={"name": "c", "config": config}),
        server.http.put("/connectors/c/config", json=config),
    )
    for answer in answers:
        refused(answer, 400, names)
        first, *errors, last = answer.json()["message"].splitlines()
        assert first.startswith(WRONG) and first.endswith(" error(s):")
        assert len(errors) >= len(change)
        assert last.endswith("`/connector-plugins/{connectorType}/config/validate`")
    assert server.names() == []


@pytest.mark.parametrize("config", [{}, {"topic": "t"}, {"connector.class": "no.such.Class"}])
def test_a_class_is_needed(server: ConnectServer, config: dict[str, str]) -> None:
    names = config.get("connector.class", "connector")
    refused(server.http.post("/connectors", json={"name": "c", "config": config}), 400, names)
    refused(server.http.put("/connectors/c/config", json=config), 400, names)


def test_the_names_must_agree(server: ConnectServer) -> None:
    message = "Connector name configuration (b) doesn't match connector name in the URL (a)"
    config = {**server.source, "name": "b"}
    refused(server.http.post("/connectors", json={"name": "a", "config": config}), 400, message)
    refused(server.http.put("/connectors/a/config", json=config), 400, message)


@pytest.mark.parametrize("name", [..., None, "", "  ", "a\nb", "\0"])
def test_a_name_is_needed(server: ConnectServer, name: object) -> None:
    body = {"config": server.source} if name is ... else {"name": name, "config": server.source}
    refused(server.http.post("/connectors", json=body), 400, "name")


@pytest.mark.parametrize("content", [*NO_REQUESTS, "[]", '{"name": "c"}', '{"name": "c", "config": null}',
                                     '{"name": "c", "config": []}', '{"name": "c", "config": {"topic": ["t"]}}',
                                     '{"name": "c", "config": {"topic": {"t": 1}}}'])  # fmt: skip
def test_what_is_no_new_connector_is_refused(server: ConnectServer, content: str) -> None:
    answer = server.http.post("/connectors", content=content, headers=JSON)
    refused(answer, server.gives("a body that is no such request"))


@pytest.mark.parametrize(
    "more", [{"initial_state": "TIRED"}, {"initial_state": 5}, {"initial_state": []}, {"extra": 1}]
)
def test_what_a_new_connector_has_besides_is_refused(server: ConnectServer, more: dict[str, object]) -> None:
    answer = server.http.post("/connectors", json={"name": "c", "config": server.source, **more})
    refused(answer, server.gives("a body that is no such request"), next(iter(more)) if "extra" in more else "")


@pytest.mark.parametrize("content", [*NO_REQUESTS, "[]", '{"topic": ["t"]}', '{"topic": {"t": 1}}'])
def test_what_are_no_settings_is_refused(server: ConnectServer, content: str) -> None:
    path = server.create("c", state="STOPPED")
    for method, place in (
        ("PUT", f"{path}/config"), ("PATCH", f"{path}/config"),
        ("PUT", "/connector-plugins/FileStreamSource/config/validate"),
    ):  # fmt: skip
        answer = server.http.request(method, place, content=content, headers=JSON)
        refused(answer, server.gives("a body that is no such request"))
    assert server.http.get(f"{path}/config").json() == {**server.source, "name": "c"}
