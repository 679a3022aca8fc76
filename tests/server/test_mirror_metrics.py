"""Mirrors in /metrics: state, lag, what was copied and how fast."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from running_server import service_in
from two_logs import rows
from waiting import eventually

from millstream.logcore.log import Log, open_log
from millstream.logcore.server import LogServer


@pytest.fixture
def there(tmp_path: Path) -> Iterator[tuple[Log, str]]:
    with open_log(tmp_path / "there", sync="never") as log, LogServer(log, port=0) as server:
        log.create_topic("orders", 1)
        log.append("orders", 0, rows(b"a", b"b"))
        yield log, server.address


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx.Client]:
    with service_in(tmp_path / "here") as service:
        yield httpx.Client(base_url=f"http://{service.http_address}", timeout=60)


def test_metrics_say_how_far_each_mirror_is(http: httpx.Client, there: tuple[Log, str]) -> None:
    log, address = there
    sql = f"CREATE MIRROR m FROM '{address}' TOPICS 'orders' WITH ('refresh.interval.ms'=100);"
    assert http.post("/ksql", json={"ksql": sql}).status_code == 200

    def shows(*series: str) -> bool:
        text = http.get("/metrics").text
        return all(f"millstream_mirror_{each}" in text for each in series)

    eventually(lambda: shows('records_total{mirror="M"} 2.0', 'lag{mirror="M"} 0.0'))
    assert shows(
        'state{mirror="M",state="RUNNING"} 1.0',
        'state{mirror="M",state="PAUSED"} 0.0',
        "bytes_total{",
        "bytes_per_second{",
    )
    http.post("/ksql", json={"ksql": "PAUSE MIRROR m;"})
    eventually(lambda: shows('state{mirror="M",state="PAUSED"} 1.0'))
    log.append("orders", 0, rows(b"c"))
    http.post("/ksql", json={"ksql": "PROMOTE MIRROR m;"})
    eventually(lambda: shows('state{mirror="M",state="PROMOTED"} 1.0'))
