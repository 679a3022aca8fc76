"""Statements about connectors: what they answer, what a restart brings back, and that no secret is seen anywhere."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from connectors import read_topic
from running_server import service_in
from waiting import eventually

from millstream.errors import InvalidStatement, MillstreamError, StatementError
from millstream.executor.connect.connector_errors import InvalidConnector
from millstream.executor.connect.task_positions import read_position
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.server.handlers.connectors import ConnectorExists, UnknownConnector

DUCKDB = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}
GENERATOR = """CREATE SOURCE CONNECTOR gen WITH ('connector.class'='datagen', 'quickstart'='users',
    'kafka.topic'='users', 'max.interval'=0, 'iterations'=100, 'key.converter'='string');"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with open_engine(tmp_path, DUCKDB, sync="never") as opened:
        yield opened


def run(engine: EmbeddedEngine, text: str) -> list[dict[str, Any]]:
    return [entity.as_json() for entity in engine.execute(text, Session())]


def records(engine: EmbeddedEngine, name: str) -> int:
    return sum(task.records for task in engine.connectors.status(name).tasks)


def state(engine: EmbeddedEngine, name: str) -> str:
    (task, *_) = engine.connectors.status(name).tasks
    return task.state


def test_a_generator_fills_a_topic_that_a_table_reads(engine: EmbeddedEngine) -> None:
    run(engine, GENERATOR)
    eventually(lambda: records(engine, "GEN") == 100)
    users = (
        "CREATE TABLE users (userid STRING PRIMARY KEY, gender STRING) WITH (kafka_topic='users', value_format='JSON')"
    )
    run(engine, f"{users};")
    (row,) = engine.query("SELECT COUNT(*) FROM users;", Session())
    assert list(row.values) == [9]
    (described,) = run(engine, "DESCRIBE CONNECTOR gen;")
    assert (described["@type"], described["connectorClass"], described["guarantee"]) == (
        "connector_description", "datagen", "transactional",
    )  # fmt: skip
    assert described["topics"] == ["users"]
    assert [source["name"] for source in described["sources"]] == ["USERS"]
    assert described["status"]["tasks"] == [{"id": 0, "state": "RUNNING", "worker_id": "millstream"}]
    assert described["taskFigures"][0]["records"] == 100


def test_the_answers_have_ksqldbs_shapes(engine: EmbeddedEngine) -> None:
    (created,) = run(engine, GENERATOR)
    assert created["@type"] == "connector_info"
    assert created["info"]["type"] == "source"
    assert created["info"]["tasks"] == [{"connector": "GEN", "task": 0}]
    (listed,) = run(engine, "SHOW CONNECTORS;")
    line = {"name": "GEN", "type": "source", "className": "datagen", "state": "RUNNING (1/1 tasks RUNNING)"}
    assert listed["connectors"] == [line]
    assert run(engine, "SHOW SINK CONNECTORS;")[0]["connectors"] == []
    (plugins,) = run(engine, "SHOW CONNECTOR PLUGINS;")
    assert plugins["@type"] == "connector_plugins_list"
    assert {"datagen", "file"} <= {plugin["className"] for plugin in plugins["connectorPlugins"]}
    (dropped,) = run(engine, "DROP CONNECTOR gen;")
    assert (dropped["@type"], dropped["connectorName"]) == ("drop_connector", "GEN")
    assert run(engine, "DROP CONNECTOR IF EXISTS gen;")[0]["@type"] == "warning_entity"


def test_a_restart_brings_connectors_back_where_they_were(tmp_path: Path) -> None:
    with open_engine(tmp_path, DUCKDB, sync="never") as engine:
        run(engine, GENERATOR)
        eventually(lambda: records(engine, "GEN") == 100)
        run(
            engine,
            GENERATOR.replace(" gen ", " other ").replace("'users', 'm", "'others', 'm") + "PAUSE CONNECTOR other;",
        )
    with open_engine(tmp_path, DUCKDB, sync="never") as engine:
        eventually(lambda: state(engine, "OTHER") == "PAUSED")
        run(engine, "ALTER CONNECTOR gen WITH ('iterations'=130);")
        eventually(lambda: records(engine, "GEN") == 30)
        assert len(read_topic(engine.log, "users")) == 130
        run(engine, "RESUME CONNECTOR other;")
        eventually(lambda: len(read_topic(engine.log, "others")) == 100)


