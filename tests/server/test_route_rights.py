"""What each route of HTTP and of the schema registry needs: every route of both tables has a row here, and is asked by
nobody, by a user without rights on what it is about, by one with them, and by an administrator."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pyarrow as pa
import pytest
from running_server import service_in
from starlette.routing import BaseRoute, Match

from millstream.server.http.app import http_routes
from millstream.server.http.context import HttpContext
from millstream.server.http.routes import PATHS
from millstream.server.registry.registry_app import schema_registry_app
from millstream.server.rest_proxy.proxy_paths import PROXY_PATHS
from millstream.server.security.access import hash_token
from millstream.server.service import Service

USERS = {"nobody": None, "stranger": ["else"], "owner": ["own"], "root": ["admin"]}
ACCESS = {
    "users": {name: {"tokens": [hash_token(name)], "roles": roles} for name, roles in USERS.items() if roles},
    "roles": {
        "else": {"read": ["else*"], "insert": ["else*"], "ddl": ["else*"]},
        "own": {verb: ["own*"] for verb in ("read", "insert", "ddl", "group")},
        "admin": {"admin": True},
    },
}
DDL = """
CREATE STREAM own (id INT KEY, v INT) WITH (kafka_topic='own', value_format='JSON', partitions=1);
CREATE STREAM own_q AS SELECT * FROM own;
CREATE STREAM hidden (id INT KEY, v INT) WITH (kafka_topic='hidden', value_format='JSON', partitions=1);
CREATE STREAM hidden_q AS SELECT * FROM hidden WHERE v = 4712;
"""
UNAUTHORIZED, FORBIDDEN = 401, 403


class Row(NamedTuple):
    """`body`: JSON, text or Arrow. `shows`: the answer has what its reader may see of the catalog."""

    body: Any = None
    shows: bool = False


PROXY = {doc.path for doc in PROXY_PATHS}
ROWS: dict[str, Row] = {
    "/ksql": Row({"ksql": "INSERT INTO own VALUES (1, 2);"}),
    "/query": Row({"ksql": "SELECT * FROM own EMIT CHANGES LIMIT 0;"}),
    "/query-stream": Row({"sql": "SELECT * FROM own EMIT CHANGES LIMIT 0;"}),
    "/v1/reading": Row({"sql": "SELECT * FROM own;"}),
    "/close-query": Row({"queryId": "nowhere"}),
    "/inserts-stream": Row('{"target": "own"}\n{"id": 1}\n'),
    "/v1/sources/{name}/rows": Row(pa.table({"ID": pa.array([1], pa.int32())})),
    "/ws/query": Row(),
    **{path: Row() for path in (
        "/", "/info", "/healthcheck", "/health", "/chc/live", "/chc/ready", "/livez", "/readyz",
        "/openapi.json", "/v1/metadata",
        "/v1/metadata/id", "/is_valid_property/{name}", "/status/{type}/{entity}/{action}",
        "/console", "/console/{file}", "/v1/topics/{name}", "/v1/topics/{name}/records", "/v1/access", "/v1/subjects",
        "/queries/{id}/positions",
    )},
    **{path: Row(shows=True) for path in ("/metrics", "/graph", "/status", "/clusterStatus")},
    "/v1/subjects/{name}": Row(),
    "/mcp": Row({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list"}}),
    "/v1/complete": Row({"sql": "SELECT "}),
    "/cluster": Row(),
    **{f"/cluster/{name}": Row({}) for name in (
        "plan", "reassign", "cancel", "replication", "throttle", "elect",
        "add-node", "promote-node", "demote-node", "remove-node", "upgrade")},
    "/v1/snapshots": Row({}),
    **{f"/v1/snapshots/{{id}}/{name}": Row({}) for name in ("release", "remove", "hashes", "chunk")},
    "/connectors": Row({"name": "none", "config": {}}),
    "/connectors/{name}": Row(),
    "/connectors/{name}/config": Row({}),
    **{f"/connectors/{{name}}/{what}": Row() for what in (
        "status", "topics", "topics/reset", "offsets", "tasks", "tasks/{task}/status", "tasks/{task}/restart",
        "pause", "resume", "restart", "stop")},
    "/admin/loggers": Row(),
    "/admin/loggers/{name}": Row({"level": "nothing"}),
    "/connector-plugins": Row(),
    "/connector-plugins/{name}/config": Row(),
    "/connector-plugins/{name}/config/validate": Row({}),
    "/hooks/{name}": Row({}),
    "/heartbeat": Row({"hostInfo": {"host": "h", "port": 1}, "timestamp": 1}),
    "/lag": Row({"ksqlHost": {"host": "h", "port": 1}, "hostStoreLags": {}}),
    "/ksql/terminate": Row({"deleteTopicList": 1}),
    **{path: Row({}) for path in PROXY},
}  # fmt: skip
NAMES = {
    "{cluster_id}": "none",
    "{topic_name}": "own",
    "{partition_id}": "0",
    "{broker_id}": "1",
    "{consumer_group_id}": "own",
    "{consumer_id}": "none",
    "{topic}": "own",
    "{partition}": "0",
    "{group}": "own",
    "{instance}": "none",
    "{task}": "0",
    "{id}": "none",
    "{name}": "OWN",
    "{type}": "stream",
    "{entity}": "OWN",
    "{action}": "create",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    flags = {"access": ACCESS, "schema_registry": "127.0.0.1:0", "mcp": True}
    with service_in(tmp_path_factory.mktemp("data"), **flags) as started:
        with client(started, "root") as root:
            assert root.post("/ksql", json={"ksql": DDL}).status_code == 200
        yield started


def client(service: Service, user: str, *, registry: bool = False) -> httpx.Client:
    """Trusts nobody, for it speaks no TLS: to read whom it trusts takes longer than the request."""
    headers = {} if USERS[user] is None else {"authorization": f"Bearer {user}"}
    address = service.schema_registry_address if registry else service.http_address
    return httpx.Client(base_url=f"http://{address}", timeout=60, headers=headers, verify=False)


def answer(service: Service, user: str, method: str, path: str, body: Any) -> httpx.Response:
    for name, value in NAMES.items():
        path = path.replace(name, value)
    with client(service, user) as asking:
        if isinstance(body, pa.Table):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, body.schema) as writer:
                writer.write_table(body)
            headers = {"content-type": "application/vnd.apache.arrow.stream"}
            return asking.request(method, path, content=sink.getvalue().to_pybytes(), headers=headers)
        text = body if isinstance(body, str) else None
        return asking.request(method, path, content=text, json=None if text is not None else body)


def test_every_route_has_a_row() -> None:
    assert {doc.path for doc in PATHS} == ROWS.keys()


def answering(app: list[BaseRoute], method: str, path: str) -> BaseRoute | None:
    """The route that is asked for such a path."""
    kind = "websocket" if path == "/ws/query" else "http"
    scope = {"type": kind, "method": method.upper(), "path": re.sub(r"{\w+}", "x", path), "root_path": ""}
    return next((route for route in app if route.matches(scope)[0] is Match.FULL), None)


def test_the_table_of_paths_and_the_app_have_the_same_routes(service: Service) -> None:
    context = HttpContext(service.engine, "c", 1000)
    app = http_routes(context, None)
    found = {(doc.method, doc.path): answering(app, doc.method, doc.path) for doc in PATHS}
    context.close()
    assert {asked for asked, route in found.items() if route is None} == set(), "nothing answers"
    reached = set(map(id, found.values()))
    assert [route for route in app if id(route) not in reached] == [], "not in the table"


@pytest.mark.parametrize("doc", PATHS, ids=lambda doc: doc.path)
def test_a_route_lets_in_who_has_what_it_needs(service: Service, doc: Any) -> None:
    if doc.path == "/ws/query":
        pytest.skip("in test_http_access: web sockets close, and have no status")
    allowed = {
        "nothing": ["nobody", "stranger", "owner", "root"],
        "user": ["stranger", "owner", "root"],
        "statement": ["owner", "root"],
        "insert": ["owner", "root"],
        "admin": ["root"],
    }[doc.needs]
    row = ROWS[doc.path]
    for user in USERS:
        status = answer(service, user, doc.method.upper(), doc.path, row.body).status_code
        if user in allowed:
            assert status not in (UNAUTHORIZED, FORBIDDEN), user
        else:
            assert status == (UNAUTHORIZED if user == "nobody" else FORBIDDEN), user


@pytest.mark.parametrize("path", [path for path, row in ROWS.items() if row.shows])
def test_a_route_shows_what_its_reader_may_read(service: Service, path: str) -> None:
    seen = {user: answer(service, user, "GET", path, None).text.upper() for user in ("stranger", "owner", "root")}
    assert {user: ("OWN_Q" in text, "HIDDEN" in text) for user, text in seen.items()} == {
        "stranger": (False, False),
        "owner": (True, False),
        "root": (True, True),
    }


def test_a_series_of_metrics_is_shown_by_its_labels(service: Service) -> None:
    """Who is no administrator sees no label that nobody has thought about, and all of what names no object."""
    lines = {user: set(answer(service, user, "GET", "/metrics", None).text.splitlines()) for user in ("owner", "root")}
    series = {
        user: {line.rpartition(" ")[0] for line in told if "http_request" not in line} for user, told in lines.items()
    }
    missing = series["root"] - series["owner"]
    own = ('query="CSAS_OWN', 'topic="own', 'topic="OWN')
    assert not [each for each in missing if "group=" not in each and any(label in each for label in own)]
    of_objects = [series for series in missing if any(f'{label}="' in series for label in ("topic", "query", "group"))]
    assert sorted(missing) == sorted(of_objects)


def test_the_status_of_a_hidden_command_is_that_of_none(service: Service) -> None:
    for name in ("HIDDEN", "NOWHERE"):
        found = answer(service, "owner", "GET", f"/status/stream/{name}/create", None)
        assert (found.status_code, found.json()["message"]) == (404, f"Command stream/{name}/create not found")
    assert answer(service, "root", "GET", "/status/stream/HIDDEN/create", None).status_code == 200


def test_the_status_of_a_past_command_is_for_its_user(service: Service) -> None:
    dropped = answer(service, "root", "POST", "/ksql", {"ksql": "DROP STREAM IF EXISTS gone;"}).json()[0]["commandId"]
    assert dropped == "stream/`GONE`/drop"
    for user, status in (("owner", 404), ("root", 200)):
        assert answer(service, user, "GET", f"/status/{dropped}", None).status_code == status
        known = answer(service, user, "GET", "/status", None).json()["commandStatuses"]
        assert (dropped in known) is (user == "root")


def test_a_push_query_is_ended_by_whose_it_is(service: Service) -> None:
    """Somebody else's is not there."""
    for ender, status in (("stranger", 400), ("owner", 200), ("root", 200)):
        with (
            client(service, "owner") as owner,
            owner.stream("POST", "/query-stream", json={"sql": "SELECT * FROM own EMIT CHANGES;"}) as rows,
        ):
            lines = rows.iter_lines()
            query_id = json.loads(next(lines))["queryId"]
            ended = answer(service, ender, "POST", "/close-query", {"queryId": query_id})
            assert ended.status_code == status
            if status == 200:
                list(lines)
            else:
                assert ended.json()["message"] == f"No query with id {query_id}"


