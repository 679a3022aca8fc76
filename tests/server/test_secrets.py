"""CREATE SECRET: connectors get the value, and nothing else that the server says or writes has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from connectors import read_topic
from running_server import service_in
from waiting import eventually

from millstream.errors import InvalidStatement, MillstreamError, SqlSyntaxError
from millstream.executor.connect.connector_errors import InvalidConnector
from millstream.executor.connect.secret_vault import UnknownSecret
from millstream.logcore.log import open_log
from millstream.server.catalog.command_topic import COMMAND_TOPIC
from millstream.server.engine.embedded import EmbeddedEngine, embedded_on, engine_on, open_engine
from millstream.server.engine.session import Session
from millstream.server.handlers.secrets import SecretKeyUnusable

DUCKDB = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}
FILE_SOURCE = "CREATE SOURCE CONNECTOR f WITH ('connector.class'='file', 'topic'='rows', 'file'='${secret:place}');"
GENERATOR = """CREATE SOURCE CONNECTOR gen WITH ('connector.class'='datagen', 'quickstart'='users',
    'kafka.topic'='users', 'max.interval'=0, 'iterations'=10, 'key.converter'='string'MORE);"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with open_engine(tmp_path / "data", DUCKDB, sync="never") as opened:
        yield opened


def run(engine: Any, text: str) -> list[dict[str, Any]]:
    return [entity.as_json() for entity in engine.execute(text, Session())]


def message(answer: dict[str, Any]) -> str:
    return answer["commandStatus"]["message"]


def test_a_connector_gets_the_value_also_after_a_restart_and_a_new_one_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    with open_engine(tmp_path / "data", DUCKDB, sync="never") as engine:
        run(engine, f"CREATE SECRET place ('path'='{tmp_path}/a.txt'); {FILE_SOURCE}")
        eventually(lambda: len(read_topic(engine.log, "rows")) == 1)
    with open_engine(tmp_path / "data", DUCKDB, sync="never") as engine:
        assert run(engine, "SHOW SECRETS;")[0]["secrets"] == [{"name": "PLACE"}]
        (tmp_path / "a.txt").write_text("a\nmore\n")
        eventually(lambda: len(read_topic(engine.log, "rows")) == 2)
        (replaced,) = run(engine, f"CREATE OR REPLACE SECRET place (path = '{tmp_path}/b.txt');")
        assert message(replaced) == "Secret PLACE was replaced; F began anew with it"
        eventually(lambda: len(read_topic(engine.log, "rows")) == 3)


def test_statements_about_secrets_answer_as_those_about_types_do(engine: EmbeddedEngine) -> None:
    (created,) = run(engine, "CREATE SECRET IF NOT EXISTS pg WITH ('user'='ana', 'password'='hunter2');")
    assert (created["@type"], created["commandId"]) == ("currentStatus", "secret/`PG`/create")
    assert "hunter2" not in json.dumps(created)
    assert run(engine, "CREATE SECRET IF NOT EXISTS pg ('p'='hunter2');")[0]["@type"] == "warning_entity"
    with pytest.raises(InvalidStatement, match="Secret 'PG' already exists") as caught:
        run(engine, "CREATE SECRET pg ('p'='already');")
    assert "CREATE OR REPLACE SECRET" in (caught.value.hint or "")
    (dropped,) = run(engine, "DROP SECRET pg;")
    assert message(dropped) == "Dropped secret 'PG'"
    assert run(engine, "DROP SECRET IF EXISTS pg;")[0]["@type"] == "warning_entity"
    with pytest.raises(UnknownSecret, match="Secret PG does not exist"):
        run(engine, "DROP SECRET pg;")
    assert run(engine, "SHOW SECRETS;")[0]["secrets"] == []


def test_a_secret_that_a_connector_refers_to_cannot_be_dropped(engine: EmbeddedEngine) -> None:
    run(engine, "CREATE SECRET topic ('t'='users');" + GENERATOR.replace("'users', 'm", "'${secret:topic:t}', 'm")
        .replace("MORE", ""))  # fmt: skip
    with pytest.raises(InvalidStatement, match=r"the following connectors refer to it: \[GEN\]"):
        run(engine, "DROP SECRET topic;")
    run(engine, "DROP CONNECTOR gen; DROP SECRET topic;")


