"""The clients of the benchmark "serving": they see every row, and every answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

from running_server import service_in

from bench.serving import DDL
from bench.serving_load import HEALTH, both_doors, loop, pulls, push, write
from millstream.server.engine.session import Session


def test_push_queries_get_every_row_and_look_ups_an_answer_while_rows_are_written(tmp_path: Path) -> None:
    with service_in(tmp_path, pg="127.0.0.1:0") as service:
        service.engine.execute(DDL, Session())
        url = f"http://{service.http_address}"
        pushed = asyncio.run(push(url, clients=3, rate=200, seconds=0.5))
        assert (pushed["complete"], pushed["rows"]) == (3, 300)
        assert 0 < pushed["p50_ms"] <= pushed["p99_ms"]
        asyncio.run(write(url, "EVENTS", rate=2_000, seconds=0.5))
        for requests, expected in (([HEALTH], b"isHealthy"), (pulls(), b"columnNames")):
            assert asyncio.run(loop(url, requests, expected, connections=2, seconds=0.2))["rate"] > 0
        doors = asyncio.run(both_doors(url, str(service.pg_address), seconds=0.2))
        assert doors["http"]["p50_ms"] > 0 and doors["pg"]["p50_ms"] > 0
