"""Confluent's serializers for Python against the schema registry: what they write statements read, and vice versa."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Final

import pytest
from running_server import service_in

from bench.maven import cache_folder
from millstream.server.client import HttpClient
from millstream.server.service import Service

from .test_foreign_clients import installed, run

_PACKAGE: Final = "confluent-kafka[schemaregistry,avro,json,protobuf]==2.16.1"
_PROGRAM: Final = Path(__file__).parent / "confluent_serializers.py"


@pytest.fixture(scope="module")
def packages() -> str:
    """The folder of the packages. Skips where they cannot be had."""
    folder = cache_folder("pypi") / "confluent-serializers-2.16.1"
    if not folder.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        begun = folder.with_suffix(".begun")
        installed([*pip, "--retries", "1", "--target", str(begun), _PACKAGE], _PACKAGE)
        begun.rename(folder)
    return str(folder)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with service_in(tmp_path, schema_registry="127.0.0.1:0") as started:
        yield started


def said(service: Service, packages: str, way: str) -> dict[str, object]:
    addresses = [f"http://{service.schema_registry_address}", str(service.kafka_address)]
    command = [sys.executable, str(_PROGRAM), *addresses, way]
    return dict(json.loads(line) for line in run(command, seconds=90, env={"PYTHONPATH": packages}).splitlines())


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_confluents_serializers_and_statements_read_each_other(service: Service, packages: str) -> None:
    assert said(service, packages, "write") == {"compatible": False}
    client = HttpClient(f"http://{service.http_address}")
    client.execute("SET 'auto.offset.reset' = 'earliest';")
    for format in ("AVRO", "JSON_SR", "PROTOBUF"):
        name = format.removesuffix("_SR")
        client.execute(
            f"CREATE STREAM {name} WITH (kafka_topic='orders_{name.lower()}', value_format='{format}');"
            f"CREATE STREAM copy_{name} AS SELECT * FROM {name};"
        )
    assert {name: rows_of(client, name) for name in ("avro", "json", "protobuf")} == {
        "avro": [[number, "SOME", Decimal("12.34"), "2024-02-29", ["a"]] for number in (1, 2)],
        "json": [[1, "x"]],
        "protobuf": [[1, [{"UNITS": 5}]], [2, []]],
    }
    read = said(service, packages, "read")
    assert "'TOTAL': Decimal('12.34')" in str(read["COPY_AVRO"])
    assert read["COPY_JSON"] == "{'ID': 1, 'NOTE': 'x'}"
    assert "units: 5" in str(read["orders_protobuf"])


def rows_of(client: HttpClient, name: str) -> list[list[object]]:
    with client.query(f"SELECT * FROM {name};") as rows:
        return [list(row.values) for row in rows]