@pytest.mark.parametrize(
    ("reference", "says"),
    [("${secret:nope}", "Secret NOPE does not exist"), ("${secret:pg}", "PG has 2 values"),
     ("${secret:pg:x}", "has no value x")],
)  # fmt: skip
def test_a_reference_that_leads_nowhere_is_refused_and_the_error_points_at_the_setting(
    engine: EmbeddedEngine, reference: str, says: str
) -> None:
    run(engine, "CREATE SECRET pg ('user'='ana', 'password'='hunter2');")
    text = GENERATOR.replace("'users', 'm", f"'{reference}', 'm").replace("MORE", "")
    with pytest.raises(InvalidConnector, match=r"kafka\.topic: ") as caught:
        run(engine, text)
    assert says in caught.value.message
    span = caught.value.span
    assert span is not None and text[span.start : span.end] == f"'kafka.topic'='{reference}'"
    assert run(engine, "SHOW CONNECTORS;")[0]["connectors"] == []


def test_a_literal_is_sealed_and_warned_of(engine: EmbeddedEngine) -> None:
    (created,) = run(engine, GENERATOR.replace("MORE", ", 'some.password'='hunter2', 'db.url'='pg://a:hunter3@h/d'"))
    warnings = [line["message"] for line in created["warnings"]]
    assert [line for line in warnings if "some.password" in line and "CREATE SECRET" in line]
    config = engine.catalog.connectors["GEN"].config
    assert "hunter" not in json.dumps(dict(config))
    assert config["some.password"].startswith("${sealed:")
    shown = run(engine, "DESCRIBE CONNECTOR gen;")[0]["config"]
    assert (shown["some.password"], shown["db.url"]) == ("********", "********")  # the second may be a secret, too
    run(engine, "ALTER CONNECTOR gen WITH ('iterations'=20);")  # with the sealed value that is there
    eventually(lambda: len(read_topic(engine.log, "users")) == 20)


def test_without_a_key_a_secret_is_refused_and_a_literal_is_said_to_be_readable(tmp_path: Path) -> None:
    """As on a node of a cluster, which must not make a key of its own."""
    with open_log(tmp_path / "log", sync="never") as log, engine_on(log, tmp_path, DUCKDB) as engine:
        with pytest.raises(SecretKeyUnusable, match="cannot be read") as caught:
            run(engine, "CREATE SECRET pg ('password'='hunter2');")
        assert "same key on every node" in (caught.value.hint or "")
        (created,) = run(engine, GENERATOR.replace("MORE", ", 'a.password'='hunter2'"))
        assert any("in the command topic, readable" in line["message"] for line in created["warnings"])
        key = tmp_path / "connect.key"
        key.write_text("k" * 44)
        key.chmod(0o600)
        run(engine, "CREATE SECRET pg ('password'='hunter2');")
        run(
            engine, GENERATOR.replace(" gen ", " two ").replace("'users', 'm", "'${secret:pg}', 'm").replace("MORE", "")
        )
        eventually(lambda: len(read_topic(engine.log, "hunter2")) == 10)
        key.unlink()
        run(engine, "RESTART CONNECTOR two;")
        status = engine.connectors.status("TWO")
        assert status.state == "FAILED" and "cannot be read" in (status.error or "")


def test_the_key_file_of_the_configuration_is_used(tmp_path: Path) -> None:
    key = tmp_path / "elsewhere"
    key.write_text("k" * 44)
    key.chmod(0o600)
    properties = {**DUCKDB, "millstream.connect.key.file": str(key)}
    with embedded_on(open_log(tmp_path / "log", sync="never"), tmp_path / "data", properties) as engine:
        run(engine, "CREATE SECRET pg ('password'='hunter2');")
    assert not (tmp_path / "data" / "connect.key").exists()


# ------------------------------------------------------------------ nothing that the server ever wrote

