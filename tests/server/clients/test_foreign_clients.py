"""Clients that we did not write, each in a session of its own: statements, pushed rows, inserts that are acknowledged,
a pull query. pandas and SQLAlchemy are in `tests/millstream/test_dbapi.py`.

What a client needs comes from its registry, PyPI or Maven Central; where that cannot be reached the test is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import service_in
from waiting import eventually

from millstream.server.service import Service

HERE = Path(__file__).parent
CURL = shutil.which("curl")
JAVA_TOOLS = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
DDL = "CREATE STREAM s (id INT KEY, v STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
TABLE = "CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;"


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        yield started


def run(command: list[str], *, seconds: float = 50, env: dict[str, str] | None = None, sent: str = "") -> str:
    found = subprocess.run(
        command, input=sent, capture_output=True, text=True, timeout=seconds, check=False,
        env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def installed(command: list[str], what: str) -> None:
    """Runs an installer; what it cannot reach skips the test."""
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{what} could not be installed within 150 s")
    if found.returncode:
        pytest.skip(f"{what} could not be installed: {(found.stderr or found.stdout).strip()[-300:]}")


@pytest.mark.timeout(200)
def test_ksql_python_has_its_session(service: Service, tmp_path: Path) -> None:
    target = tmp_path / "packages"  # of its own: it wants an h2 that is older than our server's
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    installed([*pip, "--retries", "1", "--target", str(target), "ksql==0.10.2"], "the PyPI package ksql")
    session = [sys.executable, str(HERE / "ksql_python_session.py"), f"http://{service.http_address}"]
    said = dict(json.loads(line) for line in run(session, env={"PYTHONPATH": str(target)}).splitlines())
    header, *rows = said.pop("raw")
    assert header.startswith('[{"header":{"queryId":"transient_VIEWS_')
    assert rows == ['{"row":{"columns":[1,"a"]}},\n', '{"row":{"columns":[2,"b"]}},\n',
                    '{"finalMessage":"Limit Reached"}]\n']  # fmt: skip
    assert said.pop("version")
    assert said == {
        "properties": True,
        "ksql": "SUCCESS",
        "made": True,
        "derived": True,
        "refused": 40001,
        "inserts": [{"status": "ok", "seq": 0}, {"status": "ok", "seq": 1}],
        "rows": [{"ID": 1, "URL": "a"}, {"ID": 2, "URL": "b"}],
        "header": ["ID", "URL"],
        "row": [1, "a"],
        "closed": [True, False],
        "rest": [[2, "b"]],
        "pull": [[2]],
        "streams": ["COPIES", "VIEWS", "VISITS"],
        "dropped": [],
    }


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge", "--http2"])
def test_curl_has_its_session(service: Service, version: str) -> None:
    url = f"http://{service.http_address}"

    def curl(path: str, body: str, *more: str) -> str:
        return run([str(CURL), "-sS", "-N", "-m", "20", version, *more, "-d", body, url + path])

    assert [answer["commandStatus"]["status"] for answer in json.loads(curl("/ksql", ksql(DDL + TABLE)))] == [
        "SUCCESS",
        "SUCCESS",
    ]
    lines = '{"target": "S"}\n' + "".join(f'{{"ID": {number % 2}, "V": "é{number}"}}\n' for number in range(3))
    command = [str(CURL), "-sS", "-m", "20", version, "--data-binary", "@-", f"{url}/inserts-stream"]
    acknowledged = run(command, sent=lines).splitlines()
    assert [json.loads(line) for line in acknowledged] == [{"status": "ok", "seq": number} for number in range(3)]
    pushed = curl("/query-stream", push("SELECT * FROM s EMIT CHANGES LIMIT 3;")).splitlines()
    assert [json.loads(line) for line in pushed[1:]] == [[0, "é0"], [1, "é1"], [0, "é2"]]
    lookup = json.dumps({"sql": "SELECT n FROM t WHERE id = 0;"})
    eventually(lambda: curl("/query-stream", lookup).splitlines()[1:] == ["[2]"])
    refused = curl("/ksql", ksql("SELEC;"), "-w", "%{http_version} %{http_code}", "-o", os.devnull)
    assert refused in ("1.1 400", "2 400")


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_a_push_query_of_curl_ends_with_it(service: Service) -> None:
    service_url = f"http://{service.http_address}"
    run([str(CURL), "-sS", "-d", ksql(DDL), f"{service_url}/ksql"])
    body = push("SELECT * FROM s EMIT CHANGES;")
    command = [str(CURL), "-sS", "-N", "--http2-prior-knowledge", "-d", body, f"{service_url}/query-stream"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert "queryId" in client.stdout.readline()
        client.kill()
    metric = 'millstream_client_queries{kind="push"} 0.0'
    eventually(lambda: metric in run([str(CURL), "-sS", f"{service_url}/metrics"]))


@pytest.mark.timeout(250)
@pytest.mark.skipif(bool(JAVA_TOOLS), reason=f"{' and '.join(JAVA_TOOLS)} not installed")
def test_the_http_2_client_of_the_jvm_that_ksqldbs_is_built_on_has_its_session(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")  # quick to start
    maven = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    installed([*maven, f"-DoutputDirectory={tmp_path}", f"-DbuildDirectory={tmp_path}"], "Vert.x from Maven Central")
    program = ["java", "-cp", f"{tmp_path}/*", str(HERE / "VertxSession.java"), str(service.http_address.port)]
    lines = run(program, seconds=90).splitlines()
    assert [line.partition(": ")[0] for line in lines[:2]] == ["ksql", "push header"]
    assert '"status":"SUCCESS"' in lines[0]
    assert lines[2:] == [
        'acknowledgement: {"status":"ok","seq":0}',
        'push row: [0,"row 0"]',
        'acknowledgement: {"status":"ok","seq":1}',
        'push row: [1,"row 1"]',
        'acknowledgement: {"status":"ok","seq":2}',
        'push row: [0,"row 2"]',
        "acknowledgement: error",
        "inserts end: (end)",
        "close-query: {}",
        "push end: (end)",
        "pull: [2]",
        'refusal: {"@type":"statement_error","error_code":40002',
    ]


def ksql(text: str) -> str:
    return json.dumps({"ksql": text})


def push(text: str) -> str:
    return json.dumps({"sql": text, "properties": {"auto.offset.reset": "earliest"}})