def test_reading_a_topic_is_not_enough_to_write_to_it(service: Service) -> None:
    """Each of these passed where a stream of one's own lay over the topic of another."""
    with client(service, "root") as root:
        made = "CREATE STREAM own_over (id INT KEY, v INT) WITH (kafka_topic='hidden', value_format='JSON');"
        assert root.post("/ksql", json={"ksql": made}).status_code == 200
    before = service.engine.log.offsets("hidden", 0).log_end_offset
    for sql in (
        "INSERT INTO own_over VALUES (1, 2);", "DROP STREAM own_over DELETE TOPIC;",
        "INSERT INTO own_over SELECT * FROM own;",
        "CREATE STREAM own_x WITH (kafka_topic='hidden') AS SELECT * FROM own;",
    ):  # fmt: skip
        refused = answer(service, "owner", "POST", "/ksql", {"ksql": sql})
        assert refused.status_code == FORBIDDEN
        assert "hidden" not in refused.json()["message"] or "hidden" in sql
    inserted = answer(service, "owner", "POST", "/inserts-stream", '{"target": "own_over"}\n{"id": 1}\n')
    rows = answer(service, "owner", "POST", "/v1/sources/OWN_OVER/rows", ROWS["/v1/sources/{name}/rows"].body)
    query = answer(service, "owner", "POST", "/query", {"ksql": "SELECT * FROM own_over EMIT CHANGES LIMIT 0;"})
    assert [each.status_code for each in (inserted, rows, query)] == [FORBIDDEN] * 3
    assert service.engine.log.offsets("hidden", 0).log_end_offset == before