def test_a_dropped_connector_begins_anew(engine: EmbeddedEngine) -> None:
    run(engine, GENERATOR)
    eventually(lambda: records(engine, "GEN") == 100)
    run(engine, "DROP CONNECTOR gen;")
    assert read_position(engine.log, "GEN", 0) is None
    run(engine, GENERATOR)
    eventually(lambda: len(read_topic(engine.log, "users")) == 200)


def test_a_failed_task_says_why_and_restart_tries_again(engine: EmbeddedEngine, tmp_path: Path) -> None:
    file = tmp_path / "rows.ndjson"
    file.write_text('{"a": 1}\nno json\n')
    run(
        engine,
        f"""CREATE SOURCE CONNECTOR f WITH ('connector.class'='file', 'file'='{file}', 'topic'='rows',
            'format'='ndjson');""",
    )
    eventually(lambda: state(engine, "F") == "FAILED")
    assert run(engine, "SHOW CONNECTORS;")[0]["connectors"][0]["state"] == "FAILED (0/1 tasks RUNNING)"
    trace = run(engine, "DESCRIBE CONNECTOR f;")[0]["status"]["tasks"][0]["trace"]
    assert "the line at offset 9 of" in trace and "errors.tolerance" in trace
    file.write_text('{"a": 1}\n{"a": 2}\n')
    run(engine, "RESTART CONNECTOR f;")
    eventually(lambda: len(read_topic(engine.log, "rows")) == 2)


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("CREATE SOURCE CONNECTOR c WITH ('connector.class'='datagn');", InvalidConnector, "there is no connector"),
        ("CREATE SOURCE CONNECTOR c WITH ('a'='b');", InvalidConnector, "connector.class is missing"),
        ("CREATE SINK CONNECTOR c WITH ('connector.class'='datagen', 'quickstart'='users', 'kafka.topic'='t');",
         InvalidStatement, "datagen is a source connector"),
        (GENERATOR.replace(" WITH (", " WITH ('tasks.max'='many', "), InvalidConnector, 'tasks.max is "many"'),
        ("CREATE SOURCE CONNECTOR c WITH ('connector.class'='datagen', 'quickstart'='users');", InvalidConnector,
         "kafka.topic is missing"),
        ("DESCRIBE CONNECTOR nope;", UnknownConnector, "Connector NOPE does not exist"),
        ("PAUSE CONNECTOR nope;", UnknownConnector, "Connector NOPE does not exist"),
        (GENERATOR * 2, ConnectorExists, "Connector GEN already exists"),
    ],
)  # fmt: skip
def test_a_wrong_statement_is_refused(
    engine: EmbeddedEngine, sql: str, error: type[StatementError], message: str
) -> None:
    with pytest.raises(error) as caught:
        run(engine, sql)
    assert message in caught.value.message


def test_an_error_points_at_the_setting_and_a_typing_error_is_warned_of(engine: EmbeddedEngine) -> None:
    text = GENERATOR.replace("'max.interval'=0", "'max.interval'='soon'")
    with pytest.raises(InvalidConnector) as caught:
        run(engine, text)
    assert caught.value.span is not None
    assert text[caught.value.span.start : caught.value.span.end] == "'max.interval'='soon'"
    (created,) = run(engine, GENERATOR.replace("'iterations'", "'iteration'='1', 'iterations'"))
    assert created["warnings"] == [{"message": 'iteration has no effect. Did you mean "iterations"?'}]
    misspelled = {"errors.tolerence": "errors.tolerance", "transfroms": "transforms", "key.convertor": "key.converter"}
    for number, (written, meant) in enumerate(misspelled.items()):
        named = GENERATOR.replace("CONNECTOR gen ", f"CONNECTOR gen{number} ")
        (created,) = run(engine, named.replace("'iterations'", f"'{written}'='x', 'iterations'"))
        assert created["warnings"] == [{"message": f'{written} has no effect. Did you mean "{meant}"?'}]


