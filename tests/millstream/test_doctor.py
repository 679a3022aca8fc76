"""`millstream doctor`: what it says about a machine, a data directory and a server that have something wrong."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from running_server import service_in
from typer.testing import CliRunner
from waiting import eventually

from millstream.cli import app
from millstream.doctor import checks as doctor
from millstream.doctor.line import CheckResult
from millstream.doctor.running_server import server as ask
from millstream.logcore.log import open_log
from millstream.server.client import connect
from millstream.server.config.configuration import load_configuration
from millstream.server.engine.embedded import open_engine
from millstream.server.engine.session import Session
from tests.logcore.log_records import rows, segment_files

DDL = "CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"


def levels(lines: list[CheckResult], check: str) -> list[str]:
    return [line.level for line in lines if line.check == check]


def test_this_machine_can_run_it() -> None:
    lines = list(doctor.machine())
    assert "fail" not in [line.level for line in lines]
    assert "duckdb" in next(line.message for line in lines if line.check == "packages")


def test_few_files_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (1024, 4096))
    (line,) = [line for line in doctor.machine() if line.check == "files"]
    assert (line.level, line.hint) == ("warn", "Set ulimit -n to 4096 or more.")


def test_a_package_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PACKAGES", ("nothing_like_this",))
    lines = [line for line in doctor.machine() if line.check == "packages"]
    assert [line.level for line in lines] == ["fail"]
    assert "nothing_like_this cannot be loaded" in lines[0].message


def test_a_port_that_somebody_else_has_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        other.close()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        configuration = load_configuration(None, {"data": Path("."), "http": "127.0.0.1:0", "kafka": address})
        lines = list(doctor.ports(configuration))
    assert [line.level for line in lines] == ["ok", "fail"]
    assert f"kafka: {address} cannot be listened at" in lines[1].message


def test_a_new_data_directory_is_one_that_would_be_made(tmp_path: Path) -> None:
    lines = list(doctor.data_directory(tmp_path / "new"))
    assert levels(lines, "data") == ["ok"]
    assert "would be made" in lines[0].message
    assert not (tmp_path / "new").exists()


def test_a_data_directory_is_looked_at_without_a_trace(tmp_path: Path) -> None:
    with open_engine(tmp_path / "data", sync="never") as engine:
        engine.execute(DDL + "INSERT INTO s VALUES (1, 2);", Session())
        lines = list(doctor.data_directory(tmp_path / "data"))
        assert "is in use by process" in lines[0].message
    before = sorted(tmp_path.rglob("*"))
    lines = list(doctor.data_directory(tmp_path / "data"))
    assert sorted(tmp_path.rglob("*")) == before
    assert lines[0].message.endswith("is free")
    assert levels(lines, "log") == ["ok"]
    assert levels(lines, "clock") == ["ok"]
    assert len(levels(lines, "disk")) == 1


def log_lines(data: Path) -> list[tuple[str, str]]:
    return [(line.level, line.message) for line in doctor.data_directory(data) if line.check == "log"]


def test_a_damaged_newest_segment_is_found_and_told_from_what_a_crash_leaves(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with open_log(data / "log", sync="never") as log:
        log.create_topic("s", 1)
        for value in (b"1", b"2"):
            log.append("s", 0, rows(value))
    (segment,) = segment_files(data / "log", "s")
    content = segment.read_bytes()

    segment.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert [(level, message.partition(", position ")[2].partition(": ")[2]) for level, message in log_lines(data)] == [
        ("fail", "the checksum is wrong")
    ]
    segment.write_bytes(b"\xff" * 24 + content[24:])
    assert log_lines(data) == [
        ("fail", f"{segment}, position 0: no record batch begins here, and behind it there are more")
    ]
    segment.write_bytes(content[:-1])
    assert log_lines(data) == [("fail", f"{segment} ends at offset 1, but records up to 2 were stored")]
    segment.write_bytes(content + b"half a batch")
    assert log_lines(data) == [("warn", f"{segment}: the last 12 bytes are no record batch")]
    segment.write_bytes(content + bytes(4096))  # kept ahead by a log that had no time to close
    assert [level for level, _ in log_lines(data)] == ["ok"]


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lines = list(doctor.data_directory(tmp_path / "file"))
    assert [(line.level, line.message) for line in lines] == [("fail", f"{tmp_path / 'file'} is a file")]


@pytest.mark.parametrize(
    ("room", "level"), [(100 << 30, "ok"), (5 << 30, "warn"), (100 << 20, "fail")], ids=["much", "little", "none"]
)
def test_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, level: str) -> None:
    usage = type(doctor.shutil.disk_usage(tmp_path))(1 << 40, (1 << 40) - room, room)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)
    assert levels(list(doctor.data_directory(tmp_path / "new")), "room") == [level]


@pytest.mark.parametrize(("sync_ms", "level"), [(1.0, "ok"), (50.0, "warn"), (900.0, "fail")])
def test_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync_ms: float, level: str) -> None:
    monkeypatch.setattr(doctor, "_measure", lambda _: ([sync_ms] * 3, 0.0))
    assert levels(list(doctor.data_directory(tmp_path)), "disk") == [level]


def test_a_wrong_configuration_is_a_failure_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text('data = "x"\nhttpp = "1"\n')
    (line,) = doctor.configured(file)
    assert (line.level, line.message) == ("fail", '"httpp" is not a setting of the server (line 2)')


def test_a_server_that_does_not_answer_is_a_failure() -> None:
    (line,) = ask("http://127.0.0.1:1")
    assert line.level == "fail"
    assert line.hint


def test_a_server_and_its_stuck_queries(tmp_path: Path) -> None:
    with service_in(tmp_path / "data") as service:
        url = f"http://{service.http_address}"
        client = connect(url)
        client.execute(DDL + "CREATE STREAM fine AS SELECT * FROM s; CREATE STREAM held AS SELECT * FROM s;")
        held = next(query_id for query_id in service.engine.catalog.queries if "HELD" in query_id)
        client.execute(f"PAUSE {held};")
        executor = service.engine.executor
        eventually(lambda: executor.status(held).state == "PAUSED")
        lines = list(ask(url.removeprefix("http://")))
        addresses = {"http": str(service.http_address), "kafka": str(service.kafka_address)}
        ports = list(doctor.ports(load_configuration(None, {"data": Path("."), **addresses})))
        result = CliRunner().invoke(app, ["doctor", "--server", url, "--json"])
    assert levels(lines, "server") == ["ok", "ok"]
    assert ["a running Millstream server has" in line.message for line in ports] == [True, True]
    assert [line.message for line in lines if line.level == "warn"] == [f"{held}: The query is paused."]
    assert lines[-1].message == "1 of 2 queries have no trouble"
    told = json.loads(result.output[result.output.index("[\n") :])
    assert {line["check"] for line in told} >= {"python", "ports", "server", "queries"}


def test_the_exit_code_says_whether_something_is_wrong(tmp_path: Path) -> None:
    failed = CliRunner().invoke(app, ["doctor", "--server", "http://127.0.0.1:1"])
    assert failed.exit_code == 1
    assert "fail server" in failed.output
    assert "hint: " in failed.output
