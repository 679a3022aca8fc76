"""`ksql.connect.url`: the statements about connectors drive another server, which speaks Kafka Connect's REST API.

That server is another Millstream here. tests/logcore/suites/test_kafka_connect.py does the same with a worker of Apache
Kafka Connect.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from connect_statements import live_of_a_connector
from connectors import read_topic
from running_server import service_in
from scripted_worker import Answer, Asked, scripted_worker
from waiting import eventually

from bench.apache_kafka import free_ports
from millstream.errors import InvalidProperty, InvalidStatement, MillstreamError, StatementError
from millstream.server.config.server_settings import ServerSettings
from millstream.server.connect.connect_client import ConnectRefused, ConnectUnavailable
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.server.handlers.connectors import ConnectorExists, UnknownConnector
from millstream.server.service import Service

DUCKDB = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}
GENERATOR = """CREATE SOURCE CONNECTOR gen WITH ('connector.class'='datagen', 'quickstart'='users',
    'kafka.topic'='users', 'max.interval'=0, 'iterations'=100, 'key.converter'='string');"""
SECRET = "hunter2-hunter2"


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("worker")) as started:
        yield started


@pytest.fixture
def engine(worker: Service, tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with driving(tmp_path, f"http://{worker.http_address}") as opened:
        yield opened
    with httpx.Client(base_url=f"http://{worker.http_address}") as http:
        for name in http.get("/connectors").json():
            http.delete(f"/connectors/{name}")


@contextlib.contextmanager
def driving(folder: Path, url: str, **properties: str) -> Generator[EmbeddedEngine]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    with open_engine(folder, {**DUCKDB, "ksql.connect.url": url, **named}, sync="never") as opened:
        yield opened


def run(engine: EmbeddedEngine, text: str) -> list[dict[str, Any]]:
    return [entity.as_json() for entity in engine.execute(text, Session())]


def test_statements_drive_the_other_server(engine: EmbeddedEngine, worker: Service) -> None:
    config = {"connector.class": "datagen", "quickstart": "users", "kafka.topic": "users", "iterations": "100",
              "max.interval": "0", "key.converter": "string"}  # fmt: skip
    live_of_a_connector(engine, config, ("iterations", "130"), kind="SOURCE")
    assert engine.catalog.connectors == {}
    assert worker.engine is not None
    assert len(read_topic(worker.engine.log, "users")) in (100, 130)


def test_describe_finds_the_streams_on_its_topics_and_explain_says_why_it_moves_nothing(
    engine: EmbeddedEngine, worker: Service, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.ndjson"
    lines.write_text('{"a": 1}\nno json\n')
    run(engine, "CREATE STREAM rows (a INT) WITH (kafka_topic='rows', value_format='JSON', partitions=1);")
    run(
        engine,
        f"""CREATE SOURCE CONNECTOR f WITH ('connector.class'='file', 'file'='{lines}', 'topic'='rows',
            'format'='ndjson');""",
    )

    def described() -> dict[str, Any]:
        return run(engine, "DESCRIBE CONNECTOR f;")[0]

    eventually(lambda: described()["status"]["tasks"][0]["state"] == "FAILED")
    assert [source["name"] for source in described()["sources"]] == ["ROWS"]
    assert described()["connectorClass"] == "file"
    assert "the line at offset 9" in described()["status"]["tasks"][0]["trace"]
    (stall,) = run(engine, "EXPLAIN STALL CONNECTOR f;")
    assert stall["stalled"] and stall["causes"][0]["code"] == "FAILED"
    assert run(engine, "SHOW SOURCE CONNECTORS;")[0]["connectors"][0]["state"] == "FAILED (0/1 tasks RUNNING)"


def test_what_the_other_server_refuses_points_at_the_statement(engine: EmbeddedEngine) -> None:
    with pytest.raises(ConnectRefused, match=r"Failed to create connector: [^'\"]*\nquickstart") as refused:
        run(engine, GENERATOR.replace("users'", "nope'", 1))
    assert refused.value.status == 400
    with pytest.raises(InvalidStatement, match="datagen is a source connector"):
        run(engine, GENERATOR.replace("SOURCE", "SINK"))
    for statement in ("DROP", "PAUSE", "RESUME", "RESTART", "DESCRIBE", "EXPLAIN STALL"):
        with pytest.raises(UnknownConnector, match="Connector NOPE does not exist"):
            run(engine, f"{statement} CONNECTOR nope;")
    with pytest.raises(UnknownConnector):
        run(engine, "ALTER CONNECTOR nope WITH ('iterations'=1);")
    with pytest.raises(UnknownConnector) as local_only:
        run(engine, "RESNAPSHOT CONNECTOR nope;")
    assert "ksql.connect.url" in (local_only.value.hint or "")


def test_connectors_that_were_here_before_stay_and_the_routes_are_theirs(worker: Service, tmp_path: Path) -> None:
    old = GENERATOR.replace(" gen ", " old ")
    with service_in(tmp_path) as service:
        httpx.post(f"http://{service.http_address}/ksql", json={"ksql": old}, timeout=60).raise_for_status()
    flags = {"properties": {"ksql.connect.url": f"http://{worker.http_address}"}}
    with service_in(tmp_path, **flags) as service, httpx.Client(base_url=f"http://{service.http_address}") as http:

        def answered(text: str) -> Any:
            return http.post("/ksql", json={"ksql": text}, timeout=60).json()[0]

        answered(GENERATOR)
        listed = answered("SHOW CONNECTORS;")["connectors"]
        assert [line["name"] for line in listed] == ["GEN", "OLD"]
        assert http.get("/connectors").json() == ["OLD"]
        assert httpx.get(f"http://{worker.http_address}/connectors").json() == ["GEN"]
        assert service.engine is not None
        with pytest.raises(ConnectorExists):
            service.engine.execute(old, Session())
        answered("DROP CONNECTOR old;")
        assert http.get("/connectors").json() == []
        answered("DROP CONNECTOR gen;")


def test_a_server_may_drive_itself(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    flags = {"http": f"127.0.0.1:{port}", "properties": {"ksql.connect.url": f"http://127.0.0.1:{port}"}}
    with service_in(tmp_path, **flags) as service:
        answer = httpx.post(f"http://{service.http_address}/ksql", json={"ksql": GENERATOR}, timeout=60)
        assert answer.json()[0]["@type"] == "connector_info"
        assert httpx.get(f"http://{service.http_address}/connectors").json() == ["GEN"]


# ------------------------------------------------------------------ bad times

INFO = {"name": "C", "config": {"connector.class": "X", "name": "C"}, "tasks": [], "type": "source"}
REBALANCE = {"error_code": 409, "message": "Cannot complete request because of a conflicting operation (e.g. worker "
             "rebalance)"}  # fmt: skip
CREATE = f"CREATE SOURCE CONNECTOR c WITH ('connector.class'='X', 'db.password'='{SECRET}', 'odd'='{SECRET}-2');"


def test_a_rebalance_is_waited_out_and_the_other_worker_is_asked_where_one_is_away(tmp_path: Path) -> None:
    answers = iter([(503, b""), (409, REBALANCE), (409, REBALANCE), (201, INFO)])

    def answer(asked: Asked) -> Answer:
        return next(answers) if asked.method == "POST" else (404, {})

    with scripted_worker(answer) as gone:
        pass
    with scripted_worker(answer) as worker, driving(tmp_path, f"{gone.url}, {worker.url}/") as engine:
        assert run(engine, CREATE)[0]["@type"] == "connector_info"
        assert worker.paths().count("POST /connectors") == 4
        assert json.loads(worker.asked[-2].body)["config"]["db.password"] == SECRET


def test_a_request_whose_answer_is_lost_is_repeated_only_if_that_does_no_harm(tmp_path: Path) -> None:
    with (
        scripted_worker(lambda asked: None) as deaf,
        scripted_worker(lambda asked: (200, {})) as worker,
        driving(tmp_path, f"{deaf.url},{worker.url}") as engine,
    ):
        with pytest.raises(ConnectUnavailable, match="got the request and did not answer") as failed:
            run(engine, "DROP CONNECTOR c;")
        assert "SHOW CONNECTORS" in (failed.value.hint or "")
        assert worker.asked == []
        assert run(engine, "PAUSE CONNECTOR c;")[0]["commandStatus"]["status"] == "SUCCESS"
        assert worker.paths() == ["PUT /connectors/C/pause"]
        run(engine, "PAUSE CONNECTOR c;")
        assert deaf.paths() == ["DELETE /connectors/C", "PUT /connectors/C/pause"]  # the one that answers comes first


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((200, b"<html>"), "does not answer as Kafka Connect does"),
        ((302, b""), "answers with the status 302"),
        ((500, {"error_code": 500, "message": "Request timed out"}), "Failed to list connectors: Request timed out"),
        ((200, b"[" * (17 << 20)), "more than 16 MiB"),
        ((401, b""), "status 401"),
    ],
)
def test_an_odd_answer_is_an_error_that_says_so(tmp_path: Path, answer: Answer, says: str) -> None:
    with scripted_worker(lambda asked: answer) as worker, driving(tmp_path, worker.url) as engine:
        with pytest.raises(MillstreamError, match=says):
            run(engine, "SHOW CONNECTORS;")
        assert run(engine, "SHOW STREAMS;")


def test_a_connector_that_is_too_new_to_have_a_status_is_there(tmp_path: Path) -> None:
    """A worker of Apache Kafka Connect leaves it out of the list with statuses."""
    new = {"/connectors": ["C"], "/connectors?expand=status&expand=info": {}, "/connectors/C": INFO}

    def answer(asked: Asked) -> Answer:
        return (200, new[asked.path]) if asked.path in new else (404, {"error_code": 404, "message": "No status"})

    with scripted_worker(answer) as worker, driving(tmp_path, worker.url) as engine:
        (line,) = run(engine, "SHOW CONNECTORS;")[0]["connectors"]
        assert line == {"name": "C", "type": "source", "className": "X", "state": "UNASSIGNED (0/0 tasks RUNNING)"}
        assert run(engine, "DESCRIBE CONNECTOR c;")[0]["status"]["connector"] == {"state": "UNASSIGNED"}


def test_a_slow_worker_holds_nobody_up(tmp_path: Path) -> None:
    def slow(asked: Asked) -> Answer:
        time.sleep(0.5)
        return 200, {}

    timeout = {"ksql_connect_request_timeout_ms": "100"}
    with scripted_worker(slow) as worker, driving(tmp_path, worker.url, **timeout) as engine:
        with pytest.raises(ConnectUnavailable, match=r"cannot be reached at .*timed out"):
            run(engine, "SHOW CONNECTORS;")


def test_user_and_password_come_from_the_file_and_are_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "connect.properties"
    file.write_text("# of the cluster\nusername=ana\npassword: a=b:c\n")
    auth = {"ksql_connect_basic_auth_credentials_source": "FILE", "ksql_connect_basic_auth_credentials_file": str(file)}
    with scripted_worker(lambda asked: (204, b"")) as worker, driving(tmp_path / "data", worker.url, **auth) as engine:
        run(engine, "PAUSE CONNECTOR c;")
        file.write_text("username=bob\npassword=c\n")
        run(engine, "PAUSE CONNECTOR c;")
        sent = [asked.headers["authorization"] for asked in worker.asked]
        assert sent == [httpx.BasicAuth("ana", "a=b:c")._auth_header, httpx.BasicAuth("bob", "c")._auth_header]
        file.write_text(f"password={SECRET}\n")
        with pytest.raises(ConnectUnavailable, match="needs the lines username=… and password=…") as refused:
            run(engine, "SHOW CONNECTORS;")
        assert SECRET not in refused.value.render()


@pytest.mark.parametrize(
    "properties",
    [
        {"ksql.connect.url": f"http://ana:{SECRET}@host:8083"},
        {"ksql.connect.url": f"http://host:8083?token={SECRET}"},
        {"ksql.connect.url": "host:8083"},
        {"ksql.connect.url": "http://h:1", "ksql.connect.basic.auth.credentials.source": "FILE"},
        {"ksql.connect.url": "http://h:1", "ksql.connect.basic.auth.credentials.source": "URL"},
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidProperty) as refused:
        ServerSettings.of(properties)
    assert "ksql.connect" in refused.value.message
    assert SECRET not in refused.value.render()


def test_a_stall_of_a_sink_with_a_pattern_of_java_is_explained(tmp_path: Path) -> None:
    info = {**INFO, "type": "sink", "config": {"connector.class": "X", "topics.regex": r"\p{Alpha}+"}}
    running = {"state": "RUNNING", "worker_id": "w:1"}
    status = {"name": "C", "connector": running, "tasks": [{"id": 0, **running}], "type": "sink"}

    def answer(asked: Asked) -> Answer:
        return 200, status if asked.path.endswith("/status") else info

    with scripted_worker(answer) as worker, driving(tmp_path, worker.url) as engine:
        (stall,) = run(engine, "EXPLAIN STALL CONNECTOR c;")
    assert stall["state"] == "RUNNING"


def test_alter_never_writes_back_the_stars_of_a_worker_that_hides_secrets(tmp_path: Path) -> None:
    known = {"connector.class": "X", "name": "C", "db.password": "********", "topics": "t"}

    def answer(asked: Asked) -> Answer:
        match asked.method:
            case "PATCH":
                return 405, {"error_code": 405, "message": "HTTP 405 Method Not Allowed"}
            case "GET":
                return 200, known
            case _:
                return 200, {**INFO, "config": known}

    with scripted_worker(answer) as worker, driving(tmp_path, worker.url) as engine:
        with pytest.raises(StatementError, match=r"the worker hides the value of db\.password"):
            run(engine, "ALTER CONNECTOR c WITH ('topics'='u');")
        assert not [asked for asked in worker.asked if asked.method == "PUT"]
        run(engine, f"ALTER CONNECTOR c WITH ('topics'='u', 'db.password'='{SECRET}');")
        (put,) = [asked for asked in worker.asked if asked.method == "PUT"]
        assert json.loads(put.body) == {**known, "topics": "u", "db.password": SECRET}


def test_no_secret_is_answered_logged_or_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also where the worker repeats it in an error or in a trace, a part of it as well."""
    jaas, url = f'Plain required username="ana" password="{SECRET}-3";', f"jdbc://ana:{SECRET}-4@host/db"
    config = {
        "connector.class": "X", "name": "C", "db.password": SECRET, "odd": f"{SECRET}-2", "plain": "pln-7",
        "nothing": None, "sasl.jaas.config": jaas.replace(SECRET, "jaas-9"), "url": url.replace(SECRET, "url-9"),
    }  # fmt: skip
    failed = {"state": "FAILED", "worker_id": "w:1",
              "trace": f"java.sql.SQLException: password {SECRET} is wrong, nor jaas-9-3, url-9-4, pln-7"}  # fmt: skip
    status = {"name": "C", "connector": failed, "tasks": [{"id": 0, **failed}], "type": "source"}
    definitions = [{"name": name, "type": "PASSWORD"} for name in ("db.password", "plain")]

    def answer(asked: Asked) -> Answer:
        match asked.method, asked.path:
            case "GET", "/connectors/C/config":
                return 200, config
            case "GET", "/connectors/C":
                return 200, {**INFO, "config": config}
            case "GET", "/connectors/C/status":
                return 200, status
            case "GET", "/connector-plugins/X/config":
                return 200, definitions
            case "GET", _:
                return 404, {}
            case "PATCH", _:
                return 400, {"error_code": 400, "message": f"Invalid value {SECRET} for configuration db.password"}
            case _:
                return 201, {**INFO, "config": config}

    said: list[str] = []
    with scripted_worker(answer) as worker, driving(tmp_path, worker.url) as engine:
        for statement in (CREATE, "DESCRIBE CONNECTOR c;", "EXPLAIN STALL CONNECTOR c;"):
            said.append(json.dumps(run(engine, statement)))
        for statement in ("ALTER CONNECTOR c WITH ('a'='b');", f"ALTER CONNECTOR c WITH ('db.password'='{SECRET}');"):
            with pytest.raises(
                StatementError, match=r"Failed to alter connector: Invalid value .* for conf"
            ) as refused:
                run(engine, statement)
            said.append(refused.value.render())
    assert "password ******** is wrong" in said[1]
    assert not any(part in each for each in said for part in ("jaas-9", "url-9", "pln-7"))
    said += [capfd.readouterr().out, capfd.readouterr().err]
    said += [file.read_bytes().decode(errors="replace") for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(SECRET in each for each in said)
    assert SECRET in worker.asked[1].body.decode()