def test_a_setting_by_its_earlier_name_has_its_effect_and_is_shown(engine: EmbeddedEngine) -> None:
    (created,) = run(
        engine,
        """CREATE SOURCE CONNECTOR c WITH ('connector.class'='postgres', 'database.hostname'='127.0.0.1',
            'database.port'='1', 'database.user'='u', 'database.dbname'='d', 'database.server.name'='shop',
            'table.whitelist'='public.t');""",
    )
    assert created["warnings"] == []
    assert created["info"]["config"]["table.whitelist"] == "public.t"
    engine.log.create_topic("shop.public.t", 1)
    (described,) = run(engine, "DESCRIBE CONNECTOR c;")
    assert described["topics"] == ["shop.public.t"]


@pytest.mark.parametrize(
    ("format_", "converter"),
    [
        ("AVRO", "io.confluent.connect.avro.AvroConverter"),
        ("PROTOBUF", "io.confluent.connect.protobuf.ProtobufConverter"),
        ("JSON_SR", "io.confluent.connect.json.JsonSchemaConverter"),
    ],
)
def test_a_table_with_a_schema_goes_into_a_database(
    engine: EmbeddedEngine, tmp_path: Path, format_: str, converter: str
) -> None:
    """As statements that come from ksqlDB have it; and a row that its HAVING no longer takes is deleted."""
    run(
        engine,
        f"""CREATE STREAM visits (page STRING, paid DECIMAL(8, 2), day DATE)
            WITH (kafka_topic='visits', value_format='JSON', partitions=1);
        CREATE TABLE pages WITH (kafka_topic='pages', key_format='{format_}', value_format='{format_}', partitions=1) AS
            SELECT page, COUNT(*) AS n, SUM(paid) AS paid, LATEST_BY_OFFSET(day) AS day FROM visits
            GROUP BY page HAVING SUM(paid) < 10;
        CREATE SINK CONNECTOR out WITH ('connector.class'='io.confluent.connect.jdbc.JdbcSinkConnector',
            'connection.url'='sqlite:///{tmp_path}/out.db', 'topics'='pages', 'auto.create'=true, 'pk.fields'='PAGE',
            'pk.mode'='record_key', 'insert.mode'='upsert', 'delete.enabled'=true,
            'key.converter'='{converter}', 'key.converter.schema.registry.url'='http://schema-registry:8081',
            'value.converter'='{converter}', 'value.converter.schema.registry.url'='http://schema-registry:8081');
        INSERT INTO visits VALUES ('a', 1.50, '2026-11-30'); INSERT INTO visits VALUES ('b', 9.99, NULL);""",
    )

    def rows() -> list[tuple[Any, ...]]:
        (task,) = engine.connectors.status("OUT").tasks
        assert task.state == "RUNNING", task.error
        with contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as database:
            try:
                return database.execute("SELECT PAGE, N, CAST(PAID AS TEXT), DAY FROM pages ORDER BY PAGE").fetchall()
            except sqlite3.OperationalError:
                return []

    eventually(lambda: len(rows()) == 2, 120)
    first, second = rows()
    assert first[:3] == ("a", 1, "1.5") and second == ("b", 1, "9.99", None if format_ != "PROTOBUF" else second[3])
    assert str(first[3]) in ("2026-11-30", "20787")
    run(engine, "INSERT INTO visits VALUES ('b', 0.01, NULL); INSERT INTO visits VALUES ('a', 0.25, NULL);")
    eventually(lambda: [row[:3] for row in rows()] == [("a", 2, "1.75")])


# ------------------------------------------------------------------ secrets


LITERAL, FROM_FILE, FROM_ENVIRONMENT = "hunter2-literal", "hunter2-file", "hunter2-environment"
MISTYPED = "hunter2-mistyped"


