"""A client of the REST proxy, as programs written for Confluent's are: bodies and content types of v2 and v3."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx

from millstream.logcore.client import Fetched, FetchedRows
from millstream.server.service import Service

V2 = "application/vnd.kafka.v2+json"


class ProxyClient:
    """In: `token`: of the user; None where there are no users."""

    def __init__(self, service: Service, token: str | None = None) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=f"http://{service.http_address}", timeout=60, headers=headers, verify=False)

    def __enter__(self) -> ProxyClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def get(self, path: str, accept: str | None = None, body: Any = None) -> httpx.Response:
        headers = {} if accept is None else {"accept": accept}
        content = None if body is None else json.dumps(body)
        if content is not None:
            headers["content-type"] = V2
        return self.http.request("GET", path, headers=headers, content=content)

    def post(self, path: str, body: Any = None, content_type: str = V2) -> httpx.Response:
        content = body if isinstance(body, bytes | str) else b"" if body is None else json.dumps(body)
        return self.http.post(path, content=content, headers={"content-type": content_type})

    def delete(self, path: str) -> httpx.Response:
        return self.http.delete(path, headers={"content-type": V2})

    def produce(self, path: str, body: Any, format: str = "json") -> httpx.Response:
        return self.post(path, body, f"application/vnd.kafka.{format}.v2+json")

    def ksql(self, text: str) -> None:
        response = self.http.post("/ksql", json={"ksql": text})
        assert response.status_code == 200, response.text


def refused(response: httpx.Response) -> tuple[int, int]:
    """Status and error code."""
    return response.status_code, response.json()["error_code"]


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def stored(service: Service, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of a partition."""
    fetched: Fetched = service.engine.log.fetch(topic, partition, 0)
    return [
        (row["key"], row["value"])
        for run in fetched.runs
        if isinstance(run, FetchedRows)
        for row in run.table.select(["key", "value"]).to_pylist()
    ]


def cluster_path(proxy: ProxyClient) -> str:
    """/v3/clusters/ID of the server."""
    (cluster,) = proxy.get("/v3/clusters").json()["data"]
    return f"/v3/clusters/{cluster['cluster_id']}"
