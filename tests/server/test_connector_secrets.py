"""Every connector with wrong hosts, wrong passwords, no TLS and odd addresses: its secrets are nowhere.

`make soak` tries all settings; in CI there is one of each connector, and each fifth of the others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
import pytest
from mariadb_server import MariaDbServer, mariadb_server
from mosquitto_server import Mosquitto, mosquitto_server
from postgres_server import PostgresServer, postgres_server
from running_server import service_in
from waiting import eventually

from millstream.executor.connect.connector_plugins import BUILT_IN
from millstream.logcore.clients.producer import Producer
from millstream.server.service import Service

SECRET = "Hu:nt@er2/%'\"é x"
ENCODED = quote(SECRET, safe="")
FORMS = (SECRET, ENCODED, quote_plus(SECRET), json.dumps(SECRET)[1:-1], repr(SECRET)[1:-1], "nt@er2", "er2%2F")


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDbServer]:
    with mariadb_server() as started:
        yield started


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    (tmp_path / "passwords").write_text("")
    lines = ("allow_anonymous false", f"password_file {tmp_path / 'passwords'}")
    with mosquitto_server(tmp_path, *lines) as started:
        yield started


def configs(host: str, folder: Path) -> list[dict[str, Any]]:
    """Of each connector some that cannot work, with the secret in all places where one may be."""
    name, _, port = host.partition(":")
    database = {"database.hostname": name, "database.port": port, "database.user": "ana", "database.dbname": "d",
                "database.password": SECRET, "topic.prefix": "t"}  # fmt: skip
    raw = SECRET.replace(" ", "")
    urls = [f"{{scheme}}://ana:{ENCODED}@{host}/d", f"{{scheme}}://{host}/d?user=ana&password={ENCODED}",
            f"{{scheme}}://ana:{raw}@{host}/d", f"{{scheme}}://ana:{ENCODED}@{host}:x/d"]  # fmt: skip
    found: list[dict[str, Any]] = [
        {"connector.class": "postgres", **database},
        {"connector.class": "postgres", **database, "database.sslmode": "verify-full"},
        {"connector.class": "mysql", **database, "database.server.id": "5"},
        {"connector.class": "mariadb", **database, "database.server.id": "6"},
        {"connector.class": "webhook", "topic": "t", "signature.scheme": "token", "signature.secret": SECRET,
         "signature.header": "X-Token"},
        {"connector.class": "webhook", "topic": "t", "signature.scheme": "nope", "signature.secret": SECRET},
        {"connector.class": "delta", "topics": "t", "location": "s3://b/p",
         "storage.options": f"AWS_ENDPOINT_URL=http://{host},AWS_ACCESS_KEY_ID=k,AWS_SECRET_ACCESS_KEY={ENCODED}"},
        {"connector.class": "iceberg", "topics": "t", "table": "a.b",
         "catalog.properties": f"type=rest,uri=http://ana:{ENCODED}@{host},token={ENCODED}"},
        {"connector.class": "iceberg", "topics": "t", "table": "a.b",
         "catalog.properties": f"type=sql,uri=postgresql+psycopg://ana:{ENCODED}@{host}/d,warehouse={folder}"},
    ]  # fmt: skip
    for kind in ("elasticsearch", "opensearch", "clickhouse"):
        found.append({"connector.class": kind, "topics": "t", "connection.url": f"http://{host}",
                      "connection.username": "ana", "connection.password": SECRET})  # fmt: skip
    store = {"s3.endpoint": f"http://{host}", "s3.region": "r", "aws.access.key.id": "k",
             "aws.secret.access.key": SECRET, "location": "s3://b/p"}  # fmt: skip
    found.append({"connector.class": "parquet", "topics": "t", **store})
    found.append({"connector.class": "s3", "topic": "x", "format": "text", **store})
    mqtt = {"mqtt.server.uri": f"tcp://{host}", "mqtt.username": "ana", "mqtt.password": SECRET,
            "mqtt.connect.timeout.seconds": "2"}  # fmt: skip
    found.append({"connector.class": "mqtt", "mqtt.topics": "a", "kafka.topic": "m", **mqtt})
    found.append({"connector.class": "mqtt", "topics": "t", "mqtt.topic": "a", **mqtt})
    found.append({"connector.class": "mqtt", "topics": "t", "mqtt.topic": "a", **mqtt,
                  "mqtt.server.uri": f"ssl://ana:{ENCODED}@{host}"})  # fmt: skip
    for url in urls:
        for scheme in ("postgresql+psycopg", "mysql+pymysql"):
            given = {"connection.url": url.format(scheme=scheme)}
            found.append({"connector.class": "sql", "topics": "t", "pk.mode": "none", "insert.mode": "insert", **given})
            found.append({"connector.class": "sql", "mode": "bulk", "topic.prefix": "s", **given})
        web = url.format(scheme="http")
        found.append({"connector.class": "http", "http.api.url": web, "topics": "t",
                      "headers": f"Authorization: Bearer {ENCODED}"})  # fmt: skip
        found.append({"connector.class": "http", "http.api.url": web, "topic": "h", "headers": f"X-Key: {ENCODED}"})
        for kind in ("elasticsearch", "clickhouse"):
            found.append({"connector.class": kind, "topics": "t", "connection.url": web})
    return found


def everything_seen(service: Service, client: httpx.Client) -> list[str]:
    names = client.get("/connectors").json()
    asked = "".join(f"DESCRIBE CONNECTOR `{name}`; EXPLAIN STALL CONNECTOR `{name}`;" for name in names)
    seen = [client.post("/ksql", json={"ksql": f"SHOW CONNECTORS; {asked}"}).text]
    for name in names[::20]:
        seen += [client.get(f"/connectors/{name}{path}").text for path in ("", "/config", "/status", "/tasks")]
    seen += [client.get(path).text for path in ("/connectors?expand=status&expand=info", "/metrics", "/status")]
    seen += [f"{info.statement} {dict(info.config)}" for info in service.engine.catalog.connectors.values()]
    return seen


def tried(service: Service, name: str) -> bool:
    status = service.engine.connectors.status(name)
    return status.error is not None or any(task.error for task in status.tasks) or "webhook" in name


def found_secrets(texts: Iterator[str] | list[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        for form in FORMS:
            at = text.find(form)
            if at >= 0:
                found.append(f"{form}: …{text[max(0, at - 150) : at + 50]}…")
    return found


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_no_connector_tells_its_secrets(
    step: int,
    tmp_path: Path,
    postgres: PostgresServer,
    mariadb: MariaDbServer,
    mosquitto: Mosquitto,
    capfd: pytest.CaptureFixture[str],
) -> None:
    postgres.protect("ana", "another")
    with mariadb.connect() as admin:
        admin.run("CREATE USER ana@'%' IDENTIFIED BY 'another'")
    seen: list[str] = []
    hosts = [
        ("127.0.0.1:1", ()), ("nowhere.invalid:5432", ("'postgres'",)),
        (f"127.0.0.1:{postgres.port}", ("postgres",)), (f"127.0.0.1:{mariadb.port}", ("mariadb", "mysql")),
        (f"127.0.0.1:{mosquitto.port}", ("mqtt",)),
    ]  # fmt: skip
    with (
        service_in(tmp_path / "data", log_level="debug") as service,
        httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client,
    ):
        service.engine.log.create_topic("t", 1)
        with Producer(service.engine.log) as producer:
            producer.send("t", b'{"a":1}', b'{"a":1}')
        for at, (host, asked) in enumerate(hosts):
            known: set[str] = set()
            for number, config in enumerate(configs(host, tmp_path)):
                if at > 0 and not any(word in str(config) for word in asked):
                    continue
                if number % step and config["connector.class"] in known:
                    continue
                known.add(config["connector.class"])
                name = f"{config['connector.class']}-{at}-{number}"
                seen.append(client.put(f"/connectors/{name}/config", json=config).text)
                path = f"/connector-plugins/{config['connector.class']}/config/validate"
                seen.append(client.put(path, json=config).text)
                settings = ", ".join(
                    f"'{key}'='{value.replace(chr(39), chr(39) * 2)}'" for key, value in config.items()
                )
                kind = "SINK" if "topics" in config else "SOURCE"
                statement = f"CREATE {kind} CONNECTOR `sql-{name}` WITH ({settings}"
                for text in (f"{statement});", f"{statement}", f"{statement}, );"):
                    if at == 0 and number % 4 == 0:
                        seen.append(client.post("/ksql", json={"ksql": text}).text)
            created = [name for name in service.engine.catalog.connectors if f"-{at}-" in name]
            until = time.monotonic() + 8
            eventually(lambda created=created, until=until: time.monotonic() > until
                       or all(tried(service, name) for name in created))  # fmt: skip
        seen += everything_seen(service, client)
        classes = {info.config["connector.class"] for info in service.engine.catalog.connectors.values()}
        assert classes == {plugin.name for plugin in BUILT_IN} - {"datagen", "file"}
    out = capfd.readouterr()
    told = [*seen, *out.out.splitlines(), *out.err.splitlines()]
    files = [path.read_bytes().decode("utf-8", "replace") for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert "\n".join(sorted(set(found_secrets(told)))) == ""
    assert found_secrets(files) == []