def test_no_secret_is_seen_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Everything that a server answers and writes."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"other=x\nkey={FROM_FILE}\n")
    monkeypatch.setenv("CONNECT_TEST_PASSWORD", FROM_ENVIRONMENT)
    seen: list[str] = []
    with service_in(tmp_path / "data") as service, httpx.Client(base_url=f"http://{service.http_address}") as client:

        def ask(ksql: str) -> None:
            answer = client.post("/ksql", json={"ksql": ksql})
            seen.append(answer.text)

        # The topic is refused in the task, by an error that has its name in it.
        generator = (
            "SOURCE CONNECTOR {} WITH ('connector.class'='datagen', 'quickstart'='users', 'kafka.topic'='{}', {});"
        )
        for number, value in enumerate((f"${{file:{secrets}:key}}", "${env:CONNECT_TEST_PASSWORD}")):
            ask("CREATE " + generator.format(f"s{number}", f"_millstream-{value}", "'max.interval'='0'"))
        literals = f"'some.password'='{LITERAL}', 'connection.url'='postgresql://ana:{LITERAL}@db/x'"
        ask("CREATE " + generator.format("lit", "t", f"'pasword'='{MISTYPED}', {literals}"))
        for wrong in (
            f"CREATE SOURCE CONNECTOR w WITH ('connector.class'='nope', 'password'='{LITERAL}');",
            f"CREATE SOURCE CONNECTOR w WITH ('connector.class'='datagen', 'password' '{LITERAL}');",
            f"CREATE SOURCE CONNECTOR w WITH ('password'='{LITERAL}', );",
            f"CREATE SOURCE CONNECTOR w WITH ('password'='{LITERAL}",
            f"ALTER CONNECTOR lit WITH ('tasks.max'='none', 'password'='{LITERAL}');",
            f"ALTER CONNECTOR lit WITH ('tasks.max'='1', 'password'='{LITERAL}');",
            "SHOW CONNECTORS; DESCRIBE CONNECTOR lit; DESCRIBE CONNECTOR s0; DESCRIBE CONNECTOR s1;",
        ):
            ask(wrong)
        for name in ("S0", "S1"):
            eventually(lambda name=name: service.engine.connectors.status(name).tasks[0].state == "FAILED")
        ask("DESCRIBE CONNECTOR s0; DESCRIBE CONNECTOR s1;")
        rest = {"connector.class": "datagen", "quickstart": "users", "kafka.topic": "t", "a.password": LITERAL}
        for config in (rest, {**rest, "tasks.max": "none"}, {**rest, "connector.class": "nope"}):
            seen.append(client.put("/connectors/rest/config", json=config).text)
        seen += [client.get(f"/connectors/rest{path}").text for path in ("", "/config", "/status", "/tasks")]
        seen += [client.get(path).text for path in ("/metrics", "/status", "/graph", "/clusterStatus")]
        for info in service.engine.catalog.connectors.values():
            seen.append(info.statement)
    assert "********" in seen[0] + seen[-1] + "".join(seen)
    out = capfd.readouterr()
    everything = json.dumps(seen) + out.out + out.err
    for secret in (LITERAL, FROM_FILE, FROM_ENVIRONMENT, MISTYPED):
        at = everything.find(secret)
        assert at < 0, everything[max(0, at - 300) : at + 100]
    assert "is reserved" in everything
    written = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert not [secret for secret in (LITERAL, FROM_FILE, FROM_ENVIRONMENT, MISTYPED) if secret.encode() in written]


def test_a_reference_that_leads_nowhere_fails_the_task_and_names_the_setting(engine: EmbeddedEngine) -> None:
    run(engine, GENERATOR.replace("'users', 'm", "'${env:NOT_SET_ANYWHERE}', 'm"))
    status = engine.connectors.status("GEN")
    assert status.state == "FAILED"
    assert status.error is not None
    assert "kafka.topic refers to the environment variable NOT_SET_ANYWHERE" in status.error
    with pytest.raises(MillstreamError):
        run(engine, "ALTER CONNECTOR gen WITH ('connector.class'='nope');")


def test_a_topic_that_cannot_exist_fails_the_task_at_once(engine: EmbeddedEngine) -> None:
    run(engine, GENERATOR.replace("'users', 'm", "'no topic', 'm"))
    eventually(lambda: state(engine, "GEN") == "FAILED")
    (task,) = engine.connectors.status("GEN").tasks
    assert "no topic" in (task.error or "") and task.restarts == 0
