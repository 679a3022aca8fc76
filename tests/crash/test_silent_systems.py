"""A server whose connectors wait for systems that take a connection and never answer ends soon all the same."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from running_server import ServerProcess
from silent_port import SilentPort
from waiting import eventually

from millstream.executor.connect.connector_plugins import BUILT_IN

_ALONE = {("datagen", "SOURCE"), ("file", "SOURCE"), ("webhook", "SOURCE")}
"""They call nobody."""
_S3 = {"s3.endpoint": "http://ADDRESS", "s3.region": "x", "aws.access.key.id": "x", "aws.secret.access.key": "x"}
_OPTIONS = (
    "aws_endpoint=http://ADDRESS,aws_region=x,aws_access_key_id=x,aws_secret_access_key=x,allow_http=true,"
    "aws_conditional_put=etag"
)
_DATABASE = {"database.hostname": "127.0.0.1", "database.port": "PORT", "database.user": "u", "topic.prefix": "rows"}
_CONFIGS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("s3", "SOURCE"): {"location": "s3://lake/x", "topic": "objects", "format": "csv", **_S3},
    ("postgres", "SOURCE"): {**_DATABASE, "database.dbname": "d"},
    ("mysql", "SOURCE"): _DATABASE,
    ("mariadb", "SOURCE"): _DATABASE,
    ("sql", "SOURCE"): {"connection.url": "postgresql+psycopg://u@ADDRESS/d", "mode": "bulk", "topic.prefix": "z"},
    ("sql", "SINK"): {"connection.url": "mysql+pymysql://u@ADDRESS/d"},
    ("mqtt", "SOURCE"): {"mqtt.server.uri": "tcp://ADDRESS", "mqtt.topics": "a", "kafka.topic": "messages"},
    ("mqtt", "SINK"): {"mqtt.server.uri": "tcp://ADDRESS"},
    ("delta", "SINK"): {"location": "s3://lake/t", "storage.options": _OPTIONS, "commit.interval.ms": "1"},
    ("iceberg", "SINK"): {"table": "a.b", "catalog.properties": "type=rest,uri=http://ADDRESS"},
    ("parquet", "SINK"): {"location": "s3://lake/t", "rotate.interval.ms": "1", **_S3},
    ("clickhouse", "SINK"): {"connection.url": "http://ADDRESS"},
    ("elasticsearch", "SINK"): {"connection.url": "http://ADDRESS", "key.ignore": "true"},
    ("opensearch", "SINK"): {"connection.url": "http://ADDRESS", "key.ignore": "true"},
    ("http", "SOURCE"): {"http.api.url": "http://ADDRESS", "topic": "answers", "allow.local.addresses": "true"},
    ("http", "SINK"): {"http.api.url": "http://ADDRESS"},
}
_PARQUET = ("parquet", "SINK")
_ROWS = """CREATE STREAM orders (n INT) WITH (kafka_topic='orders', value_format='json', partitions=1);
INSERT INTO orders VALUES (1);"""


def test_no_connector_is_left_out() -> None:
    assert _CONFIGS.keys() | _ALONE == {(plugin.name, plugin.kind) for plugin in BUILT_IN}


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_server_ends_whatever_its_connectors_wait_for(tmp_path: Path, is_alone: bool) -> None:
    """Arrow opens no connection to an S3 server while it waits for another one, so the parquet sink is alone."""
    with contextlib.ExitStack() as parts:
        process = parts.enter_context(ServerProcess(tmp_path / "data"))
        httpx.post(f"{process.url}/ksql", json={"ksql": _ROWS}, timeout=60).raise_for_status()
        ports = {kind: parts.enter_context(SilentPort()) for kind in _CONFIGS if (kind == _PARQUET) == is_alone}
        for number, (kind, port) in enumerate(ports.items()):
            config = _config(kind, port.port)
            answer = httpx.put(f"{process.url}/connectors/c{number}/config", json=config, timeout=60)
            assert answer.is_success, (kind, answer.text)
        for kind, port in ports.items():
            eventually(port.called.is_set, otherwise=f"{kind} has called nobody: {_statuses(process)}")
        assert process.stop(signal.SIGTERM) == 0


def test_a_server_ends_whatever_its_statements_wait_for(tmp_path: Path) -> None:
    """DROP CONNECTOR waits for the other system, and holds the lock that other statements need."""
    with SilentPort() as port, ServerProcess(tmp_path / "data") as process:
        config = _config(("postgres", "SOURCE"), port.port)
        httpx.put(f"{process.url}/connectors/pg/config", json=config, timeout=60).raise_for_status()
        eventually(port.called.is_set, otherwise="nobody has called")
        with contextlib.suppress(httpx.ReadTimeout):
            httpx.post(f"{process.url}/ksql", json={"ksql": "DROP CONNECTOR pg;"}, timeout=0.5)
        assert process.stop(signal.SIGTERM) == 0


def _statuses(process: ServerProcess) -> str:
    return httpx.get(f"{process.url}/connectors?expand=status", timeout=60).text


def _config(kind: tuple[str, str], port: int) -> dict[str, str]:
    filled = {
        name: value.replace("ADDRESS", f"127.0.0.1:{port}").replace("PORT", str(port))
        for name, value in _CONFIGS[kind].items()
    }
    return {"connector.class": kind[0], **({"topics": "orders"} if kind[1] == "SINK" else {}), **filled}
