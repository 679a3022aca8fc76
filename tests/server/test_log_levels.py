"""The loggers of a server: Kafka Connect's `/admin/loggers` shows and changes their levels, and its lines follow."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from repository import REPOSITORY
from running_server import ServerProcess

LEVELS = {
    "millstream", "millstream.cluster", "millstream.connect", "millstream.http",
    "millstream.logcore", "millstream.mcp", "millstream.pg", "millstream.queries", "millstream.server",
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    (tmp_path / "millstream.toml").write_text('log_format = "json"\n')
    with ServerProcess(tmp_path / "data", "--config", str(tmp_path / "millstream.toml")) as started:
        yield started


def test_levels_are_shown_and_changed_as_connects_are(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=30) as http:
        assert http.get("/admin/loggers").json() == {
            name: {"level": "INFO", "last_modified": None} for name in sorted(LEVELS | {"root"})
        }
        assert http.get("/admin/loggers/millstream.connect").json() == {"level": "INFO", "last_modified": None}
        changed = http.put("/admin/loggers/millstream.connect", json={"level": "debug"})
        assert (changed.status_code, changed.json()) == (200, ["millstream.connect"])
        shown = http.get("/admin/loggers/millstream.connect").json()
        assert shown["level"] == "DEBUG" and shown["last_modified"] > 1_700_000_000_000
        assert http.get("/admin/loggers/root").json()["level"] == "INFO"
        below = http.put("/admin/loggers/millstream?scope=worker", json={"level": "WARN"})
        assert below.json() == sorted(LEVELS)
        everywhere = http.put("/admin/loggers/root?scope=cluster", json={"level": "Error"})
        assert (everywhere.status_code, everywhere.content) == (204, b"")
        assert {each["level"] for each in http.get("/admin/loggers").json().values()} == {"ERROR"}
        assert http.put("/admin/loggers/root?scope=nonsense", json={"level": "OFF"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/admin/loggers/org.none", None, 404, "Logger org.none not found."),
        ("PUT", "/admin/loggers/org.none", {"level": "INFO"}, 404, "Logger org.none not found."),
        ("PUT", "/admin/loggers/root", {"level": "loud"}, 404, "invalid log level 'loud'."),
        ("PUT", "/admin/loggers/root", {}, 400, "Desired 'level' parameter was not specified in request."),
        ("PUT", "/admin/loggers/root", {"level": 3}, 400, "Desired 'level' parameter was not specified in request."),
    ],
)
def test_what_there_is_not_is_refused(
    server: ServerProcess, method: str, path: str, body: dict[str, object] | None, status: int, message: str
) -> None:
    answer = httpx.request(method, server.url + path, json=body, timeout=30)
    assert (answer.status_code, answer.json()["error_code"]) == (status, status)
    assert answer.json()["message"].startswith(message)


def test_lines_are_written_by_the_level_of_their_logger(tmp_path: Path) -> None:
    program = """
import structlog
from millstream.server.insight.log_levels import LOG_LEVELS
LOG_LEVELS.configure("warning", "json")
connect, pg, nameless = (structlog.get_logger(*names) for names in (["millstream.connect"], ["millstream.pg"], []))
def all_say(text):
    for name, log in {"connect": connect, "pg": pg, "nameless": nameless}.items():
        log.debug(text, by=name), log.info(text, by=name), log.warning(text, by=name), log.error(text, by=name)
all_say("as configured")
LOG_LEVELS.change("millstream.connect", "DEBUG")
LOG_LEVELS.change("millstream.pg", "OFF")
all_say("changed")
LOG_LEVELS.change("root", "ERROR")
all_say("together")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    found = {(line["event"], line["by"]): [] for line in lines}
    for line in lines:
        found[line["event"], line["by"]].append(line["level"])
    both = ["warning", "error"]
    assert found == {
        ("as configured", "connect"): both, ("as configured", "pg"): both, ("as configured", "nameless"): both,
        ("changed", "connect"): ["debug", "info", *both], ("changed", "nameless"): both,
        ("together", "connect"): ["error"], ("together", "pg"): ["error"], ("together", "nameless"): ["error"],
    }  # fmt: skip


def test_each_logger_has_a_name_whose_level_can_be_changed() -> None:
    found: dict[str, str] = {}
    for package in ("executor", "logcore", "millstream", "planner", "repl", "server", "sql"):
        for file in (REPOSITORY / package).rglob("*.py"):
            for name in re.findall(r"structlog\.get_logger\((.*?)\)", file.read_text(encoding="utf-8")):
                found[file.relative_to(REPOSITORY).as_posix()] = name.strip('"')
    assert found
    assert {file: name for file, name in found.items() if name not in LEVELS} == {}