# ------------------------------------------------------------------ the schema registry


SCHEMA = {"schema": json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]})}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/subjects/{subject}"): SCHEMA,
    ("POST", "/subjects/{subject}/versions"): SCHEMA,
    ("POST", "/compatibility/subjects/{subject}/versions"): SCHEMA,
    ("POST", "/compatibility/subjects/{subject}/versions/{version}"): SCHEMA,
    ("PUT", "/config"): {"compatibility": "NONE"},
    ("PUT", "/config/{subject}"): {"compatibility": "NONE"},
    ("PUT", "/mode"): {"mode": "READWRITE"},
    ("PUT", "/mode/{subject}"): {"mode": "READWRITE"},
}
WHO = {
    "nothing": ["stranger", "owner", "root"],
    "seen": ["stranger", "owner", "root"],
    "subject": ["owner", "root"],
    "insert": ["owner", "root"],
    "ddl": ["owner", "root"],
    "admin": ["root"],
}


def registry_routes(service: Service) -> list[tuple[str, str, str]]:
    app: Any = schema_registry_app(service.engine.schemas, service.engine.lock)
    return [(method, route.path, route.name) for route in app.routes for method in route.methods - {"HEAD"}]


def test_a_route_of_the_registry_asks_for_the_subjects_topic(service: Service) -> None:
    for method, path, asks in registry_routes(service):
        allowed = WHO["admin" if asks == "ddl" and "{subject}" not in path else asks]
        for user in USERS:
            with client(service, user, registry=True) as asking, client(service, "root", registry=True) as root:
                assert root.post("/subjects/own-value/versions", json=SCHEMA).status_code == 200
                asked = path.replace("{subject}", "own-value").replace("{version}", "1").replace("{id}", "1")
                status = asking.request(method, asked, json=BODIES.get((method, path))).status_code
            if user == "nobody":
                assert status == UNAUTHORIZED, (method, path)
            else:
                assert (status == FORBIDDEN) == (user not in allowed), (method, path, user, status)


