"""The plugins with their settings, and the loggers."""

from __future__ import annotations

from typing import Any

import pytest

from .connect_server import SOURCE, ConnectServer, refused, shape

NAMES = [SOURCE, "FileStreamSourceConnector", "FileStreamSource"]
DEFINITION = {
    "name": "str", "type": "str", "required": "bool", "importance": "str", "documentation": "str",
    "order_in_group": "int", "width": "str", "display_name": "str", "dependents": "list",
}  # fmt: skip
TYPES = {"STRING", "INT", "LONG", "DOUBLE", "BOOLEAN", "LIST", "PASSWORD", "SHORT", "CLASS"}


def is_definition(found: dict[str, Any]) -> bool:
    told = {name: kind for name, kind in shape(found).items() if name not in ("group", "default_value")}
    return told == DEFINITION and found["type"] in TYPES and {"group", "default_value"} <= found.keys()


def test_the_plugins_are_listed(server: ConnectServer) -> None:
    plugins = server.http.get("/connector-plugins").json()
    assert shape(plugins) == [{"class": "str", "type": "str", "version": "str"}]
    assert {plugin["type"] for plugin in plugins} == {"source", "sink"}
    assert [plugin["class"] for plugin in plugins] == sorted(plugin["class"] for plugin in plugins)
    assert server.http.get("/connector-plugins?connectorsOnly=true").json() == plugins
    all_of_them = server.http.get("/connector-plugins?connectorsOnly=false").json()
    assert all(plugin in all_of_them for plugin in plugins)
    assert {plugin["type"] for plugin in all_of_them} >= {"source", "sink", "converter", "transformation"}


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_tells_its_settings(server: ConnectServer, name: str) -> None:
    answer = server.http.get(f"/connector-plugins/{name}/config")
    assert answer.status_code == 200
    settings = {item["name"]: item for item in answer.json()}
    assert all(is_definition(item) for item in settings.values())
    assert {"file", "topic", "name", "connector.class", "tasks.max"} <= settings.keys()
    assert (settings["topic"]["required"], settings["topic"]["default_value"]) == (True, None)
    refused(server.http.get("/connector-plugins/nope/config"), 404, "nope")


def validated(server: ConnectServer, name: str, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The whole answer, and what it says of each setting."""
    answer = server.http.put(f"/connector-plugins/{name}/config/validate", json=config)
    assert answer.status_code == 200, answer.text
    whole = answer.json()
    assert whole.keys() == {"name", "error_count", "groups", "configs"}
    assert whole["groups"][0] == "Common" and all(isinstance(group, str) for group in whole["groups"])
    values: dict[str, Any] = {}
    for each in whole["configs"]:
        assert each.keys() == {"definition", "value"} and is_definition(each["definition"])
        assert each["value"].keys() == {"name", "value", "recommended_values", "errors", "visible"}
        assert each["definition"]["name"] == each["value"]["name"]
        values[each["value"]["name"]] = each["value"]
    assert whole["error_count"] == sum(len(value["errors"]) for value in values.values())
    return whole, values


@pytest.mark.parametrize("name", NAMES)
def test_right_settings_are_validated(server: ConnectServer, name: str) -> None:
    whole, values = validated(server, name, {**server.source, "name": "c"})
    assert whole["error_count"] == 0
    assert {"name", "connector.class", "tasks.max", "key.converter", "value.converter", "transforms"} <= values.keys()
    assert (values["topic"]["value"], values["tasks.max"]["value"], values["name"]["value"]) == ("lines", "1", "c")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"topic": ...}, {"topic"}), ({"name": ...}, {"name"}), ({"tasks.max": "many"}, {"tasks.max"}),
        ({"tasks.max": "0", "topic": ..., "name": ...}, {"tasks.max", "topic", "name"}),
        ({"errors.tolerance": "some"}, {"errors.tolerance"}), ({"unheard": "of"}, set()), ({"tasks.max": 2}, set()),
    ],
)  # fmt: skip
def test_the_errors_are_told_for_each_setting(
    server: ConnectServer, change: dict[str, object], wrong: set[str]
) -> None:
    given = {**server.source, "name": "c", **change}
    _, values = validated(server, NAMES[2], {name: value for name, value in given.items() if value is not ...})
    assert {name for name, value in values.items() if value["errors"]} == wrong
    for name in wrong:
        assert any(name in error for error in values[name]["errors"])


def test_the_class_must_be_that_of_the_path(server: ConnectServer) -> None:
    for given in ("nope", "FileStreamSink" if server.kind == "kafka" else "http"):
        config = {**server.source, "connector.class": given}
        answer = server.http.put(f"/connector-plugins/{NAMES[2]}/config/validate", json=config)
        refused(answer, 400, f"Included connector type {given} does not match request type {NAMES[2]}")
    config = {name: value for name, value in server.source.items() if name != "connector.class"}
    answer = server.http.put(f"/connector-plugins/{SOURCE}/config/validate", json=config)
    assert answer.status_code == server.gives("settings without a class")
    answer = server.http.put("/connector-plugins/nope/config/validate", json={"connector.class": "nope"})
    refused(answer, server.gives("a plugin that is not there"), "nope")


def test_the_loggers_have_levels(server: ConnectServer) -> None:
    loggers = server.http.get("/admin/loggers").json()
    assert loggers and all(
        item.keys() == {"level", "last_modified"} and isinstance(item["level"], str) for item in loggers.values()
    )
    assert server.http.get("/admin/loggers/root").json() == loggers["root"]
    assert loggers["root"]["last_modified"] is None or isinstance(loggers["root"]["last_modified"], int)
    refused(server.http.get("/admin/loggers/no.such.logger"), 404, "no.such.logger")


def test_a_level_is_changed(server: ConnectServer) -> None:
    first = server.http.get("/admin/loggers/root").json()["level"]
    for query, level in (("", "fatal"), ("?scope=worker", "ERROR"), ("?scope=moon", "Fatal")):
        answer = server.http.put(f"/admin/loggers/root{query}", json={"level": level})
        assert answer.status_code == 200
        assert shape(answer.json()) == ["str"] and "root" in answer.json()
        changed = server.http.get("/admin/loggers/root").json()
        assert changed["level"] == level.upper() and isinstance(changed["last_modified"], int)
    assert server.http.put("/admin/loggers/root", json={"level": "FATAL"}).json() == []
    answer = server.http.put("/admin/loggers/root?scope=cluster", json={"level": first})
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("body", [{}, {"level": None}])
def test_a_level_is_needed(server: ConnectServer, body: object) -> None:
    answer = server.http.put("/admin/loggers/root", json=body)
    refused(answer, 400, "Desired 'level' parameter was not specified in request.")


def test_an_unknown_level_is_not_found(server: ConnectServer) -> None:
    refused(server.http.put("/admin/loggers/root", json={"level": "LOUD"}), 404, "LOUD")