SECRET, LITERAL = "hunter2-of-a-secret", "hunter2-in-a-statement"
BROKEN = [
    "CREATE SECRET x AS '{}';",
    "CREATE SECRET x ('a'='{}', );",
    "CREATE SECRET x ('a' '{}');",
    "CREATE SECRET x ('a'='{}",
    "CREATE SECRET x (a = {});",
    "CREATE SECRET x {};",
    "CREATE SECRET x ('a'='it's;{}');",
    "CREATE SECRET x ('a'='{0}', 'a'='{0}');",
    "CREATE SECRET ('a'='{}');",
    "SHOW STREAMS; CREATE /* */ SECRET -- why\n x ('a'='{}' 'b');",
    "EXPLAIN CREATE SECRET x ('a'='{}');",
    "ASSERT TOPIC nope; CREATE SECRET x ('a'='{}');",
    "CREATE SECRET s ('a'='{}');",  # it is there already
    "CREATE SECRET x ('a'='{}'); SELECT * FROM nope;",
]


def test_no_secret_is_in_anything_that_the_server_ever_wrote(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its answers, its log lines, and its data folder: topics, state, caches."""
    seen: list[str] = []
    data = tmp_path / "data"
    with service_in(data) as service, httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:

        def ask(ksql: str) -> None:
            seen.append(client.post("/ksql", json={"ksql": ksql}).text)

        ask(f"CREATE SECRET s ('topic'='_millstream-{SECRET}', 'password'='{SECRET}');")
        source = "CREATE SOURCE CONNECTOR {} WITH ('connector.class'='datagen', 'quickstart'='users', 'max.interval'=0,"
        ask(source.format("bad") + "'kafka.topic'='${secret:s:topic}');")
        ask(source.format("good") + "'kafka.topic'='t', 'a.password'='${secret:s:password}');")
        ask(source.format("lit") + f"'kafka.topic'='t', 'pasword'='{LITERAL}', 'b.password'='{LITERAL}',"
            f" 'u.url'='pg://ana:{LITERAL}@db/x');")  # fmt: skip
        for broken in BROKEN:
            ask(broken.format(SECRET))
            seen.append(client.post("/query", json={"ksql": broken.format(SECRET)}).text)
            seen.append(client.post("/query-stream", json={"sql": broken.format(SECRET)}).text)
        ask(f"ALTER CONNECTOR lit WITH ('tasks.max'='1', 'b.password'='{LITERAL}');")
        eventually(lambda: service.engine.connectors.status("BAD").tasks[0].state == "FAILED")
        for text in ("SHOW SECRETS;", "SHOW CONNECTORS;", "SHOW PROPERTIES;", "SHOW VARIABLES;", "SHOW ALL TOPICS;",
                     "DESCRIBE CONNECTOR bad;", "DESCRIBE CONNECTOR good;", "DESCRIBE CONNECTOR lit;", "SHOW GRAPH;",
                     "DROP SECRET s;",
                     f"CREATE OR REPLACE SECRET s ('topic'='x', 'password'='{SECRET}');"):  # fmt: skip
            ask(text)
        seen.append(client.post("/ksql", json={"ksql": f"PRINT '{COMMAND_TOPIC}' FROM BEGINNING LIMIT 3;"}).text)
        paths = ["/metrics", "/status", "/graph", "/clusterStatus", "/healthcheck", "/info", "/connectors"]
        paths += [
            f"/connectors/{name}{path}" for name in ("BAD", "LIT") for path in ("", "/config", "/status", "/tasks")
        ]
        seen += [client.get(path).text for path in paths]
        seen += [repr(record) for record in read_topic(service.engine.log, COMMAND_TOPIC)]
    out = capfd.readouterr()
    said = "\n".join([*seen, out.out, out.err])
    for secret in (SECRET, LITERAL):
        at = said.find(secret)
        assert at < 0, said[max(0, at - 300) : at + 100]
        written = [path for path in data.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
        assert written == []
    assert "is reserved" in said and "******" in said
    assert '"name":"S"' in said.replace(" ", "")


@pytest.mark.parametrize("broken", BROKEN)
def test_an_error_about_a_broken_statement_has_no_word_of_the_value(engine: EmbeddedEngine, broken: str) -> None:
    run(engine, "CREATE SECRET s ('a'='b');")
    with pytest.raises(MillstreamError) as caught:
        run(engine, broken.format(SECRET))
    assert "hunter2" not in caught.value.render() + str(caught.value)


def test_a_syntax_error_says_how_a_secret_is_written(engine: EmbeddedEngine) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        run(engine, "CREATE SECRET x (a = hunter2);")
    assert "CREATE SECRET name ('key'='value', …)" in (caught.value.hint or "")