def test_a_schema_of_others_is_not_there(service: Service) -> None:
    other = {"schema": json.dumps({"type": "record", "name": "hush", "fields": [{"name": "a", "type": "int"}]})}
    with client(service, "root", registry=True) as root, client(service, "owner", registry=True) as owner:
        id = root.post("/subjects/hidden-value/versions", json=other).json()["id"]
        root.post("/subjects/own-value/versions", json=SCHEMA)
        assert root.get("/subjects").json() == ["hidden-value", "own-value"]
        assert owner.get("/subjects").json() == ["own-value"]
        assert "hush" in root.get("/schemas").text
        assert "hush" not in owner.get("/schemas").text
        for path in ("", "/schema", "/subjects", "/versions"):
            assert root.get(f"/schemas/ids/{id}{path}").status_code == 200
            assert owner.get(f"/schemas/ids/{id}{path}").json()["error_code"] == 40403
        reference = {"references": [{"name": "hush", "subject": "hidden-value", "version": 1}]}
        assert owner.post("/subjects/own-value/versions", json={**SCHEMA, **reference}).status_code == FORBIDDEN


def test_tools_of_mcp_see_what_their_user_may_read(service: Service) -> None:
    def tool(user: str, tool_name: str, /, **arguments: Any) -> tuple[bool, str]:
        params = {"name": tool_name, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        result = answer(service, user, "POST", "/mcp", message).json()["result"]
        return result["isError"], result["content"][0]["text"]

    for user, own, hidden in (("stranger", False, False), ("owner", True, False), ("root", True, True)):
        for arguments in ({}, {"what": "topics"}):
            failed, text = tool(user, "list", **arguments)
            assert (failed, "OWN_Q" in text, "hidden" in text.lower()) == (False, own, hidden)
        for source, seen in (("own_q", own), ("hidden_q", hidden)):
            for name, asked in (
                ("query", {"sql": f"SELECT * FROM {source};"}),
                ("explain", {"statement": f"SELECT * FROM {source};"}),
                ("describe", {"name": source}), ("lineage", {"name": source}), ("stall", {"query": source}),
            ):  # fmt: skip
                failed, text = tool(user, name, **asked)
                assert failed is not seen, (user, name, source, text)
                assert seen or "4712" not in text


def test_subjects_are_those_of_topics_that_their_reader_may_read(service: Service) -> None:
    with client(service, "root") as root:
        for name in ("own", "hidden"):
            options = f"kafka_topic='{name}_avro', value_format='AVRO', partitions=1"
            made = f"CREATE STREAM {name}_avro (v INT) WITH ({options});"
            assert root.post("/ksql", json={"ksql": made}).status_code == 200
    for user, names in (("stranger", set[str]()), ("owner", {"own"}), ("root", {"own", "hidden"})):
        found = answer(service, user, "GET", "/v1/subjects", None).json()["subjects"]
        assert {subject["name"] for subject in found} >= {f"{name}_avro-value" for name in names}
        assert ("hidden" in str(found)) is ("hidden" in names)
        for name in ("own", "hidden"):
            one = answer(service, user, "GET", f"/v1/subjects/{name}_avro-value", None)
            assert one.status_code == (200 if name in names else FORBIDDEN)
    missing = answer(service, "root", "GET", "/v1/subjects/none-value", None)
    assert (missing.status_code, missing.json()["message"]) == (404, 'the registry has no subject "none-value"')
