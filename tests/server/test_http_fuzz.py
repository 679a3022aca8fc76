"""Requests made up from the OpenAPI document: the server answers each of them, and never with a mistake of its own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from http_fuzz import FuzzedRequest, HttpFuzz
from running_server import service_in
from waiting import eventually

from millstream.server.service import Service

STREAM = "CREATE STREAM IF NOT EXISTS s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
TABLE = "CREATE TABLE IF NOT EXISTS t AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;"
ROWS = ("/query", "/query-stream")
SECONDS_MAX = 30.0


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    properties = {"ksql.server.command.response.timeout.ms": "10", "auto.offset.reset": "earliest"}
    with service_in(tmp_path_factory.mktemp("data"), properties=properties, log_level="error") as started:
        yield started


def answer(client: httpx.Client, request: FuzzedRequest) -> tuple[int, bytes]:
    """The status, and what comes first of the body: push queries would go on."""
    headers = [(name.encode(), value) for name, value in request.headers.items()]
    with client.stream(request.method, request.target, headers=headers, content=request.body) as response:
        if response.status_code == 200 and request.target in ROWS:
            return response.status_code, next(response.iter_raw(), b"")
        return response.status_code, response.read()


def fuzz(service: Service, seed: int, count: int) -> None:
    url = f"http://{service.http_address}"
    with httpx.Client(base_url=url, timeout=SECONDS_MAX) as client:
        made = HttpFuzz(client.get("/openapi.json").json(), seed)
        statuses: dict[int, int] = {}
        for number in range(count):
            if number % 100 == 0:
                assert client.post("/ksql", json={"ksql": STREAM + TABLE}).status_code == 200
            request = made.request()
            status, body = answer(client, request)
            statuses[status] = statuses.get(status, 0) + 1
            assert status < 500 or b"50301" in body, (seed, number, request, status, body[:500])
            assert b"made a mistake" not in body, (seed, number, request, body[:500])
        assert statuses.get(200, 0) > count / 10, statuses
        assert statuses.get(400, 0) > count / 10, statuses
        assert client.get("/healthcheck").json()["isHealthy"] is True
        eventually(lambda: b'client_queries{kind="push"} 0.0' in client.get("/metrics").content)


@pytest.mark.timeout(400)
def test_many_odd_requests_are_all_answered(service: Service) -> None:
    fuzz(service, seed=20261120, count=700)


@pytest.mark.soak
def test_twenty_thousand_odd_requests_are_all_answered(service: Service) -> None:
    for seed in range(10):
        fuzz(service, seed=seed, count=2_000)
